"""Losses on the scores S = XW: F(W) = Σ_i ℓ(S_i, y_i).

A new one takes the methods `evaluate` and `check_targets`, and `curvature` for a line search.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from dfwtrace._typing import Array, FloatArray
from dfwtrace.kernels import (
    softmax_advance,
    softmax_along,
    softmax_columns,
    squared_advance,
    squared_along,
)
from dfwtrace.validation import as_number, check_count

__all__ = ["UNWEIGHTED", "Loss", "MultinomialLoss", "SquaredLoss"]

# Rows of scores worked on at once by losses without a kernel of their own: stays in cache.
_ROWS_AT_ONCE = 256

# Rows that `evaluate` is tried on, and what R holds before: no residual is just that number.
_ROWS_TRIED, _UNTOUCHED = 4, 0.7236501938417265

UNWEIGHTED: Array = np.zeros(0, np.float32)  # every row counts once


class Loss(ABC):
    """A smooth convex function of the scores, summed over rows.

    Attributes
    ----------
    name : str
    quadratic : bool
        True if one Newton step is an exact line search.
    smoothness : float
        Largest eigenvalue of the Hessian of ℓ(·, y) in one row's scores.
    """

    name: str
    quadratic: bool = False
    smoothness: float
    #: A compiled `advance` and a compiled `along`, if there are any.
    kernel: Callable[..., tuple[float, float]] | None = None
    along_kernel: Callable[..., tuple[float, float]] | None = None

    @abstractmethod
    def check_targets(self, y: Array) -> tuple[Array, int]:
        """Refuse bad targets in one sentence; return them as an array, and the width m of S.

        Called on some of the rows at a time, it gives widths of which m is the largest.
        """

    def check_width(self, width: int, n_rows: int) -> None:  # noqa: B027  # most have none
        """Refuse, in one sentence, what only all of y together shows."""

    @abstractmethod
    def evaluate(self, S: Array, y: Array, R: Array) -> float:
        """Write the residual ∂ℓ/∂S into R and return Σ ℓ."""

    def check_evaluate(self, y: Array, width: int) -> None:
        """Refuse, in one sentence, an `evaluate` that does not do what its docstring says.

        On a few rows, with scores of zero, where runs start.
        """
        if self.kernel is not None or type(self).advance is not Loss.advance:
            return  # `evaluate` is not asked
        y, name = y[:_ROWS_TRIED], f"{type(self).__name__}.evaluate"
        S = np.zeros((len(y), width))
        R = np.full_like(S, _UNTOUCHED)
        as_number(self.evaluate(S, y, R), name)
        if np.any(R == _UNTOUCHED):
            raise TypeError(
                f"{name} must write ∂ℓ/∂S into its argument R (R[:] = …, not R = …), but left "
                f"{'all' if np.all(R == _UNTOUCHED) else 'some'} of it as it was."
            )

    def row_values(self, S: Array, y: Array) -> Array | None:
        """ℓ of each row, whose sum `evaluate` returns; None if that is not known.

        Not needed; with it, rows that all have weights of their own are evaluated at once.
        """
        return None

    def curvature(self, S: Array, R: Array, D: Array) -> float:
        """Σ_i D_iᵀ ∇²ℓ(S_i, y_i) D_i, where R is the residual at S. For the line search only."""
        raise NotImplementedError(f"{type(self).__name__} has no `curvature`, so no line search.")

    def column_curvature(self, R: Array, y: Array, weights: Array = UNWEIGHTED) -> Array:
        """Σ_i ∂²ℓ/∂s_j² for each column j of scores, from the residual R; an upper bound will do.

        Each row is multiplied by its weight, if there are any, and R is too.
        """
        total = float(weights.sum(dtype=np.float64)) if weights.size else float(R.shape[0])
        return np.full(R.shape[1], self.smoothness * total)

    def add_columns(
        self, R: Array, y: Array, weights: Array, sums: FloatArray, curvature: FloatArray
    ) -> None:
        """Add Rᵀ1 to `sums`, and `column_curvature` to the other."""
        sums += R.sum(axis=0, dtype=np.float64)
        curvature += self.column_curvature(R, y, weights)

    @property
    def searchable(self) -> bool:
        """Whether there is a line search: `curvature`, or the whole of `along`, is given."""
        given = type(self).curvature is not Loss.curvature or type(self).along is not Loss.along
        return given or self.along_kernel is not None

    def advance(
        self,
        S: Array,
        y: Array,
        decay: float,
        q: Array,
        v: Array,
        R: Array,
        ahead: Array,
        product: Array,
        weights: Array = UNWEIGHTED,
        b: Array | None = None,
    ) -> tuple[float, float]:
        """S ← decay·S + q vᵀ, R ← ∂ℓ/∂S, product ← R·ahead; returns (Σ ℓ, ⟨S, R⟩).

        All in one pass: `ahead` is what R will be multiplied by next. Each row's ℓ is multiplied by
        its weight, if there are any, and taken at S + b.
        """
        b = np.zeros(S.shape[1], S.dtype) if b is None else b
        if self.kernel is not None:
            return self.kernel(S, y, (S.dtype.type(decay), q, v), R, ahead, product, weights, b)
        value = inner = 0.0
        for start in range(0, S.shape[0], _ROWS_AT_ONCE):
            block = slice(start, start + _ROWS_AT_ONCE)
            S[block] = decay * S[block] + np.outer(q[block], v)
            moved = S[block] + b
            value += self._evaluate_weighted(moved, y[block], R[block], weights[block])
            inner += inner_product(S[block], R[block])
            product[block] = R[block] @ ahead
        return value, inner

    def along(
        self,
        S: Array,
        y: Array,
        gamma: float,
        q: Array,
        v: Array,
        weights: Array = UNWEIGHTED,
        b: Array | None = None,
    ) -> tuple[float, float]:
        """φ'(γ) and φ''(γ) of φ(γ) = Σ ℓ(S + γD + b), D = q vᵀ - S, each row times its weight."""
        b = np.zeros(S.shape[1], S.dtype) if b is None else b
        if self.along_kernel is not None:
            scratch = np.empty(S.shape[1], S.dtype)
            return self.along_kernel(S, y, (S.dtype.type(gamma), q, v), scratch, weights, b)
        slope = curvature = 0.0
        for start in range(0, S.shape[0], _ROWS_AT_ONCE):
            block = slice(start, start + _ROWS_AT_ONCE)
            D = np.outer(q[block], v) - S[block]
            moved = S[block] + S.dtype.type(gamma) * D + b
            R, weighted = np.empty_like(moved), D
            self.evaluate(moved, y[block], R)
            if weights.size:
                roots = np.sqrt(weights[block])[:, None]
                D, weighted = roots * D, weights[block][:, None] * D
            slope += inner_product(weighted, R)
            # With √w D for D, every row's DᵀℓʺD is multiplied by its weight w.
            curvature += self.curvature(moved, R, D)
        return slope, curvature

    def _evaluate_weighted(self, S: Array, y: Array, R: Array, weights: Array) -> float:
        """Write the residuals times their weights into R and return Σ weight·ℓ."""
        total = self.evaluate(S, y, R)
        if not weights.size:
            return total
        values, distinct = self.row_values(S, y), np.unique(weights)
        if values is not None:
            total = float(weights.astype(np.float64) @ values)
        elif distinct.size == 1:
            total *= float(distinct[0])
        else:  # a sum over rows says nothing of each of them
            groups = [(weights == weight, float(weight)) for weight in distinct]
            total = sum(w * self.evaluate(S[i], y[i], np.empty_like(S[i])) for i, w in groups)
        R *= weights[:, None]
        return total


