"""Projected gradient steps on the trace-norm ball, from a dense gradient."""

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


class Projection(NamedTuple):
    """W⁺, with ⟨G, W⁺ - W⟩ and ‖W⁺ - W‖², and the singular vectors that it left out."""

    W: LowRankMatrix
    held: bool  # back by the ball
    slope: float
    squared: float
    rest: tuple[FloatArray, FloatArray]


def project(
    W: LowRankMatrix, G: FloatArray, lipschitz: float, radius: float, count: int
) -> Projection:
    """The W⁺ in the ball nearest to the `count` leading singular pairs of W - G/L."""
    before = matmul(W.U * W.s, W.V.T)
    M = G / -lipschitz
    M += before
    U, s, V = leading_pairs(M, count)
    del M  # it may be large
    kept = onto_simplex(s, radius)
    rank = int(np.count_nonzero(kept))
    after = LowRankMatrix(U[:, :rank], kept[:rank], V[:, :rank])
    change = matmul(after.U * after.s, after.V.T)
    change -= before
    slope, squared = float(np.vdot(G, change)), float(np.vdot(change, change))
    return Projection(after, bool(s.sum() > radius), slope, squared, (U[:, rank:], V[:, rank:]))


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
    some, driver = [size - count, size - 1], "evr"
    if 4 * count >= size:  # all of them take less time then
        some, driver = None, "evd"
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
