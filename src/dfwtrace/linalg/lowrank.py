"""A matrix kept as its factors: W = U diag(s) Vᵀ, never dense by accident."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from dfwtrace._typing import Array, FloatArray, Matrix
from dfwtrace.linalg import parallel
from dfwtrace.validation import check_count

_SMALLEST_SCALE = 1e-100  # below it the common scale is folded into the weights, before underflow


@dataclass(frozen=True, eq=False)
class RankOne:
    """The matrix ``scale · u vᵀ`` with unit vectors u and v: an atom of the trace-norm ball.

    Parameters
    ----------
    scale : float
        Radius of the ball, with a sign.
    u, v : arrays of shape (d,) and (m,)
        Unit vectors.

    Examples
    --------
    >>> import numpy as np
    >>> from dfwtrace import RankOne
    >>> RankOne(2.0, np.array([1.0, 0.0]), np.array([0.0, 1.0])).scale
    2.0
    """

    scale: float
    u: Array
    v: Array

    def equals(self, other: RankOne) -> bool:
        """Return whether another atom is the same to the last bit."""
        same = self.scale == other.scale and np.array_equal(self.u, other.u)
        return same and np.array_equal(self.v, other.v)


class LowRankMatrix:
    """A d×m matrix W = U diag(s) Vᵀ that is only ever touched through its factors.

    Every operation returns a new matrix. A step of Frank-Wolfe (`toward`) still costs O(d + m)
    amortised, because successive iterates share their columns.

    Parameters
    ----------
    U : array of shape (d, r)
        Left factors, one column for each term.
    s : array of shape (r,)
        Weights of the terms. Negative ones are made positive by negating a column of U.
    V : array of shape (m, r)
        Right factors.

    Examples
    --------
    >>> import numpy as np
    >>> from dfwtrace import LowRankMatrix
    >>> W = LowRankMatrix(np.eye(3)[:, :2], [2.0, 1.0], np.eye(4)[:, :2])
    >>> W.shape, W.rank, round(W.trace_norm, 12)
    ((3, 4), 2, 3.0)
    >>> np.ones((1, 3)) @ W
    array([[2., 1., 0., 0.]])
    """

    # NumPy must leave `X @ W` to __rmatmul__ instead of making an object array of W.
    __array_ufunc__ = None

    def __init__(self, U: ArrayLike, s: ArrayLike, V: ArrayLike) -> None:
        left, weights, right = _floating(U), np.asarray(s, dtype=np.float64), _floating(V)
        if (left.ndim, weights.ndim, right.ndim) != (2, 1, 2):
            raise ValueError("U and V must have two dimensions and s one.")
        ranks = left.shape[1], weights.size, right.shape[1]
        if len(set(ranks)) > 1:
            raise ValueError(f"U, s and V must agree on the rank, but have {ranks} columns.")
        if np.any(weights < 0):
            left = left * np.where(weights < 0, -1.0, 1.0).astype(left.dtype)
        self._factors = _Columns(left, np.abs(weights), right, capacity=weights.size)
        self._rank, self._scale = weights.size, 1.0

    def parts(self) -> tuple[Array, FloatArray, Array, float]:
        """Return U, weights, V and their scale, of which `from_parts` makes the same bits."""
        return self.U, self._factors.weights[: self._rank], self.V, self._scale

    @classmethod
    def from_parts(cls, U: Array, weights: FloatArray, V: Array, scale: float) -> LowRankMatrix:
        """Build the matrix that had these `parts`."""
        matrix = cls(U, weights, V)
        matrix._scale = scale
        return matrix

    @classmethod
    def zeros(cls, shape: tuple[int, int], dtype: DTypeLike = np.float64) -> LowRankMatrix:
        """Return the zero matrix, of rank 0."""
        d, m = shape
        return cls(np.empty((d, 0), dtype), np.empty(0), np.empty((m, 0), dtype))

    @property
    def U(self) -> Array:
        """Left factors, one column for each term (read-only view)."""
        return _read_only(self._factors.U[:, : self._rank])

    @property
    def V(self) -> Array:
        """Right factors, one column for each term (read-only view)."""
        return _read_only(self._factors.V[:, : self._rank])

    @property
    def s(self) -> FloatArray:
        """Weights of the terms; the singular values once `compress` has run."""
        return self._scale * self._factors.weights[: self._rank]

    @property
    def rank(self) -> int:
        """Number of terms held: the rank after `compress`, an upper bound of it before."""
        return self._rank

    @property
    def shape(self) -> tuple[int, int]:
        """(d, m)."""
        return self._factors.U.shape[0], self._factors.V.shape[0]

    @property
    def T(self) -> LowRankMatrix:
        """The transpose."""
        return LowRankMatrix(self.V, self.s, self.U)

    @property
    def trace_norm(self) -> float:
        """Sum of the singular values, ‖W‖_*."""
        return float(self.singular_values.sum())

    @property
    def frobenius_norm(self) -> float:
        """Root of the sum of the squared singular values, ‖W‖_F."""
        return float(np.linalg.norm(self.singular_values))

    @cached_property
    def singular_values(self) -> FloatArray:
        """All of them that can differ from zero, largest first."""
        return self._orthogonalise()[1]

    def _orthogonalise(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Thin SVD through two thin QRs: O((d + m) r²), nothing of size d×m."""
        Q_u, R_u = parallel.qr(self.U.astype(np.float64))
        Q_v, R_v = parallel.qr(self.V.astype(np.float64))
        A, singular, Bt = np.linalg.svd((R_u * self.s) @ R_v.T, full_matrices=False)
        return parallel.matmul(Q_u, A), singular, parallel.matmul(Q_v, Bt.T)

    def toward(self, atom: RankOne, gamma: float) -> LowRankMatrix:
        """Return (1-γ) W + γ · atom, in O(d + m) amortised."""
        if gamma == 0.0:
            return self
        u = atom.u if atom.scale >= 0 else -atom.u
        weight = gamma * abs(atom.scale)
        if gamma == 1.0:  # nothing of W is left
            return LowRankMatrix(u[:, None], [weight], atom.v[:, None])
        matrix, scale = self, self._scale * (1.0 - gamma)
        if scale < _SMALLEST_SCALE:
            matrix, scale = LowRankMatrix(self.U, self.s, self.V), 1.0 - gamma
        moved = LowRankMatrix.__new__(LowRankMatrix)
        moved._factors = matrix._factors.append(self._rank, u, weight / scale, atom.v)
        moved._rank, moved._scale = self._rank + 1, scale
        return moved

    def compress(self, tol: float = 0.0, max_rank: int | None = None) -> LowRankMatrix:
        """Make the factors orthonormal and bound the rank; the trace norm never grows.

        Parameters
        ----------
        tol : float, default=0.0
            Fraction of the trace norm that the singular values dropped may make up together.
        max_rank : int, optional
            Largest number of singular values to keep.
        """
        if not 0.0 <= tol < 1.0:
            raise ValueError(f"tol must be at least 0 and below 1, got {tol}.")
        most = self.rank if max_rank is None else check_count("max_rank", max_rank, 0)
        U, singular, V = self._orthogonalise()
        tails = np.cumsum(singular[::-1])[::-1]  # tails[k] = mass of all values from the k-th on
        total = tails[0] if singular.size else 0.0
        noise = np.finfo(np.float64).eps * max(self.shape)
        keep = min(most, int(np.count_nonzero(tails > max(tol, noise) * total)))
        kept = singular[:keep]
        # Rounding may lengthen W by an ulp or two; ‖W‖_* ≤ Σ s_i ‖u_i‖ ‖v_i‖ holds without an SVD.
        bound = float(self.s @ (np.linalg.norm(self.U, axis=0) * np.linalg.norm(self.V, axis=0)))
        if kept.sum() > bound:
            kept = kept * (bound / kept.sum())
        return LowRankMatrix(U[:, :keep], kept, V[:, :keep])

    def to_dense(self, max_bytes: int | None = 1 << 30) -> Array:
        """Build the dense array, of at most `max_bytes`; None allows any size."""
        d, m = self.shape
        size = d * m * self._factors.U.dtype.itemsize
        if max_bytes is not None and size > max_bytes:
            raise ValueError(
                f"A dense {d}×{m} matrix takes {size / 2**30:.1f} GiB, more than max_bytes = "
                f"{max_bytes / 2**30:.1f} GiB; pass max_bytes=None to build it all the same."
            )
        return np.asarray(self._weighted_U() @ self.V.T)

    def _weighted_U(self) -> Array:
        return np.asarray(self.U * self.s.astype(self._factors.U.dtype))

    def __matmul__(self, other: Any) -> Any:
        """W B; in factors again if B is a LowRankMatrix."""
        if isinstance(other, LowRankMatrix):
            return LowRankMatrix(self._weighted_U() @ (self.V.T @ other.U), other.s, other.V)
        return self._weighted_U() @ (self.V.T @ other)

    def __rmatmul__(self, X: Matrix) -> Array:
        return np.asarray(np.asarray(X @ self._weighted_U()) @ self.V.T)

    def __add__(self, other: LowRankMatrix) -> LowRankMatrix:
        if not isinstance(other, LowRankMatrix):
            return NotImplemented
        if self.shape != other.shape:
            raise ValueError(f"Shapes {self.shape} and {other.shape} do not agree.")
        U, V = np.hstack([self.U, other.U]), np.hstack([self.V, other.V])
        return LowRankMatrix(U, np.append(self.s, other.s), V)

    def __sub__(self, other: LowRankMatrix) -> LowRankMatrix:
        return self + -other if isinstance(other, LowRankMatrix) else NotImplemented

    def __mul__(self, factor: float) -> LowRankMatrix:
        return LowRankMatrix(self.U, self.s * float(factor), self.V)

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> LowRankMatrix:
        return self * (1.0 / float(divisor))

    def __neg__(self) -> LowRankMatrix:
        return self * -1.0

    def __reduce__(self) -> tuple[object, ...]:
        # Only the columns in use, not the room left for more; the scale apart, for the same bits.
        return LowRankMatrix.from_parts, self.parts()

    def __repr__(self) -> str:
        d, m = self.shape
        return f"LowRankMatrix({d}×{m}, rank ≤ {self.rank})"


