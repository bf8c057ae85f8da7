"""Predictions and scores: columns by name, formats by suffix, labels of any kind."""

from __future__ import annotations

import contextlib
import csv
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.cli.commands import SPECIES, done, flowers, told

import dfwtrace as dt
from dfwtrace.cli.app import run


def rows_of(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.reader(file))


@pytest.fixture
def test_set(tmp_path: Path) -> Path:
    return flowers(tmp_path / "test.csv", rows=12, seed=2)


def test_columns_are_taken_by_name(classifier: Path, test_set: Path, tmp_path: Path) -> None:
    usual = done("predict", classifier, test_set, "--proba").stdout
    table = rows_of(test_set)
    shuffled = [[row[2], "7", row[0], row[1]] for row in table[1:]]
    lines = [["width", "id", "sepal", "petal"], *shuffled]
    (tmp_path / "other.csv").write_text("\n".join(",".join(line) for line in lines))
    assert done("predict", classifier, tmp_path / "other.csv", "--proba").stdout == usual


def test_formats_tell_the_same(classifier: Path, test_set: Path, tmp_path: Path) -> None:
    for suffix in ("csv", "npy", "parquet"):
        done("predict", classifier, test_set, "--proba", "-o", tmp_path / f"p.{suffix}")
    array = np.load(tmp_path / "p.npy")
    assert array.shape == (12, 3)
    np.testing.assert_allclose(array.sum(axis=1), 1.0)
    header, *rows = rows_of(tmp_path / "p.csv")
    assert header == [f"p_{kind}" for kind in SPECIES]
    assert np.array_equal(np.array(rows, float), array)
    table = pq.read_table(tmp_path / "p.parquet")
    assert table.column_names == header
    assert np.array_equal(np.column_stack([c.to_numpy() for c in table.columns]), array)


def test_labels_in_every_format(classifier: Path, test_set: Path, tmp_path: Path) -> None:
    for suffix in ("csv", "npy", "parquet"):
        done("predict", classifier, test_set, "-o", tmp_path / f"p.{suffix}")
    labels = [row[0] for row in rows_of(tmp_path / "p.csv")[1:]]
    assert np.load(tmp_path / "p.npy").tolist() == labels
    assert pq.read_table(tmp_path / "p.parquet")["prediction"].to_pylist() == labels
    assert set(labels) == set(SPECIES)


FORMULAS = ["=cmd|' /C calc'!A0", "+1+2", "-2+3", "@SUM(A1)", "\t=1", "＝1"]


def test_no_label_is_a_formula_in_csv(tmp_path: Path) -> None:
    labels = [*FORMULAS, "a=b", "-1"]
    X = 9.0 * np.eye(len(labels))
    dt.TraceNormClassifier(5.0, fit_intercept=False).fit(X, labels).save(tmp_path / "m")
    np.save(tmp_path / "X.npy", X)
    for suffix in ("csv", "parquet"):
        words = ("predict", tmp_path / "m", tmp_path / "X.npy", "--out", tmp_path / f"p.{suffix}")
        done(*words, "--top", 1)
    shown = [row[0] for row in rows_of(tmp_path / "p.csv")[1:]]
    assert shown == [*(f"'{label}" for label in FORMULAS), "a=b", "-1"]
    assert pq.read_table(tmp_path / "p.parquet")["class_1"].to_pylist() == labels


def test_neither_is_the_name_of_a_target_and_numbers_stay(tmp_path: Path) -> None:
    train = tmp_path / "train.csv"
    train.write_text("x,=y\n" + "".join(f"{i},{-i / 7}\n" for i in range(1, 9)))
    done("fit", train, "-t", "=y", "--radius", 1, "-o", tmp_path / "m")
    header, *rows = done("predict", tmp_path / "m", train).stdout.splitlines()
    assert header == "'=y"
    assert all(row.startswith("-") and float(row) < 0 for row in rows)


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def test_predictions_do_nothing_to_a_terminal(tmp_path: Path) -> None:
    model = dt.TraceNormClassifier(9.0).fit(np.eye(2), ["a\x1b[2J", "b"])
    model.save(tmp_path / "m")
    np.save(tmp_path / "X.npy", np.eye(2))
    words = ["predict", str(tmp_path / "m"), str(tmp_path / "X.npy")]
    screen = Screen()
    with contextlib.redirect_stdout(screen), pytest.raises(SystemExit, match="0"):
        run(words)
    assert screen.getvalue() == "prediction\na\\x1b[2J\nb\n"
    assert done(*words).stdout == "prediction\na\x1b[2J\nb\n"  # a program gets what is there


def test_json_needs_a_file_for_the_predictions(classifier: Path, test_set: Path) -> None:
    assert "--json needs --out" in told("predict", classifier, test_set, code=2)["error"]


def test_the_likeliest_classes(classifier: Path, test_set: Path, tmp_path: Path) -> None:
    done("predict", classifier, test_set, "--top", 2, "-o", tmp_path / "p.csv")
    header, *rows = rows_of(tmp_path / "p.csv")
    assert header == ["class_1", "probability_1", "class_2", "probability_2"]
    labels = done("predict", classifier, test_set).stdout.split()[1:]
    assert [row[0] for row in rows] == labels
    assert all(float(row[1]) >= float(row[3]) > 0 for row in rows)
    all_of_them = done("predict", classifier, test_set, "--top", 99).stdout
    assert all_of_them.splitlines()[0].count("class_") == 3


