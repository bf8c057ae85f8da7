"""Projected gradient steps of least squares on the trace-norm ball, from a dense gradient."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh

from dfwtrace._typing import FloatArray
from dfwtrace.linalg.lowrank import LowRankMatrix
from dfwtrace.linalg.parallel import SAFE, gram, matmul, qr

# Singular values below this share of the largest are roots of rounding errors.
SMALLEST = float(np.sqrt(np.finfo(np.float64).eps))
# Moments of more columns are decomposed in float32 first, where the eigenvalues that are asked for
# are far above its rounding errors.
_LARGE, _APART = 256, 1e-5
_STEPS = 3  # in a subspace: they take less than finding it does


class Projection(NamedTuple):
    """W⁺, with the pairs of singular vectors that it left out, and F's curvature on the way."""

    W: LowRankMatrix
    rest: tuple[FloatArray, FloatArray]
    lipschitz: float


def view(
    W: LowRankMatrix, G: FloatArray, lipschitz: float, count: int, near: FloatArray
) -> FloatArray:
    """Orthonormal columns V, about the leading right singular vectors of M = W - G/L.

    By one subspace iteration from `near` if it has as many, else by LAPACK.
    """
    M = G / -lipschitz
    M += matmul(W.U * W.s, W.V.T)
    if near.shape[1] < count or 4 * count >= min(M.shape):
        return qr(leading_pairs(M, count)[2])[0]
    block = M.astype(np.float32)  # a step of an iteration, whose errors the next one mends
    return qr(matmul(block.T, matmul(block, near[:, :count].astype(np.float32))).astype(float))[0]


def project(
    W: LowRankMatrix, G: FloatArray, H: FloatArray, lipschitz: float, radius: float, V: FloatArray
) -> Projection | None:
    """Projected gradient steps of least squares, with its exact H, among all Z Vᵀ in the ball.

    L is the curvature along the step before (Barzilai and Borwein, 1988). None where the ball holds
    nothing back.
    """
    Z, g, L = matmul(W.U * W.s, matmul(W.V.T, V)), matmul(G, V), lipschitz
    found = None
    for _ in range(_STEPS if V.size else 0):  # there is nothing to see where G = 0 and W = 0
        U, s, turn = leading_pairs(Z - g / L, V.shape[1])
        if not s.sum() > radius:
            break
        kept = onto_simplex(s, radius)
        rank = int(np.count_nonzero(kept))
        E = matmul(U[:, :rank] * kept[:rank], turn[:, :rank].T) - Z
        image = matmul(H, E)
        slope, curved, squared = (float(np.vdot(E, other)) for other in (g, image, E))
        if not curved > 0.0:
            break
        L = curved / squared
        if slope + 0.5 * curved < 0.0:  # else L was too small
            right = matmul(V, turn)
            after = LowRankMatrix(U[:, :rank], kept[:rank], right[:, :rank])
            found = Projection(after, (U[:, rank:], right[:, rank:]), L)
            Z, g = Z + E, g + image
    return found


def leading_pairs(M: FloatArray, count: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The leading singular values, the largest first, with the vectors of both sides.

    Fewer where M has fewer that are not zero.
    """
    tall, scale = M if M.shape[0] >= M.shape[1] else M.T, 1.0
    largest = max(M.max(initial=0.0), -M.min(initial=0.0))
    if largest > 0.0 and not SAFE < largest < 1.0 / SAFE:
        tall, scale = tall / largest, float(largest)
    squares, turn = _leading(tall, count)
    s, turn = np.sqrt(np.maximum(squares[::-1], 0.0)), turn[:, ::-1]
    above = int(np.count_nonzero(s > SMALLEST * s[0]))
    s, turn = s[:above], turn[:, :above]
    image = matmul(tall, turn) / s
    U, V = (image, turn) if M.shape[0] >= M.shape[1] else (turn, image)
    return U, scale * s, V


def _leading(tall: FloatArray, count: int) -> tuple[FloatArray, FloatArray]:
    """The leading eigenvalues and eigenvectors of its moments, the largest last."""
    # Values that matter are not much smaller than the largest: their squares will do.
    size = tall.shape[1]
    all_of_them = 4 * count >= size  # takes less time then
    some = None if all_of_them else [size - count, size - 1]
    driver = "evd" if all_of_them else "evr"
    if size > _LARGE:
        # Half the time. What float32 leaves in the span of the vectors is put right within it.
        near = tall.astype(np.float32)
        squares, turn = eigh(gram(near), subset_by_index=some, driver=driver, check_finite=False)
        squares, turn = squares[-count:], turn[:, -count:]
        if squares[0] > _APART * squares[-1]:
            basis = qr(turn.astype(np.float64))[0]
            squares, turn = np.linalg.eigh(gram(matmul(tall, basis)))
            return squares, matmul(basis, turn)
    squares, turn = eigh(gram(tall), subset_by_index=some, driver=driver, check_finite=False)
    return squares[-count:], turn[:, -count:]


def onto_simplex(s: FloatArray, radius: float) -> FloatArray:
    """max(s - θ, 0) with the least θ ≥ 0 for which they add up to at most radius."""
    # s is sorted, largest first. What is kept is less than the radius below the largest value, so
    # that differences to it lose no digits, however large s is.
    if s.sum() <= radius:
        return s
    below = s[0] - s
    largest = (radius + np.cumsum(below)) / np.arange(1, s.size + 1)  # by how many are kept
    top = largest[np.flatnonzero(below < largest)[-1]]
    return np.asarray(np.clip(top - below, 0.0, s), np.float64)
