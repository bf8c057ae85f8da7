"""What a command reads is what was meant, and what was there before it is there after it."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file
from tests.cli.commands import done, told

import dfwtrace as dt


def table(path: Path, **columns: Any) -> Path:
    """A CSV file."""
    rows = zip(*columns.values(), strict=True)
    path.write_text("\n".join(",".join(map(str, row)) for row in [tuple(columns), *rows]) + "\n")
    return path


def refused(*words: object) -> str:
    """The sentence of a command that is refused."""
    sentence: str = told(*words, code=2)["error"]
    return sentence


# Files of the user's own stay


def save_npy(path: Path, X: Any, y: Any) -> list[object]:
    np.save(path, X)
    np.save(path.with_name("y.npy"), y)
    return ["-t", "y.npy"]


def save_npz(path: Path, X: Any, y: Any) -> list[object]:
    np.savez(path, X=X, y=y)
    return []


def save_csv(path: Path, X: Any, y: Any) -> list[object]:
    table(path, a=X[:, 0], b=X[:, 1], y=y)
    return ["-t", "y"]


INPUTS: dict[str, tuple[str, Callable[[Path, Any, Any], list[object]], str]] = {
    "float64": ("X.npy", save_npy, "f8"),
    "float32": ("X.npy", save_npy, "f4"),
    "float16": ("X.npy", save_npy, "f2"),
    "int": ("X.npy", save_npy, "i4"),
    "npz": ("X.npz", save_npz, "f8"),
    "csv": ("X.csv", save_csv, "f8"),
}


@pytest.mark.parametrize("dtype", [None, "float32", "float64"])
@pytest.mark.parametrize("kind", INPUTS)
def test_a_fit_that_spills_removes_nothing_but_its_own(
    kind: str, dtype: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, save, stored = INPUTS[kind]
    home, room, here = (tmp_path / folder for folder in ("home", "room", "here"))
    for folder in (home, room, here):
        folder.mkdir()
    monkeypatch.chdir(here)
    X = np.random.default_rng(0).integers(-9, 9, (30, 2)).astype(stored)
    words = save(home / name, X, X[:, 0].astype(np.float64) + 0.5)
    (home / f"link-{name}").symlink_to(name)
    before = {path.name: path.read_bytes() for path in home.iterdir()}
    words += ["--radius", 1, "--tol", 0.1, "-o", tmp_path / "m"]
    words += [] if dtype is None else ["--dtype", dtype]
    plain = told("fit", home / name, *words)
    for data in (home / name, home / f"link-{name}"):
        for folder in (room, home):
            found = told("fit", data, *words, "--spill", folder)
            assert found["objective"] == pytest.approx(plain["objective"], rel=1e-3)
    assert {path.name: path.read_bytes() for path in home.iterdir()} == before
    assert list(room.iterdir()) == list(here.iterdir()) == []


# Targets


def test_targets_are_taken_by_name(tmp_path: Path) -> None:
    X, Y, _ = dt.datasets.make_multitask(n=40, d=2, m=2, rank=2, noise=0.1, random_state=0)
    columns = {"a": X[:, 0], "b": X[:, 1], "y0": Y[:, 0], "y1": 9.0 * Y[:, 1]}
    train = table(tmp_path / "train.csv", **columns)
    swapped = table(tmp_path / "test.csv", **{name: columns[name] for name in reversed(columns)})
    words = ("fit", train, "-t", "y*", "--radius", 9, "-o", tmp_path / "m")
    scores = told(*words, "--test", swapped)["scores"]
    assert scores["test"] == scores["training"]
    for target in ([], ["-t", "y*"], ["-t", "y1,y0"]):
        found = told("evaluate", tmp_path / "m", swapped, *target)
        assert found["scores"] == pytest.approx(scores["training"])
        assert found["worst"] == told("evaluate", tmp_path / "m", train)["worst"]
    other = {name.replace("y", "z"): values for name, values in columns.items()}
    table(tmp_path / "other.csv", **other)  # of other names, the order tells
    found = told("evaluate", tmp_path / "m", tmp_path / "other.csv", "-t", "z*")
    assert found["scores"] == pytest.approx(scores["training"])


def test_the_kind_of_the_test_target_is_looked_at_before_the_fit(tmp_path: Path) -> None:
    x, out = np.arange(40.0), tmp_path / "m"
    numbers = table(tmp_path / "numbers.csv", x=x, y=x + 0.5, z=2.0 * x, k=np.arange(40) % 2)
    words = table(tmp_path / "words.csv", x=x, y=["high"] * 40, k=["odd"] * 40)
    fit = ("fit", numbers, "--features", "x", "--radius", 1, "-o", out, "--test", words)
    assert "words.csv holds text ('high'), but the model needs numbers" in refused(*fit, "-t", "y")
    assert "('odd'), but the model needs numbers" in refused(*fit, "-t", "k")
    np.savez(tmp_path / "two.npz", X=x[:, None], y=np.column_stack([x, x]))
    np.savez(tmp_path / "one.npz", X=x[:, None], y=x + 0.5)
    one, two = tmp_path / "one.npz", tmp_path / "two.npz"
    sentence = refused("fit", one, "--radius", 1, "-o", out, "--test", two)
    assert sentence == "the model predicts one target, but two.npz has 2."
    assert not out.exists()


# Arrays of an archive


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An archive in which X and y are not what is meant."""
    Z, labels, _ = dt.datasets.make_multiclass(n=80, d=4, m=3, rank=2, random_state=0)
    X, y = Z[::-1], (labels + 1) % 3
    np.savez(tmp_path / "d.npz", X=X, y=y, Z=Z, labels=labels)
    return tmp_path / "d.npz"


