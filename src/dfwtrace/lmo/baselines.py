"""The paper's baselines: the exact pair of the gathered gradient, and SVA, an average of pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import svds

from dfwtrace._typing import FloatArray
from dfwtrace.linalg.golub_kahan import Pair, unit
from dfwtrace.linalg.gradient import GradientOperator
from dfwtrace.lmo.setting import LMO, Oracle, Setting, zero_pair
from dfwtrace.validation import describe

# Up to here a full SVD is as fast as ARPACK, and it has no special cases.
_SMALL = 64
_SIGNS = ("largest-entry", "agreement")


@dataclass(frozen=True)
class Naive(LMO):
    """The exact oracle, a baseline of the paper: N·d·m numbers in 1 round.

    Examples
    --------
    >>> Naive().gathers
    True
    """

    gathers = True

    def begin(self, setting: Setting) -> Oracle:
        def top_pair(gradient: GradientOperator, t: int) -> Pair:
            G = gradient.gather()
            return _top_pair(G, setting.random_start(t)) if G.any() else zero_pair(G.shape)

        return top_pair


@dataclass(frozen=True)
class SVA(LMO):
    """Singular vector averaging, a baseline of the paper: N(d+m) numbers in 1 round.

    Its pair comes without a value of uᵀGv; `sigma` is NaN in the history unless a line search
    computes it.

    Parameters
    ----------
    signs : {"largest-entry", "agreement"}, default="largest-entry"
        A pair (u_j, v_j) is only known up to a common sign. The paper makes the entry of u_j that
        is largest in magnitude positive. "agreement" takes the signs with which as many pairs as
        possible agree, which is far better where d and m are large.

    Examples
    --------
    >>> SVA(signs="agreement")
    SVA(signs='agreement')
    """

    signs: str = "largest-entry"
    local = True

    def __post_init__(self) -> None:
        if self.signs not in _SIGNS:
            raise ValueError(
                f"signs must be one of {', '.join(_SIGNS)}, got {describe(self.signs)}."
            )

    def mean_products(self, epochs: int) -> float:
        return 40.0  # a guess: each shard iterates until its pair stops improving

    def begin(self, setting: Setting) -> Oracle:
        def average(gradient: GradientOperator, t: int) -> Pair:
            u, v = averaged_pair(gradient, setting.seed, self.signs)
            known = u.any() and v.any()
            return Pair(u, v, float("nan"), 0) if known else zero_pair(gradient.shape)

        return average


def averaged_pair(
    gradient: GradientOperator, seed: int, signs: str = "largest-entry"
) -> tuple[FloatArray, FloatArray]:
    """Σ_j n_j ε_j (u_j, v_j), both parts at length one: one sign ε_j, so that u_j v_jᵀ stays."""
    workers, d = gradient.workers, gradient.shape[0]
    pairs = np.column_stack(workers.gather("local_pair", seed))
    weighted = pairs * np.asarray(workers.shard_rows, dtype=np.float64)
    if signs == "agreement":  # as in the top right singular vector of the matrix of all pairs
        reference = np.linalg.svd(weighted, full_matrices=False)[2][0]
    else:
        largest = np.argmax(np.abs(pairs[:d]), axis=0)
        reference = pairs[largest, np.arange(pairs.shape[1])]
    average = weighted @ np.where(reference < 0.0, -1.0, 1.0)
    if not (average[:d].any() and average[d:].any()):  # the pairs cancel: the heaviest decides
        average = weighted[:, int(np.argmax(np.linalg.norm(weighted, axis=0)))]
    return unit(average[:d])[0], unit(average[d:])[0]


def _top_pair(G: FloatArray, start: FloatArray) -> Pair:
    if min(G.shape) <= _SMALL:
        U, s, Vt = np.linalg.svd(G, full_matrices=False)
    else:
        # ARPACK works on the smaller side and wants its start from there.
        v0 = start if G.shape[1] <= G.shape[0] else G @ start
        U, s, Vt = svds(G, k=1, v0=v0, solver="arpack")
    return Pair(U[:, 0], Vt[0], float(s[0]), 0)
