"""What a solver sees of the data: values, derivatives and bounds against dense computations."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import logsumexp, softmax

from dfwtrace import LeastSquares, LocalEngine, LowRankMatrix, Multinomial, RankOne, certificate
from dfwtrace.rows import ArrayRows
from dfwtrace.setup import Examiner
from dfwtrace.solvers import Problem
from dfwtrace.tasks import ScoresTask, ShardProgram

Array = npt.NDArray[np.float64]
CASES = [(task, form) for task in (LeastSquares(), Multinomial()) for form in task.representations]
IDS = [f"{task.name}-{form}" for task, form in CASES]
TASKS = [LeastSquares(), Multinomial()]
N, D, M, RADIUS = 30, 6, 4, 2.0

rng = np.random.default_rng(0)
X = rng.standard_normal((N, D)) * np.array([3.0, 2.0, 1.0, 0.5, 0.3, 0.1])
TARGETS = {"least squares": rng.standard_normal((N, M)), "multinomial": np.arange(N) % M}

Build = Callable[..., Problem]


@pytest.fixture
def problem_of() -> Iterator[Build]:
    with ExitStack() as stack:

        def build(
            task: ScoresTask, form: str = "implicit", features: Array = X, y: Any = None
        ) -> Problem:
            y = TARGETS[task.name] if y is None else y
            shape = task.shape(features, y)
            program = ShardProgram(task.represent(form), shape)
            rows = ArrayRows.examined(features, y, Examiner(task))
            workers = LocalEngine(4, 2).start(program, rows)
            stack.callback(workers.close)
            return Problem(workers, shape, RADIUS, quadratic=task.loss.quadratic)

        yield build


def objective(task: ScoresTask, W: Array) -> float:
    S, y = X @ W, TARGETS[task.name]
    if task.name == "least squares":
        return 0.5 * float(np.sum((S - y) ** 2))
    return float(np.sum(logsumexp(S, axis=1) - S[np.arange(N), y]))


def gradient(task: ScoresTask, W: Array) -> Array:
    S, y = X @ W, TARGETS[task.name]
    return X.T @ (S - y if task.name == "least squares" else softmax(S, axis=1) - np.eye(M)[y])


def inside(seed: int, share: float = 0.8, rank: int = 2) -> LowRankMatrix:
    """A random matrix whose trace norm is that share of the radius."""
    draw = np.random.default_rng(seed)
    W = LowRankMatrix(
        draw.standard_normal((D, rank)), np.ones(rank), draw.standard_normal((M, rank))
    ).compress()
    return W * (share * RADIUS / W.trace_norm)


def atom(seed: int) -> RankOne:
    draw = np.random.default_rng(seed)
    u, v = draw.standard_normal(D), draw.standard_normal(M)
    return RankOne(-RADIUS, u / np.linalg.norm(u), v / np.linalg.norm(v))


@pytest.mark.parametrize(("task", "form"), CASES, ids=IDS)
def test_value_and_gradient(problem_of: Build, task: ScoresTask, form: str) -> None:
    problem, W = problem_of(task, form), inside(1)
    value = problem.begin(W)
    G = gradient(task, W.to_dense())
    assert value.objective == pytest.approx(objective(task, W.to_dense()), rel=1e-12)
    assert value.inner == pytest.approx(np.vdot(W.to_dense(), G), rel=1e-10)
    assert problem.objective_at_zero == pytest.approx(objective(task, np.zeros((D, M))), rel=1e-12)
    np.testing.assert_allclose(problem.gradient.gather(), G, atol=1e-11)


@pytest.mark.parametrize(("task", "form"), CASES, ids=IDS)
def test_gradient_is_the_slope_of_the_objective(
    problem_of: Build, task: ScoresTask, form: str
) -> None:
    """Central differences of the problem's own objective, entry by entry."""
    problem, W, h = problem_of(task, form), inside(2), 1e-5
    problem.begin(W)
    G, differences = problem.gradient.gather(), np.empty((D, M))
    for i, j in np.ndindex(D, M):
        bump = LowRankMatrix(np.eye(D)[:, [i]], [h], np.eye(M)[:, [j]])
        ahead, behind = (problem.begin(moved).objective for moved in (W + bump, W - bump))
        differences[i, j] = (ahead - behind) / (2.0 * h)
    np.testing.assert_allclose(G, differences, atol=1e-6)


