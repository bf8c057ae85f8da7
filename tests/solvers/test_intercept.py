"""The best intercept for the W where the shards are, found in rounds of a few numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.problems import TASKS
from tests.truth import value_and_gradients

from dfwtrace import LowRankMatrix
from dfwtrace.solvers.intercept import Intercept
from dfwtrace.solvers.problem import Problem

N, D, M = 40, 5, 4
SCORES = ["implicit", "dense", "factored"]
FORMS = [(name, form) for name in TASKS for form in SCORES]

rng = np.random.default_rng(0)
X = rng.standard_normal((N, D)) + 3.0
TARGETS: dict[str, Any] = {
    "least squares": rng.standard_normal((N, M)) + 5.0,
    "multinomial": np.concatenate([np.arange(M), rng.choice(M, N - M, p=[0.7, 0.1, 0.1, 0.1])]),
}
W = LowRankMatrix(rng.standard_normal((D, 2)), [0.5, 0.2], rng.standard_normal((M, 2)))
FAR = LowRankMatrix(rng.standard_normal((D, 2)), [3.0, 1.0], rng.standard_normal((M, 2)))

Build = Callable[..., tuple[Problem, Intercept]]


@pytest.fixture
def build(problem_of: Callable[..., Problem]) -> Build:
    def build(name: str, form: str = "implicit") -> tuple[Problem, Intercept]:
        problem = problem_of(name, X, TARGETS[name], representation=form, intercept=True)
        assert problem.intercept is not None
        np.testing.assert_allclose(problem.intercept.centre, X.mean(axis=0), rtol=1e-14)
        return problem, problem.intercept

    return build


def plain(name: str, at: LowRankMatrix, b: Any) -> tuple[float, float, Any]:
    """F, ⟨W, ∇F⟩ and the gradient in b, of centred features."""
    W = at.to_dense()
    F, G, of_b = value_and_gradients(name, X - X.mean(axis=0), TARGETS[name], W, b)
    return F, float(np.vdot(W, G)), of_b


def methods_of(problem: Problem, act: Callable[[], None]) -> list[str]:
    """The rounds that it takes."""
    before = len(problem.workers.rounds)
    act()
    return [made.method for made in problem.workers.rounds[before:]]


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_b_is_where_its_gradient_vanishes_and_stays_there(
    build: Build, name: str, form: str
) -> None:
    problem, intercept = build(name, form)
    for at in (LowRankMatrix.zeros((D, M)), W, FAR, W):
        problem.restart(at)
        value, inner, gradient = plain(name, at, intercept.b)
        np.testing.assert_allclose(gradient, 0.0, atol=1e-5)
        assert intercept.objective == pytest.approx(value, rel=1e-12)
        assert intercept.inner == pytest.approx(inner, rel=1e-9, abs=1e-9)
    b = intercept.b.copy()
    assert methods_of(problem, intercept.settle) == ["balance"]
    np.testing.assert_array_equal(intercept.b, b)


def test_the_mean_is_best_for_least_squares_in_one_step(build: Build) -> None:
    problem, intercept = build("least squares")
    for at in (W, FAR):
        methods = methods_of(problem, lambda at=at: problem.restart(at))  # type: ignore[misc]
        np.testing.assert_allclose(intercept.b, TARGETS["least squares"].mean(axis=0), atol=1e-12)
        assert methods.count("shift") <= 1


@pytest.mark.parametrize("form", SCORES)
def test_a_b_nearby_takes_few_rounds(build: Build, form: str) -> None:
    problem, _ = build("multinomial", form)
    problem.restart(W)
    nearby = LowRankMatrix(W.U, 1.001 * W.s, W.V)
    assert methods_of(problem, lambda: problem.restart(nearby)).count("shift") <= 8


@pytest.mark.parametrize("far", [-30.0, 30.0])
def test_a_start_far_from_the_best_is_left(build: Build, far: float) -> None:
    problem, intercept = build("multinomial")
    intercept.b = np.array([far, -far, 0.0, far])
    problem.restart(W)
    np.testing.assert_allclose(plain("multinomial", W, intercept.b)[2], 0.0, atol=1e-5)


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_a_run_that_goes_on_takes_the_same_steps(build: Build, name: str, form: str) -> None:
    (problem, first), (other, second) = build(name, form), build(name, form)
    problem.restart(W)
    first.leave_zero()
    second.restore(first.memory())
    assert (second.objective, second.inner) == (first.objective, first.inner)
    here, there = (methods_of(one, lambda p=one: p.restart(FAR)) for one in (problem, other))  # type: ignore[misc]
    np.testing.assert_array_equal(second.b, first.b)
    assert here == there


def test_numbers_that_are_not_finite_are_named(build: Build) -> None:
    problem, intercept = build("least squares")
    intercept.b = np.full(M, 1e200)
    with (
        np.errstate(over="ignore"),
        pytest.raises(ArithmeticError, match="objective or its gradient is not"),
    ):
        problem.restart(W)
