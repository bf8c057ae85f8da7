"""Projected gradient steps on the trace-norm ball, within a subspace of one side."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dfwtrace._typing import FloatArray
from dfwtrace.linalg.lowrank import LowRankMatrix
from dfwtrace.linalg.parallel import gram, matmul
from dfwtrace.solvers.metric import whitener


class ProjectedStep(NamedTuple):
    """W⁺, with ⟨G, W⁺ - W⟩ and ‖W⁺ - W‖²."""

    W: LowRankMatrix
    slope: float
    squared: float


class View(NamedTuple):
    """W and the gradient G, seen from the right in an orthonormal basis V that holds W."""

    V: FloatArray
    W: FloatArray
    G: FloatArray

    @classmethod
    def of(
        cls, vectors: FloatArray, right: FloatArray, left: FloatArray, images: FloatArray
    ) -> View:
        """Of W = left · rightᵀ from any `vectors` whose span holds `right`, and their images."""
        whitening = whitener(vectors)
        V = matmul(vectors, whitening)
        return cls(V, matmul(left, matmul(right.T, V)), matmul(images, whitening))

    def step(self, lipschitz: float, radius: float) -> ProjectedStep:
        """The W⁺ whose rows are in the span of V that is nearest to W - G/L in the ball."""
        M = self.W - self.G / lipschitz
        # The values that are kept are not much smaller than the largest: their squares will do.
        squares, turn = np.linalg.eigh(gram(M))
        s, turn = np.sqrt(np.maximum(squares[::-1], 0.0)), turn[:, ::-1]
        s[s <= 1e-7 * s[0]] = 0.0  # roots of rounding errors
        kept = onto_simplex(s, radius)
        count = int(np.count_nonzero(kept))
        turn, kept = turn[:, :count], kept[:count]
        left = matmul(M, turn) / s[:count]
        change = matmul(left * kept, turn.T) - self.W
        slope, squared = float(np.vdot(self.G, change)), float(np.vdot(change, change))
        return ProjectedStep(LowRankMatrix(left, kept, matmul(self.V, turn)), slope, squared)


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
