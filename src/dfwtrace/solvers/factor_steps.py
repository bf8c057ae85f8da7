"""Steps in W's factors: L-BFGS on F as a function of x = (A, B, z), W = 2μ ABᵀ/(‖A‖² + ‖B‖² + z²).

‖ABᵀ‖_* ≤ ½(‖A‖² + ‖B‖²), so any x gives a W with ‖W‖_* ≤ μ; and every such W of rank r comes from
factors with r columns: A = U√s, B = V√s, z² = 2(μ - Σs). So x may move without a constraint.

L-BFGS, which knows the last few steps only, is slow where F is curved unevenly; relative to a
metric that knows how curved F is, about, it is not. With ∇²F ≈ c·(I ⊗ H) and W = ABᵀ, changing A by
D adds c/2·⟨D, H D BᵀB⟩ to F in second order, and changing B by D adds c/2·⟨D, D AᵀHA⟩: F is flat
along columns of A and B that make up little of W, and steep along features that are large in all
rows. The constraint adds a curvature that is the same everywhere. Without H and that, it is the
metric of scaled gradient descent (Tong, Ma and Chi, 2021).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dfwtrace._typing import FloatArray, Memory
from dfwtrace.linalg.golub_kahan import Product
from dfwtrace.linalg.lowrank import LowRankMatrix
from dfwtrace.solvers.lbfgs import LBFGS
from dfwtrace.solvers.problem import Problem, Tangent

_ENOUGH = 1e-4  # a step must lower F by this share of what its slope promises (Armijo's rule)
_SHORTEST, _SHORTEST_FIRST = 1e-4, 1e-10  # share of a step that is tried, and of the first one
# The first step goes by the curvature, or this many times as far as the one before if F has curved
# downwards there, but at most this share of ‖x‖.
_FURTHER, _FARTHEST = 10.0, 0.1
_DIRECTIONS, _PRODUCTS = 12, 3  # of the features, and products with H that find them
_STEEPEST = 1e3  # largest ratio of the steepest to the least steep of them
# The constraint's own curvature is the same along all columns; so is this share of the largest.
_EVEN = 0.1
_ROUNDING = 1e-14  # columns shorter than this, squared and relative, are rounding errors


class BallPoint(NamedTuple):
    """A point x = (A, B, z), its W, and F there with its gradient in x."""

    x: FloatArray
    W: LowRankMatrix
    tangent: Tangent
    gradient: FloatArray


def blocks(x: FloatArray, shape: tuple[int, int]) -> tuple[FloatArray, FloatArray]:
    """The part of A and that of B in a vector of the coordinates (A, B, z)."""
    d, m = shape
    rank = (x.size - 1) // (d + m)
    return x[: d * rank].reshape(d, rank), x[d * rank : -1].reshape(m, rank)


def evaluate_at(problem: Problem, W: LowRankMatrix) -> BallPoint:
    """F at a W with orthonormal factors, and the gradient in x = (U√s, V√s, √(2(μ - Σs)))."""
    tangent = problem.tangent(W)
    roots = np.sqrt(W.s)
    slack = np.sqrt(max(0.0, 2.0 * (problem.radius - float(W.s.sum()))))
    x = np.concatenate([(W.U * roots).ravel(), (W.V * roots).ravel(), [slack]])
    # With B = V√s and A = U√s: G B = (G V)√s and Gᵀ A = (Gᵀ U)√s.
    sides = tangent.products * roots, tangent.transposed * roots
    return BallPoint(x, W, tangent, _gradient(x, problem.radius, tangent.inner, *sides))


def evaluate(problem: Problem, x: FloatArray) -> BallPoint:
    """F at the W of x, and the gradient in x."""
    q = float(x @ x) / (2.0 * problem.radius)
    A, B = blocks(x, problem.shape)
    W = LowRankMatrix(A / q, np.ones(A.shape[1]), B)
    tangent = problem.tangent(W)
    sides = tangent.products, q * tangent.transposed
    return BallPoint(x, W, tangent, _gradient(x, problem.radius, tangent.inner, *sides))


def _gradient(x: FloatArray, radius: float, inner: float, *sides: FloatArray) -> FloatArray:
    """The gradient in x from the sides G B and Gᵀ A."""
    # With q = ‖x‖²/2μ and W = ABᵀ/q: ∇_A F = (G B - ⟨W, G⟩ A/μ)/q, ∇_B F = (Gᵀ A - ⟨W, G⟩ B/μ)/q
    # and ∇_z F = -⟨W, G⟩ z/(μ q).
    gradient = np.concatenate([*(side.ravel() for side in sides), [0.0]])
    gradient -= (inner / radius) * x
    gradient /= float(x @ x) / (2.0 * radius)
    return gradient


def trimmed(x: FloatArray, gradient: FloatArray, shape: tuple[int, int], mass: float) -> Product:
    """Coordinates with fewer columns: a map for x, and for differences of x and of gradients."""
    # A rotation of the columns of A and B together changes neither W nor any length. Sorted by
    # ½(‖a‖² + ‖b‖²), the last are dropped up to a `mass` of that, which is at least what W loses in
    # trace norm, times q; but not those along which F falls as they grow.
    rows = sum(shape)
    stacked = x[:-1].reshape(rows, -1)
    values, turn = np.linalg.eigh(stacked.T @ stacked)
    slopes = np.einsum("ij,ij->j", stacked @ turn, gradient[:-1].reshape(rows, -1) @ turn)
    growing = (slopes < 0.0) & (values > _ROUNDING * values[-1])
    dropped = (np.cumsum(0.5 * values) < mass) & ~growing
    dropped[-1] = False
    turn = turn[:, ~dropped]

    def change(vector: FloatArray) -> FloatArray:
        columns = vector[:-1].reshape(rows, -1) @ turn
        return np.concatenate([columns.ravel(), vector[-1:]])

    return change


class FactorSteps:
    """The steps from one point to the next, and what is remembered of them."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.lbfgs = LBFGS(0)
        self._reach = 1.0  # of the first step
        self._stiff: Stiffness | None = None  # not known before the first step

    def memory(self) -> Memory:
        return {"pairs": self.lbfgs.memory(), "reach": self._reach, "stiff": self._stiff}

    def restore(self, memory: Memory) -> None:
        self.lbfgs.restore(memory["pairs"])
        self._reach = memory["reach"]
        self._stiff = None if memory["stiff"] is None else Stiffness(*memory["stiff"])

    def begin_at(self, point: BallPoint) -> None:
        """Forget the steps: they were of another place."""
        self.lbfgs, self._reach = LBFGS(point.x.size), 1.0

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
                self.lbfgs.remember(tried.x - point.x, tried.gradient - point.gradient)
                # F is not convex in x, and a step where it curves downwards says nothing.
                self._reach = 1.0 if self.lbfgs.pairs else min(_FURTHER * self._reach, 1e10)
                return tried, t
            t *= min(0.5, max(0.1, -slope * t / (2.0 * (rise - slope * t))))
        return None

    def _direction(self, point: BallPoint, lipschitz: float) -> tuple[FloatArray, float]:
        """p, and the least share of it to try."""
        if self._stiff is None:
            self._stiff = stiffness(self._problem)
        x, g = point.x, point.gradient
        inverse = inverse_metric(x, self._problem.shape, self._stiff)
        direction = self.lbfgs.direction(g, inverse)
        if direction is not None:
            return direction, _SHORTEST
        # W = ABᵀ/q, so a curvature L in W is one of L/q² in A and B, times the metric. Seen in a
        # stiff direction, L makes the step too short, and the next one makes up for it.
        q = float(x @ x) / (2.0 * self._problem.radius)
        direction = inverse(g) * (-self._reach * q * q / lipschitz)
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
        start = problem.curvature_product(Q)
        if not np.isfinite(start).all():
            return even  # it would only have helped
    values, turn = np.linalg.eigh(Q.T @ start)
    least = max(float(values[0]), float(values[-1]) / _STEEPEST)
    return Stiffness(Q @ turn, np.maximum(values / least, 1.0) - 1.0) if least > 0.0 else even


def inverse_metric(x: FloatArray, shape: tuple[int, int], stiff: Stiffness) -> Product:
    """The inverse of the metric at x = (A, B, z), up to a factor, to be multiplied by a vector."""
    (E, excess), (A, B) = stiff, blocks(x, shape)
    along_A = E.T @ A
    of_A, turn_A = np.linalg.eigh(B.T @ B)
    of_B, turn_B = np.linalg.eigh(A.T @ A + (along_A.T * excess) @ along_A)
    even = _EVEN * float(of_A[-1])

    def inverse(g: FloatArray) -> FloatArray:
        left, right = blocks(g, shape)
        left = left @ turn_A
        along, plain, steep = E.T @ left, of_A + even, of_A * (1.0 + excess)[:, None] + even
        left = (left / plain + E @ (along / steep - along / plain)) @ turn_A.T
        right = (right @ turn_B / (of_B + even)) @ turn_B.T
        slack = g[-1:] / (float(of_A.mean()) + even)
        return np.concatenate([left.ravel(), right.ravel(), slack])

    return inverse
