"""`solve` against optima found without it: cvxpy with Clarabel, closed forms, least squares."""

from typing import Any

import numpy as np
import pytest
from tests.problems import FORMS, LMOS, TASKS, solve
from tests.truth import Case, project_onto_ball, small_case, value_and_gradient

import dfwtrace as dt
from dfwtrace.linalg import certificate


# Every oracle, which only decides where the iterates are, and every form in both precisions.
@pytest.mark.parametrize(
    ("name", "form", "oracle", "dtype"),
    [
        *((name, "implicit", oracle, "float64") for name in TASKS for oracle in LMOS),
        *((*form, "power-log", "float64") for form in FORMS if form[1] != "implicit"),
        *((*form, "power-2", "float32") for form in FORMS),
    ],
)
def test_gap_is_never_below_the_truth(name: str, form: str, oracle: str, dtype: str) -> None:
    for seed, radius, step in (
        (1, 0.3, "linesearch"),
        (2, 2.0, "harmonic"),
        (3, 20.0, "linesearch"),
    ):
        options: Any = {"lmo": oracle, "step": step, "representation": form, "max_iter": 12}
        small_case(name, seed, radius, dtype).check_gaps(**options)


@pytest.mark.parametrize("name", TASKS)
def test_estimate_can_be_below_the_truth(name: str) -> None:
    """So that the tests above have something to find: an oracle's σ does not make a certificate."""
    problem, values = small_case(name, 2, 2.0), []
    history = problem.solve(
        lmo="power-1", max_iter=60, callback=lambda W, record: values.append(problem.value(W))
    ).history
    # A record's estimate is about the iterate that its epoch began with.
    assert np.any(history.column("gap_estimate")[1:] < np.array(values[:-1]) - problem.upper)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("oracle", ["naive", "power-log", "lanczos"])
def test_gap_falls(name: str, oracle: str) -> None:
    for seed, radius in ((1, 0.3), (2, 2.0)):
        result = small_case(name, seed, radius).check_gaps(lmo=oracle, max_iter=60)
        gaps = result.history.column("gap")
        assert gaps[:3].min() > gaps[3:10].min() > gaps[10:].min()
        assert gaps[10:].min() < 0.1 * gaps[0]


@pytest.mark.parametrize(
    ("name", "form", "oracle"),
    [(*form, oracle) for form, oracle in zip(FORMS, 4 * ["naive", "power-log"], strict=False)],
)
def test_converges_to_the_optimum(name: str, form: str, oracle: str) -> None:
    for seed, radius in ((1, 0.3), (2, 2.0), (3, 20.0)):
        problem = small_case(name, seed, radius)
        result = problem.solve(lmo=oracle, representation=form, max_iter=5000, tol=5e-3)
        assert result.status == "optimal"
        assert result.gap <= 5e-3 * result.objective_at_zero
        excess = problem.value(result.W) - problem.lower
        assert -1e-12 * result.objective_at_zero <= excess
        assert excess <= result.gap + (problem.upper - problem.lower)


@pytest.mark.parametrize("name", TASKS)
def test_a_good_oracle_gets_very_close(name: str) -> None:
    """Inside the ball Frank-Wolfe with line search converges fast: digits can be compared."""
    problem = small_case(name, 5, 200.0)
    result = problem.solve(lmo="naive", max_iter=250)
    assert result.objective == pytest.approx(problem.upper, rel=1e-7)


@pytest.mark.parametrize("form", dt.LeastSquares.representations)
@pytest.mark.parametrize("radius", [3.0, 1e3])
def test_orthonormal_features_give_a_projection(form: str, radius: float) -> None:
    rng = np.random.default_rng(0)
    X, Y = np.linalg.qr(rng.standard_normal((40, 8)))[0], rng.standard_normal((40, 6))
    W = project_onto_ball(X.T @ Y, radius)
    optimum = 0.5 * float(np.sum((X @ W - Y) ** 2))
    result = solve(
        "least squares",
        X,
        Y,
        radius=radius,
        lmo="lanczos",
        representation=form,
        max_iter=50,
        certify_every=10,
    )
    found = result.W.to_dense()
    assert result.objective - optimum <= result.gap + 1e-12
    # F(W) - F* ≥ ½‖W - W*‖² here, so the certificate bounds the distance as well.
    assert 0.5 * np.sum((found - W) ** 2) <= result.gap + 1e-12
    assert result.gap <= 0.05 * result.objective_at_zero


