"""F, its gradient and its duality gap in plain NumPy and float64: what all methods are judged by.

Nothing here is shared with the package that is measured.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

# The intercept is at its optimum when Newton's step would lower F by less than this share of it.
_SETTLED, _NEWTON_STEPS = 1e-13, 200
# Above this number of entries the gradient is not formed, if there are fewer rows than features.
_LARGE = 4_000_000


class Gap(NamedTuple):
    """F(W, b); F(W, b⁺) with the best b⁺ for this W; and a bound of F(W, b⁺) - F*."""

    objective: float
    settled: float
    bound: float

    @property
    def total(self) -> float:
        """A bound of F(W, b) - F*."""
        return self.objective - self.settled + self.bound


class Objective:
    """F(W, b) = Σ_i w_i ℓ(x_iᵀW + b, y_i): squared loss, or multinomial where y has one dimension.

    Parameters
    ----------
    X : array or CSR matrix of shape (n, d)
    y : array of shape (n, m), or classes of shape (n,)
    m : int
        Targets or classes.
    weights : array of shape (n,), or None
        What each row counts.
    intercept : bool
        Whether there is a b, which no constraint holds back; otherwise it is 0.
    """

    def __init__(
        self, X: Any, y: np.ndarray, m: int, weights: np.ndarray | None, intercept: bool
    ) -> None:
        self.X = X.astype(np.float64, copy=False)
        self.classes = y.ndim == 1
        self.y = y if self.classes else y.astype(np.float64, copy=False)
        self.weights = np.ones(len(y)) if weights is None else weights.astype(np.float64)
        self.intercept = intercept
        self.shape = (int(X.shape[1]), m)
        self._rows = np.arange(len(y))
        self._root: np.ndarray | None = None  # of XXᵀ

    def on_scores(self, S: np.ndarray) -> tuple[float, np.ndarray]:
        """F at scores S = XW + 1bᵀ, and its gradient R in them."""
        if not self.classes:
            R = S - self.y
            weighted = self.weights[:, None] * R
            return 0.5 * float(np.vdot(R, weighted)), weighted
        P = S - S.max(axis=1, keepdims=True)
        own = P[self._rows, self.y].copy()
        np.exp(P, out=P)
        # Apart from the others, which may be few and tiny: 1 + rest would lose their digits.
        P[self._rows, self.y] = 0.0
        rest, here = P.sum(axis=1), np.exp(own)
        losses = np.where(own == 0.0, np.log1p(rest), np.log(here + rest) - own)
        P[self._rows, self.y] = -rest
        P *= (self.weights / (here + rest))[:, None]
        return float(self.weights @ losses), P

    def evaluate(self, W: np.ndarray, b: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """F and its gradients in a dense W and in b, which is 0 without an intercept."""
        F, R = self.on_scores(np.asarray(self.X @ W) + b)
        g = R.sum(axis=0) if self.intercept else np.zeros_like(b)
        return F, np.asarray(self.X.T @ R), g

    def settle(self, scores: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The best b for scores XW, from a b nearby: the mean residual, or by Newton's method."""
        if not self.intercept:
            return np.zeros_like(b)
        if not self.classes:
            return np.asarray(self.weights @ (self.y - scores) / self.weights.sum())
        F, R = self.on_scores(scores + b)
        for _ in range(_NEWTON_STEPS):
            P = R / np.maximum(self.weights, np.finfo(np.float64).tiny)[:, None]
            P[self._rows, self.y] += 1.0
            g = R.sum(axis=0)
            H = np.diag(self.weights @ P) - P.T @ (self.weights[:, None] * P)
            # Along (1, …, 1) nothing changes, and hardly anything for a class without rows.
            scale = 1.0 / np.sqrt(np.maximum(np.diag(H), 1e-300))
            values, vectors = np.linalg.eigh(H * np.outer(scale, scale))
            inverse = np.where(values > 1e-12, 1.0 / np.maximum(values, 1e-12), 0.0)
            direction = -scale * (vectors @ (inverse * (vectors.T @ (scale * g))))
            slope = float(g @ direction)
            if -slope <= _SETTLED * abs(F):
                return b
            t = 1.0
            while t > 1e-12:
                lower, R_there = self.on_scores(scores + b + t * direction)
                if lower <= F + 1e-4 * t * slope:
                    break
                t *= 0.5
            else:
                return b
            b, F, R = b + t * direction, lower, R_there
        return b

    def gap(self, scores: np.ndarray, b: np.ndarray | None, radius: float) -> Gap:
        """Judge a point by its scores XW and by b: the bound is ⟨W, G⟩ + μσ₁(G) at (W, b⁺)."""
        b = np.zeros(self.shape[1]) if b is None else np.asarray(b, np.float64)
        given = self.on_scores(scores + b)[0]
        F, R = self.on_scores(scores + self.settle(scores, b))
        bound = float(np.vdot(scores, R)) + radius * self.sigma(R)
        return Gap(given, min(F, given), max(0.0, bound))  # F is above it by rounding only

    def at_zero(self) -> tuple[float, float]:
        """F(0) with the best intercept, and σ₁ of the gradient there."""
        nothing = np.zeros((len(self.y), self.shape[1]))
        F, R = self.on_scores(nothing + self.settle(nothing, np.zeros(self.shape[1])))
        return F, self.sigma(R)

    def sigma(self, R: np.ndarray) -> float:
        """σ₁(XᵀR), from the smaller of the matrices that have its square as an eigenvalue."""
        if self.X.shape[0] < self.shape[0] and self.shape[0] * self.shape[1] > _LARGE:
            if self._root is None:  # XXᵀ = LLᵀ, and σ₁(XᵀR) = σ₁(LᵀR)
                K = self.X @ self.X.T
                values, vectors = np.linalg.eigh(K.toarray() if sp.issparse(K) else K)
                self._root = vectors * np.sqrt(np.maximum(values, 0.0))
            G = self._root.T @ R
        else:
            G = np.asarray(self.X.T @ R)
        size = float(np.abs(G).max(initial=0.0))
        if size == 0.0:
            return 0.0
        G = G / size
        M = G @ G.T if G.shape[0] <= G.shape[1] else G.T @ G
        return size * float(np.sqrt(np.linalg.eigvalsh(M)[-1]))
