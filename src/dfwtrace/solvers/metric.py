"""How F curves in the factors of W, about: what quasi-Newton steps begin with, and Newton's steps.

F(W) = Σ ℓ(Wᵀx_i) has the Hessian Σ x_i x_iᵀ ⊗ ∇²ℓ, about H ⊗ C with H = Σ x_i x_iᵀ and the diagonal
C of the mean ∇²ℓ. Let W = ABᵀ/q move by E = (D_A Bᵀ + A D_Bᵀ)/q. On the sphere of all x of the same
length, F changes in second order by

    ½⟨E, H E C⟩ + (λ/2q)(‖D_A‖² + ‖D_B‖² + D_z²) + ⟨D_A, G D_B⟩/q,    λ = -⟨W, G⟩/μ, G = ∇F(W),

where λ is the constraint's multiplier. For the squared loss that is exact. Of G the products G B
and Gᵀ A are known, so all but its part outside of both spans, which is taken to be zero.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from dfwtrace._typing import FloatArray
from dfwtrace.linalg.parallel import gram, matmul, qr
from dfwtrace.solvers.factors import Point, join, split
from dfwtrace.solvers.problem import Problem

# Up to this number of features H may be decomposed, which takes as long as some passes.
_WHOLE = 1024
# With more, this number of its leading eigenvectors is found by subspace iteration, with some to
# spare; not for very wide data, where they would take much memory.
_DIRECTIONS, _SPARE, _ITERATIONS, _WIDE = 64, 8, 2, 1 << 16
# H is left to its diagonal if the eigenvalues of H, scaled to a unit diagonal, deviate from 1 by
# less than this in the root mean square; found with a few random vectors.
_EVEN, _VECTORS = 0.3, 4
# All of H's eigenvalues count as alike if they deviate by no more than this from their mean.
_ALIKE = 0.8
EPS = float(np.finfo(np.float64).eps)  # the least curvature that counts, over the largest
# Conjugate gradients for a Newton step end at this share of the residual, or after _MOST.
_RESIDUAL, _MOST = 0.1, 30


class Metric(NamedTuple):
    """What is known of H: its eigenvalues and a basis of eigenvectors, or its diagonal.

    Or both: eigenvalues Λ of a few eigenvectors V, and the diagonal D of what H has beside them, so
    that it is VΛVᵀ + PDP with P = I - VVᵀ, and A has the coordinates (VᵀA, PA).
    """

    values: FloatArray
    basis: FloatArray | None = None
    matrix: FloatArray | None = None  # H itself, where only its diagonal is inverted
    even: bool = False  # whether H is known to be about a multiple of the identity

    @property
    def exact(self) -> bool:
        """Whether products with H can be had without the rows."""
        return self.matrix is not None or (self.basis is not None and not self._partial)

    @property
    def _partial(self) -> bool:
        """Whether the basis is of some directions only."""
        return self.basis is not None and self.basis.shape[1] < len(self.basis)

    def whole(self) -> Metric:
        """The same for Newton's steps: with its eigenvectors, if H is at hand and not too large."""
        if self.matrix is None or len(self.matrix) > _WHOLE:
            return self._replace(even=False)
        values, basis = np.linalg.eigh(self.matrix)
        return Metric(np.maximum(values, 0.0), basis)

    def rotated(self, A: FloatArray) -> FloatArray:
        """Coordinates of the columns of A in the basis."""
        if self.basis is None:
            return A
        inside = matmul(self.basis.T, A)
        return np.vstack([inside, A - matmul(self.basis, inside)]) if self._partial else inside

    def back(self, A: FloatArray) -> FloatArray:
        """The columns with these coordinates."""
        if self.basis is None:
            return A
        if not self._partial:
            return matmul(self.basis, A)
        inside, left = np.split(A, [self.basis.shape[1]])  # V inside + P left
        return left + matmul(self.basis, inside - matmul(self.basis.T, left))

    def times(self, A: FloatArray) -> FloatArray:
        """H A, in the coordinates."""
        return self.values[:, None] * A if self.matrix is None else matmul(self.matrix, A)

    def along(self, U: FloatArray) -> FloatArray:
        """uᵀHu for each column of U."""
        coordinates = self.rotated(U)
        return np.asarray(np.einsum("ij,ij->j", coordinates, self.times(coordinates)))


