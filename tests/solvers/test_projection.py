"""Projected gradient steps against the full SVD."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.problems import random_matrix
from tests.truth import project_onto_ball

import dfwtrace as dt
from dfwtrace.solvers import projection
from dfwtrace.solvers.projection import leading_pairs, onto_simplex, project, view

Array = npt.NDArray[Any]
SHAPES = [(9, 6), (6, 9), (7, 7), (1, 5), (5, 1)]


def gradient(shape: tuple[int, int], seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def all_of(size: int) -> Array:
    """A view of everything."""
    return np.eye(size)


@pytest.fixture
def one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "_STEPS", 1)


@pytest.mark.usefixtures("one_step")
@pytest.mark.parametrize("radius", [0.1, 0.2])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_step_is_the_nearest_matrix_of_the_ball(shape: tuple[int, int], radius: float) -> None:
    W, G, L = random_matrix(min(2, *shape), shape, 3, 0.05), gradient(shape), 3.0
    step = project(W, G, L * np.eye(shape[0]), L, radius, all_of(shape[1]))
    assert step is not None
    expected = project_onto_ball(W.to_dense() - G / L, radius)
    np.testing.assert_allclose(step.W.to_dense(), expected, atol=1e-10)
    assert step.W.trace_norm <= radius * (1.0 + 1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_there_is_none_where_the_ball_holds_nothing_back(shape: tuple[int, int]) -> None:
    W, G = dt.LowRankMatrix.zeros(shape), gradient(shape)
    assert project(W, G, np.eye(shape[0]), 1.0, 1e4, all_of(shape[1])) is None


@pytest.mark.usefixtures("one_step")
@pytest.mark.parametrize("shape", SHAPES)
def test_few_pairs_are_those_of_the_matrix_cut_off(shape: tuple[int, int]) -> None:
    G, radius, L = gradient(shape, 1), 0.3, 2.0
    count = max(1, min(shape) // 2)
    U, s, Vt = np.linalg.svd(-G / L, full_matrices=False)
    cut = (U[:, :count] * s[:count]) @ Vt[:count]
    zero = dt.LowRankMatrix.zeros(shape)
    V = view(zero, G, L, count, np.zeros((shape[1], 0)))
    np.testing.assert_allclose(V.T @ V, np.eye(count), atol=1e-12)
    step = project(zero, G, L * np.eye(shape[0]), L, radius, V)
    assert step is not None
    np.testing.assert_allclose(step.W.to_dense(), project_onto_ball(cut, radius), atol=1e-10)


def random_squares(shape: tuple[int, int], seed: int) -> tuple[Array, Array, dt.LowRankMatrix]:
    """H and B of F = ½⟨W, HW⟩ - ⟨B, W⟩, and a W."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((4 * shape[0], shape[0]))
    return X.T @ X, 10.0 * rng.standard_normal(shape), random_matrix(2, shape, seed, 0.1)


