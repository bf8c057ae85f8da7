"""New columns for W's factors, from singular pairs (u, σ, v) of the gradient and a model of F.

A change E of W changes F by about ⟨G, E⟩ + ½⟨E, H E C⟩: `metric.py`.
"""

from __future__ import annotations

import numpy as np

from dfwtrace._typing import FloatArray
from dfwtrace.linalg.lowrank import LowRankMatrix
from dfwtrace.linalg.parallel import gram, matmul
from dfwtrace.solvers.block_oracle import Pairs
from dfwtrace.solvers.metric import EPS, Metric
from dfwtrace.solvers.projection import SMALLEST

_LOOSE = 1.05  # the factor within which the ridge term is found


def amounts_of(s: FloatArray, curved: FloatArray, least: float, radius: float) -> FloatArray:
    """(σ - θ)₊/κ with the least θ ≥ λ for which they add up to at most the radius; s falls."""
    amounts = np.maximum(s - least, 0.0) / curved
    if amounts.sum() <= radius:
        return np.asarray(amounts)
    # If the first k are worth a column, θ = (Σ σ/κ - μ)/Σ 1/κ over them, and it is below σ_k.
    thetas = (np.cumsum(s / curved) - radius) / np.cumsum(1.0 / curved)
    theta = thetas[np.flatnonzero(thetas < s)[-1]]
    return np.asarray(np.maximum(s - theta, 0.0) / curved)


def ridge(
    pairs: Pairs, metric: Metric, relative: FloatArray, radius: float
) -> tuple[LowRankMatrix, float]:
    """W = YVᵀ with the Y that minimises ⟨G, W⟩ + ½⟨W, H W C⟩ + ½κ‖W‖², and the model's value.

    κ is about the least with which ‖W‖_* ≤ μ; C = diag(relative).
    """
    G = metric.rotated(pairs.U * pairs.s)
    curved = np.multiply.outer(metric.values, relative @ pairs.V**2)
    flattest = EPS * float(curved.max())

    def at(kappa: float) -> tuple[FloatArray, float]:
        Y = -G / (curved + kappa)
        return Y, float(np.sqrt(np.maximum(np.linalg.eigvalsh(gram(Y)), 0.0)).sum())

    low, high = flattest, flattest + float(pairs.s.sum()) / radius
    Y, norm = at(low)
    if norm > radius:
        while high > _LOOSE * low:
            middle = np.sqrt(low * high)
            low, high = (middle, high) if at(middle)[1] > radius else (low, middle)
        Y, norm = at(high)
    model = float(np.vdot(G, Y) + 0.5 * np.vdot(Y, curved * Y))
    left, values, turn = np.linalg.svd(Y, full_matrices=False)
    kept = values > SMALLEST * values[0]
    right = matmul(pairs.V, turn.T[:, kept])
    return LowRankMatrix(metric.back(left[:, kept]), values[kept], right), model
