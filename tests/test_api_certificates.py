"""Certificates where digits are lost or many are asked for: never below the truth."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from tests.problems import ENGINE, FORMS, solve
from tests.truth import project_onto_ball

import dfwtrace as dt
from dfwtrace.linalg import certificate
from dfwtrace.linalg.certificate import FAILURE_PROBABILITY

Array = npt.NDArray[Any]


def centred(A: Array, weights: Array) -> Array:
    """With more digits than the data have."""
    wide = A.astype(np.longdouble)
    return wide - weights.astype(np.longdouble) @ wide / weights.sum()


def value(X: Array, Y: Array, weights: Array, W: Array) -> Any:
    """½‖XW - Y‖² of weighted rows, with more digits than the data have."""
    R = X.astype(np.longdouble) @ W.astype(np.longdouble) - Y
    return 0.5 * (weights.astype(np.longdouble) @ np.square(R).sum(axis=1))


def projected_gradient(X: Array, Y: Array, weights: Array, radius: float) -> Array:
    """Near the optimum, where X is well conditioned."""
    X, Y = (np.sqrt(weights)[:, None] * A.astype(np.float64) for A in (X, Y))
    lipschitz = float(np.linalg.norm(X, 2)) ** 2
    W = np.zeros((X.shape[1], Y.shape[1]))
    for _ in range(300):
        W = project_onto_ball(W - X.T @ (X @ W - Y) / lipschitz, radius)
    return W


def upper_bound(X: Array, Y: Array, weights: Array, radius: float, others: Iterable[Array]) -> Any:
    """The least F of some points of the ball: F* is not above it."""
    exact = np.linalg.lstsq(X.astype(np.float64), Y.astype(np.float64), rcond=None)[0]
    points = [exact * min(1.0, radius / np.linalg.norm(exact, "nuc")), *others]
    return min(value(X, Y, weights, W) for W in points)


# Data far from zero


def far_away(shift: float, mixed: bool) -> tuple[Array, Array, Array]:
    """A feature far from zero beside others, three of them truly sparse if mixed; and weights."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 4))
    Y = X @ rng.standard_normal((4, 2)) + rng.standard_normal((500, 2))
    X[:, 0] += shift
    if not mixed:
        return X, Y, np.ones(500)
    sparse = rng.standard_normal((500, 3)) * (rng.random((500, 3)) < 0.1)
    return np.hstack([X, sparse]), Y, rng.uniform(0.0, 3.0, 500)


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("shift", [1e7, 1e8])
@pytest.mark.parametrize("radius", [1.0, 20.0])
@pytest.mark.parametrize(
    "options",
    [{"solver": "accelerated", "tol": 1e-9, "max_iter": 40}, {"lmo": "naive", "max_iter": 40}],
    ids=["accelerated", "dfw"],
)
def test_sparse_features_far_from_zero_with_an_intercept(
    shift: float, mixed: bool, radius: float, options: dict[str, Any]
) -> None:
    X, Y, weights = far_away(shift, mixed)
    X_c, Y_c = centred(X, weights), centred(Y, weights)
    best = value(X_c, Y_c, weights, projected_gradient(X_c, Y_c, weights, radius))
    values: list[Any] = []

    def note(W: dt.LowRankMatrix, record: Any) -> None:
        values.append(value(X_c, Y_c, weights, W.to_dense()))

    for data in (sp.csr_array(X), X):
        values.clear()
        result = solve(
            "least squares",
            data,
            Y,
            radius=radius,
            fit_intercept=True,
            sample_weight=weights if mixed else None,
            representation="gram",
            certify_every=1,
            callback=note,
            **options,
        )
        assert np.all(result.history.column("gap") >= np.array(values) - best)
        assert result.gap >= value(X_c, Y_c, weights, result.W.to_dense()) - best
        np.testing.assert_allclose(
            result.history.column("objective"), np.array(values, float), rtol=1e-9
        )
        assert result.gap <= 0.01 * result.objective_at_zero  # and the bound is of use


@pytest.mark.parametrize("form", ["implicit", "dense", "factored"])
@pytest.mark.parametrize("shift", [10.0, 1e7])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_with_features_far_from_zero_keep_their_digits(
    form: str, shift: float, dtype: type
) -> None:
    X, Y, weights = far_away(shift, mixed=True)
    X = X.astype(dtype)
    X_c, Y_c = centred(X, weights), centred(Y, weights)
    best = value(X_c, Y_c, weights, projected_gradient(X_c, Y_c, weights, 1.0))
    options: dict[str, Any] = {
        "fit_intercept": True,
        "sample_weight": weights,
        "representation": form,
    }
    for data in (sp.csr_array(X), X):
        before = data.copy()
        result = solve("least squares", data, Y, radius=1.0, solver="accelerated", **options)
        assert result.gap >= value(X_c, Y_c, weights, result.W.to_dense()) - best
        assert result.relative_gap <= 1e-4
        assert abs(data - before).max() == 0.0  # only a copy is centred


