"""Projected gradient steps on the trace-norm ball, through products with blocks of vectors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dfwtrace._typing import FloatArray
from dfwtrace.lowrank import LowRankMatrix


def threshold(s: FloatArray, radius: float) -> float:
    """θ ≥ 0 with Σ max(s - θ, 0) = radius, or 0 if Σ s is below it; s is sorted, largest first.

    Examples
    --------
    >>> import numpy as np
    >>> threshold(np.array([3.0, 2.0, 0.5]), 3.0)
    1.0
    """
    if s.sum() <= radius:
        return 0.0
    candidates = (np.cumsum(s) - radius) / np.arange(1, s.size + 1)
    return float(candidates[np.flatnonzero(s > candidates)[-1]])


class Step(NamedTuple):
    """W⁺, with ⟨∇F(W), W⁺ - W⟩ and ‖W⁺ - W‖², and whether no direction was missing for it.

    `spare` are the right singular vectors that were cut off, the nearest to the threshold first.
    """

    W: LowRankMatrix
    slope: float
    squared: float
    complete: bool
    spare: FloatArray


@dataclass(frozen=True)
class View:
    """W and G = ∇F(W) seen from the left in an orthonormal basis Q that holds W: WᵀQ and GᵀQ."""

    Q: FloatArray
    w: FloatArray
    g: FloatArray
    _steps: dict[float, Step] = field(default_factory=dict, repr=False)

    @property
    def sigma(self) -> float:
        """σ₁ of the gradient in this view: a lower bound of σ₁(G)."""
        return spectral_norm(self.g)

    def step(self, lipschitz: float, radius: float, most: int) -> Step:
        """The projection of W - G/L, of rank `most` at the most; remembered for this L.

        Without that limit it is exact if what the view lacks would be cut off, and so it is if the
        smallest singular value in the view is below the threshold.
        """
        if lipschitz not in self._steps:
            self._steps[lipschitz] = self._step(lipschitz, radius, most)
        return self._steps[lipschitz]

    def _step(self, lipschitz: float, radius: float, most: int) -> Step:
        M = self.w - self.g / lipschitz
        # The values that are kept are not much smaller than the largest: their squares will do.
        squares, left = np.linalg.eigh(M.T @ M)
        s, left = np.sqrt(np.maximum(squares[::-1], 0.0)), left[:, ::-1]
        s[s <= 1e-7 * s[0]] = 0.0  # roots of rounding errors, which would raise the threshold
        complete = s[-1] <= threshold(s, radius) or s.size >= min(M.shape[0], self.Q.shape[0])
        theta = threshold(s[:most], radius)
        kept = (s > theta) & (np.arange(s.size) < most)
        images = M @ left
        s, V = s[kept], images[:, kept] / s[kept]
        W = LowRankMatrix(self.Q @ left[:, kept], s - theta, V)
        change = (V * (s - theta)) @ left[:, kept].T - self.w
        slope, squared = float(np.vdot(self.g, change)), float(np.vdot(change, change))
        return Step(W, slope, squared, bool(complete), images[:, ~kept])


def spectral_norm(T: FloatArray) -> float:
    """‖T‖₂ of a tall matrix, from the squares: enough digits for an estimate, and quick.

    Examples
    --------
    >>> import numpy as np
    >>> round(spectral_norm(np.array([[3.0, 0.0], [0.0, 1.0], [0.0, 0.0]])), 12)
    3.0
    """
    if T.size == 0:
        return 0.0
    return float(np.sqrt(max(0.0, np.linalg.eigvalsh(T.T @ T)[-1])))


def norm_on(image: FloatArray, factor: FloatArray) -> float:
    """‖G‖₂ on the span of a factor's columns, from their image G·factor."""
    values, vectors = np.linalg.eigh(factor.T @ factor)
    kept = values > 1e-10 * values.max(initial=0.0)
    return spectral_norm((image @ vectors[:, kept]) / np.sqrt(values[kept]))
