"""The accelerated solver's iterates: in the ball, ever lower, and where the shards' states are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.problems import FORMS, TASKS, random_matrix
from tests.truth import true_gap, value_and_gradient

from dfwtrace import LowRankMatrix
from dfwtrace.solvers.accelerated import Descent
from dfwtrace.solvers.factor_steps import evaluate_at
from dfwtrace.solvers.problem import Iterate, Problem, Start

Array = npt.NDArray[Any]
RADII = [0.05, 1.0, 4.0, 100.0]
N, D, M = 40, 9, 6

rng = np.random.default_rng(0)
X = rng.standard_normal((N, D))
TARGETS: dict[str, Any] = {
    "least squares": X @ rng.standard_normal((D, M)) + rng.standard_normal((N, M)),
    "multinomial": rng.integers(0, M, size=N),
}
Run = Callable[..., tuple[Problem, list[Iterate]]]


def iterates_from(problem: Problem, W: LowRankMatrix, epochs: int) -> list[Iterate]:
    start = Start(W, problem.begin(W), epochs)
    return list(Descent(problem, start).iterates(start))


@pytest.fixture
def run(problem_of: Callable[..., Problem]) -> Run:
    def iterate(
        name: str,
        radius: float,
        form: str = "implicit",
        features: Array = X,
        start: LowRankMatrix | None = None,
        epochs: int = 60,
    ) -> tuple[Problem, list[Iterate]]:
        problem = problem_of(name, features, TARGETS[name], radius=radius, representation=form)
        W = LowRankMatrix.zeros((D, M)) if start is None else start
        return problem, iterates_from(problem, W, epochs)

    return iterate


def check(name: str, problem: Problem, iterates: list[Iterate], features: Array = X) -> None:
    """What holds for every iterate, and for the shards when the solver has ended."""
    assert [iterate.epoch for iterate in iterates] == list(range(1, len(iterates) + 1))
    scale, rounding = problem.objective_at_zero, 1e-12
    for W, objective, inner, gap, sigma in (i[1:6] for i in iterates):
        assert W.trace_norm <= problem.radius * (1.0 + 1e-10)
        value, G = value_and_gradient(name, features, TARGETS[name], W.to_dense())
        assert objective == pytest.approx(value, abs=rounding * scale)
        true_inner, true_sigma = float(np.vdot(W.to_dense(), G)), float(np.linalg.norm(G, 2))
        size = abs(true_inner) + problem.radius * true_sigma + scale
        assert inner == pytest.approx(true_inner, abs=1e-10 * size)
        assert problem.radius * (sigma - true_sigma) <= 1e-9 * size  # a lower bound of σ₁
        assert gap == pytest.approx(inner + problem.radius * sigma, abs=rounding * size)
    objectives = np.array([scale] + [iterate.objective for iterate in iterates])
    # Dropping factors may raise F by a little of the gap, no more.
    gaps = np.array([np.inf] + [max(0.0, iterate.gap_estimate) for iterate in iterates])
    assert np.all(np.diff(objectives) <= 0.02 * gaps[:-1] + rounding * scale)
    # And by less than it has fallen since the last look around, which is 65 epochs ago at the most.
    for epoch in range(2, len(objectives)):
        assert objectives[epoch] <= objectives[max(1, epoch - 65)] + rounding * scale
    report = problem.workers.sum("report")
    assert report[0] == pytest.approx(iterates[-1].objective, abs=rounding * scale)
    assert report[1] == pytest.approx(iterates[-1].inner, abs=rounding * scale)


@pytest.mark.parametrize("radius", RADII)
@pytest.mark.parametrize(("name", "form"), FORMS)
def test_every_iterate_is_what_it_says_and_the_shards_are_at_the_last(
    run: Run, name: str, form: str, radius: float
) -> None:
    """Without a target it runs until nothing helps, through all kinds of steps."""
    problem, iterates = run(name, radius, form, epochs=200)
    check(name, problem, iterates)
    gap = true_gap(name, X, TARGETS[name], iterates[-1].W.to_dense(), radius)
    assert gap <= 1e-5 * problem.objective_at_zero


@pytest.mark.parametrize("radius", [1.0, 100.0])
@pytest.mark.parametrize("name", TASKS)
def test_badly_scaled_features_keep_all_promises(run: Run, name: str, radius: float) -> None:
    features = X * np.logspace(0.0, -6.0, D)
    problem, iterates = run(name, radius, features=features, epochs=150)
    check(name, problem, iterates, features)


@pytest.mark.parametrize(("rank", "share"), [(1, 1.0), (3, 0.3), (M, 1.0)])
@pytest.mark.parametrize(("name", "form"), FORMS)
def test_a_start_inside_or_on_the_boundary_of_any_rank(
    run: Run, name: str, form: str, rank: int, share: float
) -> None:
    start = random_matrix(1, (D, M), rank, share * 2.0)
    problem, iterates = run(name, 2.0, form, start=start, epochs=30)
    check(name, problem, iterates)
    assert iterates[0].objective <= value_and_gradient(name, X, TARGETS[name], start.to_dense())[0]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", TASKS)
def test_factors_that_matter_are_never_trimmed(run: Run, name: str, seed: int) -> None:
    """In the middle of a large ball the gap is large in comparison with the gradient."""
    features = np.random.default_rng(seed).standard_normal((N, D))
    problem, iterates = run(name, 1000.0, features=features, epochs=200)
    check(name, problem, iterates, features)
    assert iterates[-1].objective <= 1.0000001 * min(i.objective for i in iterates)


def test_the_optimum_at_zero_is_reached_from_elsewhere(problem_of: Callable[..., Problem]) -> None:
    """A step from the identity that ends at zero exactly, which has no factors."""
    eye = np.eye(M)
    problem = problem_of("least squares", eye, np.zeros((M, M)), radius=float(M))
    start = LowRankMatrix(eye, np.ones(M), eye)
    last = iterates_from(problem, start, 20)[-1]
    assert last.objective <= 1e-25
    assert last.W.trace_norm <= 1e-12


def test_no_epochs_yield_nothing(run: Run) -> None:
    assert run("least squares", 1.0, epochs=0)[1] == []


def test_float32_ends_without_nan(run: Run) -> None:
    for name in TASKS:
        for radius in RADII:
            _, iterates = run(name, radius, features=X.astype(np.float32), epochs=60)
            assert np.isfinite([iterate[2:7] for iterate in iterates]).all()
            for iterate in iterates:
                assert iterate.W.trace_norm <= radius * (1.0 + 1e-10)


def test_a_gap_that_falls_slowly_is_progress(run: Run) -> None:
    """Within F's rounding error, one per cent a step is progress; none at all is not."""
    problem, iterates = run("multinomial", 5.0, epochs=5)
    W = iterates[-1].W
    descent = Descent(problem, Start(W, problem.begin(W), epochs=250))
    point = evaluate_at(problem, W)
    descent._accept(point, 0.0)

    def stay(gap: float) -> None:
        inner = gap - problem.radius * descent._sigma
        descent._accept(point._replace(tangent=point.tangent._replace(inner=inner)), 1.0)

    for k in range(200):
        stay(0.99**k)
        assert descent._without_progress <= 11
    for _ in range(50):
        stay(0.99**200)
    assert not descent.step()
