"""How curved F is, about, in the coordinates x = (A, B, z) of the ball.

With ∇²F ≈ c·(I ⊗ H) and W = ABᵀ, changing A by D adds c/2·⟨D, H D BᵀB⟩ to F in second order, and
changing B by D adds c/2·⟨D, D AᵀHA⟩. So F is flat along columns of A and B that make up little of
W, and steep along features that are large in all rows. L-BFGS, which knows the last few steps only,
is slow in x where that is so; relative to this metric it is not. The constraint adds a curvature
that is the same everywhere. Without H and that, it is the metric of scaled gradient descent (Tong,
Ma and Chi, 2021).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dfwtrace._typing import FloatArray
from dfwtrace.solvers.ball import blocks
from dfwtrace.solvers.problem import Problem

# Directions of the features that are looked at, and products with H that find them.
_DIRECTIONS, _PRODUCTS = 12, 3
# Largest ratio of the steepest to the least steep of them.
_STEEPEST = 1e3
# The constraint's own curvature is the same along all columns; so is this share of the largest.
_EVEN = 0.1


class Stiffness(NamedTuple):
    """H ≈ h·(I + E diag(excess) Eᵀ) for some h, with orthonormal columns of E, and excess ≥ 0."""

    directions: FloatArray  # E
    excess: FloatArray


def stiffness(problem: Problem) -> Stiffness:
    """The features' leading directions, by subspace iteration; none if the task does not know H."""
    d = problem.shape[0]
    even = Stiffness(np.zeros((d, 0)), np.zeros(0))  # H ≈ h·I: nothing is known of the features
    if not problem.task.supports("curvature_product"):
        return even
    start = np.random.default_rng([problem.seed, 0x57F]).standard_normal((d, min(d, _DIRECTIONS)))
    for _ in range(_PRODUCTS):
        Q = np.linalg.qr(start).Q
        start = problem.curvature_times(Q)
        if not np.isfinite(start).all():
            return even  # it would only have helped
    values, turn = np.linalg.eigh(Q.T @ start)
    least = max(float(values[0]), float(values[-1]) / _STEEPEST)
    return Stiffness(Q @ turn, np.maximum(values / least, 1.0) - 1.0) if least > 0.0 else even


class Metric:
    """The metric at x = (A, B, z), up to a factor."""

    def __init__(self, x: FloatArray, shape: tuple[int, int], stiff: Stiffness) -> None:
        self._shape, self._stiff = shape, stiff
        A, B = blocks(x, shape)
        along = stiff.directions.T @ A
        self._of_A, self._turn_A = np.linalg.eigh(B.T @ B)
        self._of_B, self._turn_B = np.linalg.eigh(A.T @ A + (along.T * stiff.excess) @ along)
        self._even = _EVEN * float(self._of_A[-1])

    def inverse(self, g: FloatArray) -> FloatArray:
        """Its inverse, times g."""
        (E, excess), even = self._stiff, self._even
        of_A, of_B = blocks(g, self._shape)
        left = of_A @ self._turn_A
        along, plain = E.T @ left, self._of_A + even
        steep = self._of_A * (1.0 + excess)[:, None] + even
        left = (left / plain + E @ (along / steep - along / plain)) @ self._turn_A.T
        right = (of_B @ self._turn_B / (self._of_B + even)) @ self._turn_B.T
        slack = g[-1:] / (float(self._of_A.mean()) + even)
        return np.concatenate([left.ravel(), right.ravel(), slack])
