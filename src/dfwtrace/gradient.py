"""The gradient as a linear operator: never gathered, multiplied by rounds over the shards."""

from __future__ import annotations

import numpy as np
from scipy.sparse.linalg import LinearOperator

from dfwtrace._typing import FloatArray
from dfwtrace.engines import Ledger


class GradientOperator(LinearOperator):  # type: ignore[misc]  # scipy's class is untyped
    """∇F(W) = Σ_j ∇F_j(W), of shape (d, m). One product is one broadcast and one sum.

    Vectors and blocks of vectors go through the same rounds: ``G @ v``, ``G @ V``, ``G.T @ u``.
    """

    def __init__(self, shape: tuple[int, int], workers: Ledger) -> None:
        super().__init__(np.dtype(np.float64), shape)
        self.workers = workers

    def times(self, V: FloatArray) -> FloatArray:
        """G V for a vector or a block."""
        return self.workers.sum("matvec", V)

    def transpose_times(self, U: FloatArray) -> FloatArray:
        """Gᵀ U for a vector or a block."""
        return self.workers.sum("rmatvec", U)

    def expect(self, seed: int, t: int) -> None:
        """Let the shards draw the next epoch's v₀ now: an update may multiply by it on its way."""
        self.workers.announce("expect", seed, t)

    def gather(self) -> FloatArray:
        """The dense d×m gradient: N·d·m numbers in one round."""
        return self.workers.sum("gradient")

    # What scipy calls for `G @ v`, `G.T @ u` and their blocks.
    _matvec = _matmat = times
    _rmatvec = _rmatmat = transpose_times