def test_predictions_of_a_model_from_python_have_names_of_their_own(tmp_path: Path) -> None:
    X, Y, _ = dt.datasets.make_multitask(n=40, d=4, m=2, rank=2, random_state=0)
    np.save(tmp_path / "X.npy", X)
    dt.TraceNormRegressor(1.0).fit(X, Y).save(tmp_path / "two")
    dt.TraceNormRegressor(1.0).fit(X, Y[:, 0]).save(tmp_path / "one")
    for model, names in (("two", "prediction_0,prediction_1"), ("one", "prediction")):
        shown = done("predict", tmp_path / model, tmp_path / "X.npy").stdout.splitlines()
        assert shown[0] == names
        assert len(shown) == 41


def test_scores_are_those_of_scikit_learn(classifier: Path, test_set: Path) -> None:
    from sklearn.dummy import DummyClassifier
    from sklearn.metrics import balanced_accuracy_score, log_loss

    model: Any = dt.load(classifier)
    del model.feature_names_in_
    table = rows_of(test_set)[1:]
    X, y = np.array([row[:3] for row in table], float), np.array([row[3] for row in table])
    found = told("evaluate", classifier, test_set, "--target", "species")
    assert found["rows"] == 12
    assert found["scores"] == pytest.approx(
        {
            "accuracy": model.score(X, y),
            "balanced_accuracy": balanced_accuracy_score(y, model.predict(X)),
            "log_loss": log_loss(y, model.predict_proba(X)),
        }
    )
    dummy = DummyClassifier(strategy="prior").fit(X, y)
    assert found["baseline"] == pytest.approx(
        {
            "accuracy": dummy.score(X, y),
            "balanced_accuracy": balanced_accuracy_score(y, dummy.predict(X)),
            "log_loss": log_loss(y, dummy.predict_proba(X)),
        }
    )
    assert sum(entry["count"] for entry in found["worst"]) == 12


def test_the_worst_come_first(classifier: Path, regressor: Path, sensors: Path) -> None:
    flowers(classifier.parent / "hard.csv", rows=12, seed=2)
    text = (classifier.parent / "hard.csv").read_text()
    (classifier.parent / "hard.csv").write_text(text.replace("versicolor", "setosa", 1))
    shown = done("evaluate", classifier, classifier.parent / "hard.csv").stdout
    assert re.search(r"^worst +setosa \(20 % wrong\)", shown, re.MULTILINE)
    shown = done("evaluate", regressor, sensors).stdout
    assert re.search(r"^worst +(y\d \(RMSE 0\.\d+\)(, |$)){3}", shown, re.MULTILINE)


def test_top_five_of_many_classes(tmp_path: Path) -> None:
    from sklearn.metrics import top_k_accuracy_score

    X, y, _ = dt.datasets.make_multiclass(n=200, d=6, m=8, rank=3, random_state=0)
    np.savez(tmp_path / "d.npz", X=X, y=y)
    model = dt.TraceNormClassifier(2.0).fit(X, y)
    model.save(tmp_path / "m")
    found = told("evaluate", tmp_path / "m", tmp_path / "d.npz")["scores"]["top_5_accuracy"]
    assert found == top_k_accuracy_score(y, model.predict_proba(X), k=5)
    assert "top-5 accuracy" in done("evaluate", tmp_path / "m", tmp_path / "d.npz").stdout


def test_labels_that_the_model_does_not_know(classifier: Path, test_set: Path) -> None:
    text = test_set.read_text()
    before = told("evaluate", classifier, test_set)["scores"]
    test_set.write_text(text + "5,1,0.2,tulip\n")
    found = told("evaluate", classifier, test_set)
    (warning,) = found["warnings"]
    assert warning.startswith("the model does not know the labels of 1 row, such as 'tulip': ")
    assert found["scores"]["accuracy"] == pytest.approx(before["accuracy"] * 12 / 13)
    assert found["scores"]["log_loss"] == pytest.approx(before["log_loss"])
    test_set.write_text("sepal,petal,width,species\n5,1,0.2,tulip\n")
    shown = done("evaluate", classifier, test_set)
    assert "log loss           —" in shown.stdout
    assert shown.stderr.startswith("Warning: the model does not know the labels of 1 row")
    assert told("evaluate", classifier, test_set)["scores"]["log_loss"] is None


def test_numbers_as_labels_may_be_stored_as_floats_or_text(tmp_path: Path) -> None:
    X, y, _ = dt.datasets.make_multiclass(n=60, d=4, m=3, rank=2, random_state=0)
    model = tmp_path / "m"
    np.savez(tmp_path / "floats.npz", X=X, y=y.astype(float))
    done("fit", tmp_path / "floats.npz", "--radius", 5, "-o", model)
    assert told("inspect", model)["classes"] == [0, 1, 2]
    np.savez(tmp_path / "whole.npz", X=X, y=y)
    scores = [told("evaluate", model, tmp_path / f"{n}.npz")["scores"] for n in ("floats", "whole")]
    assert scores[0] == scores[1]
    dt.TraceNormClassifier(5.0).fit(X, y.astype(str)).save(model)
    assert told("evaluate", model, tmp_path / "whole.npz")["scores"] == pytest.approx(scores[0])


def test_one_row_has_no_r2(regressor: Path, tmp_path: Path) -> None:
    header = [f"x{j}" for j in range(6)] + [f"y{j}" for j in range(3)]
    (tmp_path / "one.csv").write_text(",".join(header) + "\n" + ",".join(["1"] * 9) + "\n")
    found = told("evaluate", regressor, tmp_path / "one.csv")["scores"]
    assert found["r2"] is None
    assert found["rmse"] > 0
