"""Estimators add nothing to the solver's numbers: the same settings give the same bits."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import pytest

import dfwtrace as dt

# Few radii are tried here, on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:The best radius:UserWarning")

Data = tuple[Any, Any]


def assert_same_bits(one: dt.LowRankMatrix, other: dt.LowRankMatrix) -> None:
    assert one.shape == other.shape
    for a, b in zip((one.U, one.s, one.V), (other.U, other.s, other.V), strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("solver", ["accelerated", "dfw"])
def test_a_regressor_is_a_call_to_solve(solver: str, intercept: bool, multitask: Data) -> None:
    weights = np.linspace(0.5, 2.0, 60)
    model = dt.TraceNormRegressor(
        1.5,
        solver=solver,
        fit_intercept=intercept,
        tol=1e-1,
        max_iter=30,
        random_state=3,
        n_shards=4,
    )
    model.fit(*multitask, sample_weight=weights)
    result = dt.solve(
        dt.LeastSquares(),
        *multitask,
        radius=1.5,
        solver=solver,
        fit_intercept=intercept,
        tol=1e-1,
        max_iter=30,
        sample_weight=weights,
        random_state=3,
        engine=dt.LocalEngine(4),
    )
    assert_same_bits(model.low_rank_, result.W)
    assert (model.status_, model.duality_gap_) == (result.status, result.gap)
    assert (model.n_iter_, model.radius_) == (len(result.history), 1.5)
    b = np.zeros(5) if result.intercept is None else result.intercept
    assert np.array_equal(model.intercept_, b)
    X = multitask[0]
    np.testing.assert_allclose(model.predict(X), X @ result.W.to_dense() + b, rtol=1e-10)
    np.testing.assert_allclose(model.predict(X), X @ model.coef_.T + model.intercept_, rtol=1e-10)


def test_an_oracle_and_a_step_are_passed_on(multitask: Data) -> None:
    model = dt.TraceNormRegressor(
        1.0, solver="dfw", lmo="power-2", step="harmonic", tol=None, max_iter=5, fit_intercept=False
    ).fit(*multitask)
    result = dt.solve(
        dt.LeastSquares(),
        *multitask,
        radius=1.0,
        solver="dfw",
        lmo="power-2",
        step="harmonic",
        max_iter=5,
        engine=dt.LocalEngine(1),
    )
    assert_same_bits(model.low_rank_, result.W)


@pytest.mark.parametrize("representation", ["implicit", "factored", "dense"])
def test_a_classifier_is_a_call_to_solve(representation: str, multiclass: Data) -> None:
    X, y = multiclass
    model = dt.TraceNormClassifier(5.0, representation=representation).fit(X, y)
    result = dt.solve(
        dt.Multinomial(n_classes=4),
        X,
        y,
        radius=5.0,
        solver="accelerated",
        fit_intercept=True,
        representation=representation,
        tol=1e-2,
        engine=dt.LocalEngine(1),
    )
    assert_same_bits(model.low_rank_, result.W)
    assert result.intercept is not None
    # A number added to all classes changes nothing: the estimator's intercept has mean 0.
    assert np.array_equal(model.intercept_, result.intercept - result.intercept.mean())
    assert model.result_.plan.representation == representation


@pytest.mark.parametrize("name", ["multitask", "multiclass"])
def test_a_search_is_a_call_to_path(name: str, request: pytest.FixtureRequest) -> None:
    X, y = request.getfixturevalue(name)
    fold_of: Any = np.arange(60) % 3
    splits = [(np.flatnonzero(fold_of != k), np.flatnonzero(fold_of == k)) for k in range(3)]
    kind: Any = dt.TraceNormRegressorCV if name == "multitask" else dt.TraceNormClassifierCV
    task = dt.LeastSquares() if name == "multitask" else dt.Multinomial(n_classes=4)
    radii = [3.0, 0.3, 1.0]
    model = kind(radii, cv=splits, tol=1e-4)
    model._coarse = False
    model.fit(X, y)
    path = dt.path(
        task, X, y, radii=radii, cv=fold_of, fit_intercept=True, engine=dt.LocalEngine(1)
    )
    assert path.validation is not None
    assert np.array_equal(model.validation_, path.validation)
    assert np.array_equal(model.scores_, -model.validation_)
    assert np.array_equal(model.radii_, radii)
    assert model.radius_ == radii[path.best]
    assert_same_bits(model.low_rank_, path.results[path.best].W)
    for one, other in zip(model.path_.results, path.results, strict=True):
        assert_same_bits(one.W, other.W)


@pytest.mark.parametrize("name", ["multitask", "multiclass"])
def test_fits_without_a_fold_only_serve_to_compare(
    name: str, request: pytest.FixtureRequest
) -> None:
    X, y = request.getfixturevalue(name)
    kind: Any = dt.TraceNormRegressorCV if name == "multitask" else dt.TraceNormClassifierCV
    fine, coarse = (kind([0.3, 1.0, 3.0], cv=3, tol=1e-4, n_shards=1) for _ in range(2))
    fine._coarse = False
    fine.fit(X, y)
    coarse.fit(X, y)
    assert coarse.radius_ == fine.radius_
    np.testing.assert_allclose(coarse.scores_, fine.scores_, rtol=1e-2)
    assert coarse.path_.results == []  # one fit to all rows only
    assert coarse.status_ == "optimal"
    assert coarse.duality_gap_ <= 1e-4 * coarse.result_.objective_at_zero
    epochs = dict.fromkeys(("fine", "coarse"), 0)
    for what, model in (("fine", fine), ("coarse", coarse)):
        for fit in chain(*model.path_.fold_results):
            epochs[what] += len(fit.history)
            assert (fit.certificate is None) == np.isnan(fit.gap) == (what == "coarse")
            assert fit.status == "optimal"
    assert epochs["coarse"] < epochs["fine"]
