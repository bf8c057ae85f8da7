"""The trace-norm ball without its constraint: W = 2μ ABᵀ / (‖A‖² + ‖B‖² + z²).

‖ABᵀ‖_* ≤ ½(‖A‖² + ‖B‖²), so any A, B, z give a W with ‖W‖_* ≤ μ; and every such W of rank r comes
from factors with r columns: A = U√s, B = V√s, z² = 2(μ - Σs). A solver may then move A, B and z as
it likes. Multiplying all of them by a number changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dfwtrace._typing import FloatArray
from dfwtrace.linalg.lowrank import LowRankMatrix
from dfwtrace.solvers.problem import Problem, Tangent

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
    products, transposed = tangent.products * roots, tangent.transposed * roots
    return BallPoint(x, W, tangent, _gradient(problem, x, tangent.inner, products, transposed))


def evaluate(problem: Problem, x: FloatArray) -> BallPoint:
    """F at the W of x, and the gradient in x."""
    q = float(x @ x) / (2.0 * problem.radius)
    A, B = blocks(x, problem.shape)
    W = LowRankMatrix(A / q, np.ones(A.shape[1]), B)
    tangent = problem.tangent(W)
    products, transposed = tangent.products, q * tangent.transposed
    return BallPoint(x, W, tangent, _gradient(problem, x, tangent.inner, products, transposed))


def _gradient(
    problem: Problem, x: FloatArray, inner: float, products: FloatArray, transposed: FloatArray
) -> FloatArray:
    """The gradient in x from G B and Gᵀ A."""
    # With q = ‖x‖²/2μ and W = ABᵀ/q: ∇_A F = (G B - ⟨W, G⟩ A/μ)/q, ∇_B F = (Gᵀ A - ⟨W, G⟩ B/μ)/q
    # and ∇_z F = -⟨W, G⟩ z/(μ q).
    q = float(x @ x) / (2.0 * problem.radius)
    gradient = np.concatenate([products.ravel(), transposed.ravel(), [0.0]])
    gradient -= (inner / problem.radius) * x
    gradient /= q
    return gradient


def trimmed(
    x: FloatArray, gradient: FloatArray, shape: tuple[int, int], mass: float
) -> Callable[[FloatArray], FloatArray]:
    """Coordinates with fewer columns: a map for x, and for differences of x and of gradients."""
    # A rotation of the columns of A and B together changes neither W nor any length. Sorted by
    # ½(‖a‖² + ‖b‖²), the last are dropped up to a `mass` of that, which is at least what W loses in
    # trace norm, times q; but not those along which F falls as they grow.
    d, m = shape
    rank = (x.size - 1) // (d + m)
    stacked = x[:-1].reshape(d + m, rank)
    values, turn = np.linalg.eigh(stacked.T @ stacked)
    slopes = np.einsum("ij,ij->j", stacked @ turn, gradient[:-1].reshape(d + m, rank) @ turn)
    growing = (slopes < 0.0) & (values > _ROUNDING * values[-1])
    dropped = (np.cumsum(0.5 * values) < mass) & ~growing
    dropped[-1] = False
    turn = turn[:, ~dropped]

    def change(vector: FloatArray) -> FloatArray:
        columns = vector[:-1].reshape(d + m, rank) @ turn
        return np.concatenate([columns.ravel(), vector[-1:]])

    return change
