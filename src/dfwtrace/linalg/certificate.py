"""An upper bound of the duality gap, from the gradient at one W.

F(W) - F* ≤ max over the ball of ⟨W - S, G⟩ = ⟨W, G⟩ + μ σ₁(G), where G = ∇F(W).
An oracle's σ is a lower bound of σ₁ and gives an estimate only; here σ₁ is bounded from above.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, eigvalsh
from scipy.sparse.linalg import ArpackError, eigsh

from dfwtrace._typing import FloatArray
from dfwtrace.linalg import parallel
from dfwtrace.linalg.golub_kahan import GolubKahan
from dfwtrace.linalg.gradient import GradientOperator
from dfwtrace.validation import require_finite

# Up to this number of entries the gradient is gathered and σ₁ bounded deterministically.
DENSE_ENTRIES = 25_000_000
# Up to this number it is about as fast as products, however much W's factors help those.
SMALL_ENTRIES = 4_000_000
FAILURE_PROBABILITY = 1e-9  # of the bound otherwise, over the random start

_SLACK = 1e-10  # over σ₁² in the Cholesky test: far above its rounding, far below any gap
_DIRECT = 2000  # up to this size the eigenvalue is found directly
_LANCZOS_STEPS_AT_ONCE, _LANCZOS_MOST_STEPS = 8, 200
_SUBSPACE_ITERATIONS, _SPARE_VECTORS = 6, 8


@dataclass(frozen=True)
class Certificate:
    """An upper bound of F(W) - F*, and how it was found.

    Attributes
    ----------
    gap : float
        ⟨W, G⟩ + μ·sigma_bound + excess, at least 0, plus rounding.
    sigma_bound : float
        Upper bound of σ₁(∇F(W)).
    rounding : float
        What the data's precision may have taken from the gap; part of it.
    method : str
        "dense" or "lanczos".
    failure_probability : float
        0 for "dense".
    excess : float
        What an intercept that is not quite the best may add to F(W) - F*; part of the gap.
    """

    gap: float
    sigma_bound: float
    rounding: float
    method: str
    failure_probability: float
    excess: float = 0.0


def certify(
    gradient: GradientOperator,
    inner: float,
    radius: float,
    *,
    near: FloatArray | None = None,
    precision: float = 0.0,
    scale: float = 0.0,
    excess: float = 0.0,
    seed: int = 0,
    wanted: float = 0.0,
    failure_probability: float = FAILURE_PROBABILITY,
) -> Certificate:
    """Bound F(W) - F* from above by ⟨W, G⟩ + μ σ₁(G), where `inner` is ⟨W, G⟩.

    The bound holds for any `near`, and if that spans about the space of G's leading right singular
    vectors, as few factors of W may do, it is faster from products. `excess` is added, and what
    rounding may have taken from the gap: `precision` is the relative error of arithmetic on numbers
    of size `scale`. Lanczos stops when the gap could not fall by a tenth of itself or of `wanted`.
    """
    d, m = gradient.shape
    few = near is not None and 4 * (near.shape[1] + _SPARE_VECTORS) < min(d, m)
    if d * m <= (SMALL_ENTRIES if few else DENSE_ENTRIES):
        bound, method, probability = dense_bound(gradient.gather()), "dense", 0.0
    else:
        bound = lanczos_bound(gradient, inner, radius, seed, wanted, failure_probability, near)
        method, probability = "lanczos", failure_probability
    rounding = precision * (radius * bound + abs(inner) + abs(scale))
    gap = require_finite(max(inner + radius * bound + excess, 0.0) + rounding, "the duality gap")
    return Certificate(gap, bound, rounding, method, probability, excess)


def dense_bound(G: FloatArray) -> float:
    """An upper bound of σ₁(G), tight to 1e-10: b²I - GGᵀ has a Cholesky factor only if σ₁ ≤ b."""
    scale = float(np.abs(G).max(initial=0.0))
    if scale == 0.0:
        return 0.0
    G = G / scale  # squares neither overflow nor underflow
    M = parallel.gram(G.T if G.shape[0] <= G.shape[1] else G)
    p = M.shape[0]
    if p > 2:
        try:
            if p <= _DIRECT:  # at the optimum many are equal, with which ARPACK takes its time
                largest = eigvalsh(M, subset_by_index=[p - 1, p - 1], check_finite=False)
            else:
                start = np.random.default_rng(0).standard_normal(p)
                largest = eigsh(M, k=1, v0=start, return_eigenvectors=False)
            bound = float(largest[0]) * (1.0 + _SLACK)
            M[np.diag_indices(p)] -= bound
            parallel.cholesky(np.negative(M, out=M))
            return scale * float(np.sqrt(bound))
        except (ArpackError, LinAlgError):
            pass  # ARPACK missed the largest value, or found none: the full SVD cannot
    return scale * float(np.linalg.svd(G, compute_uv=False)[0]) * (1.0 + _SLACK)


def _leading(
    gradient: GradientOperator, near: FloatArray | None, rng: np.random.Generator, precise: float
) -> tuple[FloatArray, float, float]:
    """Right singular vectors V of G, about, with ‖GV‖² and ‖(I - VVᵀ)GᵀGV‖.

    By subspace iteration from `near`, until the rest of GᵀG adds no more than `precise` to σ₁.
    """
    m = gradient.shape[1]
    if near is None or not 0 < near.shape[1] < m - _SPARE_VECTORS:
        return np.zeros((m, 0)), 0.0, 0.0
    V = np.linalg.qr(np.hstack([near, rng.standard_normal((m, _SPARE_VECTORS))]))[0]
    for _ in range(_SUBSPACE_ITERATIONS):
        images = gradient.times(V)
        values, turn = np.linalg.eigh(images.T @ images)
        values, V = values[::-1], V @ turn[:, ::-1]
        back = gradient.transpose_times(images @ turn[:, ::-1])
        residual = back - V * values  # orthogonal to V, whose columns do not mix
        a = float(values[0])
        # With the first k columns: b of their residuals, and c at least the value of the next.
        couplings = np.sqrt(np.cumsum(np.sum(residual[:, :-1] ** 2, axis=0)))
        bounds = [_joined(a, b, float(c)) for b, c in zip(couplings, values[1:], strict=True)]
        k = 1 + int(np.argmin(bounds))
        enough = a**0.5 + max(precise, 1e-12 * a**0.5)
        if bounds[k - 1] <= enough:  # the more are taken out, the less is left for Lanczos
            k = 1 + int(np.flatnonzero(np.array(bounds) <= enough)[-1])
            break
        V = np.linalg.qr(back)[0] if _ < _SUBSPACE_ITERATIONS - 1 else V
    return V[:, :k], a, float(couplings[k - 1])


def _joined(a: float, b: float, c: float) -> float:
    """√λ₁ of a symmetric matrix with the blocks a, b, c, at the most."""
    return float(np.sqrt(0.5 * (a + c) + np.hypot(0.5 * (a - c), b)))


def lanczos_bound(
    gradient: GradientOperator,
    inner: float,
    radius: float,
    seed: int,
    wanted: float,
    failure_probability: float,
    near: FloatArray | None = None,
) -> float:
    """An upper bound of σ₁(G) from products alone.

    With orthonormal columns V, GᵀG has the blocks a = ‖GV‖², b = ‖(I - VVᵀ)GᵀGV‖ and
    c = ‖G(I - VVᵀ)‖², and σ₁² ≤ (a + c)/2 + √((a - c)²/4 + b²). Only c takes a bound, by
    `GolubKahan.upper_bound`, which need not be tight where the leading directions are in V.
    """
    m = gradient.shape[1]
    # A stream of its own: the oracle's starts must not be the certificate's.
    rng = np.random.default_rng([seed, 0xCE57])
    V, a, b = _leading(gradient, near, rng, 0.05 * max(wanted, 0.0) / radius)

    def outside(v: FloatArray) -> FloatArray:
        return v - V @ (V.T @ v)

    process = GolubKahan(
        lambda v: gradient.times(outside(v)),
        lambda u: outside(gradient.transpose_times(u)),
        outside(rng.standard_normal(m)),
        dimension=m - V.shape[1],
    )
    while True:
        process.run(_LANCZOS_STEPS_AT_ONCE)
        bound = _joined(a, b, process.upper_bound(failure_probability) ** 2)
        looseness = radius * (bound - _joined(a, b, float(process.singular_values()[0]) ** 2))
        tight = looseness <= 0.1 * max(inner + radius * bound, wanted)
        if process.exhausted or tight or process.steps >= _LANCZOS_MOST_STEPS:
            return bound