def metric_of(problem: Problem) -> Metric | None:
    """H of the features; None if the task does not know it."""
    task, d = problem.task, problem.shape[0]
    if not task.supports("squared_lengths"):
        return None
    values, gathered = problem.squared_lengths(), problem.summary is not None
    matrix = problem.second_moments() if gathered else None
    known = task.supports("second_moments") and task.supports("curvature_product")
    even = gathered and _deviation(problem, np.full(d, values.mean())) < _ALIKE
    if even or not known or d > _WIDE or (gathered and d > _WHOLE):
        return Metric(values, matrix=matrix, even=even)
    if d > _WHOLE:
        return _leading_directions(problem, values)
    exact = gathered or task.quadratic  # then Newton's steps are, too
    if not exact and _deviation(problem, values) < _EVEN:  # not worth a pass and a decomposition
        return Metric(values)
    return Metric(values, matrix=matrix if gathered else problem.second_moments()).whole()


def _leading_directions(problem: Problem, diagonal: FloatArray) -> Metric:
    """H's leading eigenvectors, about, by subspace iteration, and the diagonal of what is left."""
    rng, d = np.random.default_rng([problem.seed, 0xC2]), diagonal.size
    V = qr(rng.standard_normal((d, min(_DIRECTIONS + _SPARE, d))))[0]
    for _ in range(_ITERATIONS):
        V = qr(problem.curvature_product(V))[0]
    values, turn = np.linalg.eigh(matmul(V.T, problem.curvature_product(V)))
    some = slice(len(values) - min(_DIRECTIONS, d - 1), None)  # there is a rest
    values, V = np.maximum(values[some], 0.0), matmul(V, turn[:, some])
    left = np.maximum(diagonal - V**2 @ values, EPS * diagonal.max(initial=0.0))
    return Metric(np.concatenate([values, left]), V)


def _deviation(problem: Problem, diagonal: FloatArray) -> float:
    """‖C - I‖_F/√d of the correlations C, about: ‖(C - I)z‖² of random z with unit variances."""
    roots = np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))[:, None]
    rng = np.random.default_rng([problem.seed, 0xC1])
    Z = rng.choice([-1.0, 1.0], (diagonal.size, _VECTORS))
    off = problem.curvature_product(Z / roots) / roots - Z
    return float(np.sqrt(np.mean(off[diagonal > 0.0] ** 2))) if (diagonal > 0.0).any() else 0.0


