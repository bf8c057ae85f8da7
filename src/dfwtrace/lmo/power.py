"""The distributed power method: lines 4-10 of Algorithm 2."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

import numpy as np

from dfwtrace._typing import FloatArray
from dfwtrace.linalg.golub_kahan import Pair
from dfwtrace.linalg.gradient import GradientOperator
from dfwtrace.lmo.iterative import IterativeLMO
from dfwtrace.lmo.schedules import Log, PowerRun, Schedule
from dfwtrace.lmo.setting import unit


@dataclass(frozen=True)
class Power(IterativeLMO):
    """K(t) power iterations on GᵀG: 2·N·K·(d+m) numbers in 2K rounds.

    Parameters
    ----------
    schedule : Schedule
        K(t): `Constant`, `Log`, `Linear`, `TheoremLinear`, `TheoremLog` or `Adaptive`.
    start : {"random", "previous", "sva"}
        Where the first right vector comes from: uniform on the sphere from the common seed (the
        paper's), the last epoch's result, or the average of the shards' own top pairs.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> X, Y, _ = dt.datasets.make_multitask(n=100, d=8, m=6, rank=2, seed=0)
    >>> oracle = dt.lmo.Power(schedule=dt.lmo.Linear(0.5), start="previous")
    >>> result = dt.solve(dt.LeastSquares(), X, Y, radius=1.0, lmo=oracle, epochs=5)
    >>> [int(k) for k in result.history.column("power_iterations")]
    [1, 1, 2, 2, 3]
    """

    schedule: Schedule = field(default_factory=Log)

    def iterate(
        self, gradient: GradientOperator, t: int, v: FloatArray, run: PowerRun
    ) -> Pair | None:
        run.sigmas = []
        images: list[tuple[FloatArray, FloatArray]] = []
        for k in count(1):
            product = gradient.times(v)  # Σ_j ∇F_j v_k
            images.append((v, product))
            u, length = unit(product)
            if length == 0.0:
                return None
            v, sigma = unit(gradient.transpose_times(u))  # Σ_j ∇F_jᵀ u_{k+1}
            run.sigmas.append(sigma)
            if self.schedule.enough(t, k, run):
                break
        if self.schedule.observes_ratio:
            run.ratios.append(_observed_ratio(images))
        return Pair(u, v, sigma, k)


def _observed_ratio(images: list[tuple[FloatArray, FloatArray]]) -> float:
    """σ₂/σ₁ as seen from the span of the iterates v_k, whose images G v_k are known: no round."""
    V, GV = (np.column_stack(side) for side in zip(*images, strict=True))
    R: FloatArray = np.linalg.qr(V)[1]
    # Later iterates are nearly parallel; those before the first one that adds nothing are used.
    adds_nothing = np.abs(np.diag(R)) < 1e-8
    used = int(np.argmax(adds_nothing)) if adds_nothing.any() else adds_nothing.size
    if used < 2:
        return 0.0  # the start was the top vector itself, as far as can be seen
    # With V = QR, the singular values of GQ = (GV)R⁻¹ are Ritz values of G.
    ritz = np.linalg.svd(np.linalg.solve(R[:used, :used].T, GV[:, :used].T), compute_uv=False)
    return float(ritz[1] / ritz[0])
