"""The block oracle: what it sees of σ₁ from some vectors, and views that hide the leading ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.problems import TASKS, random_matrix
from tests.truth import true_gap, value_and_gradient

import dfwtrace as dt
from dfwtrace import LowRankMatrix
from dfwtrace.solvers.accelerated import Descent
from dfwtrace.solvers.block_oracle import (
    first_look,
    look,
    next_probes,
    outside_pairs,
    random_probes,
)
from dfwtrace.solvers.factors import Point, evaluate, factors_of
from dfwtrace.solvers.problem import Problem, Start

Array = npt.NDArray[Any]
Build = Callable[..., Problem]
N, D, M, RADIUS = 30, 8, 6, 2.0
SHAPE = D, M

rng = np.random.default_rng(0)
X = rng.standard_normal((N, D))
TARGETS: dict[str, Any] = {
    "least squares": rng.standard_normal((N, M)),
    "multinomial": np.arange(N) % M,
}


def point_of(problem_of: Build, name: str, rank: int, probes: tuple[Array, Array]) -> Point:
    problem = problem_of(name, X, TARGETS[name], radius=RADIUS)
    W = random_matrix(rank, SHAPE, rank, 1.5) if rank else LowRankMatrix.zeros(SHAPE)
    return evaluate(problem, factors_of(W, RADIUS, np.zeros(0)), 0, probes)


def gradient(name: str, point: Point) -> Array:
    return value_and_gradient(name, X, TARGETS[name], point.W.to_dense())[1]


@pytest.mark.parametrize("rank", [0, 1, 4])
@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("name", TASKS)
def test_what_is_seen_is_a_lower_bound(problem_of: Build, name: str, count: int, rank: int) -> None:
    point = point_of(problem_of, name, rank, random_probes(SHAPE, count, rng))
    G, seen = gradient(name, point), look(point)
    assert seen.inside <= seen.sigma <= np.linalg.norm(G, 2) * (1.0 + 1e-12)
    assert (seen.sigma > 0.0) == (rank + count > 0)
    if rank + count:
        assert seen.u @ G @ seen.v == pytest.approx(seen.sigma, rel=1e-9)
        assert np.linalg.norm(seen.u) == pytest.approx(1.0)
        assert np.linalg.norm(seen.v) == pytest.approx(1.0)
    if rank:
        B = point.parts.B
        basis = np.linalg.qr(B).Q
        assert seen.inside == pytest.approx(np.linalg.norm(G @ basis, 2), rel=1e-9)


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("name", TASKS)
def test_enough_probes_see_all(problem_of: Build, name: str, rank: int) -> None:
    point = point_of(problem_of, name, rank, random_probes(SHAPE, M, rng))
    assert look(point).sigma == pytest.approx(np.linalg.norm(gradient(name, point), 2), rel=1e-10)


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("name", TASKS)
def test_pairs_outside_are_the_svd_of_the_gradient_there(
    problem_of: Build, name: str, rank: int
) -> None:
    point = point_of(problem_of, name, rank, random_probes(SHAPE, 3, rng))
    G, (U, s, V), (Q, P) = gradient(name, point), outside_pairs(point), point.probes
    np.testing.assert_allclose(U.T @ G @ V, np.diag(s), atol=1e-9 * s[0])
    for vectors in (U, V):
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(3), atol=1e-10)
    best = max(np.linalg.norm(G @ P, 2), np.linalg.norm(Q.T @ G, 2))
    assert s[0] == pytest.approx(best, rel=1e-10)
    assert np.all(np.diff(s) <= 0.0)


@pytest.mark.parametrize("rank", range(M + 1))
@pytest.mark.parametrize("count", [1, 3, 16])
def test_the_next_probes_are_orthonormal_and_outside_the_factors(
    problem_of: Build, rank: int, count: int
) -> None:
    point = point_of(problem_of, "multinomial", rank, random_probes(SHAPE, 3, rng))
    A, B = rng.standard_normal((D, rank)), rng.standard_normal((M, rank))
    for block, factor in zip(next_probes(point, A, B, count, rng), (A, B), strict=True):
        # So many as both sides have room for.
        assert block.shape == (len(factor), min(count, M - rank))
        np.testing.assert_allclose(block.T @ block, np.eye(block.shape[1]), atol=1e-12)
        np.testing.assert_allclose(factor.T @ block, 0.0, atol=1e-12)


def test_factors_of_deficient_rank_leave_their_span_to_the_probes(problem_of: Build) -> None:
    point = point_of(problem_of, "multinomial", 2, random_probes(SHAPE, 3, rng))
    A, B = np.zeros((D, 2)), np.ones((M, 2))
    Q, P = next_probes(point, A, B, 3, rng)
    np.testing.assert_allclose(Q.T @ Q, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(P.T @ P, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(B.T @ P, 0.0, atol=1e-10)


def test_probes_of_one_matrix_become_its_leading_vectors(problem_of: Build) -> None:
    """A block power iteration that takes no products of its own; without W's factors in its way."""
    problem = problem_of("least squares", X, TARGETS["least squares"], radius=RADIUS)
    x = factors_of(LowRankMatrix.zeros(SHAPE), RADIUS, np.zeros(0))
    point = evaluate(problem, x, 0, random_probes(SHAPE, 2, rng))
    A, B, _, _ = point.parts
    for _ in range(60):
        point = evaluate(problem, x, 0, next_probes(point, A, B, 2, rng))
    U, s, Vt = np.linalg.svd(gradient("least squares", point))
    seen = look(point)
    assert seen.sigma == pytest.approx(s[0], rel=1e-9)
    assert abs(seen.u @ U[:, 0]) == pytest.approx(1.0, rel=1e-6)
    assert abs(seen.v @ Vt[0]) == pytest.approx(1.0, rel=1e-6)