@pytest.mark.parametrize(("task", "form"), CASES, ids=IDS)
def test_line_has_the_derivatives_of_the_objective(
    problem_of: Build, task: ScoresTask, form: str
) -> None:
    problem, W, S = problem_of(task, form), inside(3), atom(4)
    problem.begin(W)
    line = problem.line(S)
    D_ = S.scale * np.outer(S.u, S.v) - W.to_dense()
    for gamma in (0.0, 0.3, 1.0):
        here = W.to_dense() + gamma * D_
        slope, curvature = line.derivatives(gamma)
        assert slope == pytest.approx(np.vdot(D_, gradient(task, here)), rel=1e-9)
        h = 1e-5
        change = gradient(task, here + h * D_) - gradient(task, here - h * D_)
        assert curvature == pytest.approx(np.vdot(D_, change) / (2.0 * h), rel=1e-5)
    assert line.quadratic == (task.name == "least squares")


@pytest.mark.parametrize(("task", "form"), CASES, ids=IDS)
def test_update_moves_to_what_restart_would_build(
    problem_of: Build, task: ScoresTask, form: str
) -> None:
    moved, built, W = problem_of(task, form), problem_of(task, form), inside(5)
    moved.begin(W)
    for seed, gamma in [(6, 0.4), (7, 1.0), (8, 0.05), (9, 0.0)]:
        moved.update(atom(seed), gamma)
        W = W.toward(atom(seed), gamma)
    there = built.begin(W)
    here = moved.evaluate(W)
    assert here.objective == pytest.approx(there.objective, rel=1e-11)
    assert here.inner == pytest.approx(there.inner, rel=1e-9, abs=1e-9)
    np.testing.assert_allclose(moved.gradient.gather(), built.gradient.gather(), atol=1e-10)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_certificate_is_the_gap(problem_of: Build, task: ScoresTask) -> None:
    problem, W = problem_of(task), inside(10)
    value = problem.begin(W)
    G = gradient(task, W.to_dense())
    gap = np.vdot(W.to_dense(), G) + RADIUS * np.linalg.norm(G, 2)
    assert gap <= problem.certificate(value.inner).gap <= gap * (1.0 + 1e-8)


