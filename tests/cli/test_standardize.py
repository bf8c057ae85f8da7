"""Features in any unit, from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.commands import told

import dfwtrace as dt


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tmp_path / "model"


def fit(train: Path, model: Path, *more: object, code: int = 0) -> Any:
    return told("fit", train, "-t", "species", "-o", model, *more, code=code)


def test_features_can_be_standardised(train: Path, model: Path) -> None:
    """In any unit, with the same predictions; and the file knows of it."""
    other = train.with_name("other.csv")
    header, *lines = train.read_text().splitlines()
    rows = [line.split(",") for line in lines]
    scaled = [f"{1e6 * float(a)!r},{b},{1e-6 * float(c)!r},{kind}" for a, b, c, kind in rows]
    other.write_text("\n".join([header, *scaled]) + "\n")
    found = fit(train, model, "--radius", 5, "--standardize", "--tol", 1e-6)
    again = fit(other, model, "--radius", 5, "--standardize", "--tol", 1e-6)
    assert again["objective"] == pytest.approx(found["objective"], rel=1e-5)
    kept = told("inspect", model)
    assert kept["settings"]["standardize"] is True
    assert kept["trace_norm"] <= 5.0 * (1.0 + 1e-9)
    estimator = dt.load(model)
    X = np.array([row[:3] for row in rows], float) * [1e6, 1.0, 1e-6]
    np.testing.assert_allclose(estimator.scale_, X.std(axis=0), rtol=1e-9)
    assert told("evaluate", model, other)["scores"] == again["scores"]["training"]
    fit(train, model, "--radius", 5)
    assert "standardize" not in told("inspect", model)["settings"]


def test_the_advice_names_the_option_unless_it_is_set(train: Path, model: Path) -> None:
    options = ("--radius", 8, "--tol", 1e-9, "--max-iter", 2)
    (plain,) = fit(train, model, *options, code=3)["warnings"]
    assert plain.endswith("raise --max-iter, --max-time or --tol, or set --standardize.")
    (scaled,) = fit(train, model, *options, "--standardize", code=3)["warnings"]
    assert scaled.endswith("raise --max-iter, --max-time or --tol.")


def test_a_path_of_standardised_features(train: Path) -> None:
    words = ("path", train, "-t", "species", "--radii", "1,3", "--cv", 2, "--tol", 1e-6)
    raw, scaled = told(*words), told(*words, "--standardize")
    rows = [line.split(",") for line in train.read_text().splitlines()[1:]]
    X, y = np.array([row[:3] for row in rows], float), np.array([row[3] for row in rows])
    here = dt.TraceNormClassifier(3.0, tol=1e-6, standardize=True).fit(X, y)
    assert scaled["path"][1]["objective"] == pytest.approx(here.result_.objective, rel=1e-5)
    assert scaled["path"][1]["objective"] != pytest.approx(raw["path"][1]["objective"], rel=1e-3)