class SquaredLoss(Loss):
    """The squared loss ½ ‖s - y‖².

    Examples
    --------
    >>> import numpy as np, dfwtrace as dt
    >>> R = np.empty((1, 2))
    >>> dt.losses.SquaredLoss().evaluate(np.array([[3.0, 1.0]]), np.array([[1.0, 1.0]]), R), R
    (2.0, array([[2., 0.]]))
    """

    name = "least squares"
    quadratic = True
    smoothness = 1.0
    kernel, along_kernel = staticmethod(squared_advance), staticmethod(squared_along)

    def check_targets(self, y: Array) -> tuple[Array, int]:
        targets = y[:, None] if y.ndim == 1 else y
        if targets.ndim != 2 or targets.shape[1] == 0:
            raise ValueError(f"y must have shape (n, m) with m ≥ 1, got {targets.shape}.")
        if targets.dtype not in (np.float32, np.float64):
            targets = targets.astype(np.float64)
        return targets, int(targets.shape[1])

    def evaluate(self, S: Array, y: Array, R: Array) -> float:
        np.subtract(S, y, out=R, casting="same_kind")
        return 0.5 * inner_product(R, R)

    def curvature(self, S: Array, R: Array, D: Array) -> float:
        return inner_product(D, D)


class MultinomialLoss(Loss):
    """The loss log Σ_c exp(s_c) - s_y, with a column of scores for every class.

    Parameters
    ----------
    n_classes : int, optional
        One more than the largest label by default.

    Examples
    --------
    >>> import numpy as np, dfwtrace as dt
    >>> loss = dt.losses.MultinomialLoss(n_classes=2)
    >>> round(loss.evaluate(np.zeros((1, 2)), np.array([0]), np.empty((1, 2))), 4)
    0.6931
    """

    name = "multinomial"
    smoothness = 0.5  # of diag(p) - ppᵀ: half, for two classes of probability ½
    kernel, along_kernel = staticmethod(softmax_advance), staticmethod(softmax_along)

    def __init__(self, n_classes: int | None = None) -> None:
        self.n_classes = None if n_classes is None else check_count("n_classes", n_classes, 2)

    def check_targets(self, y: Array) -> tuple[Array, int]:
        labels = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
        if labels.ndim != 1:
            raise ValueError(f"y must be one-dimensional class labels, got shape {labels.shape}.")
        expected, kind = "y must hold class labels as integers from 0", labels.dtype.kind
        if kind not in "iu" and not (kind == "f" and np.array_equal(labels, np.round(labels))):
            raise ValueError(f"{expected}, got values of {labels.dtype}.")
        lowest, highest = int(labels.min()), int(labels.max())
        if lowest < 0 or highest > np.iinfo(np.int64).max // 2:  # no room for it, nor for one more
            raise ValueError(f"{expected}, got {lowest if lowest < 0 else highest:.6g}.")
        if self.n_classes is not None and highest >= self.n_classes:
            raise ValueError(f"y holds the label {highest}, but n_classes is {self.n_classes}.")
        return labels.astype(np.int64), self.n_classes or highest + 1

    def check_width(self, width: int, n_rows: int) -> None:
        if self.n_classes is None and width < 2:
            raise ValueError("y must hold at least two classes unless n_classes is given.")
        if self.n_classes is None and width > 1000 + 10 * n_rows:
            raise ValueError(
                f"y holds the label {width - 1:.6g}, far beyond its number of rows: number the "
                "classes from 0 without gaps, or give n_classes."
            )

    def column_curvature(self, R: Array, y: Array, weights: Array = UNWEIGHTED) -> Array:
        sums, curvature = np.zeros((2, R.shape[1]))
        self.add_columns(R, y, weights, sums, curvature)
        return curvature

    def add_columns(
        self, R: Array, y: Array, weights: Array, sums: FloatArray, curvature: FloatArray
    ) -> None:
        inverse = np.divide(1.0, weights, out=np.zeros_like(weights), where=weights > 0)
        softmax_columns(R, y, inverse.astype(R.dtype, copy=False), sums, curvature)

    def evaluate(self, S: Array, y: Array, R: Array) -> float:
        rows, row = np.zeros((2, S.shape[0]), S.dtype), np.zeros(S.shape[1], S.dtype)
        return self.advance(S, y, 1.0, rows[0], row, R, row, rows[1])[0]


def inner_product(A: Array, B: Array) -> float:
    """⟨A, B⟩, with rows of float32 summed in float64."""
    return float(np.einsum("ij,ij->i", A, B).sum(dtype=np.float64))
