"""Defaults on raw data: not far behind scikit-learn's, whatever the kind and the units."""

from __future__ import annotations

import csv
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.first_try_data import DataSet, clinc150, cut, data_set, text
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tests.cli.commands import told

import dfwtrace as dt

# How far the score may be behind: two points of accuracy, or so much of R².
POINTS, R2 = 0.02, 0.05


def score(model: Any, data: DataSet) -> float:
    return float(model.fit(data.X_train, data.y_train).score(data.X_test, data.y_test))


def reference(data: DataSet) -> float:
    """The score of scikit-learn's model with its defaults."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # on raw units it stops short
        return score(LogisticRegression() if data.task == "classification" else Ridge(), data)


def test_sentences_of_150_intents() -> None:
    data = clinc150()
    data = replace(data, X_train=data.X_train[::2], y_train=data.y_train[::2])  # takes seconds
    model = dt.TraceNormClassifier()
    assert score(model, data) >= reference(data) - POINTS > 0.85
    assert model.status_ == "optimal"
    assert model.low_rank_.trace_norm <= model.radius_ * (1.0 + 1e-9)


@pytest.mark.filterwarnings("ignore:The classes are separated")
def test_text_of_114_classes() -> None:
    data = cut("text", "classification", text(n=1500, m=114, words=1000))
    model = dt.TraceNormClassifier()
    assert score(model, data) >= reference(data) - POINTS > 0.6
    # No radius is tried beyond the first that separates the classes: F ≥ 0 has nothing left to fall
    # by there, and the rows left out would judge where a fit happened to end.
    fits = zip(*model.result_.search.fold_results, strict=True)
    left = [max(fit.objective / fit.objective_at_zero for fit in folds) for folds in fits]
    assert left[-1] < 3e-3 < min(left[:-1])


@pytest.mark.parametrize("name", ["diabetes", "diabetes × 1000", "targets × 1000"])
def test_targets_of_any_unit(name: str) -> None:
    data = data_set(name)
    assert score(dt.TraceNormRegressor(), data) >= reference(data) - R2 > 0.3


def test_the_unit_of_targets_does_not_matter() -> None:
    models = dt.TraceNormRegressor(), dt.TraceNormRegressor()
    one, thousand = map(score, models, map(data_set, ("diabetes", "diabetes × 1000")))
    assert thousand == pytest.approx(one, abs=1e-3)
    assert models[1].radius_ == pytest.approx(1000.0 * models[0].radius_)


def test_a_search_on_raw_units() -> None:
    data = data_set("wine")
    model = dt.TraceNormClassifierCV()
    assert score(model, data) >= reference(data) - POINTS > 0.9
    assert model.radii_[0] < model.radius_ < model.radii_[-1]


def customers(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Age, income, visits, balance and household of customers, and the plan that they chose."""
    rng = np.random.default_rng(1)
    Z = rng.standard_normal((n, 4))
    age = np.clip(np.round(45.0 + 15.0 * Z[:, 0]), 18.0, 90.0)
    income = np.round(np.exp(10.5 + 0.4 * Z[:, 1]), 2)
    visits = rng.poisson(np.exp(1.5 + 0.5 * Z[:, 2]))
    balance = np.round(2000.0 + 3000.0 * Z[:, 3], 2)
    household = 1 + rng.poisson(1.5, n)
    utility = Z @ rng.standard_normal((4, 3)) + rng.gumbel(size=(n, 3))
    plans = np.array(["basic", "plus", "pro"])[utility.argmax(axis=1)]
    return np.stack([age, income, visits, balance, household], axis=1), plans


def write(path: Path, X: np.ndarray, plans: np.ndarray) -> Path:
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["age", "income", "visits", "balance", "household", "plan"])
        rows.writerows([*numbers, plan] for numbers, plan in zip(X.tolist(), plans, strict=True))
    return path


def test_an_ordinary_csv_from_the_command_line(tmp_path: Path) -> None:
    X, plans = customers(2300)
    data = DataSet("plans", "classification", X[:300], plans[:300], X[300:], plans[300:])
    train = write(tmp_path / "train.csv", data.X_train, data.y_train)
    test = write(tmp_path / "test.csv", data.X_test, data.y_test)
    model = tmp_path / "model.safetensors"
    told("fit", train, "--target", "plan", "--out", model)
    found = told("evaluate", model, test)
    # On these units LogisticRegression alone is far from its optimum.
    scaled = make_pipeline(StandardScaler(), LogisticRegression())
    assert found["scores"]["accuracy"] >= score(scaled, data) - POINTS > 0.6
