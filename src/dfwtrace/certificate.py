"""A duality gap that is a true upper bound of F(W) - F*.

For convex F, F(W) - F* ≤ max over the ball of ⟨W - S, G⟩ = ⟨W, G⟩ + μ σ₁(G) with G = ∇F(W). An
oracle's σ is a lower bound of σ₁ and gives an estimate only; here σ₁ is bounded from above.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cholesky
from scipy.sparse.linalg import ArpackError, eigsh

from dfwtrace._typing import FloatArray
from dfwtrace.finite import require_finite
from dfwtrace.gradient import GradientOperator
from dfwtrace.lanczos import GolubKahan

#: Up to so many entries the gradient is gathered and σ₁ bounded without any doubt.
DENSE_ENTRIES = 25_000_000
#: Otherwise the bound holds but for this probability over the random start.
FAILURE_PROBABILITY = 1e-9

# Slack over σ₁² in the Cholesky test: far above its rounding, far below any gap of interest.
_SLACK = 1e-10
_LANCZOS_STEPS_AT_ONCE = 8
_LANCZOS_MOST_STEPS = 200


@dataclass(frozen=True)
class Certificate:
    """An upper bound of F(W) - F*, and how it was found.

    Attributes
    ----------
    gap : float
        ⟨W, G⟩ + μ·sigma_bound + rounding, at least 0.
    sigma_bound : float
        Upper bound of σ₁(∇F(W)).
    rounding : float
        What the data's precision may have taken from the gap; part of it.
    method : str
        "dense" or "lanczos".
    failure_probability : float
        0 for "dense".
    """

    gap: float
    sigma_bound: float
    rounding: float
    method: str
    failure_probability: float


def certify(
    gradient: GradientOperator,
    inner: float,
    radius: float,
    *,
    precision: float = 0.0,
    scale: float = 0.0,
    seed: int = 0,
    wanted: float = 0.0,
    failure_probability: float = FAILURE_PROBABILITY,
) -> Certificate:
    """Bound F(W) - F* from above.

    Parameters
    ----------
    gradient : GradientOperator
        G = ∇F(W).
    inner : float
        ⟨W, G⟩.
    radius : float
        μ.
    precision, scale : float
        Relative rounding error of the arithmetic, and the size of F (say F(0)) that it acted on:
        what rounding may have taken from the gap is added to it.
    seed : int
        For the Lanczos start.
    wanted : float
        Lanczos stops when the gap could not fall by more than a tenth of itself or of this.
    failure_probability : float
        Of the Lanczos bound.
    """
    d, m = gradient.shape
    if d * m <= DENSE_ENTRIES:
        bound, method, probability = dense_bound(gradient.gather()), "dense", 0.0
    else:
        bound = lanczos_bound(gradient, inner, radius, seed, wanted, failure_probability)
        method, probability = "lanczos", failure_probability
    if bound == 0.0:  # G = 0, as far as can be told: W is optimal
        return Certificate(0.0, 0.0, 0.0, method, probability)
    rounding = precision * (radius * bound + abs(inner) + abs(scale))
    gap = require_finite(max(inner + radius * bound + rounding, 0.0), "the duality gap")
    return Certificate(gap, bound, rounding, method, probability)


def dense_bound(G: FloatArray) -> float:
    """An upper bound of σ₁(G), tight to 1e-10: b²I - GGᵀ has a Cholesky factor only if σ₁ ≤ b.

    Examples
    --------
    >>> import numpy as np
    >>> round(dense_bound(np.diag([3.0, 2.0, 1.0])), 8)
    3.0
    """
    scale = float(np.abs(G).max(initial=0.0))
    if scale == 0.0:
        return 0.0
    G = G / scale  # squares neither overflow nor underflow
    M = G @ G.T if G.shape[0] <= G.shape[1] else G.T @ G
    p = M.shape[0]
    if p > 2:
        try:
            start = np.random.default_rng(0).standard_normal(p)
            estimate = float(eigsh(M, k=1, v0=start, return_eigenvectors=False)[0])
            bound = estimate * (1.0 + _SLACK)
            M[np.diag_indices(p)] -= bound
            cholesky(np.negative(M, out=M), lower=True, overwrite_a=True, check_finite=False)
            return scale * float(np.sqrt(bound))
        except (ArpackError, LinAlgError):
            pass  # ARPACK missed the largest value, or found none: the full SVD cannot
    largest = float(np.linalg.svd(G, compute_uv=False)[0])
    return scale * largest * (1.0 + _SLACK)


def lanczos_bound(
    gradient: GradientOperator,
    inner: float,
    radius: float,
    seed: int,
    wanted: float,
    failure_probability: float,
) -> float:
    """An upper bound of σ₁(G) from products alone; see `GolubKahan.upper_bound`."""
    # A stream of its own: the oracle's starts must not be the certificate's.
    start = np.random.default_rng([seed, 0xCE57]).standard_normal(gradient.shape[1])
    process = GolubKahan(gradient.times, gradient.transpose_times, start)
    while True:
        process.run(_LANCZOS_STEPS_AT_ONCE)
        bound = process.upper_bound(failure_probability)
        looseness = radius * (bound - float(process.singular_values()[0]))
        tight = looseness <= 0.1 * max(inner + radius * bound, wanted)
        if process.exhausted or tight or process.steps >= _LANCZOS_MOST_STEPS:
            return bound
