"""What the experiments are measured on, and the errors that are asked for."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.special

import dfwtrace as dt
from dfwtrace.data.table import DataFileError
from dfwtrace.experiments import spectrum
from dfwtrace.experiments.exhibits import Scale, Setting
from dfwtrace.experiments.features import (
    find_intents,
    identity,
    read_imagenet,
    read_intents,
    read_shuffled_intents,
)
from dfwtrace.experiments.problems import Last, multiclass, multitask, top_errors

X, _, _ = dt.datasets.make_multiclass(n=30, d=4, m=6, rank=2, seed=0, dtype=np.float32)
Y = np.arange(30) % 6


def by_sorting(W: dt.LowRankMatrix, X: np.ndarray, y: np.ndarray, first: int) -> float:
    """The first of equals wins: a stable sort keeps their order."""
    order = np.argsort(-(X @ W), axis=1, kind="stable")[:, :first]
    return float(np.mean([label not in best for label, best in zip(y, order, strict=True)]))


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_top_errors_are_those_of_sorting(rank: int) -> None:
    rng = np.random.default_rng(rank)
    n, d, m = 9000, 7, 12  # more than a block of rows
    W = dt.LowRankMatrix(
        rng.integers(-2, 3, (d, rank)), np.ones(rank), rng.integers(-2, 3, (m, rank))
    )
    X = rng.integers(-3, 4, (n, d)).astype(np.float32)  # whole numbers: many ties
    y = rng.integers(0, m, n)
    assert top_errors(W, X, y) == (by_sorting(W, X, y, 1), by_sorting(W, X, y, 5))


@pytest.mark.parametrize("dtype", [np.float16, np.int8, np.int64, np.float64])
def test_features_of_any_type_have_the_same_errors(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    W = dt.LowRankMatrix(rng.random((7, 3)) - 0.5, np.ones(3), rng.random((12, 3)) - 0.5)
    X, y = rng.integers(-3, 4, (500, 7)), rng.integers(0, 12, 500)
    assert top_errors(W, X.astype(dtype), y) == top_errors(W, X.astype(np.float32), y)


def test_no_error_is_told_of_features_that_are_not_finite() -> None:
    W = dt.LowRankMatrix(np.eye(2), np.ones(2), np.eye(2))
    with pytest.raises(ValueError, match="X_test must hold finite numbers"):
        top_errors(W, np.array([[1.0, np.nan]]), np.array([0]))


def test_the_last_data_are_gone_before_there_are_others() -> None:
    last, seen = Last(), []

    def make(number: int) -> np.ndarray:
        seen.append([reference() is None for reference in made])
        return np.full(3, number)

    made: list[weakref.ref[np.ndarray]] = []
    for number in (1, 1, 2):
        made.append(weakref.ref(last.of(make, number)))
    assert seen == [[], [True, True]]
    last.forget()
    assert made[-1]() is None


def test_the_truth_has_no_error() -> None:
    problem = multitask(50, 8, 6)
    _, _, truth = dt.datasets.make_multitask(50, 8, 6, rank=6, dtype=np.float32)
    assert problem.look(truth)["frobenius"] < 1e-6
    assert problem.look(truth * 0.5)["frobenius"] == pytest.approx(0.5)


def test_tests_are_other_rows_of_the_same_truth() -> None:
    data = multiclass(40, 8, 6, n_test=10)
    assert data.X.shape == (40, 8)
    assert data.X_test.shape == (10, 8)
    whole, y, _ = dt.datasets.make_multiclass(50, 8, 6, rank=6, dtype=np.float32)
    np.testing.assert_array_equal(data.X_test, whole[40:])
    np.testing.assert_array_equal(data.y_test, y[40:])


def save_arrays(folder: Path) -> None:
    for part, some in (("train", slice(0, 20)), ("val", slice(20, 30))):
        np.save(folder / f"X_{part}.npy", X[some])
        np.save(folder / f"y_{part}.npy", Y[some])


def save_parquet(folder: Path) -> None:
    for part, some in (("train", slice(0, 20)), ("val", slice(20, 30))):
        (folder / part).mkdir()
        columns = {f"f{j}": X[some, j] for j in range(X.shape[1])}
        pq.write_table(pa.table({**columns, "label": Y[some]}), folder / part / "a.parquet")


@pytest.mark.parametrize("save", [save_arrays, save_parquet])
def test_features_of_imagenet_are_read(tmp_path: Path, save: Callable[[Path], None]) -> None:
    save(tmp_path)
    data = read_imagenet(tmp_path)
    np.testing.assert_array_equal(data.X, X[:20])
    np.testing.assert_array_equal(data.y, Y[:20])
    np.testing.assert_array_equal(data.X_test, X[20:])
    np.testing.assert_array_equal(data.y_test, Y[20:])
    assert data.n_classes == Y.max() + 1
    assert isinstance(data.X, np.memmap) == (save is save_arrays)


WITH_NAN = X[20:].copy()
WITH_NAN[3, 2] = np.nan
NAMES = np.array([f"class {label}" for label in Y])


@pytest.mark.parametrize(
    ("name", "array", "sentence"),
    [
        ("y_val.npy", None, "nor y_val.npy"),
        ("X_val.npy", X[20:, :3], "the features of both parts differ in their number"),
        ("X_val.npy", X[20:, 0], r"X_val.npy has the shape \(10,\)"),
        ("X_val.npy", X[20:, :0], r"X_val.npy has the shape \(10, 0\)"),
        ("X_val.npy", WITH_NAN, "X_val.npy"),
        ("X_train.npy", X[:20].astype(str), "X_train.npy holds text"),
        ("X_train.npy", X[:20] + 1j, "features must be real numbers"),
        ("y_train.npy", np.full(20, np.inf), "is infinite in row 1"),
        ("y_train.npy", Y[:19], r"shape \(19,\), but there are 20 rows"),
        ("y_train.npy", np.stack([Y[:20]] * 2, axis=1), "one label for a row"),
        ("y_train.npy", Y[:20] - 7, "a label is negative"),
        ("y_train.npy", Y[:20] + 0.5, "labels must be whole numbers or names"),
        ("y_train.npy", np.full(20, np.nan), "has no value in row 1"),
        ("y_train.npy", np.full(20, 3), "all rows to learn from are of one class"),
        ("y_train.npy", NAMES[:20], "labels are names in one part, and numbers in the other"),
        ("y_val.npy", np.full(10, 10**9), "the class 1000000000 is to be tested, but no row"),
    ],
)
def test_bad_features_are_refused(
    tmp_path: Path, name: str, array: np.ndarray | None, sentence: str
) -> None:
    save_arrays(tmp_path)
    (tmp_path / name).unlink()
    if array is not None:
        np.save(tmp_path / name, array)
    with pytest.raises(DataFileError, match=sentence):
        read_imagenet(tmp_path)


def test_python_objects_are_called_so(tmp_path: Path) -> None:
    save_arrays(tmp_path)
    np.save(tmp_path / "y_train.npy", NAMES[:20].astype(object), allow_pickle=True)
    with pytest.raises(DataFileError, match=r"y_train\.npy"):
        read_imagenet(tmp_path)


@pytest.mark.parametrize("shift", [1, 1000])
def test_labels_may_begin_anywhere(tmp_path: Path, shift: int) -> None:
    save_arrays(tmp_path)
    for part in ("train", "val"):
        labels = np.load(tmp_path / f"y_{part}.npy")
        np.save(tmp_path / f"y_{part}.npy", labels + shift)
    data = read_imagenet(tmp_path)
    np.testing.assert_array_equal(data.y, Y[:20])
    assert data.n_classes == len(np.unique(Y))


def test_bad_parquet_is_refused(tmp_path: Path) -> None:
    save_parquet(tmp_path)
    val = tmp_path / "val" / "a.parquet"
    pq.write_table(pa.table({"f0": X[20:, 0], "label": Y[20:]}), val)
    with pytest.raises(DataFileError, match="differ in their number"):
        read_imagenet(tmp_path)
    pq.write_table(pa.table({"f0": X[20:, 0]}), val)
    with pytest.raises(DataFileError, match="label"):
        read_imagenet(tmp_path)
    columns = {f"f{j}": X[20:, j] for j in range(X.shape[1])}
    for labels, sentence in ((Y - 7, "a label is negative"), (Y + 0.5, "labels must be whole")):
        pq.write_table(pa.table({**columns, "label": labels[20:]}), val)
        with pytest.raises(DataFileError, match=sentence):
            read_imagenet(tmp_path)
    pq.write_table(pa.table({**columns, "f2": WITH_NAN[:, 2], "label": Y[20:]}), val)
    with pytest.raises(DataFileError, match="f2"):
        read_imagenet(tmp_path)


def test_names_of_classes_mean_the_same_in_training_and_test(tmp_path: Path) -> None:
    path = tmp_path / "named.npz"
    names = np.array(["ant", "bee", "cat"])
    y, y_test = np.array([0, 1, 2, 1]), np.array([2, 1])  # no ants to test on
    np.savez(path, X_train=X[:4], y_train=names[y], X_test=X[:2], y_test=names[y_test])
    data = read_intents(path)
    np.testing.assert_array_equal(data.y, y)
    np.testing.assert_array_equal(data.y_test, y_test)
    assert data.n_classes == 3


def test_intents_of_another_width_to_test_on_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "uneven.npz"
    np.savez(path, X_train=X, y_train=Y, X_test=X[:, :2], y_test=Y)
    with pytest.raises(DataFileError, match="differ in their number"):
        read_intents(path)


def test_intents_are_read_from_the_examples_and_from_the_whole_file(tmp_path: Path) -> None:
    found = find_intents()
    assert found is not None
    some = read_intents(found)
    assert some.X.dtype == np.float32
    assert some.n_classes == len(np.unique(some.y))
    path = tmp_path / "all.npz"
    np.savez(path, X_train=some.X, y_train=some.y, X_test=some.X_test, y_test=some.y_test)
    for one, other in zip(read_intents(path), some, strict=True):
        np.testing.assert_array_equal(one, other)


def test_files_without_intents_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.npz"
    with pytest.raises(DataFileError, match=r"other\.npz is not there"):
        read_intents(path)
    path.write_bytes(b"PK damaged")
    with pytest.raises(DataFileError, match=r"other\.npz is not an NPZ file, or is cut short"):
        read_intents(path)
    np.save(tmp_path / "X.npy", X)
    with pytest.raises(DataFileError, match=r"X\.npy: it is no \.npz file"):
        read_intents(tmp_path / "X.npy")
    np.savez(path, X_train=X)
    with pytest.raises(DataFileError, match="has no array 'y_train'"):
        read_intents(path)


def test_intents_are_shuffled_so_that_workers_are_alike(tmp_path: Path) -> None:
    path = tmp_path / "sorted.npz"
    y = np.repeat(np.arange(6), 5)
    X = np.arange(60.0).reshape(30, 2)
    np.savez(path, X_train=X, y_train=y, X_test=X, y_test=y)
    data = read_shuffled_intents(path, None)
    assert min(len(set(part)) for part in np.split(data.y, 3)) >= 4  # two each, as they are stored
    rows = (data.X[:, 0] / 2).astype(int)
    assert sorted(rows) == list(range(30))
    np.testing.assert_array_equal(data.y, y[rows])  # every row has kept its label
    np.testing.assert_array_equal(data.X_test, X)
    some = read_shuffled_intents(path, 12)
    np.testing.assert_array_equal(some.y, data.y[:12])
    np.testing.assert_array_equal(some.X, data.X[:12])


class TestIdentity:
    """Rows of one folder of features are not taken for those of another with the same name."""

    def test_names_folders_by_what_they_hold(self, tmp_path: Path) -> None:
        for folder, label in (("a", 1), ("b", 2), ("c", 1)):
            there = tmp_path / folder / "features"
            there.mkdir(parents=True)
            np.save(there / "y_train.npy", np.full(100_000, label))
        names = [identity(tmp_path / folder / "features") for folder in "abc"]
        assert names[0] == names[2] != names[1]
        assert all(name.startswith("features ") for name in names)

    def test_sees_one_file_more_if_it_is_read(self, tmp_path: Path) -> None:
        (tmp_path / "train").mkdir()
        (tmp_path / "train" / "0.parquet").write_bytes(b"rows")
        before = identity(tmp_path)
        (tmp_path / "reproduction").mkdir()  # the default place of results, from within the folder
        (tmp_path / "reproduction" / "rows.jsonl").write_bytes(b"rows")
        assert identity(tmp_path) == before
        (tmp_path / "train" / "1.parquet").write_bytes(b"")
        assert identity(tmp_path) != before

    def test_a_large_file_is_told_by_pieces_of_it(self, tmp_path: Path) -> None:
        content = bytearray(10_000_000)
        (tmp_path / "X").write_bytes(content)
        before = identity(tmp_path / "X")
        content[-1] = 1
        (tmp_path / "X").write_bytes(content)
        assert identity(tmp_path / "X") != before


@pytest.mark.parametrize("scale", ["toy", "small"])
def test_the_spectrum_is_of_the_data_that_it_names(scale: Scale) -> None:
    setting = Setting(scale, "local", dt.LocalEngine, find_intents())
    epochs, n, d = spectrum._SIZES[scale]
    made, intents = spectrum._available(setting)
    assert made.read().X.shape == (n, d)
    assert len(intents.read().y) == spectrum._ROWS_OF_INTENTS[scale]
    assert {run.settings["epochs"] for run in spectrum.runs(setting)} == {epochs}


def test_the_ratio_is_that_of_the_gradients_singular_values() -> None:
    """At W after one epoch, whose step is to the whole of its pair."""
    (run,) = spectrum.runs(Setting("toy", "local", dt.LocalEngine))
    told = run.measure()
    assert (told["n"], told["d"], told["m"]) == (200, 12, 12)
    X, y, _ = dt.datasets.make_multiclass(210, 12, 12, rank=10, seed=0, dtype=np.float32)
    X, y = X[:200].astype(np.float64), y[:200]
    result = dt.solve(
        dt.Multinomial(12),
        X.astype(np.float32),
        y,
        radius=50.0,
        lmo="power-2",
        step="harmonic",
        epochs=1,
        engine=dt.LocalEngine(4),
    )
    P = scipy.special.softmax(X @ result.W.to_dense(), axis=1)
    s = np.linalg.svd(X.T @ (P - np.eye(12)[y]), compute_uv=False)
    assert told["errors"]["ratio"]["error"][0] == pytest.approx(s[1] / s[0], rel=1e-4)
