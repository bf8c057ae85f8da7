"""W through its factors: x = (A, B, z, b), and W = 2μ ABᵀ/(‖A‖² + ‖B‖² + z²).

‖ABᵀ‖_* ≤ ½(‖A‖² + ‖B‖²), so any x gives a W with ‖W‖_* ≤ μ; and every such W of rank r comes from
factors with r columns: A = U√s, B = V√s, z² = 2(μ - Σs). So x may move without a constraint. The
intercept b, if there is one, is a part of x like any other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dfwtrace._typing import FloatArray, Memory
from dfwtrace.linalg.lowrank import LowRankMatrix
from dfwtrace.linalg.parallel import matmul, qr
from dfwtrace.solvers.problem import Problem
from dfwtrace.tasks.task import Columns


class Parts(NamedTuple):
    """x, or a vector of its space, as views of what it is made of."""

    A: FloatArray
    B: FloatArray
    z: FloatArray  # one number
    b: FloatArray  # empty without an intercept


class Point(NamedTuple):
    """A point x with its W, and F there: value, gradient in x, and products with ∇F(W)."""

    x: FloatArray
    W: LowRankMatrix
    objective: float
    inner: float  # ⟨W, ∇F⟩
    gradient: FloatArray  # in x
    products: FloatArray  # ∇F B
    transposed: FloatArray  # ∇Fᵀ A
    columns: Columns  # of scores
    probes: tuple[FloatArray, FloatArray]  # Q and P, unit vectors beside A and B
    images: tuple[FloatArray, FloatArray]  # ∇F P and ∇Fᵀ Q

    @property
    def parts(self) -> Parts:
        return split(self.x, self.W.shape, self.columns.slope.size)

    def memory(self) -> Memory:
        """All of it but W, which x has."""
        return {name: value for name, value in self._asdict().items() if name != "W"}

    @classmethod
    def restored(cls, memory: Memory, shape: tuple[int, int], radius: float) -> Point:
        """The point that `memory` was of."""
        columns, x = Columns(*memory["columns"]), memory["x"]
        W = matrix_of(x, shape, radius, columns.slope.size)
        known = {name: tuple(memory[name]) for name in ("probes", "images")}
        return cls(**{**memory, **known, "columns": columns, "W": W})

    def q(self, radius: float) -> float:
        """(‖A‖² + ‖B‖² + z²)/2μ, so that W = ABᵀ/q."""
        return scale_of(self.x, radius, self.columns.slope.size)


def split(x: FloatArray, shape: tuple[int, int], width: int) -> Parts:
    """The parts of a vector; `width` is the number of intercepts."""
    d, m = shape
    end = x.size - width
    rank = (end - 1) // (d + m)
    A, B = x[: d * rank].reshape(d, rank), x[d * rank : end - 1].reshape(m, rank)
    return Parts(A, B, x[end - 1 : end], x[end:])


def join(A: FloatArray, B: FloatArray, z: FloatArray, b: FloatArray) -> FloatArray:
    """The vector of these parts."""
    return np.concatenate([A.ravel(), B.ravel(), z, b])


def scale_of(x: FloatArray, radius: float, width: int) -> float:
    """q with W = ABᵀ/q."""
    inside = x[: x.size - width]
    return float(inside @ inside) / (2.0 * radius)


def matrix_of(x: FloatArray, shape: tuple[int, int], radius: float, width: int) -> LowRankMatrix:
    """W = ABᵀ/q."""
    A, B, _, _ = split(x, shape, width)
    return LowRankMatrix(A / scale_of(x, radius, width), np.ones(A.shape[1]), B)


def factors_of(W: LowRankMatrix, radius: float, b: FloatArray) -> FloatArray:
    """The x of a W with orthonormal factors, with q = 1."""
    roots = np.sqrt(W.s)
    slack = np.sqrt(max(0.0, 2.0 * (radius - float(W.s.sum()))))
    return join(W.U * roots, W.V * roots, np.array([slack]), b)


def evaluate(
    problem: Problem, x: FloatArray, width: int, probes: tuple[FloatArray, FloatArray] | None = None
) -> Point:
    """F at x, its gradient, and the products of ∇F with the probes Q and P: all in one pass.

    The probes are columns of W's factors that weigh nothing. Without any, x must be where the
    shards' states are, so that no pass is needed.
    """
    shape, radius, there = problem.shape, problem.radius, probes is None
    probes = probes or (np.zeros((shape[0], 0)), np.zeros((shape[1], 0)))
    (A, B, z, b), (Q, P) = split(x, shape, width), probes
    q, rank = scale_of(x, radius, width), A.shape[1]
    weights = np.repeat([1.0, 0.0], [rank, Q.shape[1]])
    seen = problem.tangent(
        LowRankMatrix(np.hstack([A / q, Q]), weights, np.hstack([B, P])),
        b if width else None,
        there=there,
    )
    products, images = np.split(seen.products, [rank], axis=1)
    transposed, back = np.split(seen.transposed, [rank], axis=1)
    transposed = q * transposed
    # ∇_A F = (G B - ⟨W, G⟩ A/μ)/q, ∇_B F = (Gᵀ A - ⟨W, G⟩ B/μ)/q and ∇_z F = -⟨W, G⟩ z/(μ q).
    share = seen.inner / radius
    sides = products - share * A, transposed - share * B, -share * z
    columns = seen.columns if width else seen.columns._replace(slope=np.zeros(0))
    gradient = np.concatenate([*(side.ravel() / q for side in sides), columns.slope])
    return Point(
        x, matrix_of(x, shape, radius, width), seen.objective, seen.inner, gradient,
        products, transposed, columns, probes, (images, back),
    )  # fmt: skip


def rejoined(vector: FloatArray, turn: FloatArray, rows: int, width: int) -> FloatArray:
    """The same vector with the columns of A and B, together, multiplied by a matrix."""
    end = vector.size - width - 1
    columns = matmul(vector[:end].reshape(rows, len(turn)), turn)
    return np.concatenate([columns.ravel(), vector[end:]])


def refactored(A: FloatArray, B: FloatArray, A_near: FloatArray, B_near: FloatArray) -> Parts:
    """A Bᵀ, of no higher rank, from as many columns as others have, and as close to them as can be.

    Both sides are balanced, so that their lengths are the least; z and b are empty.
    """
    (left, R), (right, S), count = qr(A), qr(B), A_near.shape[1]
    U, s, Vt = np.linalg.svd(matmul(R, S.T))
    roots = np.sqrt(s[:count])
    A, B = matmul(left, U[:, :count] * roots), matmul(right, Vt[:count].T * roots)
    P, _, Qt = np.linalg.svd(matmul(A.T, A_near) + matmul(B.T, B_near))
    turn = matmul(P, Qt)
    return Parts(matmul(A, turn), matmul(B, turn), np.zeros(0), np.zeros(0))


def with_slack(x: FloatArray, before: FloatArray, width: int) -> FloatArray:
    """x with the length that it had before: what it lost goes to z, so that the rest of W stays."""
    lost = float(before @ before) - float(x @ x)
    if lost > 0.0:
        place = x.size - width - 1
        x[place] = np.sqrt(x[place] ** 2 + lost)
    return x


def widened(vector: FloatArray, shape: tuple[int, int], width: int, more: int) -> FloatArray:
    """The same vector where x has more columns, which are zero in it."""
    A, B, z, b = split(vector, shape, width)
    room_A, room_B = np.zeros((shape[0], more)), np.zeros((shape[1], more))
    return join(np.hstack([A, room_A]), np.hstack([B, room_B]), z, b)
