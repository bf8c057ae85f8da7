"""The linear oracle for a block: leading singular pairs of the gradient, seen from some vectors.

Every evaluation of F multiplies the gradient G by W's factors and, in the same pass, by *probes*:
unit vectors beside them. The images of one evaluation's probes, without what the factors span, are
the probes of the next, so that they make a block power iteration that takes no rounds of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dfwtrace._typing import FloatArray
from dfwtrace.linalg.gradient import GradientOperator
from dfwtrace.linalg.parallel import gram, matmul, qr
from dfwtrace.solvers.factors import Point
from dfwtrace.solvers.metric import whitener
from dfwtrace.solvers.projection import SMALLEST, leading_pairs

#: Q and P, orthonormal columns that G is multiplied by from the left and from the right.
Probes = tuple[FloatArray, FloatArray]


class Pairs(NamedTuple):
    """uᵀGv = σ for each column of U and V, the largest σ first."""

    U: FloatArray
    s: FloatArray
    V: FloatArray


class Seen(NamedTuple):
    """σ₁(G) as far as it is seen, with its vectors: a lower bound of it."""

    sigma: float
    inside: float  # from W's factors alone
    u: FloatArray
    v: FloatArray


def look(point: Point) -> Seen:
    """The leading pair of G among all that it was multiplied by at a point."""
    (A, B, _, _), (Q, P), (images, back) = point.parts, point.probes, point.images
    right = _leading(np.hstack([B, P]), np.hstack([point.products, images]))
    left = _leading(np.hstack([A, Q]), np.hstack([point.transposed, back]))
    inside = _leading(B, point.products)[0] if B.shape[1] else 0.0
    if right[0] >= left[0]:
        return Seen(right[0], inside, right[2], right[1])
    return Seen(left[0], inside, left[1], left[2])


def _leading(vectors: FloatArray, images: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """σ, x and y = Gx/σ with the unit vector x in the span of some vectors that maximises it."""
    whitening = whitener(vectors)
    squares, turn = np.linalg.eigh(gram(matmul(images, whitening)))
    if not squares.size or squares[-1] <= 0.0:
        return 0.0, np.zeros(len(vectors)), np.zeros(len(images))
    sigma, inner = float(np.sqrt(squares[-1])), matmul(whitening, turn[:, -1])
    return sigma, matmul(vectors, inner), matmul(images, inner) / sigma


def outside_pairs(point: Point) -> Pairs:
    """Pairs of G among the probes: of one side or the other, whichever has the larger σ."""
    (Q, P), (images, back) = point.probes, point.images
    if not Q.size:
        return Pairs(Q, np.zeros(0), P)
    left, right = _decomposed(back), _decomposed(images)
    if left.s.max(initial=0.0) >= right.s.max(initial=0.0):
        return Pairs(matmul(Q, left.V), left.s, left.U)
    return Pairs(right.U, right.s, matmul(P, right.V))


def _decomposed(T: FloatArray) -> Pairs:
    """The singular value decomposition of a tall matrix, from the squares."""
    basis, triangle = qr(T)
    left, s, right = np.linalg.svd(triangle)
    return Pairs(matmul(basis, left), s, right.T)


def first_look(
    gradient: GradientOperator, point: Point, count: int, rng: np.random.Generator
) -> Point:
    """The point with probes from a block power step of their own: three products with G."""
    if count >= min(point.W.shape):  # they span all that there is
        U, s, V = leading_pairs(gradient.gather(), count)
        return point._replace(probes=(U, V), images=(U * s, V * s))
    Q = qr(gradient.times(rng.standard_normal((point.W.shape[1], count))))[0]
    back = gradient.transpose_times(Q)
    P = qr(back)[0]
    return point._replace(probes=(Q, P), images=(gradient.times(P), back))


def random_probes(shape: tuple[int, int], count: int, rng: np.random.Generator) -> Probes:
    """Probes to begin with."""
    count = min(count, *shape)
    Q, P = (qr(rng.standard_normal((size, count)))[0] for size in shape)
    return Q, P


def next_probes(
    point: Point, A: FloatArray, B: FloatArray, count: int, rng: np.random.Generator
) -> Probes:
    """The images of a point's probes outside the span of the factors A and B of the next one."""
    count = max(0, min(count, *(len(A) - A.shape[1], len(B) - B.shape[1])))
    images, back = point.images
    return _outside(images, A, count, rng), _outside(back, B, count, rng)


def _outside(
    block: FloatArray, factor: FloatArray, count: int, rng: np.random.Generator
) -> FloatArray:
    """`count` orthonormal columns, the block's first; what it lacks is random."""
    if count == 0:
        return np.zeros((len(factor), 0))
    lengths = np.linalg.norm(block, axis=0)
    kept = lengths > SMALLEST * lengths.max(initial=0.0)
    block = (block[:, kept] / lengths[kept])[:, :count]
    fresh = rng.standard_normal((len(factor), count - block.shape[1]))
    block = np.hstack([block, fresh / np.linalg.norm(fresh, axis=0)])
    span = matmul(factor, whitener(factor))
    for _ in range(2):  # twice is enough
        block = block - matmul(span, matmul(span.T, block))
        block = block / np.maximum(np.linalg.norm(block, axis=0), np.finfo(np.float64).tiny)
    return qr(block)[0]
