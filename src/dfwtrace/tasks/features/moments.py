"""Second moments of rows: all that least squares needs to know of them."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from dfwtrace._typing import Array, FloatArray, Matrix
from dfwtrace.data.shards import ROWS_IN_BLOCK, Shard, slice_rows
from dfwtrace.losses import inner_product
from dfwtrace.tasks.task import Centre


class Moments:
    """A = XᵀX, B = XᵀY and ½‖Y‖² of one shard, or of all of them: moments add up.

    They are views of one array, `packed`, as a round replies. Its last number is `weight`.
    """

    def __init__(self, packed: FloatArray, shape: tuple[int, int]) -> None:
        d, m = shape
        self.packed = packed
        self.A = packed[: d * d].reshape(d, d)
        self.B = packed[d * d : d * (d + m)].reshape(d, m)

    @property
    def half_norm(self) -> float:
        return float(self.packed[-2])

    @property
    def weight(self) -> float:
        """Number of rows, or the sum of their weights."""
        return float(self.packed[-1])

    @property
    def n_rows(self) -> int:
        """Number of rows, about, where they have weights; zero only if they count nothing."""
        return int(np.ceil(self.weight))

    @classmethod
    def of(cls, shard: Shard, weighted: bool = False, centre: Array | None = None) -> Moments:
        """One pass over a shard, in float64: moments of float32 rows far from 0 lose all digits.

        With a centre, those of [x - centre, 1] and y - centre: `about_means` makes use of the 1.
        """
        X, Y, weights = shard.X, shard.targets, np.zeros(0)
        if weighted:
            Y, weights = Y[:, 1:], Y[:, 0]
        d, m = X.shape[1] + (centre is not None), Y.shape[1]
        moments = cls(np.zeros(d * (d + m) + 2), (d, m))
        # Rows that must be changed are taken in blocks, so that no copy of all of them is made.
        as_is = centre is None and not weighted
        whole = as_is and X.dtype == np.float64 and Y.dtype == np.float64
        rows = max(shard.n_rows, 1) if whole else ROWS_IN_BLOCK
        for start in range(0, shard.n_rows, rows):
            stop = min(start + rows, shard.n_rows)
            block = slice_rows(X, start, stop), Y[start:stop]
            if centre is not None:
                block = _centred(*block, centre)
            moments._add(*block, weights[start:stop], only=whole)
        moments.packed[-1] = weights.sum() if weighted else shard.n_rows
        return moments

    def _add(self, X: Matrix, Y: Array, weights: Array, only: bool) -> None:
        X, Y = X.astype(np.float64, copy=False), Y.astype(np.float64, copy=False)
        sparse, scale = sp.issparse(X), weights[:, None] if weights.size else None
        if only and not sparse:  # straight to where they belong
            np.matmul(X.T, X, out=self.A)
            np.matmul(X.T, Y, out=self.B)
        else:
            scaled = X if scale is None else X.multiply(scale).tocsr() if sparse else X * scale
            product = scaled.T @ X
            self.A[...] += product.toarray() if sparse else product
            self.B[...] += scaled.T @ Y
        self.packed[-2] += 0.5 * inner_product(Y, Y if scale is None else Y * scale)

    def about_means(self) -> tuple[Moments, Centre]:
        """The moments of x - x̄ and y - ȳ from those of [x, 1] and y, and where x̄ and ȳ are.

        Σ(x - x̄)(x - x̄)ᵀ = Σxxᵀ - (Σx)(Σx)ᵀ/n, exact to rounding for rows near their means.
        """
        d, m = self.B.shape[0] - 1, self.B.shape[1]
        x_sum, y_sum, n = self.A[d, :d], self.B[d], self.weight
        if not n > 0.0:
            raise ValueError("sample_weight must not be zero for all rows.")
        centred = Moments(np.empty(d * (d + m) + 2), (d, m))
        np.subtract(self.A[:d, :d], np.outer(x_sum, x_sum / n), out=centred.A)
        np.subtract(self.B[:d], np.outer(x_sum, y_sum / n), out=centred.B)
        centred.packed[-2] = max(0.0, self.half_norm - 0.5 * float(y_sum @ y_sum) / n)
        centred.packed[-1] = n
        return centred, Centre(x_sum / n, y_sum / n)


def _centred(X: Matrix, Y: Array, centre: Array) -> tuple[Matrix, Array]:
    """[X - x₀, 1] and Y - y₀; entries of a sparse X change where x₀ is not 0."""
    d, ones = X.shape[1], np.ones((X.shape[0], 1))
    if not sp.issparse(X):
        return np.hstack([X - centre[:d], ones]), Y - centre[d:]
    X = X.astype(np.float64)
    if centre[:d].any():
        X = X - sp.csr_array(ones) @ sp.csr_array(centre[None, :d])
    return sp.hstack([X, sp.csr_array(ones)], format="csr"), Y - centre[d:]