class _Columns:
    """Columns of U and V with their weights; successive iterates share this memory."""

    def __init__(self, U: Array, weights: FloatArray, V: Array, capacity: int) -> None:
        self.used = weights.size
        self.weights = np.empty(capacity)
        self.weights[: self.used] = weights
        self.U, self.V = _with_room(U, capacity), _with_room(V, capacity)

    def append(self, after: int, u: Array, weight: float, v: Array) -> _Columns:
        """Put a column behind the first `after` ones, in place if no other iterate has done so."""
        columns = self
        if after != self.used or after == self.weights.size:
            first, capacity = slice(after), max(8, 2 * (after + 1))
            columns = _Columns(self.U[:, first], self.weights[first], self.V[:, first], capacity)
        columns.U[:, after], columns.V[:, after], columns.weights[after] = u, v, weight
        columns.used = after + 1
        return columns


def _with_room(columns: Array, capacity: int) -> Array:
    """The columns, one behind the other in memory, with room for more."""
    if capacity == columns.shape[1] and columns.flags.f_contiguous and not columns.flags.writeable:
        return columns  # those of another matrix, which never change
    room = np.empty((columns.shape[0], capacity), dtype=columns.dtype, order="F")
    room[:, : columns.shape[1]] = columns
    return room


def _floating(factor: ArrayLike) -> Array:
    array = np.asarray(factor)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"U and V must hold real numbers, got values of {array.dtype}.")
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def _read_only(view: Array) -> Array:
    view.flags.writeable = False
    return view
