"""The gradient as a linear operator, never gathered unless it is small."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from scipy.sparse.linalg import LinearOperator

from dfwtrace._typing import Array, FloatArray
from dfwtrace.validation import require_finite


class Shards(Protocol):
    """Shards somewhere, which evaluate a method by name: `dfwtrace.engines.Workers`."""

    shard_rows: list[int]

    def sum(self, method: str, *args: Array | float) -> FloatArray: ...

    def gather(self, method: str, *args: Array | float) -> list[FloatArray]: ...


def divide_rows(A: FloatArray, scale: FloatArray | None) -> FloatArray:
    """diag(1/scale) A for a vector or a block, in the memory order of A; A itself without a scale.

    Dividing the columns of X by `scale` is the same as dividing the rows of W and of the gradient:
    (X D) W = X (D W) with D = diag(1/scale), so the shards need not know of it.
    """
    return A if scale is None else (A.T / scale).T


class GradientOperator(LinearOperator):  # type: ignore[misc]  # scipy's class is untyped
    """∇F(W) = Σ_j ∇F_j(W), of shape (d, m). One product is one broadcast and one sum.

    With a scale, it is the gradient of F as a function of diag(scale) W.
    """

    def __init__(
        self, shape: tuple[int, int], workers: Shards, scale: FloatArray | None = None
    ) -> None:
        super().__init__(np.dtype(np.float64), shape)
        self.workers, self.scale = workers, scale
        # Seed and t if the next update is followed by the product with epoch t's v₀.
        self.expected: tuple[int, int] | None = None

    def times(self, V: FloatArray) -> FloatArray:
        """G V for a vector or a block."""
        product = divide_rows(self.workers.sum("matvec", V), self.scale)
        return require_finite(product, "the gradient")

    def transpose_times(self, U: FloatArray) -> FloatArray:
        """Gᵀ U for a vector or a block."""
        product = self.workers.sum("rmatvec", divide_rows(U, self.scale))
        return require_finite(product, "the gradient")

    def gather(self) -> FloatArray:
        """The dense d×m gradient: N·d·m numbers in one round."""
        dense = divide_rows(self.workers.sum("gradient"), self.scale)
        return require_finite(dense, "the gradient")

    def local_pairs(self, seed: int) -> list[FloatArray]:
        """The top singular pair (u_j, v_j) of every shard's gradient, one behind the other."""
        scale = () if self.scale is None else (self.scale,)
        return self.workers.gather("local_pair", seed, *scale)

    # What scipy calls for `G @ v`, `G.T @ u` and their blocks.
    _matvec = _matmat = times
    _rmatvec = _rmatmat = transpose_times
