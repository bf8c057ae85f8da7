"""The gradient as a linear operator: never gathered, multiplied by rounds over the shards."""

from __future__ import annotations

import numpy as np
from scipy.sparse.linalg import LinearOperator

from dfwtrace._typing import FloatArray
from dfwtrace.engines import Workers
from dfwtrace.finite import require_finite


class GradientOperator(LinearOperator):  # type: ignore[misc]  # scipy's class is untyped
    """∇F(W) = Σ_j ∇F_j(W), of shape (d, m). One product is one broadcast and one sum.

    Vectors and blocks of vectors go through the same rounds: ``G @ v``, ``G @ V``, ``G.T @ u``.
    """

    def __init__(self, shape: tuple[int, int], workers: Workers) -> None:
        super().__init__(np.dtype(np.float64), shape)
        self.workers = workers
        self.expected: tuple[int, int] | None = None

    def times(self, V: FloatArray) -> FloatArray:
        """G V for a vector or a block."""
        return require_finite(self.workers.sum("matvec", V), "the gradient")

    def transpose_times(self, U: FloatArray) -> FloatArray:
        """Gᵀ U for a vector or a block."""
        return require_finite(self.workers.sum("rmatvec", U), "the gradient")

    def expect(self, seed: int, t: int) -> None:
        """The next update will be followed by the product with epoch t's v₀."""
        self.expected = (seed, t)

    def gather(self) -> FloatArray:
        """The dense d×m gradient: N·d·m numbers in one round."""
        return require_finite(self.workers.sum("gradient"), "the gradient")

    # What scipy calls for `G @ v`, `G.T @ u` and their blocks.
    _matvec = _matmat = times
    _rmatvec = _rmatmat = transpose_times
