"""Quasi-Newton steps in W's factors: L-BFGS on F as a function of x = (A, B, z), see `ball`.

L-BFGS, which knows the last few steps only, is slow where F is curved unevenly; relative to a
metric that knows how curved F is, about, it is not. With ∇²F ≈ c·(I ⊗ H) and W = ABᵀ, changing A by
D adds c/2·⟨D, H D BᵀB⟩ to F in second order, and changing B by D adds c/2·⟨D, D AᵀHA⟩: F is flat
along columns of A and B that make up little of W, and steep along features that are large in all
rows. The constraint adds a curvature that is the same everywhere. Without H and that, it is the
metric of scaled gradient descent (Tong, Ma and Chi, 2021).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dfwtrace._typing import FloatArray, Memory
from dfwtrace.solvers.ball import BallPoint, blocks, evaluate
from dfwtrace.solvers.lbfgs import LBFGS
from dfwtrace.solvers.problem import Problem

_ENOUGH = 1e-4  # a step must lower F by this share of what its slope promises (Armijo's rule)
# The shortest share of a step that is tried, and of one that nothing is known of.
_SHORTEST, _SHORTEST_FIRST = 1e-4, 1e-10
# The first step goes by the curvature, or this many times as far as the one before if F has curved
# downwards there, but at most this share of ‖x‖.
_FURTHER, _FARTHEST = 10.0, 0.1
# Directions of the features that are looked at, and products with H that find them.
_DIRECTIONS, _PRODUCTS = 12, 3
_STEEPEST = 1e3  # largest ratio of the steepest to the least steep of them
# The constraint's own curvature is the same along all columns; so is this share of the largest.
_EVEN = 0.1


class FactorSteps:
    """The steps from one point to the next, and what is remembered of them."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._pairs = LBFGS(0)
        self._reach = 1.0  # of the first step
        self._stiff: Stiffness | None = None  # not known before the first step

    def memory(self) -> Memory:
        return {"pairs": self._pairs.memory(), "reach": self._reach, "stiff": self._stiff}

    def restore(self, memory: Memory) -> None:
        self._pairs.restore(memory["pairs"])
        self._reach = memory["reach"]
        self._stiff = None if memory["stiff"] is None else Stiffness(*memory["stiff"])

    def begin_at(self, point: BallPoint) -> None:
        """Forget the steps: they were of another place."""
        self._pairs, self._reach = LBFGS(point.x.size), 1.0

    def change(self, change: Callable[[FloatArray], FloatArray]) -> None:
        """Go on in other coordinates."""
        self._pairs = self._pairs.map(change)

    def take(
        self, point: BallPoint, lipschitz: float, noise: float
    ) -> tuple[BallPoint, float] | None:
        """x + t p along the direction p of L-BFGS, and t: 1 unless F is not low enough there."""
        # L is F's curvature in W where it was last seen, for the first step; `noise` is what
        # rounding may do to a difference of F. After None the shards' states are anywhere.
        direction, shortest = self._direction(point, lipschitz)
        slope, t = float(direction @ point.gradient), 1.0
        while slope < 0.0 and t > shortest:
            tried = evaluate(self._problem, point.x + t * direction)
            rise = tried.tangent.objective - point.tangent.objective
            # Where rounding hides whether F falls, its slope decides (Hager and Zhang, 2005).
            level = rise <= noise and float(direction @ tried.gradient) <= -0.8 * slope
            if rise <= _ENOUGH * t * slope or level:
                self._pairs.remember(tried.x - point.x, tried.gradient - point.gradient)
                # F is not convex in x, and a step where it curves downwards says nothing.
                self._reach = min(_FURTHER * self._reach, 1e10) if self._pairs.empty else 1.0
                return tried, t
            t *= min(0.5, max(0.1, -slope * t / (2.0 * (rise - slope * t))))
        return None

    def _direction(self, point: BallPoint, lipschitz: float) -> tuple[FloatArray, float]:
        """p, and the least share of it to try."""
        if self._stiff is None:
            self._stiff = stiffness(self._problem)
        x, g = point.x, point.gradient
        metric = Metric(x, self._problem.shape, self._stiff)
        direction = self._pairs.direction(g, metric.inverse)
        if direction is not None:
            return direction, _SHORTEST
        # W = ABᵀ/q, so a curvature L in W is one of L/q² in A and B, times the metric. Seen in a
        # stiff direction, L makes the step too short, and the next one makes up for it.
        q = float(x @ x) / (2.0 * self._problem.radius)
        direction = metric.inverse(g) * (-self._reach * q * q / lipschitz)
        length, farthest = float(np.linalg.norm(direction)), _FARTHEST * float(np.linalg.norm(x))
        return direction * (farthest / max(length, farthest)), _SHORTEST_FIRST


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
