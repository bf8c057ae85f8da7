"""Projections onto the trace-norm ball through blocks of vectors, against dense SVDs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfwtrace import LeastSquares, LowRankMatrix, solve
from dfwtrace.solvers.problem import Problem
from dfwtrace.solvers.projection import (
    View,
    as_orthonormal,
    onto_simplex,
    outside_span,
    spectral_norm,
    sufficient_rank,
)

Array = npt.NDArray[np.float64]
D, M = 7, 5


def random_matrix(seed: int, d: int = D, m: int = M) -> Array:
    return np.random.default_rng(seed).standard_normal((d, m))


def project(Z: Array, radius: float) -> Array:
    """By bisection for θ, so that it owes nothing to `onto_simplex`."""
    U, s, Vt = np.linalg.svd(Z, full_matrices=False)
    if s.sum() <= radius:
        return Z
    low, high = 0.0, float(s[0])
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if np.maximum(s - middle, 0.0).sum() > radius else (low, middle)
    return (U * np.maximum(s - low, 0.0)) @ Vt


def view_of(W: Array, G: Array, Q: Array, radius: float, share: float = 1.0) -> View:
    return View(Q, W.T @ Q, G.T @ Q, radius, share)


HUGE = st.one_of(st.floats(0.0, 1e3), st.floats(0.0, 1e20), st.floats(1e17, 1e17 + 1e3))


@given(st.lists(HUGE, min_size=1, max_size=12), st.floats(1e-3, 1e4))
def test_values_on_the_simplex_add_up_to_the_radius(values: list[float], radius: float) -> None:
    """All of them less one θ, or zero: also where s - θ would have lost its digits."""
    s = np.sort(np.array(values))[::-1]
    moved = onto_simplex(s, radius)
    assert np.all(moved >= 0.0)
    assert moved.sum() <= radius * (1.0 + 1e-12)
    if s.sum() <= radius:
        np.testing.assert_array_equal(moved, s)
        return
    assert moved.sum() >= radius * (1.0 - 1e-12)
    kept = moved > 0.0
    lost = s[0] - moved[0]  # θ
    np.testing.assert_allclose(s[0] - s[kept], moved[0] - moved[kept], atol=1e-12 * radius)
    assert np.all(s[~kept] <= lost + 1e-12 * (lost + radius))


def test_the_least_rank_that_is_near_enough() -> None:
    values = np.array([3.0, 2.0, 0.1])
    assert [sufficient_rank(values, 10.0, excess) for excess in (5.0, 0.1, 0.0)] == [1, 2, 3]


def test_equal_values_are_cut_alike() -> None:
    np.testing.assert_array_equal(onto_simplex(np.full(4, 2.0), 4.0), np.ones(4))
    np.testing.assert_array_equal(onto_simplex(np.array([5.0]), 1.0), [1.0])
    np.testing.assert_array_equal(onto_simplex(np.zeros(3), 1.0), np.zeros(3))
    np.testing.assert_array_equal(onto_simplex(np.full(4, 1e20), 1e-3), np.full(4, 2.5e-4))


@given(
    st.tuples(st.integers(1, 6), st.integers(1, 6)),
    st.floats(-5.0, 20.0).map(lambda power: 10.0**power),
    st.floats(-3.0, 4.0).map(lambda power: 10.0**power),
    st.sampled_from([0.5, 0.99, 1.0]),
    st.integers(0, 2**32 - 1),
)
def test_a_step_stays_in_the_ball_however_large_the_gradient(
    shape: tuple[int, int], size: float, radius: float, share: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    W, G = project(rng.standard_normal(shape), radius), size * rng.standard_normal(shape)
    step = view_of(W, G, np.eye(shape[0]), radius, share).step(0.1)
    assert np.isfinite(step.W.to_dense()).all()
    assert step.W.trace_norm <= radius * (1.0 + 1e-9)
    assert step.slope <= 1e-9 * size * radius  # downhill, or not at all


@pytest.mark.parametrize("shape", [(7, 5), (5, 7), (6, 6), (4, 1), (1, 4), (1, 1)])
@pytest.mark.parametrize("radius", [0.1, 1.0, 5.0, 1e3])
@pytest.mark.parametrize("lipschitz", [0.3, 10.0])
def test_a_view_of_everything_gives_the_projection(
    shape: tuple[int, int], radius: float, lipschitz: float
) -> None:
    W, G = project(random_matrix(1, *shape), radius), random_matrix(2, *shape)
    step = view_of(W, G, np.eye(shape[0]), radius).step(lipschitz)
    expected = project(W - G / lipschitz, radius)
    found = step.W.to_dense()
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-11 * radius)
    assert step.complete
    assert step.slope == pytest.approx(float(np.vdot(G, expected - W)), rel=1e-8)
    assert step.squared == pytest.approx(float(np.sum((expected - W) ** 2)), rel=1e-8)
    assert step.W.trace_norm <= radius * (1.0 + 1e-12)
    assert step.W.rank == np.linalg.matrix_rank(expected, tol=1e-6)
    np.testing.assert_allclose(step.W.U.T @ step.W.U, np.eye(step.W.rank), atol=1e-12)
    np.testing.assert_allclose(step.W.V.T @ step.W.V, np.eye(step.W.rank), atol=1e-8)


def test_a_view_of_the_leading_vectors_is_enough() -> None:
    """Two values above θ, and a view of three left vectors: the other four are not missed."""
    U = np.linalg.qr(random_matrix(3, D, D))[0]
    V = np.linalg.qr(random_matrix(4, M, M))[0]
    Z = (U[:, :M] * [9.0, 8.0, 1.0, 0.5, 0.1]) @ V.T
    whole = project(Z, 3.0)
    zero = np.zeros((D, M))
    step = view_of(zero, -Z, U[:, :3], 3.0).step(1.0)
    assert step.complete
    assert step.W.rank == 2
    np.testing.assert_allclose(step.W.to_dense(), whole, atol=1e-12)
    # The vector that was cut off comes first among those to spare.
    spare = step.spare[:, 0] / np.linalg.norm(step.spare[:, 0])
    assert abs(spare @ V[:, 2]) == pytest.approx(1.0)
    short = view_of(zero, -Z, U[:, :2], 30.0).step(1.0)
    assert not short.complete


def test_that_the_least_value_is_cut_off_proves_nothing() -> None:
    """Seen from span(e₂, e₃), diag(10, 5, 0) lacks its largest value."""
    Z, zero = np.diag([10.0, 5.0, 0.0]), np.zeros((3, 3))
    step = view_of(zero, -Z, np.eye(3)[:, 1:], 3.0).step(1.0)
    assert step.complete  # a sign, no more
    np.testing.assert_allclose(step.W.to_dense(), np.diag([0.0, 3.0, 0.0]), atol=1e-12)
    np.testing.assert_allclose(project(Z, 3.0), np.diag([3.0, 0.0, 0.0]), atol=1e-12)
    # A run that begins there finds the missing direction, and its certificate holds.
    start = LowRankMatrix(np.eye(3)[:, 1:2], [3.0], np.eye(3)[:, 1:2])
    for form in LeastSquares.representations:
        options: Any = {"solver": "accelerated", "tol": 1e-9, "representation": form}
        result = solve(LeastSquares(), np.eye(3), Z, radius=3.0, start=start, **options)
        assert result.status == "optimal"
        np.testing.assert_allclose(result.W.to_dense(), np.diag([3.0, 0.0, 0.0]), atol=1e-3)
        assert 0.0 <= result.objective - 37.0 <= result.gap


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9, 0.99, 1.0])
@pytest.mark.parametrize("radius", [2.0, 40.0, 1e3])
def test_a_share_of_the_promise_takes_the_least_rank_that_has_it(
    share: float, radius: float
) -> None:
    W, G, lipschitz = project(random_matrix(7), 1.5), random_matrix(5), 0.1
    step = view_of(W, G, np.eye(D), radius, share).step(lipschitz)
    U, s, Vt = np.linalg.svd(W - G / lipschitz)
    best = [project((U[:, :k] * s[:k]) @ Vt[:k], radius) for k in range(1, M + 1)]

    def promise(target: np.ndarray) -> float:
        change = target - W
        return -float(np.vdot(G, change)) - 0.5 * lipschitz * float(np.vdot(change, change))

    promises = np.array([promise(target) for target in best])
    least = int(np.flatnonzero(promises >= share * promises.max() - 1e-9)[0])
    np.testing.assert_allclose(step.W.to_dense(), best[least], rtol=0.0, atol=1e-9 * radius)
    assert step.W.trace_norm <= radius * (1.0 + 1e-12)
    assert step.complete


def test_nothing_to_move_gives_zero() -> None:
    zero = np.zeros((D, M))
    step = view_of(zero, zero, np.eye(D), 1.0).step(1.0)
    assert step.W.rank == 0
    assert (step.slope, step.squared) == (0.0, 0.0)


def test_where_the_gradient_vanishes_the_step_stays() -> None:
    W = project(random_matrix(6), 2.0)
    step = view_of(W, np.zeros_like(W), np.eye(D), 2.0).step(1.0)
    np.testing.assert_allclose(step.W.to_dense(), W, rtol=0.0, atol=1e-12)
    assert step.squared <= 1e-24


def norm_on(image: Array, factor: Array) -> float:
    return spectral_norm(as_orthonormal(image, factor))


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_norm_on_a_span_is_that_of_an_orthonormal_basis(rank: int) -> None:
    G, B = random_matrix(9), random_matrix(10, M, rank)
    expected = np.linalg.norm(G @ np.linalg.qr(B)[0], 2)
    assert norm_on(G @ B, B) == pytest.approx(expected)
    twice = np.hstack([B, B[:, :1]])  # a column that adds nothing to the span
    assert norm_on(G @ twice, twice) == pytest.approx(expected)


def test_norm_on_no_span_is_zero() -> None:
    assert norm_on(np.zeros((D, 0)), np.zeros((M, 0))) == 0.0
    assert norm_on(np.zeros((D, 2)), np.zeros((M, 2))) == 0.0
    assert spectral_norm(np.zeros((D, 0))) == 0.0


@pytest.mark.parametrize("form", ["gram", "implicit"])
@pytest.mark.parametrize("orthonormal", [True, False])
def test_what_lies_beyond_the_known_vectors_is_found(
    problem_of: Callable[..., Problem], form: str, orthonormal: bool
) -> None:
    """½‖W - Y‖² has the gradient -Y at zero; of its singular vectors the first three are known."""
    (d, m), rng = (9, 7), np.random.default_rng(0)
    U, V = (np.linalg.qr(rng.standard_normal((size, m))).Q for size in (d, m))
    Y = (U * [20.0, 8.9, 8.8, 8.7, 8.6, 1.0, 0.5]) @ V.T
    known = V[:, :3] if orthonormal else V[:, :3] @ rng.standard_normal((3, 4))
    problem = problem_of("least squares", np.eye(d), Y, representation=form)
    problem.restart(LowRankMatrix.zeros((d, m)))
    found = outside_span(problem.gradient, known, rng.standard_normal((m, 2)), 3)
    first = outside_span(problem.gradient, known[:, :0], rng.standard_normal((m, 1)), 20)
    np.testing.assert_allclose(abs(first[:, 0] @ V[:, 0]), 1.0, atol=1e-2)
    np.testing.assert_allclose(found.T @ found, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(found.T @ V[:, :3], 0.0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(found.T @ V[:, 3:5], axis=0), 1.0, atol=1e-3)
