"""Projected gradient steps on the trace-norm ball, through products with blocks of vectors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dfwtrace._typing import FloatArray
from dfwtrace.linalg.gradient import GradientOperator
from dfwtrace.linalg.lowrank import LowRankMatrix


def onto_simplex(s: FloatArray, radius: float) -> FloatArray:
    """max(s - θ, 0) with the least θ ≥ 0 for which they add up to at most radius."""
    # s is sorted, largest first. What is kept is less than the radius below the largest value, so
    # that differences to it lose no digits, however large s is.
    if s.sum() <= radius:
        return s
    below = s[0] - s
    largest = (radius + np.cumsum(below)) / np.arange(1, s.size + 1)  # by how many are kept
    top = largest[np.flatnonzero(below < largest)[-1]]
    return np.asarray(np.clip(top - below, 0.0, s), np.float64)


def sufficient_rank(s: FloatArray, radius: float, excess: float) -> int:
    """The least rank whose projection is farther from M by no more than an excess of ‖W⁺ - M‖²."""
    # From the first k singular values s of M (largest first) comes a W⁺ of the ball with
    # ‖W⁺ - M‖² = k θ² + Σ_{i>k} s_i².
    k = np.arange(1, s.size + 1)
    thetas = np.maximum((np.cumsum(s) - radius) / k, 0.0)
    left_out = np.append(np.cumsum((s**2)[::-1])[::-1][1:], 0.0)
    # Beyond the rank of the projection itself, θ is above the smallest value.
    squared = np.where(s > thetas, k * thetas**2 + left_out, np.inf)
    rounding = 1e-12 * float(s @ s)
    return int(k[squared <= squared.min() + max(0.0, excess - rounding)][0])


class ProjectedStep(NamedTuple):
    """W⁺, with ⟨∇F(W), W⁺ - W⟩ and ‖W⁺ - W‖²."""

    W: LowRankMatrix
    slope: float
    squared: float
    complete: bool  # the view held all that the projection needs: a sign, not a proof
    spare: FloatArray  # right singular vectors cut off, the nearest to the threshold first


@dataclass(frozen=True)
class View:
    """W and G = ∇F(W) seen from the left in an orthonormal basis Q that holds W: WᵀQ and GᵀQ."""

    Q: FloatArray
    w: FloatArray
    g: FloatArray
    radius: float
    share: float = 1.0  # of what a step promises, for which it takes the least rank
    _steps: dict[float, ProjectedStep] = field(default_factory=dict, repr=False)

    def step(self, lipschitz: float) -> ProjectedStep:
        """The projection of W - G/L, but for directions that it gains little from."""
        # Exact only if what the view lacks would be cut off too: that the view's smallest value is
        # cut off does not prove it, as diag(10, 5, 0) seen from span(e₂, e₃) shows.
        if lipschitz in self._steps:
            return self._steps[lipschitz]
        M = self.w - self.g / lipschitz
        # The values that are kept are not much smaller than the largest: their squares will do.
        squares, left = np.linalg.eigh(M.T @ M)
        s, left = np.sqrt(np.maximum(squares[::-1], 0.0)), left[:, ::-1]
        s[s <= 1e-7 * s[0]] = 0.0  # roots of rounding errors, which would raise the threshold
        image = M @ left
        step = self._of_rank(s.size, s, left, image)
        # What is promised is ⟨G, W - W⁺⟩ - ½L‖W⁺ - W‖² = ½L(‖G/L‖² - ‖W⁺ - M‖²).
        promised = -step.slope - 0.5 * lipschitz * step.squared
        enough = sufficient_rank(s, self.radius, 2.0 * (1.0 - self.share) * promised / lipschitz)
        if enough < step.W.rank:
            step = self._of_rank(enough, s, left, image)
        self._steps[lipschitz] = step
        return step

    def _of_rank(self, k: int, s: FloatArray, left: FloatArray, image: FloatArray) -> ProjectedStep:
        """The projection of the part of M that its first k singular values make up."""
        values = np.zeros_like(s)
        values[:k] = onto_simplex(s[:k], self.radius)
        kept = values > 0.0
        complete = not kept[-1] or s.size >= min(image.shape[0], self.Q.shape[0])
        values, V = values[kept], image[:, kept] / s[kept]
        W = LowRankMatrix(self.Q @ left[:, kept], values, V)
        change = (V * values) @ left[:, kept].T - self.w
        slope, squared = float(np.vdot(self.g, change)), float(np.vdot(change, change))
        return ProjectedStep(W, slope, squared, bool(complete), image[:, ~kept])


def spectral_norm(T: FloatArray) -> float:
    """‖T‖₂ of a tall matrix, from the squares: accurate enough for an estimate, and fast."""
    if T.size == 0:
        return 0.0
    return float(np.sqrt(max(0.0, np.linalg.eigvalsh(T.T @ T)[-1])))


def as_orthonormal(image: FloatArray, factor: FloatArray) -> FloatArray:
    """The image of an orthonormal basis of a factor's columns, which may depend on each other."""
    values, vectors = np.linalg.eigh(factor.T @ factor)
    kept = values > 1e-10 * values.max(initial=0.0)
    return np.asarray((image @ vectors[:, kept]) / np.sqrt(values[kept]))


def outside_span(
    gradient: GradientOperator, V: FloatArray, others: FloatArray, iterations: int
) -> FloatArray:
    """Subspace iterations with GᵀG for its leading right vectors outside the span of V."""
    span = as_orthonormal(V, V)
    for _ in range(iterations):
        others = gradient.transpose_times(gradient.times(np.linalg.qr(others).Q))
        others -= span @ (span.T @ others)
    return np.linalg.qr(others).Q
