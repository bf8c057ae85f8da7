"""Golub-Kahan bidiagonalisation of an operator known only through its products."""

from __future__ import annotations

from collections.abc import Callable
from math import lgamma
from typing import NamedTuple

import numpy as np

from dfwtrace._typing import FloatArray
from dfwtrace.linalg.parallel import matmul
from dfwtrace.validation import require_finite

_EPS = float(np.finfo(np.float64).eps)

Product = Callable[[FloatArray], FloatArray]


def uniform_on_sphere(m: int, seed: int, t: int) -> FloatArray:
    """v₀ of epoch t: uniform on the unit sphere of Rᵐ, the same wherever it is drawn."""
    v = np.random.default_rng([seed, t]).standard_normal(m)
    return v / np.linalg.norm(v)


def unit(vector: FloatArray) -> tuple[FloatArray, float]:
    """The vector at length one, and the length that it had; zero stays zero."""
    length = require_finite(float(np.linalg.norm(vector)), "the length of the gradient")
    return (vector / length if length > 0.0 else vector), length


class Pair(NamedTuple):
    """Unit vectors u, v with uᵀGv = σ = ‖Gᵀu‖, and the pairs of products that it took."""

    u: FloatArray
    v: FloatArray
    sigma: float
    iterations: int


class GolubKahan:
    """GᵀU_k = V_{k+1} B_kᵀ with orthonormal U_k, V_{k+1} and bidiagonal B_k, grown step by step.

    Every vector is orthogonalised twice against all earlier ones, so no copies of converged values
    arise. `start` is the first right vector, `dimension` that of the space of right vectors.
    """

    def __init__(
        self, matvec: Product, rmatvec: Product, start: FloatArray, dimension: int | None = None
    ) -> None:
        self._matvec, self._rmatvec = matvec, rmatvec
        self._dimension = start.size if dimension is None else dimension
        self._left, self._right = _Basis(), _Basis()
        self._right.append(start / np.linalg.norm(start))
        self.alphas, self.betas = list[float](), list[float]()
        self.exhausted = False  # an invariant subspace has been found: nothing is left to add

    def run(self, steps: int) -> GolubKahan:
        """Take up to `steps` further steps, two products each."""
        for _ in range(steps):
            if self.exhausted:
                break
            scale = max(self.alphas + self.betas, default=0.0)
            u, alpha = self._left.orthogonalise(self._matvec(self._right.vectors[:, -1]))
            if alpha <= 4 * _EPS * scale or alpha == 0.0:
                self.exhausted = True
                break
            v, beta = self._right.orthogonalise(self._rmatvec(u))
            self._left.append(u)
            self.alphas.append(alpha)
            if beta <= 4 * _EPS * max(scale, alpha) or self._right.count == self._dimension:
                self.exhausted, beta = True, 0.0
            else:
                self._right.append(v)
            self.betas.append(beta)
        return self

    @property
    def steps(self) -> int:
        return len(self.alphas)

    def _bidiagonal(self) -> FloatArray:
        """B_k, of shape k × (k+1), or k × k once the space is exhausted."""
        B = np.zeros((self.steps, self._right.count))
        np.fill_diagonal(B, self.alphas)
        np.fill_diagonal(B[:, 1:], self.betas)
        return B

    def top_pair(self) -> Pair:
        """The best pair in the spaces built so far; there is none for a zero operator."""
        X, singular, Yt = np.linalg.svd(self._bidiagonal(), full_matrices=False)
        u, v = self._left.vectors @ X[:, 0], self._right.vectors @ Yt[0]
        return Pair(u / np.linalg.norm(u), v / np.linalg.norm(v), float(singular[0]), self.steps)

    def singular_values(self) -> FloatArray:
        """Lower bounds of the leading singular values (Ritz values)."""
        if not self.alphas:
            return np.zeros(1)
        return np.asarray(np.linalg.svd(self._bidiagonal(), compute_uv=False), np.float64)

    def upper_bound(self, failure_probability: float) -> float:
        """A bound σ₁ ≤ b that fails with at most this probability over a uniform random start.

        The next right vector is p_k(GᵀG) v₁ for the Lanczos polynomial p_k, and has length one. So
        |p_k(σ₁²)| · |⟨v₁, y₁⟩| ≤ 1, where y₁ is the top right singular vector, and for v₁ uniform
        on the sphere of Rᵐ, |⟨v₁, y₁⟩| < δ with at most the given probability. Otherwise σ₁² is at
        most the t above all zeros of p_k where p_k(t) = 1/δ (Hochstenbach, Probabilistic upper
        bounds for the matrix two-norm, 2013).
        """
        largest = float(self.singular_values()[0])
        m = self._dimension
        if self.exhausted or largest == 0.0 or m == 1:
            return largest * (1.0 + 64 * _EPS)
        # P(|x| < δ) of a component x is (2/π) arcsin δ for m = 2. For m ≥ 3 it is at most 2cδ: the
        # density is at most that at 0, c = Γ(m/2)/(√π Γ((m-1)/2)).
        if m == 2:
            delta = float(np.sin(0.5 * np.pi * failure_probability))
        else:
            log_density = lgamma(m / 2) - lgamma((m - 1) / 2) - 0.5 * np.log(np.pi)
            delta = failure_probability / (2.0 * float(np.exp(log_density)))
        target = -float(np.log(delta))
        alphas, betas = np.array(self.alphas) / largest, np.array(self.betas) / largest
        diagonal = alphas**2 + np.concatenate([[0.0], betas[:-1] ** 2])
        off_diagonal = alphas * betas

        def excess(t: float) -> float:
            """log p_k(t) - log(1/δ) from the ratios p_j / p_{j-1} of the three-term recurrence."""
            logarithm, ratio, previous = 0.0, np.inf, 0.0
            for a, b in zip(diagonal, off_diagonal, strict=True):
                ratio = (t - a - previous / ratio) / b
                if ratio <= 0.0:  # at or below the largest zero
                    return -target
                logarithm += float(np.log(ratio))
                previous = b
            return logarithm - target

        root, high = 1.0, 2.0
        # Here, because scipy.optimize takes long to import, and each worker of a cluster would.
        from scipy.optimize import brentq

        if excess(root) < 0.0:  # else σ₁ is reached, up to rounding: it is not below `largest`
            while excess(high) < 0.0:
                high *= 2.0
            root = float(brentq(excess, root, high, xtol=1e-15, rtol=8.9e-16))
        return largest * float(np.sqrt(root)) * (1.0 + 64 * _EPS)


class _Basis:
    """Orthonormal vectors, as the growing columns of one array."""

    def __init__(self) -> None:
        self._columns = np.empty((1, 0))  # their length is known with the first vector
        self.count = 0

    @property
    def vectors(self) -> FloatArray:
        return self._columns[:, : self.count]

    def append(self, vector: FloatArray) -> None:
        if self.count == self._columns.shape[1]:
            grown = np.empty((vector.size, max(8, 2 * self.count)), order="F")
            grown[:, : self.count] = self._columns
            self._columns = grown
        self._columns[:, self.count] = vector
        self.count += 1

    def orthogonalise(self, vector: FloatArray) -> tuple[FloatArray, float]:
        """The vector's part outside the basis, as a unit vector and its length."""
        for _ in range(2 if self.count else 0):
            vector = vector - matmul(self.vectors, matmul(self.vectors.T, vector))
        return unit(vector)
