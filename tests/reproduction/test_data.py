"""What the experiments are measured on, and the errors that are computed."""

from __future__ import annotations

import weakref
from pathlib import Path

import numpy as np
import pytest
import scipy.special
from reproduction.data import INTENTS, cached, forget, identity, multitask, read_intents, top_errors
from reproduction.methods import Options

import dfwtrace as dt
from reproduction import spectrum


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
    expected = {"top-1": by_sorting(W, X, y, 1), "top-5": by_sorting(W, X, y, 5)}
    assert top_errors(W, X, y) == expected
    X[-1, 0] = np.nan
    with pytest.raises(ValueError, match="finite"):
        top_errors(dt.LowRankMatrix(np.eye(7), np.ones(7), np.eye(12)[:, :7]), X, y)


def test_the_truth_has_no_error() -> None:
    problem = multitask(50, 8, 6)
    _, _, truth = dt.datasets.make_multitask(50, 8, 6, rank=6, dtype=np.float32)
    assert problem.errors(truth)["frobenius"] < 1e-6
    assert problem.errors(truth * 0.5)["frobenius"] == pytest.approx(0.5)


def test_the_last_data_are_gone_before_there_are_others() -> None:
    made: list[weakref.ref[np.ndarray]] = []
    seen = []

    def make(number: int) -> np.ndarray:
        seen.append([reference() is None for reference in made])
        return np.full(3, number)

    for number in (1, 1, 2):
        made.append(weakref.ref(cached(make, number)))
    assert seen == [[], [True, True]]
    forget()
    assert made[-1]() is None


def test_intents_are_shuffled_so_that_workers_are_alike(tmp_path: Path) -> None:
    path = tmp_path / "sorted.npz"
    y = np.repeat(np.arange(6), 5)
    X = np.arange(60.0).reshape(30, 2)
    np.savez(path, X_train=X, y_train=y, X_test=X, y_test=y)
    data = read_intents(path, None)
    assert min(len(set(part)) for part in np.split(data.y, 3)) >= 4  # two each, as they are stored
    rows = (data.X[:, 0] / 2).astype(int)
    assert sorted(rows) == list(range(30))
    np.testing.assert_array_equal(data.y, y[rows])  # every row has kept its label
    np.testing.assert_array_equal(read_intents(path, 12).X, data.X[:12])


def test_the_examples_intents_are_read_in_single_precision() -> None:
    data = read_intents(INTENTS, None)
    assert data.X.dtype == data.X_test.dtype == np.float32
    assert data.n_classes == len(np.unique(data.y)) == 150


@pytest.mark.parametrize(
    ("X_test", "y_test", "words"),
    [
        (np.ones((2, 3)), [0, 1], "the same number of features"),
        (np.ones((2, 2)), [0, 7], "no row to learn from is of the class 7"),
    ],
)
def test_parts_that_do_not_fit_are_refused(
    X_test: np.ndarray, y_test: list[int], words: str, tmp_path: Path
) -> None:
    path = tmp_path / "all.npz"
    np.savez(path, X_train=np.ones((2, 2)), y_train=[0, 1], X_test=X_test, y_test=y_test)
    with pytest.raises(ValueError, match=words):
        read_intents(path, None)


def test_data_are_named_by_what_they_hold(tmp_path: Path) -> None:
    for folder, label in (("a", 1), ("b", 2), ("c", 1)):
        there = tmp_path / folder / "features"
        there.mkdir(parents=True)
        np.save(there / "y_train.npy", np.full(1_000_000, 0))  # larger than the pieces in all
        np.save(there / "y_val.npy", np.full(100, label))
    names = [identity(tmp_path / folder / "features") for folder in "abc"]
    assert names[0] == names[2] != names[1]
    assert all(name.startswith("features ") for name in names)


def test_the_ratio_is_that_of_the_gradients_singular_values() -> None:
    """At W after one epoch, whose step is to the whole of its pair."""
    options = Options("toy", intents=None)
    (run,) = spectrum.runs(options)
    values = spectrum.measure(options, run)
    X, y, _ = dt.datasets.make_multiclass(210, 12, 12, rank=10, random_state=0, dtype=np.float32)
    X, y = X[:200], y[:200]
    result = dt.solve(
        dt.Multinomial(12),
        X,
        y,
        radius=50.0,
        solver="dfw",
        lmo="power-2",
        step="harmonic",
        max_iter=1,
        engine=dt.LocalEngine(4),
    )
    P = scipy.special.softmax(X.astype(np.float64) @ result.W.to_dense(), axis=1)
    s = np.linalg.svd(X.T @ (P - np.eye(12)[y]), compute_uv=False)
    assert values["errors"]["ratio"]["error"][0] == pytest.approx(s[1] / s[0], rel=1e-4)
