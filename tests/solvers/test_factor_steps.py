"""Steps in W's factors: they lower F, begin boldly, and go on the same from what is remembered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.problems import TASKS

from dfwtrace.solvers.factor_steps import BallPoint, FactorSteps, evaluate
from dfwtrace.solvers.problem import Problem

N, D, M, RANK, RADIUS = 25, 6, 4, 2, 2.5

rng = np.random.default_rng(0)
X = rng.standard_normal((N, D))
TARGETS: dict[str, Any] = {
    "least squares": rng.standard_normal((N, M)),
    "multinomial": np.arange(N) % M,
}


@pytest.fixture(params=TASKS)
def problem(request: pytest.FixtureRequest, problem_of: Callable[..., Problem]) -> Problem:
    return problem_of(request.param, X, TARGETS[request.param], radius=RADIUS)


def start(problem: Problem, seed: int = 1) -> BallPoint:
    x = np.random.default_rng(seed).standard_normal(RANK * (D + M) + 1)
    return evaluate(problem, x)


def follow(steps: FactorSteps, point: BallPoint, count: int, curvature: float) -> list[BallPoint]:
    points = [point]
    for _ in range(count):
        taken = steps.take(points[-1], curvature, noise=0.0)
        assert taken is not None
        points.append(taken[0])
    return points


@pytest.mark.parametrize("curvature", [1.0, 30.0, 1e5])
def test_every_step_lowers_F_whatever_the_first_goes_by(problem: Problem, curvature: float) -> None:
    points = follow(FactorSteps(problem), start(problem), 14, curvature)
    values = [point.tangent.objective for point in points]
    assert (np.diff(values) < 0.0).all()
    lengths = [float(np.linalg.norm(point.gradient)) for point in points]
    assert lengths[-1] < 0.05 * lengths[0]


def test_the_first_step_is_short_enough(problem: Problem) -> None:
    point = start(problem)
    taken = FactorSteps(problem).take(point, 1e-9, noise=0.0)
    assert taken is not None
    assert np.linalg.norm(taken[0].x - point.x) <= 0.1001 * np.linalg.norm(point.x)


def test_where_F_is_flat_there_is_no_step(problem: Problem) -> None:
    flat = start(problem)._replace(gradient=np.zeros(RANK * (D + M) + 1))
    assert FactorSteps(problem).take(flat, 1.0, noise=0.0) is None


def test_steps_go_on_with_the_same_bits_from_what_is_remembered(problem: Problem) -> None:
    steps = FactorSteps(problem)
    points = follow(steps, start(problem), 3, 30.0)
    other = FactorSteps(problem)
    other.restore(steps.memory())
    there, here = (follow(one, points[-1], 3, 30.0)[-1] for one in (steps, other))
    np.testing.assert_array_equal(there.x, here.x)
    # Without a memory it goes elsewhere.
    assert not np.array_equal(follow(FactorSteps(problem), points[-1], 3, 30.0)[-1].x, here.x)
