"""Projected gradient steps against the full SVD."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.problems import random_matrix
from tests.truth import project_onto_ball

import dfwtrace as dt
from dfwtrace.solvers.projection import leading_pairs, onto_simplex, project

Array = npt.NDArray[Any]
SHAPES = [(9, 6), (6, 9), (7, 7), (1, 5), (5, 1)]


def gradient(shape: tuple[int, int], seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("radius", [0.1, 2.0, 1e4])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_step_is_the_nearest_matrix_of_the_ball(shape: tuple[int, int], radius: float) -> None:
    W, G, L = random_matrix(min(2, *shape), shape, 3, 0.05), gradient(shape), 3.0
    step = project(W, G, L, radius, min(shape))
    expected = project_onto_ball(W.to_dense() - G / L, radius)
    np.testing.assert_allclose(step.W.to_dense(), expected, atol=1e-10)
    change = expected - W.to_dense()
    assert step.slope == pytest.approx(np.vdot(G, change), rel=1e-9)
    assert step.squared == pytest.approx(np.vdot(change, change), rel=1e-9)
    assert step.W.trace_norm <= radius * (1.0 + 1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_few_pairs_are_those_of_the_matrix_cut_off(shape: tuple[int, int]) -> None:
    G, radius, L = gradient(shape, 1), 0.7, 2.0
    count = max(1, min(shape) // 2)
    U, s, Vt = np.linalg.svd(-G / L, full_matrices=False)
    cut = (U[:, :count] * s[:count]) @ Vt[:count]
    step = project(dt.LowRankMatrix.zeros(shape), G, L, radius, count)
    np.testing.assert_allclose(step.W.to_dense(), project_onto_ball(cut, radius), atol=1e-10)


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


def test_what_is_left_out_comes_next() -> None:
    G = gradient((9, 6))
    step = project(dt.LowRankMatrix.zeros((9, 6)), G, 1.0, 0.5, 5)
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
    assert project(dt.LowRankMatrix.zeros((4, 3)), np.zeros((4, 3)), 1.0, 1.0, 2).W.rank == 0


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_squares_neither_overflow_nor_vanish(scale: float) -> None:
    M = gradient((5, 4))
    U, s, V = leading_pairs(M * scale, 4)
    np.testing.assert_allclose(s, scale * np.linalg.svd(M, compute_uv=False), rtol=1e-9)
    np.testing.assert_allclose((U * (s / scale)) @ V.T, M, atol=1e-9)


def test_what_a_large_value_exceeds_is_not_lost() -> None:
    kept = onto_simplex(np.array([1e12 + 0.5, 1e12, 1.0]), 1.0)
    np.testing.assert_allclose(kept, [0.75, 0.25, 0.0], atol=1e-3)
