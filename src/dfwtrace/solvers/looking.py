"""Looking around from W: the gradient in the span of W's factors and in some directions beyond."""

from __future__ import annotations

import numpy as np

from dfwtrace._typing import FloatArray
from dfwtrace.linalg.gradient import GradientOperator
from dfwtrace.linalg.lowrank import LowRankMatrix
from dfwtrace.solvers.problem import Tangent
from dfwtrace.solvers.projection import View, as_orthonormal


def look_around(
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


def beyond(
    gradient: GradientOperator, V: FloatArray, others: FloatArray, iterations: int
) -> FloatArray:
    """Subspace iterations with GᵀG for its leading right vectors outside the span of V."""
    span = as_orthonormal(V, V)
    for _ in range(iterations):
        others = gradient.transpose_times(gradient.times(np.linalg.qr(others).Q))
        others -= span @ (span.T @ others)
    return np.linalg.qr(others).Q