class Model:
    """The second-order model of F at a point, in the coordinates of a metric."""

    def __init__(
        self, point: Point, metric: Metric, radius: float, scale: float, least: float
    ) -> None:
        # `scale` multiplies the curvatures; `least` is a lower bound of λ.
        self._metric, self._shape, self._width = metric, point.W.shape, point.columns.slope.size
        self._point, self._scale = point, scale
        A, B, z, _ = point.parts
        self._q = q = point.q(radius)
        self._c, self._A, self._B = point.columns.relative, metric.rotated(A), B
        self._there = len(self._A), len(B)  # the shape in the metric's coordinates
        self._HA = metric.times(self._A) * (scale / q**2)
        self._BCB, self._AHA = matmul(B.T * self._c, B), matmul(self._A.T, self._HA)
        self._level = max(-point.inner / radius, least) / q
        # Blocks of A and of B alone can be inverted where H is diagonal.
        of_A, self._turn_A = np.linalg.eigh(self._BCB)
        of_B, self._turn_B = np.linalg.eigh(self._AHA)
        steep_A = np.multiply.outer(metric.values * (scale / q**2), np.maximum(of_A, 0.0))
        steep_B = np.multiply.outer(self._c, np.maximum(of_B, 0.0))
        steepest = max(steep_A.max(), steep_B.max()) + self._level
        flattest = EPS * steepest
        self._steep_A = np.maximum(steep_A + self._level, flattest)
        self._steep_B = np.maximum(steep_B + self._level, flattest)
        self._steep_z = max(self._level, flattest)
        curvature = point.columns.curvature[: self._width]
        self._steep_b = np.maximum(curvature, EPS * curvature.max(initial=0.0))
        self._x = join(self._A, B, z, np.zeros(self._width))
        self._x /= np.linalg.norm(self._x)

    def divide(self, g: FloatArray) -> FloatArray:
        """The inverse of the diagonal blocks times a vector."""
        A, B, z, b = split(g, self._shape, self._width)
        return self._back(self._divide(join(self._metric.rotated(A), B, z, b)))

    def newton(self, g: FloatArray, most: int = _MOST) -> FloatArray:
        """The inverse of the model times a vector, by conjugate gradients.

        On the tangent space of the sphere, where `divide` is the preconditioner. They end early
        where the model curves downwards.
        """
        A, B, z, b = split(g, self._shape, self._width)
        residual = self._tangential(join(self._metric.rotated(A), B, z, b))
        solution = np.zeros_like(residual)
        direction = step = self._tangential(self._divide(residual))
        product = first = float(residual @ step)
        for k in range(most):
            image = self._tangential(self._times(direction))
            curvature = float(direction @ image)
            if curvature <= 0.0 or product <= _RESIDUAL**2 * first:
                solution = solution if k else direction
                break
            t = product / curvature
            solution, residual = solution + t * direction, residual - t * image
            step = self._tangential(self._divide(residual))
            product, before = float(residual @ step), product
            direction = step + (product / before) * direction
        return self._back(solution)

    def _back(self, vector: FloatArray) -> FloatArray:
        A, B, z, b = split(vector, self._there, self._width)
        return join(self._metric.back(A), B, z, b)

    def _tangential(self, vector: FloatArray) -> FloatArray:
        return vector - float(self._x @ vector) * self._x

    def _divide(self, vector: FloatArray) -> FloatArray:
        A, B, z, b = split(vector, self._there, self._width)
        left = matmul(matmul(A, self._turn_A) / self._steep_A, self._turn_A.T)
        right = matmul(matmul(B, self._turn_B) / self._steep_B, self._turn_B.T)
        of_b = np.divide(b, self._steep_b, out=np.zeros_like(b), where=self._steep_b > 0.0)
        return join(left, right, z / self._steep_z, of_b)

    def _times(self, vector: FloatArray) -> FloatArray:
        """The model's Hessian times a vector."""
        D_A, D_B, D_z, D_b = split(vector, self._there, self._width)
        A, B, c, q, (U, V, Y, Z) = self._A, self._B, self._c, self._q, self._gradient
        moved = matmul(D_A, self._BCB) + matmul(A, matmul(D_B.T * c, B))
        left = self._metric.times(moved) * (self._scale / q**2)
        right = c[:, None] * (matmul(D_B, self._AHA) + matmul(B, matmul(D_A.T, self._HA)))
        left += self._level * D_A + (matmul(Y, matmul(V.T, D_B)) + matmul(U, matmul(Z.T, D_B))) / q
        right += self._level * D_B + (matmul(V, matmul(Y.T, D_A)) + matmul(Z, matmul(U.T, D_A))) / q
        return join(left, right, self._steep_z * D_z, self._steep_b * D_b)

    @cached_property
    def _gradient(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """U, V, Y, Z with G = Y Vᵀ + U Zᵀ and orthonormal bases U of A and V of B."""
        # Y = GV, and Z = GᵀU without what is in Y Vᵀ already.
        of_A, of_B = whitener(self._A), whitener(self._B)
        U, V = matmul(self._A, of_A), matmul(self._B, of_B)
        Y = matmul(self._metric.rotated(self._point.products), of_B)
        Z = matmul(self._point.transposed, of_A)
        return U, V, Y, Z - matmul(V, matmul(Y.T, U))


def whitener(A: FloatArray) -> FloatArray:
    """T such that A T has orthonormal columns, but for directions that A has not."""
    values, vectors = np.linalg.eigh(gram(A))
    kept = values > 1e-12 * values.max(initial=0.0)
    return np.asarray(vectors[:, kept] / np.sqrt(values[kept]))
