"""Estimators that standardise: units, files, warm starts, and a pipeline that scales."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dfwtrace as dt

UNITS = 10.0 ** np.array([-6.0, 8.0, 0.0, 3.0, -3.0, 5.0])
SMALL: Any = {"n_shards": 1, "n_jobs": 1}
KINDS = [
    dt.TraceNormRegressor(3.0, **SMALL),
    dt.TraceNormClassifier(5.0, **SMALL),
    dt.TraceNormRegressorCV([1.0, 5.0, 40.0], cv=KFold(3), **SMALL),
    dt.TraceNormClassifierCV([0.1, 2.0, 20.0], cv=KFold(3), **SMALL),
]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: type(kind).__name__)


def data_of(kind: Any) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(0.5, 1.0, (90, 6))
    scores = X @ rng.standard_normal((6, 2)) @ rng.standard_normal((2, 4))
    scores += rng.gumbel(size=scores.shape)
    return X * UNITS, scores.argmax(axis=1) if "Classifier" in type(kind).__name__ else scores


def scores_of(model: Any, X: Any) -> Any:
    return model.predict_log_proba(X) if hasattr(model, "predict_log_proba") else model.predict(X)


@each_kind
def test_it_predicts_as_behind_a_scaler(kind: Any) -> None:
    X, y = data_of(kind)
    tol = 1e-7
    model = clone(kind).set_params(standardize=True, tol=tol).fit(X, y)
    pipeline = make_pipeline(StandardScaler(), clone(kind).set_params(tol=tol))
    scaler, behind = pipeline.fit(X, y)
    assert model.radius_ == behind.radius_
    assert model.status_ == behind.status_ == "optimal"
    np.testing.assert_allclose(model.scale_, scaler.scale_, rtol=1e-12)
    assert behind.scale_ is None
    assert model.result_.objective == pytest.approx(behind.result_.objective, rel=1e-6)
    np.testing.assert_allclose(scores_of(model, X), scores_of(pipeline, X), atol=2e-2)
    np.testing.assert_allclose(model.coef_ * model.scale_, behind.coef_, atol=2e-2)


@each_kind
def test_the_attributes_are_in_the_units_of_the_data(kind: Any) -> None:
    X, y = data_of(kind)
    model = clone(kind).set_params(standardize=True).fit(X, y)
    scores = X @ model.low_rank_.to_dense() + model._b
    if hasattr(model, "classes_"):
        np.testing.assert_allclose(model.decision_function(X), scores, rtol=1e-9, atol=1e-9)
        assert model.score(X, y) > 0.5
    else:
        np.testing.assert_allclose(model.predict(X), scores, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(model.predict(X), X @ model.coef_.T + model.intercept_)
        assert model.score(X, y) > 0.3
    bounded = np.linalg.norm(model.coef_ * model.scale_, "nuc")
    assert bounded <= model.radius_ * (1.0 + 1e-9)
    # Rows of the model's space are those of the scaled features on its singular vectors.
    U = model.low_rank_.U * model.scale_[:, None]
    np.testing.assert_allclose(U.T @ U, np.eye(model.low_rank_.rank), atol=1e-12)
    np.testing.assert_allclose(
        np.abs(model.transform(X)), np.abs(X / model.scale_ @ U), rtol=1e-6, atol=1e-9
    )


@each_kind
def test_other_units_give_the_same_model(kind: Any) -> None:
    X, y = data_of(kind)
    model, other = (clone(kind).set_params(standardize=True, tol=1e-7) for _ in range(2))
    model.fit(X, y)
    other.fit(X / UNITS, y)
    np.testing.assert_allclose(scores_of(other, X / UNITS), scores_of(model, X), atol=2e-2)


@pytest.mark.parametrize(
    "kind",
    [dt.TraceNormRegressor(), dt.TraceNormClassifier(), dt.TraceNormClassifierCV(4, cv=3)],
    ids=lambda kind: type(kind).__name__,
)
def test_the_radius_that_is_found_does_not_depend_on_units(kind: Any) -> None:
    X, y = data_of(kind)
    found = [
        clone(kind).set_params(standardize=True, **SMALL).fit(A, y).radius_
        for A in (X, X / UNITS, StandardScaler(with_mean=False).fit_transform(X))
    ]
    np.testing.assert_allclose(found[1:], found[0], rtol=1e-6)


def test_sparse_rows_stay_sparse() -> None:
    X, y = data_of(KINDS[1])
    X = np.where(np.random.default_rng(1).random(X.shape) < 0.7, 0.0, X)
    options: Any = {"standardize": True, "tol": 1e-7, **SMALL}
    model, dense = dt.TraceNormClassifier(5.0, **options), dt.TraceNormClassifier(5.0, **options)
    model.fit(sp.csr_array(X), y)
    dense.fit(X, y)
    np.testing.assert_allclose(model.scale_, X.std(axis=0), rtol=1e-12)
    np.testing.assert_allclose(scores_of(model, X), scores_of(dense, X), atol=2e-2)


@each_kind
def test_a_file_keeps_it(kind: Any, tmp_path: Path) -> None:
    X, y = data_of(kind)
    model = clone(kind).set_params(standardize=True, tol=1e-2).fit(X, y)
    model.save(tmp_path / "model")
    again = dt.load(tmp_path / "model")
    assert again.standardize is True
    assert np.array_equal(again.scale_, model.scale_)
    assert np.array_equal(again.result_.scale, model.scale_)
    assert np.array_equal(again.predict(X), model.predict(X))
    assert np.array_equal(again.coef_, model.coef_)
    clone(kind).set_params(tol=1e-2).fit(X / UNITS, y).save(tmp_path / "plain")
    assert dt.load(tmp_path / "plain").scale_ is None


def test_a_warm_start_continues_on_other_data_and_with_another_radius() -> None:
    X, y = data_of(KINDS[1])
    model = dt.TraceNormClassifier(5.0, standardize=True, warm_start=True, tol=1e-6, **SMALL)
    first = model.fit(X, y).n_iter_
    assert model.fit(X, y).n_iter_ < 0.3 * first
    expected = clone(model).set_params(radius=1.0).fit(X * 3.0, y).result_
    # The last W is now outside the ball.
    result = model.set_params(radius=1.0).fit(X * 3.0, y).result_
    assert result.status == "optimal"
    assert abs(result.objective - expected.objective) <= result.gap + expected.gap
    assert np.linalg.norm(model.coef_ * model.scale_, "nuc") <= 1.0 + 1e-9


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("make", [dt.TraceNormRegressor, dt.TraceNormClassifier])
def test_the_advice_names_it_unless_it_is_set(make: Callable[..., Any], standardize: bool) -> None:
    model = make(5.0, max_iter=1, tol=1e-9, standardize=standardize)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        model.fit(*data_of(model))
    (warning,) = (one for one in heard if one.category is ConvergenceWarning)
    assert any("differ in size" in str(one.message) for one in heard) != standardize
    advice = (
        "Raise max_iter or tol."
        if standardize
        else ("Raise max_iter or tol, or set standardize=True.")
    )
    assert str(warning.message).endswith(advice)


def test_what_is_no_yes_or_no_is_refused() -> None:
    model = dt.TraceNormRegressor(1.0, standardize="yes")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="standardize must be True or False, got 'yes'"):
        model.fit(*data_of(model))