@pytest.mark.parametrize("shape", SHAPES)
def test_all_steps_together_lower_a_quadratic_by_more_than_one(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the values of F themselves, and the curvature on the way against a difference."""
    H, B, W = random_squares(shape, 5)
    dense, radius, L = W.to_dense(), 0.5 * W.trace_norm + 0.2, float(np.diag(H).mean())
    values = [0.5 * np.vdot(dense, H @ dense) - np.vdot(B, dense)]
    for steps in (1, 3, 200):
        monkeypatch.setattr(projection, "_STEPS", steps)
        found = project(W, H @ dense - B, H, L, radius, all_of(shape[1]))
        assert found is not None
        after = found.W.to_dense()
        values.append(0.5 * np.vdot(after, H @ after) - np.vdot(B, after))
        assert found.W.trace_norm <= radius * (1.0 + 1e-12)
        eigenvalues = np.linalg.eigvalsh(H)
        assert eigenvalues[0] * (1.0 - 1e-9) <= found.lipschitz <= eigenvalues[-1] * (1.0 + 1e-9)
    if W.trace_norm <= radius:
        assert values[1] < values[0]
    assert values[3] <= values[2] <= values[1]
    # At the end there is no slope left towards any matrix of the ball.
    G = H @ after - B
    gap = float(np.vdot(G, after)) + radius * float(np.linalg.norm(G, 2))
    assert gap <= 1e-6 * abs(values[0] - values[3]) + 1e-9 * np.abs(B).max()


@pytest.mark.parametrize("shape", [(60, 40), (40, 60)])
def test_a_view_follows_the_leading_vectors(shape: tuple[int, int]) -> None:
    """From one nearby by an iteration, else by LAPACK."""
    rng = np.random.default_rng(4)
    U, V = (np.linalg.qr(rng.standard_normal((size, 40)))[0] for size in shape)
    M, zero = (U * np.geomspace(1.0, 1e-3, 40)) @ V.T, dt.LowRankMatrix.zeros(shape)
    near = np.linalg.qr(V[:, :8] + 0.01 * rng.standard_normal((shape[1], 8)))[0]
    for known in (np.zeros((shape[1], 0)), near):
        found = view(zero, -M, 1.0, 8, known)
        assert found.shape == (shape[1], 8)
        np.testing.assert_allclose(found.T @ found, np.eye(8), atol=1e-12)
        assert np.linalg.norm(V[:, :8] - found @ (found.T @ V[:, :8])) < 0.02


@pytest.mark.parametrize("lowest", [0.5, 1e-4, 1e-7])
@pytest.mark.parametrize("shape", [(400, 300), (300, 400)])
def test_many_columns_are_as_exact(shape: tuple[int, int], lowest: float) -> None:
    """Float32 comes first there, where the values that are wanted lie within its digits."""
    rng = np.random.default_rng(2)
    U, V = (np.linalg.qr(rng.standard_normal((size, 300)))[0] for size in shape)
    s = np.geomspace(1.0, lowest, 300)
    M = (U * s) @ V.T
    left, found, right = leading_pairs(M, 40)
    np.testing.assert_allclose(found, s[:40], rtol=1e-5 if lowest < 1e-6 else 1e-9)
    np.testing.assert_allclose(right.T @ right, np.eye(40), atol=1e-8)
    np.testing.assert_allclose(M @ right, left * found, atol=1e-5)
    np.testing.assert_allclose(
        (left * found) @ right.T, (U[:, :40] * s[:40]) @ V[:, :40].T, atol=1e-4
    )


@pytest.mark.usefixtures("one_step")
def test_what_is_left_out_comes_next() -> None:
    G, zero = gradient((9, 6)), dt.LowRankMatrix.zeros((9, 6))
    V = view(zero, G, 1.0, 5, np.zeros((6, 0)))
    step = project(zero, G, np.eye(9), 1.0, 0.5, V)
    assert step is not None
    U, V = step.rest
    rank = step.W.rank
    assert 0 < rank < 5
    assert U.shape == (9, 5 - rank)
    s = np.linalg.svd(G, compute_uv=False)
    np.testing.assert_allclose(np.abs(np.diag(U.T @ G @ V)), s[rank:5], rtol=1e-9)
    np.testing.assert_allclose(np.hstack([step.W.U, U]).T @ U, np.eye(5)[:, rank:], atol=1e-9)


def test_nothing_is_left_of_zero() -> None:
    U, s, V = leading_pairs(np.zeros((4, 3)), 2)
    assert (U.shape, s.shape, V.shape) == ((4, 0), (0,), (3, 0))
    zero = dt.LowRankMatrix.zeros((4, 3))
    assert project(zero, np.zeros((4, 3)), np.eye(4), 1.0, 1.0, all_of(3)) is None


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_squares_neither_overflow_nor_vanish(scale: float) -> None:
    M = gradient((5, 4))
    U, s, V = leading_pairs(M * scale, 4)
    np.testing.assert_allclose(s, scale * np.linalg.svd(M, compute_uv=False), rtol=1e-9)
    np.testing.assert_allclose((U * (s / scale)) @ V.T, M, atol=1e-9)


def test_what_a_large_value_exceeds_is_not_lost() -> None:
    kept = onto_simplex(np.array([1e12 + 0.5, 1e12, 1.0]), 1.0)
    np.testing.assert_allclose(kept, [0.75, 0.25, 0.0], atol=1e-3)
