"""What a solver sees of the data: values, derivatives and bounds against dense computations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import softmax
from tests.problems import FORMS, TASKS, random_matrix
from tests.truth import true_gap, value_and_gradient

import dfwtrace as dt
from dfwtrace import LowRankMatrix, RankOne
from dfwtrace.linalg import certificate
from dfwtrace.solvers.problem import Problem

Array = npt.NDArray[np.float64]
N, D, M, RADIUS = 30, 6, 4, 2.0

rng = np.random.default_rng(0)
X = rng.standard_normal((N, D)) * np.array([3.0, 2.0, 1.0, 0.5, 0.3, 0.1])
TARGETS: dict[str, Any] = {
    "least squares": rng.standard_normal((N, M)),
    "multinomial": np.arange(N) % M,
}
Build = Callable[..., Problem]


@pytest.fixture
def build(problem_of: Build) -> Build:
    """A problem by the name of its task, on four shards."""
    engine = dt.LocalEngine(4, 2)

    def build(name: str, form: str = "implicit", **options: Any) -> Problem:
        call = {"radius": RADIUS, "representation": form, "engine": engine, **options}
        return problem_of(name, X, TARGETS[name], **call)

    return build


def objective(name: str, W: Array) -> float:
    return value_and_gradient(name, X, TARGETS[name], W)[0]


def gradient(name: str, W: Array) -> Array:
    return value_and_gradient(name, X, TARGETS[name], W)[1]


def inside(seed: int, share: float = 0.8, rank: int = 2) -> LowRankMatrix:
    return random_matrix(seed, (D, M), rank, share * RADIUS)


def atom(seed: int) -> RankOne:
    W = random_matrix(seed, (D, M), 1, RADIUS)
    return RankOne(-RADIUS, W.U[:, 0], W.V[:, 0])


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_value_and_gradient(build: Build, name: str, form: str) -> None:
    problem, W = build(name, form), inside(1)
    value = problem.begin(W)
    F, G = value_and_gradient(name, X, TARGETS[name], W.to_dense())
    assert value.objective == pytest.approx(F, rel=1e-12)
    assert value.inner == pytest.approx(np.vdot(W.to_dense(), G), rel=1e-10)
    assert problem.objective_at_zero == pytest.approx(objective(name, np.zeros((D, M))), rel=1e-12)
    np.testing.assert_allclose(problem.gradient.gather(), G, atol=1e-11)


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_certificate_is_the_gap(build: Build, name: str, form: str) -> None:
    problem, W = build(name, form), inside(10)
    value = problem.begin(W)
    gap = true_gap(name, X, TARGETS[name], W.to_dense(), RADIUS)
    assert gap <= problem.certificate(W, value.inner).gap <= gap * (1.0 + 1e-8)


@pytest.mark.parametrize("name", TASKS)
def test_certificate_with_the_factors_of_w_is_the_gap_too(
    problem_of: Build, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few factors of a matrix that is large enough: the bound comes from products with them."""
    monkeypatch.setattr(certificate, "SMALL_ENTRIES", 45 * 41 - 1)
    draw = np.random.default_rng(12)
    d, m, n = 45, 41, 60
    features = draw.standard_normal((n, d))
    y = draw.standard_normal((n, m)) if name == "least squares" else np.arange(n) % m
    W = random_matrix(12, (d, m), 2, 0.1)
    for form in ("implicit", "dense", "factored"):
        problem = problem_of(name, features, y, radius=RADIUS, representation=form)
        value = problem.begin(W)
        gap = true_gap(name, features, y, W.to_dense(), RADIUS)
        found = problem.certificate(W, value.inner, near=W.V)
        assert found.method == "lanczos"
        assert gap * (1.0 - 1e-12) <= found.gap <= gap * 1.12
        assert problem.certificate(W, value.inner).method == "dense"