@pytest.mark.parametrize("deflates", [False, True])
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_certificate_with_the_factors_of_w_is_the_gap_too(
    problem_of: Build, task: ScoresTask, deflates: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few factors of a matrix that is large enough: the bound comes from products with them."""
    monkeypatch.setattr(certificate, "SMALL_ENTRIES", 45 * 41 - 1)
    draw = np.random.default_rng(12)
    d, m, n = 45, 41, 60
    features = draw.standard_normal((n, d))
    y = draw.standard_normal((n, m)) if task.name == "least squares" else np.arange(n) % m
    problem = problem_of(task, "implicit", features, y)
    problem.deflates = deflates
    W = LowRankMatrix(
        draw.standard_normal((d, 2)), 0.01 * np.ones(2), draw.standard_normal((m, 2))
    ).compress()
    value = problem.begin(W)
    G = problem.gradient.gather()
    gap = np.vdot(W.to_dense(), G) + RADIUS * np.linalg.norm(G, 2)
    found = problem.certificate(value.inner, W=W)
    assert found.method == ("lanczos" if deflates else "dense")
    assert gap * (1.0 - 1e-12) <= found.gap <= gap * 1.12
    assert problem.certificate(value.inner).method == "dense"


@pytest.mark.parametrize("rank", [0, 1, 3])
@pytest.mark.parametrize(("task", "form"), CASES, ids=IDS)
def test_tangent_goes_to_w_in_two_rounds(
    problem_of: Build, task: ScoresTask, form: str, rank: int
) -> None:
    problem, W = problem_of(task, form), inside(13, rank=3)
    W = LowRankMatrix(W.U[:, :rank], W.s[:rank], W.V[:, :rank])
    problem.begin(inside(14))
    problem.workers.take()
    tangent = problem.tangent(W)
    _, other, _ = problem.workers.take()
    assert other.rounds == 2
    assert other.numbers == 4 * (2 + (D + M) * rank + (D + M + 1) * rank)
    G = gradient(task, W.to_dense())
    assert tangent.objective == pytest.approx(objective(task, W.to_dense()), rel=1e-12)
    assert tangent.inner == pytest.approx(np.vdot(W.to_dense(), G), rel=1e-10, abs=1e-12)
    np.testing.assert_allclose(tangent.products, G @ W.V, atol=1e-11)
    np.testing.assert_allclose(tangent.transposed, G.T @ W.U, atol=1e-11)
    np.testing.assert_allclose(problem.gradient.gather(), G, atol=1e-11)  # the states are there


def test_tangent_that_overflows_is_an_error(problem_of: Build) -> None:
    problem = problem_of(LeastSquares())
    W = LowRankMatrix(np.full((D, 1), 1e200), [1.0], np.ones((M, 1)))
    with np.errstate(all="ignore"), pytest.raises(ArithmeticError, match="is not finite"):
        problem.tangent(W)


@pytest.mark.parametrize(("task", "form"), CASES, ids=IDS)
def test_lipschitz_bound_holds_over_the_ball(
    problem_of: Build, task: ScoresTask, form: str
) -> None:
    problem = problem_of(task, form)
    problem.begin(inside(11))
    lipschitz = problem.setting().constants().lipschitz
    u, _, vt = np.linalg.svd(gradient(task, np.zeros((D, M))))
    worst = -RADIUS * np.outer(np.linalg.svd(X)[2][0], vt[0])
    extremes = [worst, -worst, -RADIUS * np.outer(u[:, 0], vt[0])]
    dense = [inside(seed, share=1.0, rank=1 + seed % 3).to_dense() for seed in range(50)]
    norms = [np.linalg.norm(gradient(task, W), 2) for W in extremes + dense]
    assert max(norms) <= lipschitz
    assert lipschitz <= 10.0 * max(norms)  # a bound, and not just any large number


@pytest.mark.parametrize(("task", "form"), CASES, ids=IDS)
def test_curvature_bound_holds_over_the_ball(
    problem_of: Build, task: ScoresTask, form: str
) -> None:
    """C_F = sup 2/γ² (F(Z) - F(W) - ⟨Z - W, ∇F(W)⟩) over Z = W + γ(S - W)."""
    problem = problem_of(task, form)
    problem.begin(LowRankMatrix.zeros((D, M)))
    bound = problem.setting().constants().curvature
    top = np.linalg.svd(X)[2][0]
    ends = [RADIUS * np.outer(top, np.eye(M)[0]), -RADIUS * np.outer(top, np.eye(M)[0])]
    ends += [inside(seed, share=1.0, rank=1).to_dense() for seed in range(8)]
    seen = 0.0
    for W in ends:
        for S in ends:
            for gamma in (0.05, 0.5, 1.0):
                Z = W + gamma * (S - W)
                rise = objective(task, Z) - objective(task, W)
                rise -= float(np.vdot(Z - W, gradient(task, W)))
                seen = max(seen, 2.0 / gamma**2 * rise)
    assert seen <= bound * (1.0 + 1e-9)
    if task.name == "least squares":  # where it is known: 4 μ² σ₁(X)²
        assert seen == pytest.approx(4.0 * RADIUS**2 * np.linalg.norm(X, 2) ** 2, rel=1e-6)
        assert bound == pytest.approx(seen, rel=1e-3)


def test_rounds_are_kept_apart(problem_of: Build) -> None:
    problem = problem_of(LeastSquares())
    problem.begin(LowRankMatrix.zeros((D, M)))
    problem.workers.take()
    with problem.counted_for_oracle():
        problem.gradient.times(np.ones(M))
    problem.gradient.times(np.ones(M))
    problem.gradient.gather()
    oracle, other, _ = problem.workers.take()
    assert (oracle.rounds, other.rounds) == (1, 2)


def test_rounds_are_kept_apart_after_an_error(problem_of: Build) -> None:
    problem = problem_of(LeastSquares())
    problem.begin(LowRankMatrix.zeros((D, M)))
    problem.workers.take()
    with pytest.raises(KeyboardInterrupt), problem.counted_for_oracle():
        raise KeyboardInterrupt
    problem.gradient.times(np.ones(M))
    oracle, other, _ = problem.workers.take()
    assert (oracle.rounds, other.rounds) == (0, 1)


def test_random_starts_follow_the_seed(problem_of: Build) -> None:
    setting = problem_of(LeastSquares()).setting()
    assert setting.radius == RADIUS
    assert setting.shape == (D, M)
    assert not np.array_equal(setting.random_start(0), setting.random_start(1))
