"""Certificates where digits are lost or many are asked for: never below the truth."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from benchmarks.corpus.objective import Objective
from tests.custom_losses import Huber
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


# Intercepts


class Drawn(NamedTuple):
    """A random problem with an intercept, and F in float64."""

    X: Array
    y: Array
    weights: Array
    m: int
    radius: float
    truth: Objective

    def above(self, W: Array, b: Array, other: dt.Result) -> float:
        """How far F(W, b) is above the least F that is known: F* is not above that."""
        there = self.truth.gap(self.X @ other.W.to_dense(), other.intercept, self.radius)
        here = self.truth.gap(self.X @ W, b, self.radius)
        return here.objective - min(here.settled, there.settled)


def drawn(name: str, seed: int, dtype: str = "float64") -> Drawn:
    """Extreme weights, rare classes, nearly one class or truly, rows and targets far from zero."""
    rng = np.random.default_rng(seed)
    n, d, m = (int(size) for size in rng.integers([3, 1, 2], [60, 8, 7]))
    X = rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-1, 1) + rng.choice([0.0, 3.0])
    down, up = rng.choice([0.0, 5.0, 9.0], 2)
    weights = 10.0 ** rng.uniform(-down, up, n)
    y: Array = rng.choice(m, n, p=rng.dirichlet(np.full(m, rng.choice([0.02, 0.2, 1.0]))))
    if name == "least squares":
        y = (rng.standard_normal((n, m)) + 10.0 ** rng.uniform(-2, 3)).astype(dtype)
    X, radius = X.astype(dtype), float(10.0 ** rng.uniform(-1.0, 2.5))
    return Drawn(X, y, weights, m, radius, Objective(X, y, m, weights, intercept=True))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ["least squares", "multinomial"])
@pytest.mark.parametrize("solver", ["dfw", "accelerated"])
def test_no_intercept_takes_a_certificate_below_the_truth(
    name: str, dtype: str, solver: str
) -> None:
    for seed in range(30):
        case = drawn(name, seed, dtype)
        task = dt.LeastSquares() if name == "least squares" else dt.Multinomial(case.m)
        call: dict[str, Any] = {
            "radius": case.radius,
            "fit_intercept": True,
            "sample_weight": case.weights,
            "representation": ["implicit", "dense", "factored"][seed % 3],
            "engine": ENGINE,
        }
        result = dt.solve(
            task, case.X, case.y, solver=solver, max_iter=2 + seed % 20, tol=1e-7, **call
        )
        better = dt.solve(task, case.X, case.y, max_iter=100, tol=1e-9, **call)
        # Where all rows are of one class, F* = 0, and F is as good as that.
        nothing = 1e-20 * float(case.weights.sum())
        for one in (result, better):
            assert one.intercept is not None
            assert one.certificate is not None
            above = case.above(one.W.to_dense(), one.intercept, better)
            assert one.gap >= above - nothing, (seed, one.gap, above)


@pytest.mark.parametrize("solver", ["dfw", "accelerated"])
def test_rare_classes_of_little_weight(solver: str) -> None:
    weights = np.array([1e9, 1e-5, 1e-5])
    result = solve(
        "multinomial",
        np.zeros((3, 2)),
        np.arange(3),
        solver=solver,
        fit_intercept=True,
        sample_weight=weights,
    )
    least = float(weights @ np.log1p([2e-14, 1e14 + 1.0, 1e14 + 1.0]))
    assert result.objective == pytest.approx(least, rel=1e-9)
    assert result.gap >= result.objective - least
    assert result.gap <= 1e-9 * least


@pytest.mark.parametrize("form", ["implicit", "dense", "factored"])
@pytest.mark.parametrize("name", ["least squares", "multinomial"])
@pytest.mark.parametrize("standardize", [False, True])
def test_a_settled_intercept_leaves_the_certificate_as_tight_as_it_was(
    name: str, form: str, standardize: bool
) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 6)) * np.logspace(0, 2, 6) + 5.0
    y: Any = rng.standard_normal((80, 3)) if name == "least squares" else rng.integers(0, 3, 80)
    gaps: list[float] = []
    options: dict[str, Any] = {"representation": form, "standardize": standardize}
    result = solve(
        name,
        sp.csr_array(X) if form == "implicit" else X,
        y,
        fit_intercept=True,
        certify_every=1,
        max_iter=5,
        callback=lambda W, record: gaps.append(record["gap"]),
        **options,
    )
    assert result.certificate is not None
    assert result.intercept is not None
    assert result.certificate.excess <= 1e-9 * result.objective
    truth = Objective(X, y, 3, None, intercept=True)
    scale = np.ones(6) if result.scale is None else result.scale
    S = X @ result.W.to_dense() + result.intercept
    F, R = truth.on_scores(S)
    assert result.objective == pytest.approx(F, rel=1e-11)  # of this W and this b
    G = (X - X.mean(axis=0)).T @ R
    own = np.vdot(result.W.to_dense(), G) + np.linalg.norm(G / scale[:, None], 2)
    assert result.certificate.gap == pytest.approx(own, rel=1e-6)
    assert np.all(np.array(gaps) >= result.history.column("objective") - result.objective)


def test_a_custom_loss_adds_an_estimate() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4)) + 2.0
    Y = X @ rng.standard_normal((4, 2)) + rng.standard_t(2, (60, 2))
    result = solve(dt.ScoresTask(Huber()), X, Y, fit_intercept=True, max_iter=20)
    assert result.certificate is not None
    assert 0.0 <= result.certificate.excess <= 1e-9 * result.objective


def test_an_objective_that_cannot_be_negative_bounds_the_gap() -> None:
    X, Y = np.eye(3), np.eye(3)
    result = solve("least squares", X, Y, radius=1e6, max_iter=1)
    assert result.certificate is not None
    assert result.gap <= result.objective + result.certificate.rounding
    assert result.certificate.gap > 10.0 * result.objective