def test_probes_whose_images_vanish_are_drawn_anew(problem_of: Build) -> None:
    problem = problem_of("least squares", np.eye(D), np.zeros((D, M)), radius=RADIUS)
    x = factors_of(LowRankMatrix.zeros(SHAPE), RADIUS, np.zeros(0))
    point = evaluate(problem, x, 0, random_probes(SHAPE, 3, rng))
    A, B, _, _ = point.parts
    for block in next_probes(point, A, B, 3, rng):
        assert block.shape[1] == 3
        np.testing.assert_allclose(block.T @ block, np.eye(3), atol=1e-12)
    assert look(point).sigma == 0.0


# Views that hide the leading directions


def certified_from(problem: Problem, descent: Descent, x: Array, probes: Any) -> Array:
    """Σ of the gap estimate and of F after each epoch from x, seen from given probes."""
    descent._point = evaluate(problem, x, 0, probes)
    descent._seen = look(descent._point)
    found = []
    for _ in range(200):
        if not descent.step():
            break
        found.append((descent._point.objective, descent._gap))
    return np.array(found)


@pytest.mark.parametrize(
    "values", [[10.0, 5.0, 0.0], [10.0, 5.0, 4.0, 3.0, 2.0, 1.0], np.linspace(10.0, 1.0, 30)]
)
def test_a_leading_pair_that_nothing_points_at_is_found(
    problem_of: Build, values: list[float]
) -> None:
    """diag(10, 5, …) seen from the span of the other unit vectors, where products stay."""
    size = len(values)
    eye, Y = np.eye(size), np.diag(values)
    problem = problem_of("least squares", eye, Y, radius=3.0)
    W = LowRankMatrix(eye[:, 1:2], np.array([1.0]), eye[:, 1:2])
    descent = Descent(problem, Start(W, problem.begin(W), 200))
    others = eye[:, 2 : 2 + 8]
    certified_from(problem, descent, factors_of(W, 3.0, np.zeros(0)), (others, others))
    found = descent._point.W.to_dense()
    assert true_gap("least squares", eye, Y, found, 3.0) <= 1e-6 * 0.5 * np.sum(Y**2)