def test_a_model_knows_the_arrays_that_it_was_fitted_on(archive: Path, tmp_path: Path) -> None:
    model, held = tmp_path / "m", np.load(archive)
    words = ("fit", archive, "--features", "Z", "-t", "labels", "--radius", 9, "-o", model)
    scores = told(*words, "--test", archive)["scores"]
    assert scores["test"] == scores["training"]
    assert scores["training"]["accuracy"] > 0.7
    assert told("evaluate", model, archive)["scores"] == pytest.approx(scores["training"])
    done("predict", model, archive, "-o", tmp_path / "p.npy")
    assert np.array_equal(np.load(tmp_path / "p.npy"), dt.load(model).predict(held["Z"]))
    seen = told("inspect", model)
    assert (seen["array"], seen["target"]) == ("Z", ["labels"])
    wrong = told("evaluate", model, archive, "-t", "y")["scores"]["accuracy"]
    assert wrong < scores["training"]["accuracy"]


def test_an_archive_without_the_arrays_of_a_model_is_refused(archive: Path, tmp_path: Path) -> None:
    model, held = tmp_path / "m", np.load(archive)
    words = ["fit", archive, "--features", "Z", "--radius", 9, "-o", model]
    done(*words, "-t", "labels")
    np.savez(tmp_path / "usual.npz", X=held["Z"], y=held["labels"])
    assert refused("predict", model, tmp_path / "usual.npz", "-o", tmp_path / "p.npy") == (
        "usual.npz has no array 'Z'; it has 'X', 'y'."
    )
    np.savez(tmp_path / "half.npz", Z=held["Z"], y=held["labels"])
    assert refused("evaluate", model, tmp_path / "half.npz").startswith(
        "half.npz has no array 'labels'"
    )
    np.save(tmp_path / "apart.npy", held["labels"])
    done(*words, "-t", "apart.npy")
    assert refused("evaluate", model, archive) == (
        "--target is missing: that of the fit is in another file, ['apart.npy']."
    )
    assert told("evaluate", model, archive, "-t", "labels")["scores"]["accuracy"] > 0.7


def test_the_name_of_a_column_says_nothing_about_an_archive(tmp_path: Path, train: Path) -> None:
    model = tmp_path / "m"
    done("fit", train, "-t", "species", "--features", "sepal,petal", "--radius", 8, "-o", model)
    np.savez(tmp_path / "d.npz", X=np.ones((2, 2)), y=np.array(["setosa", "virginica"]))
    assert told("evaluate", model, tmp_path / "d.npz")["rows"] == 2
    assert told("inspect", model)["array"] is None


