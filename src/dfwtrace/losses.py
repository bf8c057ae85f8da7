"""Losses on the scores S = XW: F(W) = Σ_i ℓ(S_i, y_i).

A new one takes the methods `evaluate` and `check_targets`, and `curvature` for a line search.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dfwtrace._typing import Array, FloatArray
from dfwtrace.kernels import (
    laplacian_solve,
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

# Up to this number of classes, how each two of them are coupled is summed over rows: O(nm²).
_COUPLED = 1000
# P_c/n_c below 1/e or above e: b_c is scaled at once, and Newton's method comes after that.
_FAR = 1.0
_NEAR = 0.5  # |Δp/p| of Newton's method, at the most, where a step of it squares the error
# A class without rows wants b_c = -∞. It stays where it makes up less than the first share of what
# the rows give to classes not theirs, and goes to the second. If all rows are of one class, that
# falls to nothing, as F does: it counts as no less than the third share of the rows.
_FELT, _GONE, _LEAST_OFF = 1e-17, 1e-20, 1e-16
_LEAST = 1e-304
_TINY_SHARE = 1e-3  # |Δp/p| below which KL is taken from its series


class Correction(NamedTuple):
    """How b should move, and how the residual R is to change where b is, for Σ_i R_i = 0.

    Attributes
    ----------
    steps : tuple of arrays
        Changes of b that lower F, to be taken in turn.
    decrement : float
        gᵀH⁻¹g with the gradient g in b and the Hessian H: twice what Newton's step gains.
    near : bool
        Whether Newton's method converges quadratically from here.
    change : array
        The change of R, as `Loss.excess` takes it.
    """

    steps: tuple[FloatArray, ...]
    decrement: float
    near: bool
    change: FloatArray


class Loss(ABC):
    """A smooth convex function of the scores, summed over rows.

    Attributes
    ----------
    name : str
    quadratic : bool
        True if one Newton step is an exact line search.
    smoothness : float
        Largest eigenvalue of the Hessian of ℓ(·, y) in one row's scores.
    nonnegative : bool
        True if ℓ ≥ 0: then F* ≥ 0 too.
    """

    name: str
    quadratic: bool = False
    smoothness: float
    nonnegative: bool = False
    #: Whether it has `imbalance`, `correction` and `excess`, by which an intercept is certified.
    balances: bool = False
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

    def imbalance(self, S: FloatArray, y: Array, weights: FloatArray) -> FloatArray:
        """What `correction` takes, summed over rows at scores S, which b is a part of."""
        raise NotImplementedError

    def imbalance_size(self, m: int) -> int:
        """The number of these sums for m columns of scores."""
        raise NotImplementedError

    def correction(self, sums: FloatArray, m: int) -> Correction:
        """How b should move, and how R is to change for Σ_i R_i = 0."""
        raise NotImplementedError

    def excess(
        self, S: FloatArray, y: Array, weights: FloatArray, change: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """For each row, the Bregman divergence of ℓ* from R_i to R_i + Δ_i, and Δ_i."""
        raise NotImplementedError

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
    nonnegative = balances = True
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

    def imbalance(self, S: FloatArray, y: Array, weights: FloatArray) -> FloatArray:
        """[Σ w_i (s_i - y_i), Σ w_i]."""
        return np.append(weights @ (S - y), weights.sum())

    def imbalance_size(self, m: int) -> int:
        return m + 1

    def correction(self, sums: FloatArray, m: int) -> Correction:
        """The mean residual is taken off: ΔR_i = w_i·step."""
        g, weight = sums[:m], float(sums[m]) or 1.0
        step = -g / weight
        return Correction((step,), float(g @ g) / weight, True, step)

    def excess(
        self, S: FloatArray, y: Array, weights: FloatArray, change: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """½ w_i‖change‖²."""
        return 0.5 * float(change @ change) * weights, np.multiply.outer(weights, change)


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
    nonnegative = balances = True
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

    def imbalance(self, S: FloatArray, y: Array, weights: FloatArray) -> FloatArray:
        """[E, g, P, n, K]: see `correction`."""
        m, rows = S.shape[1], np.arange(len(y))
        p = np.exp(_log_softmax(S))
        weighted = weights[:, None] * p
        totals, of_classes = weighted.sum(axis=0), np.bincount(y, weights, m)
        couplings = weighted.T @ p if m <= _COUPLED else np.zeros((m, m))
        weighted[rows, y] = 0.0  # 1 - p_y is the sum of the others: nothing cancels as p_y → 1
        others = weighted.sum(axis=1)
        g = weighted.sum(axis=0) - np.bincount(y, others, m)
        parts = [others.sum(keepdims=True), g, totals, of_classes]
        if m <= _COUPLED:
            parts.append(couplings[_pairs(m)])
        return np.concatenate(parts)

    def imbalance_size(self, m: int) -> int:
        return 1 + 3 * m + (m * (m - 1) // 2 if m <= _COUPLED else 0)

    def correction(self, sums: FloatArray, m: int) -> Correction:
        """From E = Σ w_i(1 - p_iy), g = P - n, P = Σ w_i p_i, n of each class, K = Σ w_i p_i p_iᵀ.

        Newton's direction β solves Σ_j K_cj (β_c - β_j) = -g_c. As the third derivative of
        log Σ exp is at most the range r of β times the second, F falls by a step of log(1 + r)/r·β.
        So it does by log(n_c/P_c), which is the better one where classes are far too rare: there F
        is an exponential, in which Newton's steps have the length 1.
        """
        g, totals, wanted = sums[1 : 1 + 3 * m].reshape(3, m)
        off = max(float(sums[0]), _LEAST_OFF * float(wanted.sum()))
        rows, felt = wanted > 0.0, (wanted == 0.0) & (totals > _FELT * off)
        goal = np.where(rows, wanted, np.where(felt, _GONE * off, totals))
        scaling = _logarithm(goal) - _logarithm(totals)
        beta, taken, span = np.zeros(m), np.zeros(m), 0.0
        if m <= _COUPLED and rows.any():
            K = np.zeros((m, m))
            K[_pairs(m)] = sums[1 + 3 * m :]
            K += K.T
            beta[rows] = _newton(K[np.ix_(rows, rows)], g[rows])
            span = float(np.ptp(beta[rows]))
        known = 0.0 < span < np.inf  # Newton's direction
        far = not known or bool(np.any(np.abs(scaling[rows]) > _FAR))
        steps, decrement = [scaling] if far else [], float(-g @ scaling)
        if known:
            steps.append(np.where(rows, np.log1p(span) / span * beta, scaling))
            decrement = decrement if far else float(-g @ beta) + float(totals[felt].sum())
        if known and span <= _NEAR:
            taken = K.sum(axis=1) * beta - K @ beta
        else:
            beta = np.zeros(m)
        near = (
            not felt.any()
            and span <= _NEAR
            and float(np.abs(scaling[rows]).max(initial=0.0)) <= _FAR
        )
        change = _balancing(beta, taken, g, totals)
        # F does not feel what is the same for all classes.
        return Correction(tuple(s - s.mean() for s in steps), max(decrement, 0.0), near, change)

    def excess(
        self, S: FloatArray, y: Array, weights: FloatArray, change: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Σ_c p'_c log(p'_c/p_c) for each row, with p' from `_balancing`."""
        beta, removed, shares = change
        log_p = _log_softmax(S)
        p, away = np.exp(log_p), beta - beta[y][:, None]  # from the label's: it changes by little
        moved = p * (away - np.einsum("ij,ij->i", p, away)[:, None])
        middle = p + moved
        delta = moved - removed * middle + np.multiply.outer(middle @ removed, shares)
        after = np.maximum(p + delta, 0.0)
        # Σ Δ = 0, so each term may be taken less Δ, which leaves about Δ²/2p: no term is negative.
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            x = delta / p
            series = p * x * x * (0.5 - x * (1 / 6 - x * (1 / 12 - x / 20)))
            whole = np.where(after > 0.0, after * (np.log(after) - log_p), 0.0) - delta
        costs = np.where(np.abs(x) < _TINY_SHARE, series, np.where(delta == 0.0, 0.0, whole))
        return weights * costs.sum(axis=1), weights[:, None] * delta

    def evaluate(self, S: Array, y: Array, R: Array) -> float:
        rows, row = np.zeros((2, S.shape[0]), S.dtype), np.zeros(S.shape[1], S.dtype)
        return self.advance(S, y, 1.0, rows[0], row, R, row, rows[1])[0]


