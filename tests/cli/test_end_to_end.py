"""From a file of rows to a model and what can be done with it, as a user would."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file
from tests.cli.commands import SPECIES, child, done, flowers, told

import dfwtrace as dt


def test_a_csv_file_in_a_process_of_its_own(tmp_path: Path) -> None:
    flowers(tmp_path / "train.csv")
    flowers(tmp_path / "test.csv", rows=30, seed=1)
    fitted = child(
        "fit", "train.csv", "--target", "species", "--radii", 3, "--tol", 0.01,
        "--test", "test.csv", "--report", "report.html", cwd=tmp_path,
    )  # fmt: skip
    assert fitted.stdout.startswith("train.csv: 90 rows, 3 features, target 'species'\n")
    assert "over 3 radii" in fitted.stdout
    assert fitted.stderr == ""
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "of 30 test rows right; always answering the most frequent class" in page
    assert "virginica" in page
    assert "Choice of the radius" in page

    seen = done("inspect", tmp_path / "model.safetensors").stdout
    for line in ("estimator TraceNormClassifierCV", "shape 3 × 3", "target species", "kind model"):
        name, _, value = line.partition(" ")
        assert any(row.split(maxsplit=1) == [name, value] for row in seen.splitlines())
    assert "setosa, versicolor, virginica" in seen
    assert "sepal, petal, width" in seen

    predicted = done("predict", tmp_path / "model.safetensors", tmp_path / "test.csv").stdout
    labels = predicted.splitlines()
    assert labels[0] == "prediction"
    right = np.mean([label == SPECIES[i % 3] for i, label in enumerate(labels[1:])])
    scored = done("evaluate", tmp_path / "model.safetensors", tmp_path / "test.csv").stdout
    assert f"accuracy           {100 * right:.1f} % (baseline 33.3 %)" in scored
    assert right > 0.8


def test_a_folder_of_parquet_files_and_what_python_makes_of_the_model(
    sensors: Path, tmp_path: Path
) -> None:
    fitted = done("fit", sensors, "-t", "y*", "-o", tmp_path / "m", "--radii", 5, "--quiet")
    assert (fitted.stdout, fitted.stderr) == ("", "")
    seen = told("inspect", tmp_path / "m")
    assert seen["target_names"] == ["y0", "y1", "y2"]
    assert seen["estimator"] == "TraceNormRegressorCV"
    model = dt.load(tmp_path / "m")
    assert list(model.feature_names_in_) == [f"x{j}" for j in range(6)]
    scores = told("evaluate", tmp_path / "m", sensors)["scores"]
    assert set(scores) == {"r2", "rmse", "lowest_r2"}
    assert scores["r2"] > 0.9
    done("predict", tmp_path / "m", sensors, "-o", tmp_path / "p.csv")
    with (tmp_path / "p.csv").open() as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["y0", "y1", "y2"]
    assert len(rows) == 201


@pytest.mark.parametrize("kind", ["npz", "svm"])
def test_files_without_names(kind: str, tmp_path: Path) -> None:
    X, y, _ = dt.datasets.make_multiclass(n=120, d=6, m=4, rank=2, random_state=0)
    data = tmp_path / f"train.{kind}"
    if kind == "npz":
        np.savez(data, X=X, y=y)
    else:
        dump_svmlight_file(X, y, str(data))
    fitted = told("fit", data, "--radius", 20, "-o", tmp_path / "m")
    assert (fitted["task"], fitted["rows"], fitted["status"]) == ("classification", 120, "optimal")
    scored = told("evaluate", tmp_path / "m", data)["scores"]
    assert scored == pytest.approx(fitted["scores"]["training"])
    done("predict", tmp_path / "m", data, "-o", tmp_path / "p.npy")
    assert np.mean(np.load(tmp_path / "p.npy") == y) == scored["accuracy"]


def test_npy_with_targets_beside_it(tmp_path: Path) -> None:
    X, Y, _ = dt.datasets.make_multitask(n=60, d=5, m=2, rank=2, random_state=0)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "Y.npy", Y)
    done("fit", tmp_path / "X.npy", "-t", "Y.npy", "--radius", 1, "-o", tmp_path / "m")
    found = told("evaluate", tmp_path / "m", tmp_path / "X.npy", "--target", "Y.npy")
    assert found["rows"] == 60
    assert "--target is missing" in told("fit", tmp_path / "X.npy", code=2)["error"]


def test_path_shows_a_row_for_each_radius(sensors: Path, tmp_path: Path) -> None:
    out = tmp_path / "path.json"
    shown = done("path", sensors, "-t", "y*", "--radii", "0.1,0.5,1", "--cv", 3, "-o", out)
    assert shown.stdout.count("best") == 1
    for name in ("radius", "objective", "relative gap", "rank", "validation loss"):
        assert name in shown.stdout
    again = told("path", sensors, "-t", "y*", "--radii", "0.1,0.5,1", "--cv", 3)
    assert [row["radius"] for row in again["path"]] == [0.1, 0.5, 1.0]
    assert again["best_radius"] == min(again["path"], key=lambda row: row["validation"])["radius"]
    assert out.read_text().startswith("{")


def test_a_path_that_ends_short_says_so(sensors: Path) -> None:
    found = told("path", sensors, "-t", "y0", "--radii", 2, "--tol", 0, "--max-iter", 1, code=3)
    n = len(found["path"])
    assert found["warnings"] == [f"{n} of {n} fits ended short of the tolerance of 0."]


def test_plan_tells_sizes_and_the_representation(sensors: Path, train: Path) -> None:
    found = told("plan", sensors, "-t", "y*", "--dtype", "float32")
    assert (found["rows"], found["features"], found["representation"]) == (200, 6, "gram")
    assert found["memory"] > 200 * 6 * 4
    assert found["seconds"] > 0
    assert told("plan", train, "-t", "species")["classes"] == 3
    shown = done("plan", train, "-t", "species", "--solver", "dfw", "--representation", "implicit")
    assert "implicit: asked for" in shown.stdout
    assert "90 rows, 3 features, 3 classes seen" in shown.stdout
    assert "dense float64, one shard\n" in shown.stdout  # as a fit of so few rows would have it
    assert (
        "4 shards on 2 threads"
        in done("plan", train, "-t", "species", "--n-shards", 4, "--n-jobs", 2).stdout
    )


def test_plan_of_a_sparse_file(tmp_path: Path) -> None:
    X = np.eye(20)
    dump_svmlight_file(X, np.arange(20) % 2, str(tmp_path / "eye.svm"))
    found = told("plan", tmp_path / "eye.svm")
    assert (found["sparse"], found["task"], found["classes"]) == (True, "classification", 2)


def test_demo_runs_every_oracle_and_both_solvers() -> None:
    (study,) = told("demo")["studies"]
    runs = {run["solver"]: run for run in study["runs"]}
    assert runs["accelerated"]["relative_gap"] <= 1e-4
    assert runs["power-2"]["epochs"] == 20
    shown = done("demo").stdout
    assert "Multinomial logistic regression" in shown
    assert "power-log" in shown