def test_plan_reads_the_headers_of_an_archive_only(archive: Path, tmp_path: Path) -> None:
    found = told("plan", archive, "--features", "Z", "-t", "labels")
    assert (found["rows"], found["features"], found["classes"]) == (80, 4, 3)
    parts = {"Z": ("<f8", (10_000, 700), b""), "y": ("<i8", (10_000, 1), bytes(80_000))}
    with zipfile.ZipFile(tmp_path / "big.npz", "w") as big:  # without any of the features
        for name, (descr, shape, numbers) in parts.items():
            part = io.BytesIO()
            header = {"descr": descr, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_2_0(part, header)
            big.writestr(f"{name}.npy", part.getvalue() + numbers)
    found = told("plan", tmp_path / "big.npz", "--features", "Z")
    assert (found["rows"], found["features"], found["classes"]) == (10_000, 700, 1)
    assert "cut short or damaged" in refused("fit", tmp_path / "big.npz", "--features", "Z")
    np.savez(tmp_path / "odd.npz", X=np.ones((3, 2)), y=np.ones(4))
    assert refused("plan", tmp_path / "odd.npz") == (
        "the targets 'y' of odd.npz have the shape (4,), but there are 3 rows of features."
    )


# Columns that are counted


@pytest.mark.parametrize("zero_based", [True, False])
def test_svmlight_files_are_counted_as_the_first_one_was(zero_based: bool, tmp_path: Path) -> None:
    X, y, _ = dt.datasets.make_multiclass(n=60, d=5, m=3, rank=2, random_state=0)
    model, test = tmp_path / "m", X.copy()
    test[:, [0, 4]] = 0.0  # so that the file tells neither its first column nor its last
    for name, rows in (("train.svm", X), ("test.svm", test)):
        dump_svmlight_file(rows, y, str(tmp_path / name), zero_based=zero_based)
    words = ("fit", tmp_path / "train.svm", "--radius", 9, "-o", model)
    scores = told(*words, "--test", tmp_path / "test.svm")["scores"]
    assert told("inspect", model)["first_index"] == (0 if zero_based else 1)
    done("predict", model, tmp_path / "test.svm", "-o", tmp_path / "p.npy")
    expected = dt.load(model).predict(test)
    assert np.array_equal(np.load(tmp_path / "p.npy"), expected)
    assert scores["test"]["accuracy"] == np.mean(expected == y)
    found = told("evaluate", model, tmp_path / "test.svm")["scores"]
    assert found == pytest.approx(scores["test"])


def test_a_column_0_that_the_model_cannot_have_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.svm").write_text("1 1:2 2:1\n0 1:1 2:3\n" * 4)
    (tmp_path / "test.svm").write_text("1 0:2 1:1\n")
    done("fit", tmp_path / "train.svm", "--radius", 1, "-o", tmp_path / "m")
    assert refused("evaluate", tmp_path / "m", tmp_path / "test.svm") == (
        "test.svm has a column 0, but the model was fitted on a file that counts its columns "
        "from 1."
    )
    (tmp_path / "none.svm").write_text("1\n0\n")
    assert done("predict", tmp_path / "m", tmp_path / "none.svm").stdout.count("\n") == 3


# Labels


def test_labels_that_begin_with_a_zero_are_not_numbers(tmp_path: Path) -> None:
    codes = ["01", "1", "10"] * 10
    train = table(tmp_path / "train.csv", x=np.arange(30) % 3, code=codes)
    done("fit", train, "-t", "code", "--radius", 9, "-o", tmp_path / "m")
    assert told("inspect", tmp_path / "m")["classes"] == ["01", "1", "10"]
    few = table(tmp_path / "few.csv", x=[2, 2], code=["10", "10"])
    assert "warnings" not in told("evaluate", tmp_path / "m", few)
