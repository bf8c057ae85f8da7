"""Projected gradient steps on the trace-norm ball, through products with blocks of vectors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dfwtrace._typing import FloatArray
from dfwtrace.linalg.gradient import GradientOperator
from dfwtrace.linalg.lowrank import LowRankMatrix
from dfwtrace.solvers.problem import Tangent


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
    # Sums in another order may differ by their rounding: it is not to be below zero for that.
    return max(0.0, float(candidates[np.flatnonzero(s > candidates)[-1]]))


def shrunk(s: FloatArray, theta: float, radius: float) -> FloatArray:
    """s - θ, also where the difference of large numbers loses its digits.

    θ = (Σs - radius)/k gives s_i - θ = (radius - Σ_j (s_j - s_i))/k, in which nothing cancels.

    Examples
    --------
    >>> import numpy as np
    >>> shrunk(np.array([1e17 + 32.0, 1e17]), 1e17, 33.0)
    array([32.5,  0.5])
    """
    values: FloatArray = s - theta
    if theta == 0.0 or abs(values.sum() - radius) <= 1e-9 * radius:
        return values
    differences = (s[None, :] - s[:, None]).sum(axis=1)  # Σ_j (s_j - s_i)
    exact: FloatArray = np.maximum((radius - differences) / s.size, 0.0)
    exact *= min(1.0, radius / float(exact.sum()))
    return exact


def sufficient_rank(s: FloatArray, radius: float, excess: float) -> int:
    """The least rank whose projection is farther from M by no more than an excess of ‖W⁺ - M‖².

    From the first k singular values s of M (largest first) comes a W⁺ of the ball with
    ‖W⁺ - M‖² = k θ² + Σ_{i>k} s_i².

    Examples
    --------
    >>> import numpy as np
    >>> [sufficient_rank(np.array([3.0, 2.0, 0.1]), 10.0, excess) for excess in (5.0, 0.1, 0.0)]
    [1, 2, 3]
    """
    k = np.arange(1, s.size + 1)
    thetas = np.maximum((np.cumsum(s) - radius) / k, 0.0)
    left_out = np.append(np.cumsum((s**2)[::-1])[::-1][1:], 0.0)
    # Beyond the rank of the projection itself, θ is above the smallest value.
    squared = np.where(s > thetas, k * thetas**2 + left_out, np.inf)
    rounding = 1e-12 * float(s @ s)
    return int(k[squared <= squared.min() + max(0.0, excess - rounding)][0])


class ProjectedStep(NamedTuple):
    """W⁺, with ⟨∇F(W), W⁺ - W⟩ and ‖W⁺ - W‖².

    `complete` if a direction of the view was cut off, or there are no more: a sign, not a proof,
    that the view holds all that the projection needs. `spare` are the right singular vectors that
    were cut off, the nearest to the threshold first.
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
    _steps: dict[float, ProjectedStep] = field(default_factory=dict, repr=False)

    @property
    def sigma(self) -> float:
        """σ₁ of the gradient in this view: a lower bound of σ₁(G)."""
        return spectral_norm(self.g)

    def step(self, lipschitz: float, radius: float, share: float = 1.0) -> ProjectedStep:
        """The projection of W - G/L, or the least rank with that `share` of what it promises.

        It is the projection within the view, and the exact one only if what the view lacks would
        be cut off too: that the smallest value in the view is cut off does not prove it, as
        diag(10, 5, 0) seen from span(e₂, e₃) shows. Remembered for this L.
        """
        if lipschitz not in self._steps:
            self._steps[lipschitz] = self._step(lipschitz, radius, share)
        return self._steps[lipschitz]

    def _step(self, lipschitz: float, radius: float, share: float) -> ProjectedStep:
        M = self.w - self.g / lipschitz
        # The values that are kept are not much smaller than the largest: their squares will do.
        squares, left = np.linalg.eigh(M.T @ M)
        s, left = np.sqrt(np.maximum(squares[::-1], 0.0)), left[:, ::-1]
        s[s <= 1e-7 * s[0]] = 0.0  # roots of rounding errors, which would raise the threshold
        images = M @ left
        step = self._of_rank(s.size, radius, s, left, images)
        # What is promised is ⟨G, W - W⁺⟩ - ½L‖W⁺ - W‖² = ½L(‖G/L‖² - ‖W⁺ - M‖²).
        promised = -step.slope - 0.5 * lipschitz * step.squared
        enough = sufficient_rank(s, radius, 2.0 * (1.0 - share) * promised / lipschitz)
        return step if enough >= step.W.rank else self._of_rank(enough, radius, s, left, images)

    def _of_rank(
        self, most: int, radius: float, s: FloatArray, left: FloatArray, images: FloatArray
    ) -> ProjectedStep:
        """The projection of the part of M that its first singular values make up."""
        theta = threshold(s[:most], radius)
        kept = (s > theta) & (np.arange(s.size) < most)
        complete = not kept[-1] or s.size >= min(images.shape[0], self.Q.shape[0])
        s, V = s[kept], images[:, kept] / s[kept]
        values = shrunk(s, theta, radius)
        W = LowRankMatrix(self.Q @ left[:, kept], values, V)
        change = (V * values) @ left[:, kept].T - self.w
        slope, squared = float(np.vdot(self.g, change)), float(np.vdot(change, change))
        return ProjectedStep(W, slope, squared, bool(complete), images[:, ~kept])


