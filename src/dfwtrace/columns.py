"""Columns that grow one by one, in memory that successive iterates share."""

from __future__ import annotations

import numpy as np

from dfwtrace._typing import Array, FloatArray


class Columns:
    """Columns of U and V with their weights; iterates share what they have in common."""

    def __init__(self, U: Array, weights: FloatArray, V: Array, capacity: int) -> None:
        self.used = weights.size
        self.U = np.empty((U.shape[0], capacity), dtype=U.dtype, order="F")
        self.V = np.empty((V.shape[0], capacity), dtype=V.dtype, order="F")
        self.weights = np.empty(capacity)
        self.U[:, : self.used] = U
        self.V[:, : self.used] = V
        self.weights[: self.used] = weights

    def append(self, after: int, u: Array, weight: float, v: Array) -> Columns:
        """Put a column behind the first `after` ones, in place where nobody else has written."""
        columns = self
        if after != self.used or after == self.weights.size:  # someone else's column, or full
            columns = Columns(
                self.U[:, :after],
                self.weights[:after],
                self.V[:, :after],
                capacity=max(8, 2 * (after + 1)),
            )
        columns.U[:, after] = u
        columns.V[:, after] = v
        columns.weights[after] = weight
        columns.used = after + 1
        return columns
