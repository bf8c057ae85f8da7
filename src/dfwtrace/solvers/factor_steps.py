"""Quasi-Newton steps in W's factors: L-BFGS on F as a function of x = (A, B, z), see `ball`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dfwtrace._typing import FloatArray, Memory
from dfwtrace.solvers.ball import BallPoint, evaluate
from dfwtrace.solvers.lbfgs import LBFGS
from dfwtrace.solvers.metric import Metric, Stiffness, stiffness
from dfwtrace.solvers.problem import Problem

# A step must lower F by this share of what its slope promises (Armijo's rule).
_ENOUGH = 1e-4
# The shortest share of a step that is tried, and of one that nothing is known of.
_SHORTEST, _SHORTEST_FIRST = 1e-4, 1e-10
# The first step goes by the curvature, or this many times as far as the one before if F has curved
# downwards there, but at most this share of ‖x‖.
_FURTHER, _FARTHEST = 10.0, 0.1


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
        """x + t p along the direction p of L-BFGS, and t: 1 unless F is not low enough there.

        L is F's curvature in W where it was last seen, for the first step; `noise` is what rounding
        may do to a difference of F. None if no step leads downhill: the states are then anywhere.
        """
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
