"""Custom losses, of some twenty lines each."""

from __future__ import annotations

from typing import Any

import numpy as np

import dfwtrace as dt


class Huber(dt.losses.Loss):
    """½r² up to |r| = 1, and |r| - ½ beyond: regression that outliers cannot pull away."""

    name = "Huber"
    smoothness = 1.0

    def check_targets(self, y: Any) -> tuple[Any, int]:
        if y is None or y.ndim != 2:
            raise ValueError("y must have two dimensions.")
        return y, y.shape[1]

    def evaluate(self, S: Any, y: Any, R: Any) -> float:
        error = S - y
        np.clip(error, -1.0, 1.0, out=R)
        return float((R * (error - 0.5 * R)).sum())

    def curvature(self, S: Any, R: Any, D: Any) -> float:
        return float(np.square(D[np.abs(R) < 1.0]).sum())


class SquaredHinge(dt.losses.Loss):
    """Σ_c ½ max(0, 1 - t_c s_c)² with t_c = ±1, one against all; y is turned into these signs."""

    name = "squared hinge"
    smoothness = 1.0

    def check_targets(self, y: Any) -> tuple[Any, int]:
        if y is None or y.ndim != 1:
            raise ValueError("y must be one-dimensional class labels.")
        signs = np.where(y[:, None] == np.arange(y.max() + 1), 1.0, -1.0)
        return signs, signs.shape[1]

    def evaluate(self, S: Any, y: Any, R: Any) -> float:
        slack = np.maximum(0.0, 1.0 - y * S)
        R[:] = -y * slack
        return 0.5 * float(np.square(slack).sum())

    def curvature(self, S: Any, R: Any, D: Any) -> float:
        return float(np.square(D[R != 0.0]).sum())
