"""The options of a fit do what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.commands import call, done, flowers, told

import dfwtrace as dt


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tmp_path / "model"


def fit(train: Path, model: Path, *more: object, code: int = 0) -> Any:
    words = ["fit", train, "-t", "species", "-o", model, *more]
    return told(*words, code=code)


def test_the_version_and_the_help(train: Path) -> None:
    assert done("--version").stdout == f"dfwtrace {dt.__version__}\n"
    commands = ("fit", "predict", "evaluate", "path", "inspect", "plan", "demo")
    overview = done("--help").stdout
    assert all(name in overview for name in commands)
    for name in commands:
        assert f"Example: dfwtrace {name}" in done(name, "--help").stdout
    bare = call()
    assert bare.exit_code == 2
    assert "Usage: dfwtrace" in bare.stdout + bare.stderr
    assert "Error" not in bare.stderr


def test_ending_short_of_the_tolerance_is_told_and_the_model_saved(
    train: Path, model: Path
) -> None:
    options = ("--radius", 8, "--tol", 1e-9, "--max-iter", 2)
    found = fit(train, model, *options, code=3)
    assert found["status"] == "max_iter"
    (warning,) = found["warnings"]
    assert "The tolerance of 1e-09 was not reached: raise --max-iter" in warning
    assert told("inspect", model)["status"] == "max_iter"
    shown = done("fit", train, "-t", "species", "-o", model, *options, "--quiet", code=3)
    assert shown.stderr == f"Warning: {warning}\n"
    assert shown.stdout == ""


def test_the_papers_solver_runs_through_its_epochs(train: Path, model: Path) -> None:
    options = ("--radius", 8, "--solver", "dfw", "--lmo", "power-2", "--max-iter", 7)
    found = fit(train, model, *options, "--step", "harmonic")
    assert (found["status"], found["epochs"], found["tol"]) == ("max_iter", 7, None)
    assert fit(train, model, *options, "--step", 0.5)["objective"] != found["objective"]


def test_without_a_radius_ten_are_tried(train: Path, model: Path) -> None:
    shown = done("fit", train, "-t", "species", "-o", model, "--cv", 2, "--tol", 0.01)
    said = "Classification into 3 classes; cross-validating over 10 radii in 2 folds; "
    said += "--radius sets one."
    assert shown.stdout.splitlines()[1] == said
    assert shown.stderr == ""
    assert told("inspect", model)["estimator"] == "TraceNormClassifierCV"


def test_radii_may_be_listed(train: Path, model: Path) -> None:
    found = fit(train, model, "--radii", "1,8", "--cv", 2, "--tol", 0.01)
    assert found["radii"] == [1.0, 8.0]
    assert found["radius"] == found["radii"][int(np.argmin(found["validation"]))]


def test_the_fit_is_that_of_python(train: Path, model: Path) -> None:
    found = fit(train, model, "--radius", 8, "--no-intercept", "--class-weight", "balanced",
                "--random-state", 3, "--n-shards", 4, "--n-jobs", 1)  # fmt: skip
    rows = [line.split(",") for line in train.read_text().splitlines()[1:]]
    X, y = np.array([row[:3] for row in rows], float), np.array([row[3] for row in rows])
    here = dt.TraceNormClassifier(
        8.0, fit_intercept=False, class_weight="balanced", random_state=3, n_shards=4, n_jobs=1
    ).fit(X, y)
    assert found["objective"] == here.result_.objective
    assert np.array_equal(dt.load(model).coef_, here.coef_)


def test_weights_features_and_the_task(train: Path, model: Path) -> None:
    found = told("fit", train, "-t", "width", "--features", "sepal", "--weight", "petal",
                 "--radius", 1, "-o", model)  # fmt: skip
    assert (found["task"], found["features"]) == ("regression", 1)
    assert told("inspect", model)["feature_names"] == ["sepal"]
    whole = train.with_name("whole.csv")
    whole.write_text("x,y\n" + "".join(f"{i % 7},{i % 3}\n" for i in range(60)))
    for task, kind in (("auto", "classification"), ("regression", "regression")):
        words = ("fit", whole, "-t", "y", "--task", task, "--radius", 1, "-o", model)
        assert told(*words)["task"] == kind


def test_spilled_features_are_removed_if_the_fit_fails(train: Path, tmp_path: Path) -> None:
    room = tmp_path / "room"
    room.mkdir()
    assert call("fit", train, "-t", "species", "--spill", room, "--cv", 99).exit_code == 2
    assert list(room.iterdir()) == []


def test_a_fit_goes_on_from_its_checkpoint(train: Path, model: Path, tmp_path: Path) -> None:
    rows = [line.split(",") for line in train.read_text().splitlines()[1:]]
    X, y = np.array([row[:3] for row in rows], float), np.array([row[3] for row in rows])
    kept = tmp_path / "run.ckpt"
    options = ("--radius", 8, "--solver", "dfw", "--lmo", "power-2", "--max-iter")
    dt.TraceNormClassifier(
        8.0, solver="dfw", lmo="power-2", tol=None, max_iter=5,
        checkpoint=dt.Checkpoint(kept, epochs=5),
    ).fit(X, y)  # fmt: skip
    whole = fit(train, model, *options, 12)
    resumed = fit(train, model, *options, 12, "--checkpoint", kept)
    assert resumed["objective"] == whole["objective"]
    assert told("inspect", kept)["epochs"] == 5


def test_a_report_without_a_test_set(train: Path, model: Path, tmp_path: Path) -> None:
    found = fit(train, model, "--radius", 8, "--report", tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text("utf-8")
    assert "<title>train.csv: classification of “species”, 3 classes</title>" in page
    right = found["scores"]["training"]["accuracy"]
    assert f"It gets {100 * right:.1f}\u00a0% of 90 training rows right" in page
    assert found["baseline"]["training"]["accuracy"] == pytest.approx(1 / 3)
    assert "It has learned from the training rows" in page
    assert "<bdi>petal</bdi>" in page  # by its weight
    where = page[page.index("Where it ran</th>") :]
    assert "<bdi>this process</bdi>" in where
    assert "<bdi>local, " in where
    assert "<bdi>1 shard</bdi>" in where
    assert found["report"] == str(tmp_path / "r.html")


def test_a_test_set_with_strange_labels_is_told(train: Path, model: Path, tmp_path: Path) -> None:
    test = flowers(tmp_path / "test.csv", rows=9, seed=3)
    test.write_text(test.read_text() + "1,2,3,tulip\n")
    found = fit(train, model, "--radius", 8, "--test", test)
    assert found["warnings"][0].startswith("test.csv: the model does not know the labels of 1 row")
    assert set(found["scores"]) == {"training", "test"}


def test_warnings_are_on_the_page_which_is_not_green(
    train: Path, model: Path, tmp_path: Path
) -> None:
    test, report = flowers(tmp_path / "test.csv", rows=9, seed=3), tmp_path / "r.html"
    test.write_text(test.read_text() + "1,2,3,tulip\n")
    (warning,) = fit(train, model, "--radius", 8, "--test", test, "--report", report)["warnings"]
    page = report.read_text("utf-8")
    assert "What to check" in page
    assert f"<bdi>{warning[:40]}" in page
    assert 'class="status other">optimal<' in page


def test_small_classes_are_warned_of(train: Path, model: Path) -> None:
    train.write_text(train.read_text() + "9,9,9,rose\n8,9,9,rose\n")
    found = fit(train, model, "--radii", "1,8", "--cv", 3, "--tol", 0.01)
    said = "the number of rows of the rarest class, 2, is less than --cv 3."
    assert found["warnings"][0] == said


def test_a_radius_that_is_too_small_is_warned_of(train: Path, model: Path) -> None:
    (said,) = fit(train, model, "--radius", 1e-4)["warnings"]
    assert said.startswith("--radius 0.0001 is so small that ")
    assert "; try --radius auto, or at least " in said


def test_what_is_there_is_replaced_only_by_a_model(train: Path, model: Path) -> None:
    model.write_text("old")
    fit(train, model, "--radius", 8)
    assert told("inspect", model)["kind"] == "model"
    assert sorted(path.name for path in model.parent.iterdir()) == ["model", "train.csv"]


def test_former_names_of_options_still_work(train: Path, model: Path) -> None:
    words = ("fit", train, "-t", "species", "--radii", "3", "--tol", 0.01, "-o", model)
    new = done(*words, "--cv", 2, "--random-state", 3)
    assert new.stderr == ""
    scores = dt.load(model).scores_
    former = done(*words, "--folds", 2, "--seed=3")
    assert former.stderr.splitlines() == [
        "Warning: --folds is deprecated: use --cv.",
        "Warning: --seed is deprecated: use --random-state.",
    ]
    assert np.array_equal(dt.load(model).scores_, scores)
    shown = done("fit", "--help").stdout
    assert "--random-state" in shown
    assert "--cv" in shown
    assert "--seed" not in shown
    assert "--folds" not in shown


def test_a_fit_has_an_epoch_at_least(train: Path, model: Path) -> None:
    ended = call("fit", train, "-t", "species", "--radius", 1, "--max-iter", 0, "-o", model)
    assert ended.exit_code == 2
    assert "--max-iter" in ended.stderr
    assert not model.exists()


def test_early_stopping_is_no_shortcoming(train: Path, model: Path) -> None:
    options = ("--radius", 1e6, "--tol", 1e-9, "--early-stopping", "--n-iter-no-change", 2)
    found = fit(train, model, *options, "--validation-fraction", 0.3)
    assert found["status"] == "early_stopping"
    kept = dt.load(model)
    assert (kept.validation_fraction, kept.n_iter_no_change) == (0.3, 2)
    assert kept.n_iter_ == kept.validation_scores_.argmax() + 3
    bad = done("fit", train, "-t", "species", *options, "--validation-fraction", 1.5, code=2)
    assert bad.stderr == "Error: --validation-fraction must be below 1, got 1.5.\n"
    needs = done("fit", train, "-t", "species", "--early-stopping", code=2)
    assert "--early-stopping needs --radius" in needs.stderr
