"""The ball's coordinates x = (A, B, z): W, F and its gradient against dense computations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.problems import FORMS, random_matrix
from tests.truth import value_and_gradient

from dfwtrace import LowRankMatrix
from dfwtrace.solvers.factor_steps import evaluate, evaluate_at, trimmed
from dfwtrace.solvers.problem import Problem

Array = npt.NDArray[np.float64]
N, D, M, RADIUS = 25, 6, 4, 2.5

rng = np.random.default_rng(0)
X = rng.standard_normal((N, D))
TARGETS: dict[str, Any] = {
    "least squares": rng.standard_normal((N, M)),
    "multinomial": np.arange(N) % M,
}


@pytest.fixture(params=FORMS, ids="-".join)
def problem(request: pytest.FixtureRequest, problem_of: Callable[..., Problem]) -> Problem:
    name, form = request.param
    return problem_of(name, X, TARGETS[name], radius=RADIUS, representation=form)


def point(seed: int, rank: int) -> Array:
    return np.random.default_rng(seed).standard_normal(rank * (D + M) + 1)


def matrix(x: Array) -> Array:
    rank = (x.size - 1) // (D + M)
    A, B = x[: D * rank].reshape(D, rank), x[D * rank : -1].reshape(M, rank)
    W: Array = 2.0 * RADIUS * A @ B.T / (x @ x)
    return W


@pytest.mark.parametrize("rank", [1, 3, 4])
def test_the_gradient_is_that_of_finite_differences(problem: Problem, rank: int) -> None:
    x, step = point(rank, rank), 1e-5
    differences = [
        (
            evaluate(problem, x + step * unit).tangent.objective
            - evaluate(problem, x - step * unit).tangent.objective
        )
        / (2.0 * step)
        for unit in np.eye(x.size)
    ]
    gradient = evaluate(problem, x).gradient
    np.testing.assert_allclose(gradient, differences, atol=1e-6 * np.abs(gradient).max())


def test_a_point_stands_for_its_matrix(problem: Problem) -> None:
    x = point(1, 3)
    found = evaluate(problem, x)
    np.testing.assert_allclose(found.W.to_dense(), matrix(x), atol=1e-13)
    same = problem.begin(LowRankMatrix(matrix(x), np.ones(M), np.eye(M)))
    assert found.tangent.objective == pytest.approx(same.objective, rel=1e-12)
    assert found.tangent.inner == pytest.approx(same.inner, rel=1e-10)
    G = problem.gradient.gather()
    np.testing.assert_allclose(found.tangent.products, G @ found.W.V, atol=1e-10)
    np.testing.assert_allclose(found.tangent.transposed, G.T @ found.W.U, atol=1e-10)


@pytest.mark.parametrize("share", [0.2, 1.0])
@pytest.mark.parametrize("rank", [1, 4])
def test_a_matrix_is_found_again_in_its_coordinates(
    problem: Problem, rank: int, share: float
) -> None:
    W = random_matrix(2, (D, M), rank, share * RADIUS)
    at = evaluate_at(problem, W)
    np.testing.assert_allclose(matrix(at.x), W.to_dense(), atol=1e-12)
    again = evaluate(problem, at.x)
    np.testing.assert_allclose(
        at.gradient, again.gradient, atol=1e-10 * np.abs(again.gradient).max()
    )
    assert at.tangent.objective == pytest.approx(again.tangent.objective, rel=1e-12)


def test_zero_is_a_point_without_factors(problem: Problem) -> None:
    at = evaluate_at(problem, LowRankMatrix.zeros((D, M)))
    assert at.x == pytest.approx([np.sqrt(2.0 * RADIUS)])
    assert at.tangent.inner == 0.0
    assert not at.gradient.any()


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_no_point_is_outside_the_ball_and_its_length_does_not_matter(
    problem_of: Callable[..., Problem], scale: float
) -> None:
    problem = problem_of("multinomial", X, TARGETS["multinomial"], radius=RADIUS)
    for seed in range(20):
        x = point(seed, 1 + seed % 4)
        x[-1] *= seed % 2  # also with z = 0
        found = evaluate(problem, scale * x)
        assert found.W.trace_norm <= RADIUS * (1.0 + 1e-12)
        np.testing.assert_allclose(found.W.to_dense(), matrix(x), rtol=1e-9, atol=1e-12)
        # F does not change along x.
        assert abs(found.gradient @ x) <= 1e-9 * float(
            np.linalg.norm(found.gradient) * np.linalg.norm(x)
        )
    value = value_and_gradient("multinomial", X, TARGETS["multinomial"], found.W.to_dense())[0]
    assert found.tangent.objective == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("rank", [1, 3])
def test_trimming_nothing_keeps_the_matrix_and_all_lengths(rank: int) -> None:
    x, other = point(5, rank), point(6, rank)
    change = trimmed(x, x, (D, M), 0.0)
    assert change(x).size == x.size
    np.testing.assert_allclose(matrix(change(x)), matrix(x), atol=1e-13)
    assert change(x) @ change(x) == pytest.approx(x @ x)
    assert change(x) @ change(other) == pytest.approx(x @ other)
    np.testing.assert_allclose(change(x + other), change(x) + change(other), atol=1e-13)


def test_columns_that_are_rotated_copies_are_trimmed_without_loss() -> None:
    """Two columns that differ by a factor are one column, once they are turned."""
    stacked = np.random.default_rng(7).standard_normal((D + M, 2))
    columns = np.column_stack([stacked, 3.0 * stacked[:, 0], np.zeros(D + M)])
    x = np.append(columns.ravel(), 0.7)
    change = trimmed(x, x, (D, M), 1e-10)
    assert (change(x).size - 1) // (D + M) == 2
    np.testing.assert_allclose(matrix(change(x)), matrix(x), atol=1e-12)
    assert change(x) @ change(x) == pytest.approx(x @ x)


def test_trimming_drops_no_more_than_its_mass() -> None:
    weights = np.array([1.0, 0.3, 1e-2, 1e-3])
    x = np.append((np.random.default_rng(8).standard_normal((D + M, 4)) * weights).ravel(), 0.2)
    for mass in (1e-9, 1e-5, 1e-3, 0.5):
        lost = 0.5 * (x @ x - np.sum(trimmed(x, x, (D, M), mass)(x) ** 2))
        assert -1e-12 <= lost <= mass
    sizes = [trimmed(x, x, (D, M), mass)(x).size for mass in (1e-9, 1e-4, 1e-2)]
    assert sizes[0] > sizes[1] > sizes[2]


def test_one_column_always_stays() -> None:
    x = point(9, 3)
    assert trimmed(x, x, (D, M), 1e9)(x).size == D + M + 1
    assert trimmed(point(9, 1), point(9, 1), (D, M), 1e9)(point(9, 1)).size == D + M + 1


def test_columns_that_want_to_grow_stay() -> None:
    """Where -gradient points along a column, F falls as it grows, however short it is."""
    weights = np.array([1.0, 0.5, 1e-3, 1e-3])
    columns = np.linalg.qr(np.random.default_rng(10).standard_normal((D + M, 4))).Q * weights
    x = np.append(columns.ravel(), 0.2)
    gradient = np.append((columns * [1.0, 1.0, 1.0, -1.0]).ravel(), 0.0)
    # Of the same length, they are any turn of each other, unless one is a little longer.
    x[3:-1:4] *= 1.1
    gradient[3:-1:4] *= 1.1
    kept = trimmed(x, gradient, (D, M), 1e-3)(x)
    assert (kept.size - 1) // (D + M) == 3
    lost = trimmed(x, x, (D, M), 1e-3)(x)
    assert (lost.size - 1) // (D + M) == 2
    # A column of rounding errors goes, whatever its slope.
    x[3:-1:4] *= 1e-8
    kept = trimmed(x, -x, (D, M), 1e-3)(x)
    assert (kept.size - 1) // (D + M) == 3
