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
from dfwtrace.solvers.accelerated import Descent, shorter
from dfwtrace.solvers.factors import split
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
    objectives = np.array([iterate.objective for iterate in iterates])
    assert np.all(np.diff(objectives) <= rounding * scale)
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
    objective = value_and_gradient(name, X, TARGETS[name], start.to_dense())[0]
    assert iterates[0].objective <= objective
    check(name, problem, iterates)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", TASKS)
def test_columns_that_matter_are_never_trimmed(run: Run, name: str, seed: int) -> None:
    """In the middle of a large ball the gap is large in comparison with the gradient."""
    features = np.random.default_rng(seed).standard_normal((N, D))
    problem, iterates = run(name, 1000.0, features=features, epochs=200)
    check(name, problem, iterates, features)
    gap = true_gap(name, features, TARGETS[name], iterates[-1].W.to_dense(), 1000.0)
    assert gap <= 1e-4 * problem.objective_at_zero


@pytest.mark.parametrize("radius", [0.3, 2.0])
@pytest.mark.parametrize("name", TASKS)
def test_columns_that_the_solution_lacks_are_trimmed(run: Run, name: str, radius: float) -> None:
    """From a start of full rank to the solution's, with nothing left of the others."""
    start = random_matrix(2, (D, M), M, radius)
    _, iterates = run(name, radius, start=start, epochs=200)
    _, other = run(name, radius, epochs=200)
    ranks = [
        int((np.linalg.svd(i.W.to_dense())[1] > 1e-4 * radius).sum())
        for i in (iterates[-1], other[-1])
    ]
    assert ranks[0] == ranks[1] < M
    assert iterates[-1].W.rank <= ranks[0] + 1


def test_dropped_columns_cost_no_more_than_a_share_of_what_a_step_promises(run: Run) -> None:
    """F rises by at most that share of the promise, whatever the columns are turned to."""
    problem, iterates = run("least squares", 2.0, epochs=6)
    W = iterates[-1].W
    descent = Descent(problem, Start(W, problem.begin(W), 1))
    x, before = descent._point.x, descent._point.objective
    A, B, z, b = split(x, (D, M), 0)
    rank = A.shape[1]
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((rank + 2, rank + 2))).Q
    for size in (1e-2, 1e-4, 1e-6):
        few = size * np.random.default_rng(1).standard_normal((D + M, 2))
        A2, B2 = np.hstack([A, few[:D]]) @ turn, np.hstack([B, few[D:]]) @ turn
        x = np.concatenate([A2.ravel(), B2.ravel(), z, b])
        wider = descent._evaluate(x, descent._next_probes(x)).objective
        for promised in (1e-6 * before, 1e-3 * before, before):
            kept = descent._trimming(x, promised)(x)
            after = descent._evaluate(kept, descent._next_probes(kept)).objective
            assert after - wider <= 0.005 * promised + 1e-12 * before
    # Nothing but rounding errors goes if nothing is promised.
    assert descent._trimming(x, 0.0) is np.positive


def test_the_optimum_at_zero_is_reached_from_elsewhere(problem_of: Callable[..., Problem]) -> None:
    """From the identity to zero exactly, which has no factors."""
    eye = np.eye(M)
    problem = problem_of("least squares", eye, np.zeros((M, M)), radius=float(M))
    start = LowRankMatrix(eye, np.ones(M), eye)
    last = iterates_from(problem, start, 100)[-1]
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
    point, sigma, first = descent._point, descent._seen.sigma, descent._gap

    def stay(gap: float) -> None:
        descent._accept(point._replace(inner=gap - problem.radius * sigma), 1.0)

    for k in range(200):
        stay(first * 0.99**k)
        assert descent._without_progress <= 11
    for _ in range(50):
        stay(first * 0.99**200)
    assert not descent.step()


def test_a_run_continues_from_its_memory(problem_of: Callable[..., Problem]) -> None:
    """To the same bits, when the shards are back where they were."""
    for name in TASKS:
        problem = problem_of(name, X, TARGETS[name], radius=4.0)
        zero = LowRankMatrix.zeros((D, M))
        start = Start(zero, problem.begin(zero), 12)
        whole = list(Descent(problem, start).iterates(start))
        zero_again = Start(zero, problem.begin(zero), 5)
        half = list(Descent(problem, zero_again).iterates(zero_again))[-1]
        again = Start(half.W, start.value, 12, first=5, memory=half.memory())
        rest = list(Descent(problem, again).iterates(again))
        assert [i.objective for i in rest] == [i.objective for i in whole[5:]]


@pytest.mark.parametrize(("slope", "rise"), [(-1.0, 1.0), (-1.0, -0.1), (-1e-3, 5.0), (-1.0, 1e9)])
def test_a_shorter_step_is_to_the_lowest_point_of_the_parabola(slope: float, rise: float) -> None:
    """Of that slope at 0 and that rise at 1; but neither too short nor hardly shorter."""
    t = np.linspace(0.0, 1.0, 100_001)
    lowest = t[np.argmin(slope * t + (rise - slope) * t**2)]
    assert shorter(slope, rise) == pytest.approx(min(0.5, max(0.1, lowest)), abs=1e-4)