@pytest.mark.parametrize("name", TASKS)
def test_a_start_orthogonal_to_the_solution_ends_at_the_optimum(name: str) -> None:
    """Rows of two kinds that share no feature and no target; W knows only those of one kind."""
    rng = np.random.default_rng(2)
    half = 12
    X = np.zeros((80, 2 * half))
    X[:40, :half], X[40:, half:] = rng.standard_normal((2, 40, half))
    if name == "least squares":
        y: Any = np.zeros((80, 2 * half))
        y[:40, :half] = 10.0 * X[:40, :half] @ rng.standard_normal((half, half))
        y[40:, half:] = 0.1 * X[40:, half:] @ rng.standard_normal((half, half))
        task: Any = dt.LeastSquares()
    else:
        y = np.concatenate([X[:40, :half].argmax(axis=1), np.arange(40) % half + half])
        task = dt.Multinomial(2 * half)
    U, V = (np.vstack([np.zeros((half, 3)), rng.standard_normal((half, 3))]) for _ in range(2))
    start = LowRankMatrix(U, np.full(3, 0.01), V).compress()
    result = dt.solve(task, X, y, radius=4.0, start=start, tol=1e-7, verbose=False)
    assert result.status == "optimal"
    gap = true_gap(name, X, y, result.W.to_dense(), 4.0)
    assert gap <= 1.1e-7 * result.objective_at_zero


# Where a run begins


def at_zero(problem: Problem) -> Point:
    zero = LowRankMatrix.zeros(SHAPE)
    problem.begin(zero)
    return evaluate(problem, factors_of(zero, RADIUS, np.zeros(0)), 0)


@pytest.mark.parametrize("name", TASKS)
def test_a_point_is_known_where_the_shards_are_already(problem_of: Build, name: str) -> None:
    problem = problem_of(name, X, TARGETS[name], radius=RADIUS)
    here = at_zero(problem)
    value, _ = value_and_gradient(name, X, TARGETS[name], np.zeros(SHAPE))
    assert here.objective == pytest.approx(value)
    assert here.probes[0].shape == (D, 0)
    assert look(here).sigma == 0.0
    assert outside_pairs(here).s.size == 0


@pytest.mark.parametrize("count", [1, 3, M])
@pytest.mark.parametrize("name", TASKS)
def test_a_first_look_is_of_products_with_the_gradient(
    problem_of: Build, name: str, count: int
) -> None:
    problem = problem_of(name, X, TARGETS[name], radius=RADIUS)
    here = at_zero(problem)
    G = gradient(name, here)
    point = first_look(problem.gradient, here, count, np.random.default_rng(1))
    (Q, P), (images, back) = point.probes, point.images
    count = min(count, np.linalg.matrix_rank(G))
    np.testing.assert_allclose(Q.T @ Q, np.eye(count), atol=1e-9)
    np.testing.assert_allclose(P.T @ P, np.eye(count), atol=1e-9)
    np.testing.assert_allclose(images, G @ P, atol=1e-9)
    np.testing.assert_allclose(back, G.T @ Q, atol=1e-9)
    seen, largest = look(point), np.linalg.norm(G, 2)
    assert seen.sigma <= largest * (1.0 + 1e-12)
    if count >= M - 1:  # all that there is
        assert seen.sigma == pytest.approx(largest)


def test_a_first_look_comes_close_to_the_leading_pair(problem_of: Build) -> None:
    """As a step of subspace iteration does, and random vectors do not."""
    features = np.random.default_rng(2).standard_normal((200, 60))
    Y = np.outer(features[:, 0], np.ones(50)) + np.random.default_rng(3).standard_normal((200, 50))
    problem = problem_of("least squares", features, Y, radius=RADIUS)
    zero = LowRankMatrix.zeros((60, 50))
    problem.begin(zero)
    here = evaluate(problem, factors_of(zero, RADIUS, np.zeros(0)), 0)
    largest = np.linalg.norm(features.T @ Y, 2)
    seen = look(first_look(problem.gradient, here, 4, np.random.default_rng(4)))
    assert 0.99 * largest <= seen.sigma <= largest * (1.0 + 1e-12)


def test_nothing_is_seen_where_the_gradient_is_zero(problem_of: Build) -> None:
    problem = problem_of("least squares", X, np.zeros((N, M)), radius=RADIUS)
    point = first_look(problem.gradient, at_zero(problem), M, rng)
    assert look(point).sigma == 0.0
    assert outside_pairs(point).s.size == 0