@pytest.mark.parametrize("radius", [1.0, 10.0, 100.0])
def test_gap_is_never_below_the_truth_without_the_dense_gradient(
    monkeypatch: pytest.MonkeyPatch, radius: float
) -> None:
    """With too many columns for a few products to know the gradient's spectrum."""
    monkeypatch.setattr(certificate, "DENSE_ENTRIES", 0)
    rng = np.random.default_rng(3)
    X, Y = np.linalg.qr(rng.standard_normal((60, 40)))[0], rng.standard_normal((60, 50))
    optimum = value_and_gradient("least squares", X, Y, project_onto_ball(X.T @ Y, radius))[0]
    problem = Case("least squares", X, Y, radius, optimum, optimum)
    for seed in range(2):
        result = problem.check_gaps(lmo="lanczos", max_iter=15, random_state=seed)
        assert result.certificate is not None
        assert result.certificate.method == "lanczos"


@pytest.mark.parametrize("form", dt.LeastSquares.representations)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_huge_radius_gives_least_squares(form: str, dtype: str) -> None:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((60, 7)).astype(dtype)
    Y = (X @ rng.standard_normal((7, 4)) + rng.standard_normal((60, 4))).astype(dtype)
    W = np.linalg.lstsq(X.astype(np.float64), Y.astype(np.float64), rcond=None)[0]
    optimum = value_and_gradient("least squares", X, Y, W)[0]
    result = solve(
        "least squares",
        X,
        Y,
        radius=10.0 * float(np.linalg.norm(W, "nuc")),
        lmo="naive",
        representation=form,
        max_iter=1000,
        tol=1e-4,
    )
    assert result.status == "optimal"
    excess = value_and_gradient("least squares", X, Y, result.W.to_dense())[0] - optimum
    assert -1e-12 * result.objective_at_zero <= excess <= result.gap
    np.testing.assert_allclose(X @ result.W, X @ W, atol=2.0 * np.sqrt(2.0 * result.gap))


@pytest.mark.parametrize("form", dt.LeastSquares.representations)
def test_gap_holds_for_float32_features_far_from_their_mean(form: str) -> None:
    """Features around 100 with a spread of 1: what matters of XᵀX is in its last float32 digits."""
    rng = np.random.default_rng(2)
    X = (100.0 + rng.standard_normal((2000, 5))).astype(np.float32)
    contrasts = rng.standard_normal((5, 3))
    contrasts -= contrasts.mean(axis=0)
    Y = (X @ contrasts + 0.1 * rng.standard_normal((2000, 3))).astype(np.float32)
    W = np.linalg.lstsq(X.astype(np.float64), Y.astype(np.float64), rcond=None)[0]
    optimum = value_and_gradient("least squares", X, Y, W)[0]
    # Where moments summed in float32 have their least squares solution, a gradient that is made
    # of such moments vanishes, but the true one does not.
    rounded = np.linalg.solve((X.T @ X).astype(np.float64), (X.T @ Y).astype(np.float64))
    U, s, Vt = np.linalg.svd(rounded)
    start = dt.LowRankMatrix(U[:, :3], s, Vt.T)
    result = solve(
        "least squares",
        X,
        Y,
        radius=max(float(s.sum()), float(np.linalg.norm(W, "nuc"))),
        start=start,
        representation=form,
        step=0.0,
        max_iter=1,
        engine=dt.LocalEngine(n_shards=1, n_jobs=1),
    )
    value = value_and_gradient("least squares", X, Y, result.W.to_dense())[0]
    assert result.gap >= value - optimum
    assert result.objective == pytest.approx(value, abs=1e-5 * result.objective_at_zero)
