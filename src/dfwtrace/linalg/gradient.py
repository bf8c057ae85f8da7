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


class GradientOperator(LinearOperator):  # type: ignore[misc]  # scipy's class is untyped
    """∇F(W) = Σ_j ∇F_j(W), of shape (d, m). One product is one broadcast and one sum."""

    def __init__(self, shape: tuple[int, int], workers: Shards) -> None:
        super().__init__(np.dtype(np.float64), shape)
        self.workers = workers
        # Seed and t if the next update is followed by the product with epoch t's v₀.
        self.expected: tuple[int, int] | None = None

    def times(self, V: FloatArray) -> FloatArray:
        """G V for a vector or a block."""
        return require_finite(self.workers.sum("matvec", V), "the gradient")

    def transpose_times(self, U: FloatArray) -> FloatArray:
        """Gᵀ U for a vector or a block."""
        return require_finite(self.workers.sum("rmatvec", U), "the gradient")

    def gather(self) -> FloatArray:
        """The dense d×m gradient: N·d·m numbers in one round."""
        return require_finite(self.workers.sum("gradient"), "the gradient")

    # What scipy calls for `G @ v`, `G.T @ u` and their blocks.
    _matvec = _matmat = times
    _rmatvec = _rmatmat = transpose_times