def spectral_norm(T: FloatArray) -> float:
    """‖T‖₂ of a tall matrix, from the squares: accurate enough for an estimate, and fast.

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
    return spectral_norm(as_orthonormal(image, factor))


def as_orthonormal(image: FloatArray, factor: FloatArray) -> FloatArray:
    """The image of an orthonormal basis of a factor's columns, which may depend on each other.

    Examples
    --------
    >>> import numpy as np
    >>> factor = np.array([[3.0, 6.0], [4.0, 8.0]])
    >>> np.abs(as_orthonormal(factor, factor)).round(12)
    array([[0.6],
           [0.8]])
    """
    values, vectors = np.linalg.eigh(factor.T @ factor)
    kept = values > 1e-10 * values.max(initial=0.0)
    basis: FloatArray = (image @ vectors[:, kept]) / np.sqrt(values[kept])
    return basis


def explore(
    gradient: GradientOperator,
    W: LowRankMatrix,
    others: FloatArray,
    images: FloatArray,
    lipschitz: float,
    tangent: Tangent | None,
) -> View:
    """A step of subspace iteration on W - G/L, from W's right factors and `others`.

    W's own left factors are in the view, so that a step in it may stay where it is.

    Parameters
    ----------
    gradient : GradientOperator
        G = ∇F(W).
    W : LowRankMatrix
    others : array of shape (m, k)
        Right vectors beyond those of W.
    images : array of shape (d, r + k)
        G times W's right factors and `others`.
    lipschitz : float
        L.
    tangent : Tangent, optional
        Where W's factors are orthonormal, it has the gradient's products with them.
    """
    moved = (W.U * W.s) @ (W.V.T @ np.hstack([W.V, others])) - images / lipschitz
    Q = np.linalg.qr(np.hstack([W.U, moved[:, W.rank :], moved[:, : W.rank]]))[0]
    if tangent is None:
        return View(Q, (W.V * W.s) @ (W.U.T @ Q), gradient.transpose_times(Q))
    added = Q[:, W.rank :]
    Q = np.hstack([W.U, added])
    g = np.hstack([tangent.transposed, gradient.transpose_times(added)])
    return View(Q, (W.V * W.s) @ (W.U.T @ Q), g)


def outside_span(
    gradient: GradientOperator, V: FloatArray, others: FloatArray, iterations: int
) -> FloatArray:
    """Subspace iterations with GᵀG for its leading right vectors outside the span of V."""
    span = as_orthonormal(V, V)
    for _ in range(iterations):
        others = gradient.transpose_times(gradient.times(np.linalg.qr(others).Q))
        others -= span @ (span.T @ others)
    return np.linalg.qr(others).Q
