"""Naive-DFW: gather the gradient, take its exact top singular pair."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import svds

from dfwtrace._typing import FloatArray
from dfwtrace.linalg.golub_kahan import Pair
from dfwtrace.linalg.gradient import GradientOperator
from dfwtrace.lmo.setting import LMO, Oracle, Setting, zero_pair

# Up to here a full SVD is as fast as ARPACK, and it has no special cases.
_SMALL = 64


@dataclass(frozen=True)
class Naive(LMO):
    """The exact oracle, a baseline of the paper: N·d·m numbers in 1 round.

    Examples
    --------
    >>> Naive().gathers
    True
    """

    @property
    def gathers(self) -> bool:
        return True

    def begin(self, setting: Setting) -> Oracle:
        def top_pair(gradient: GradientOperator, t: int) -> Pair:
            G = gradient.gather()
            return _top_pair(G, setting.random_start(t)) if G.any() else zero_pair(G.shape)

        return top_pair


def _top_pair(G: FloatArray, start: FloatArray) -> Pair:
    if min(G.shape) <= _SMALL:
        U, s, Vt = np.linalg.svd(G, full_matrices=False)
    else:
        # ARPACK works on the smaller side and wants its start from there.
        v0 = start if G.shape[1] <= G.shape[0] else G @ start
        U, s, Vt = svds(G, k=1, v0=v0, solver="arpack")
    return Pair(U[:, 0], Vt[0], float(s[0]), 0)