@lru_cache(maxsize=1)
def _pairs(m: int) -> tuple[Array, Array]:
    """Each two of m columns."""
    return np.triu_indices(m, 1)


def _log_softmax(S: FloatArray) -> FloatArray:
    S = S - S.max(axis=1, keepdims=True)
    return np.asarray(S - np.log(np.exp(S).sum(axis=1, keepdims=True)))


def _newton(K: FloatArray, g: FloatArray) -> FloatArray:
    """β with Σ_j K_ij (β_i - β_j) = -g_i; not finite where K is as good as 0."""
    order = np.argsort(-K.sum(axis=1), kind="stable")  # the least coupled are eliminated first
    beta, ordered = np.empty(g.size), np.empty(g.size)
    laplacian_solve(np.ascontiguousarray(K[np.ix_(order, order)]), g[order], ordered)
    beta[order] = ordered
    return beta


def _logarithm(x: FloatArray) -> FloatArray:
    """log x, and of 0 that of about the smallest number there is."""
    return np.asarray(np.log(np.maximum(x, _LEAST)))


def _balancing(
    beta: FloatArray, taken: FloatArray, g: FloatArray, totals: FloatArray
) -> FloatArray:
    """β, α and δ of a change of probabilities by which their totals P = Σ_i w_i p_i fall by g.

    First p¹ = p + p∘(β - pᵀβ), which takes off Hβ. Of what is left, ρ = g + Hβ, the columns in
    surplus lose the share α_c = ρ_c/P¹_c of theirs, and of what a row loses so the columns in
    deficit get the shares δ. With |β| ≤ ½ and α ≤ 1 no probability becomes negative.
    """
    left, totals = g + taken, totals + taken
    surplus, deficit = np.maximum(left, 0.0), np.maximum(-left, 0.0)
    removed = np.divide(surplus, totals, out=np.zeros_like(g), where=totals > 0.0)
    if not deficit.any():
        return np.stack([beta, np.zeros_like(g), np.zeros_like(g)])
    return np.stack([beta, np.minimum(removed, 1.0), deficit / deficit.sum()])


def inner_product(A: Array, B: Array) -> float:
    """⟨A, B⟩, with rows of float32 summed in float64."""
    return float(np.einsum("ij,ij->i", A, B).sum(dtype=np.float64))
