"""SVA: every worker's own top singular pair, averaged. One round, no guarantee."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dfwtrace._typing import FloatArray
from dfwtrace.gradient import GradientOperator
from dfwtrace.lanczos import Pair
from dfwtrace.lmo.setting import Setting, unit, zero_pair


@dataclass(frozen=True)
class SVA:
    """Singular vector averaging, a baseline of the paper: N(d+m) numbers in 1 round.

    Its pair comes without a value of uᵀGv; `sigma` is NaN in the history unless a line search
    finds it out.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> X, Y, _ = dt.datasets.make_multitask(n=100, d=8, m=6, rank=2, seed=0)
    >>> result = dt.solve(dt.LeastSquares(), X, Y, radius=1.0, lmo=dt.lmo.SVA(), epochs=3)
    >>> [int(numbers) for numbers in result.history.column("numbers_sent")]  # 8 shards · (8 + 6)
    [112, 112, 112]
    """

    needs: ClassVar[tuple[str, ...]] = ()
    local: ClassVar[bool] = True
    gathers: ClassVar[bool] = False

    def mean_products(self, epochs: int) -> float:
        return 40.0  # a guess: each shard iterates its own pair until it stands still

    def begin(self, setting: Setting) -> SVAOracle:
        return SVAOracle(setting)


class SVAOracle:
    """SVA within one run."""

    def __init__(self, setting: Setting) -> None:
        self._seed = setting.seed

    def __call__(self, gradient: GradientOperator, t: int) -> Pair:
        u, v = averaged_pair(gradient, self._seed)
        if not (u.any() and v.any()):
            return zero_pair(gradient.shape)
        return Pair(u, v, float("nan"), 0)


def averaged_pair(gradient: GradientOperator, seed: int) -> tuple[FloatArray, FloatArray]:
    """Σ_j n_j ε_j (u_j, v_j), both parts at length one, with the signs ε_j found jointly.

    A pair (u_j, v_j) is only known up to a common sign. The signs are those of the top right
    singular vector of the matrix of all pairs, which lets as many of them agree as possible.
    (Fixing u_j and v_j apart could turn u_j v_jᵀ around.)
    """
    workers = gradient.workers
    pairs = np.column_stack(workers.gather("local_pair", seed))
    weighted = pairs * np.asarray(workers.shard_rows, dtype=np.float64)
    agreement = np.linalg.svd(weighted, full_matrices=False)[2][0]
    average = weighted @ np.where(agreement < 0.0, -1.0, 1.0)
    d = gradient.shape[0]
    if not (average[:d].any() and average[d:].any()):  # the pairs cancel: the heaviest decides
        average = weighted[:, int(np.argmax(np.linalg.norm(weighted, axis=0)))]
    return unit(average[:d])[0], unit(average[d:])[0]