@pytest.mark.parametrize("rank", [0, 1, 3])
@pytest.mark.parametrize(("name", "form"), FORMS)
def test_tangent_goes_to_w_in_two_rounds(build: Build, name: str, form: str, rank: int) -> None:
    problem, W = build(name, form), inside(13, rank=3)
    W = LowRankMatrix(W.U[:, :rank], W.s[:rank], W.V[:, :rank])
    problem.begin(inside(14))
    problem.workers.take()
    tangent = problem.tangent(W)
    numbers = 4 * (2 + (D + M) * rank + (D + M + 1) * rank + 1 + 2 * M)
    assert problem.workers.take()[2:4] == (2, numbers)
    F, G = value_and_gradient(name, X, TARGETS[name], W.to_dense())
    assert tangent.objective == pytest.approx(F, rel=1e-12)
    assert tangent.inner == pytest.approx(np.vdot(W.to_dense(), G), rel=1e-10, abs=1e-12)
    np.testing.assert_allclose(tangent.products, G @ W.V, atol=1e-11)
    np.testing.assert_allclose(tangent.transposed, G.T @ W.U, atol=1e-11)
    if form != "gram":  # it knows of no rows
        S = X @ W.to_dense()
        R = S - TARGETS[name] if name == "least squares" else softmax(S, axis=1)
        if name == "multinomial":
            R = R - np.eye(M)[TARGETS[name]]
        assert tangent.columns.weight == len(X)
        np.testing.assert_allclose(tangent.columns.slope, R.sum(axis=0), atol=1e-11)
    np.testing.assert_allclose(problem.gradient.gather(), G, atol=1e-11)  # the states are there


def test_tangent_that_overflows_is_an_error(build: Build) -> None:
    W = LowRankMatrix(np.full((D, 1), 1e200), [1.0], np.ones((M, 1)))
    with np.errstate(all="ignore"), pytest.raises(ArithmeticError, match="is not finite"):
        build("least squares").tangent(W)


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_constants_hold_over_the_ball(build: Build, name: str, form: str) -> None:
    """L ≥ σ₁(∇F), and C_F ≥ 2/γ² (F(Z) - F(W) - ⟨Z - W, ∇F(W)⟩) over Z = W + γ(S - W)."""
    problem = build(name, form)
    problem.begin(inside(11))
    constants = problem.constants()
    top, _, vt = np.linalg.svd(gradient(name, np.zeros((D, M))))
    worst = -RADIUS * np.outer(np.linalg.svd(X)[2][0], vt[0])
    ends = [worst, -worst, -RADIUS * np.outer(top[:, 0], vt[0])]
    ends += [inside(seed, share=1.0, rank=1 + seed % 3).to_dense() for seed in range(8)]
    norms = [np.linalg.norm(gradient(name, W), 2) for W in ends]
    # Bounds, and not just any large numbers.
    assert max(norms) <= constants.lipschitz <= 10.0 * max(norms)
    seen = 0.0
    for W in ends:
        for S in ends:
            for gamma in (0.05, 0.5, 1.0):
                Z = W + gamma * (S - W)
                rise = objective(name, Z) - objective(name, W)
                rise -= float(np.vdot(Z - W, gradient(name, W)))
                seen = max(seen, 2.0 / gamma**2 * rise)
    assert seen <= constants.curvature * (1.0 + 1e-9)
    if name == "least squares":  # where it is known: 4 μ² σ₁(X)²
        assert seen == pytest.approx(4.0 * RADIUS**2 * np.linalg.norm(X, 2) ** 2, rel=1e-6)
        assert constants.curvature == pytest.approx(seen, rel=1e-3)


def test_a_second_run_counts_for_itself(build: Build) -> None:
    problem = build("multinomial")
    problem.begin(inside(1))
    first = [made.method for made in problem.workers.rounds]
    problem.prepare_run(1.0, 3)
    assert not problem.workers.rounds
    problem.begin(inside(1))
    assert [made.method for made in problem.workers.rounds] == first[2:]  # F(0) is known by now
    assert (problem.radius, problem.seed) == (1.0, 3)
