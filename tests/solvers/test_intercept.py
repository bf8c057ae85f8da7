"""The best intercept for the W where the shards are, found in rounds of a few numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp, softmax

from dfwtrace import LeastSquares, LocalEngine, LowRankMatrix, Multinomial
from dfwtrace.engines import Workers
from dfwtrace.rows import ArrayRows
from dfwtrace.setup import Examiner
from dfwtrace.solvers import Intercept
from dfwtrace.tasks import ShardProgram

N, D, M = 40, 5, 4
PRECISION = 8.0 * float(np.finfo(np.float64).eps)
FORMS = [(kind, form) for kind in ("ls", "mn") for form in ("implicit", "dense", "factored")]

rng = np.random.default_rng(0)
X = rng.standard_normal((N, D)) + 3.0
CENTRE = X.mean(axis=0)
TARGETS: dict[str, Any] = {
    "ls": rng.standard_normal((N, M)) + 5.0,
    "mn": np.concatenate([np.arange(M), rng.choice(M, N - M, p=[0.7, 0.1, 0.1, 0.1])]),
}
W = LowRankMatrix(rng.standard_normal((D, 2)), [0.5, 0.2], rng.standard_normal((M, 2)))
FAR = LowRankMatrix(rng.standard_normal((D, 2)), [3.0, 1.0], rng.standard_normal((M, 2)))

Build = Callable[..., tuple[Intercept, Workers]]


@pytest.fixture
def intercept_of() -> Iterator[Build]:
    with ExitStack() as stack:

        def build(kind: str, form: str) -> tuple[Intercept, Workers]:
            task = LeastSquares() if kind == "ls" else Multinomial()
            program = ShardProgram(task.represent(form), (D, M))
            rows = ArrayRows.examined(X, TARGETS[kind], Examiner(task))
            workers = LocalEngine(3, 1).start(program, rows)
            stack.callback(workers.close)
            return Intercept(workers, M, CENTRE, task.loss.smoothness, PRECISION), workers

        yield build


def go_to(intercept: Intercept, workers: Workers, at: LowRankMatrix) -> None:
    workers.build("stats", at.U, at.s, at.V, intercept.b, intercept.centre)
    intercept.settle()


def plain(kind: str, at: LowRankMatrix, b: Any) -> tuple[float, float, Any]:
    """F, ⟨W, ∇F⟩ and the gradient in b."""
    S, y = (X - CENTRE) @ at.to_dense(), TARGETS[kind]
    if kind == "ls":
        R = S + b - y
        value = 0.5 * float(np.sum(R**2))
    else:
        R = softmax(S + b, axis=1) - np.eye(M)[y]
        value = float(np.sum(logsumexp(S + b, axis=1) - (S + b)[np.arange(N), y]))
    return value, float(np.vdot(S, R)), R.sum(axis=0)


def methods(workers: Workers) -> list[str]:
    return [made.method for made in workers.rounds]


@pytest.mark.parametrize(("kind", "form"), FORMS)
def test_b_is_where_its_gradient_vanishes(kind: str, form: str, intercept_of: Build) -> None:
    intercept, workers = intercept_of(kind, form)
    for at in (LowRankMatrix.zeros((D, M)), W, FAR, W):
        go_to(intercept, workers, at)
        value, inner, gradient = plain(kind, at, intercept.b)
        np.testing.assert_allclose(gradient, 0.0, atol=1e-5)
        assert intercept.objective == pytest.approx(value, rel=1e-12)
        assert intercept.inner == pytest.approx(inner, rel=1e-9, abs=1e-9)


def test_the_mean_is_best_for_least_squares_in_one_step(intercept_of: Build) -> None:
    intercept, workers = intercept_of("ls", "implicit")
    for at in (W, FAR):
        workers.rounds.clear()
        go_to(intercept, workers, at)
        np.testing.assert_allclose(intercept.b, TARGETS["ls"].mean(axis=0), atol=1e-12)
        assert methods(workers).count("shift") <= 1


@pytest.mark.parametrize(("kind", "form"), FORMS)
def test_where_b_is_best_it_does_not_move(kind: str, form: str, intercept_of: Build) -> None:
    intercept, workers = intercept_of(kind, form)
    go_to(intercept, workers, W)
    b = intercept.b.copy()
    workers.rounds.clear()
    intercept.settle()
    assert methods(workers) == ["balance"]
    np.testing.assert_array_equal(intercept.b, b)


@pytest.mark.parametrize("form", ["implicit", "dense", "factored"])
def test_a_b_nearby_takes_few_rounds(form: str, intercept_of: Build) -> None:
    intercept, workers = intercept_of("mn", form)
    go_to(intercept, workers, W)
    nearby = LowRankMatrix(W.U, 1.001 * W.s, W.V)
    workers.rounds.clear()
    go_to(intercept, workers, nearby)
    assert methods(workers).count("shift") <= 8


@pytest.mark.parametrize("far", [-30.0, 30.0])
def test_a_start_far_from_the_best_is_left(far: float, intercept_of: Build) -> None:
    intercept, workers = intercept_of("mn", "implicit")
    intercept.b = np.array([far, -far, 0.0, far])
    go_to(intercept, workers, W)
    np.testing.assert_allclose(plain("mn", W, intercept.b)[2], 0.0, atol=1e-5)


@pytest.mark.parametrize(("kind", "form"), FORMS)
def test_a_run_that_goes_on_takes_the_same_steps(kind: str, form: str, intercept_of: Build) -> None:
    (first, one), (second, other) = intercept_of(kind, form), intercept_of(kind, form)
    go_to(first, one, W)
    second.restore(first.memory())
    assert (second.objective, second.inner) == (first.objective, first.inner)
    for intercept, workers in ((first, one), (second, other)):
        workers.rounds.clear()
        go_to(intercept, workers, FAR)
    np.testing.assert_array_equal(second.b, first.b)
    assert methods(other) == methods(one)


def test_numbers_that_are_not_finite_are_named(intercept_of: Build) -> None:
    intercept, workers = intercept_of("ls", "implicit")
    intercept.b = np.full(M, 1e200)
    with (
        np.errstate(over="ignore"),
        pytest.raises(ArithmeticError, match="objective or its gradient is not"),
    ):
        go_to(intercept, workers, W)