def test_long_sums_of_sparse_rows_take_no_certificate_below_the_truth() -> None:
    """Constant columns: every sum is rounded the same way, again and again."""
    n, radius = 400_000, 2e6
    rng = np.random.default_rng(0)
    X, Y = np.tile([0.1, 0.3], (n, 1)), np.zeros((n, 1))
    few = rng.standard_normal((n // 100, 2)) * 5e-6
    X[: len(few)] += few
    Y[: len(few)] = few @ [[3.0], [-1.0]] * radius * 0.2
    Y[: len(few)] += 0.1 * rng.standard_normal((len(few), 1))
    result = solve(
        "least squares",
        sp.csr_array(X),
        Y,
        radius=radius,
        solver="accelerated",
        representation="gram",
        engine=dt.LocalEngine(4, 1),
        tol=1e-12,
        max_iter=300,
    )
    weights = np.ones(n)
    best = upper_bound(X, Y, weights, radius, [])
    assert result.gap >= value(X, Y, weights, result.W.to_dense()) - best
    assert result.objective - result.gap <= best


# One huge row


def test_a_gradient_of_zero_leaves_what_rounding_may_hide() -> None:
    X, Y = np.array([[1e9], [1.0], [2.0], [-1.0]]), np.array([[3e8], [5.0], [-3.0], [7.0]])
    result = solve("least squares", X, Y, radius=10.0, solver="accelerated", representation="gram")
    F = value(X, Y, np.ones(4), result.W.to_dense())
    assert result.status == "optimal"
    assert result.gap >= result.certificate.rounding > abs(result.objective - F) > 0.0


@pytest.mark.parametrize(
    ("intercept", "of_targets", "radius"),
    [(False, 1.0, 20.0), (True, 1.0, 0.5), (False, 1e9, 0.5), (True, 1e9, 20.0)],
)
def test_one_huge_row_takes_no_certificate_below_the_truth(
    intercept: bool, of_targets: float, radius: float
) -> None:
    """Neither of all rows, nor of the folds with it or without it."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4))
    Y = X @ rng.standard_normal((4, 2)) + rng.standard_normal((60, 2))
    X[7] *= 1e9
    Y[7] *= of_targets
    fold_of = np.arange(60) % 3
    options: Any = {"fit_intercept": intercept, "max_iter": 100, "tol": 1e-6}
    path = dt.path(
        dt.LeastSquares(),
        X,
        Y,
        radii=[radius],
        cv=fold_of,
        representation="gram",
        engine=ENGINE,
        **options,
    )
    alone = solve(
        "least squares", X, Y, radius=radius, solver="accelerated", representation="gram", **options
    )
    everything = np.ones(60, bool)
    runs = [(everything, alone), (everything, path.results[0])]
    runs += [(fold_of != fold, path.fold_results[fold][0]) for fold in range(3)]
    for rows, result in runs:
        weights = np.ones(rows.sum())
        A, B = (centred(M[rows], weights) if intercept else M[rows] for M in (X, Y))
        usual = rows & (np.arange(60) != 7)
        other = solve(
            "least squares",
            X[rows],
            Y[rows],
            radius=radius,
            solver="accelerated",
            representation="implicit",
            **{**options, "tol": 1e-12},
        )
        points = [other.W.to_dense()]
        if np.array_equal(rows, usual):
            points.append(projected_gradient(A, B, weights, radius))
        best = upper_bound(A, B, weights, radius, points)
        found = value(A, B, weights, result.W.to_dense())
        assert result.gap >= found - best
        assert abs(result.objective - found) <= max(result.gap, 1e-12 * float(found))
        if np.array_equal(rows, usual) and not intercept:  # the huge row is not felt at all
            assert result.status == "optimal"
            assert result.objective == pytest.approx(float(found), rel=1e-10)


# Rounding, and many certificates


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("name", "form"), FORMS)
def test_no_gap_is_below_its_allowance_for_rounding(name: str, form: str, dtype: Any) -> None:
    """However often certificates were asked for where nothing is left to gain."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((20, 4)).astype(dtype), rng.standard_normal((20, 3))
    y: Any = Y if name == "least squares" else np.arange(20) % 3
    for options in ({"solver": "accelerated", "max_iter": 60}, {"lmo": "naive", "max_iter": 60}):
        result = solve(
            name,
            X,
            y,
            radius=0.3,
            tol=0.0,
            certify_every=1,
            representation=form,
            **options,  # type: ignore[arg-type]
        )
        assert result.certificate is not None
        assert result.certificate.rounding > 0.0
        assert result.gap >= result.certificate.rounding
        assert result.history.column("gap").min() >= 0.99 * result.certificate.rounding


def test_more_than_a_thousand_certificates_keep_their_probability(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The k-th may fail with 1/(k(k+1)) of what all may together: that never underflows."""
    monkeypatch.setattr(certificate, "DENSE_ENTRIES", 0)
    X, Y = np.random.default_rng(0).standard_normal((2, 20, 9))
    options: Any = {"lmo": "naive", "step": "harmonic", "engine": dt.LocalEngine(1, 1)}
    options |= {"max_iter": 1030, "certify_every": 1, "representation": "implicit"}
    result = solve("least squares", X, Y, radius=0.5, **options)
    assert len(result.history) == 1030
    assert np.isfinite(result.history.column("gap")).all()
    assert result.certificate is not None
    assert result.certificate.method == "lanczos"
    probability = FAILURE_PROBABILITY / (1030 * 1031)
    assert result.certificate.failure_probability == pytest.approx(probability)
    # The bound makes use of it: it lies above σ₁, and the more so the surer it is to be.
    G = X.T @ (X @ result.W.to_dense() - Y)
    assert result.certificate.sigma_bound > np.linalg.norm(G, 2)
