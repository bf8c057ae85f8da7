"""Dense algebra on all cores, with the same bits for any number of them.

Work is cut into blocks that depend on the operands' shapes alone; each of them is one call of NumPy
on one thread, and sums follow a fixed tree. The threads are those of `dfwtrace.threads.use_threads`
and BLAS must be held to one thread, both as `solve` does. Whatever is too small to be shared out is
one block, and so plain NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dfwtrace._typing import Array
from dfwtrace.threads import each

# Work is counted in multiplications of a matrix product. Waking a thread takes some 2e6 of them, a
# number that is read or written once about 4.
_MOVED = 4
_WORK_OF_BLOCK = 4_000_000  # at the least, and all of the work if it is less than twice that
_SHORTEST, _MOST_BLOCKS = 192, 32  # thinner blocks make BLAS slow: it copies the other operand
# The inner dimension is cut only if it is longer than the product's sides by this factor: the parts
# are to be added up.
_LONG = 4
_PANEL = 32  # columns that are divided by a triangle at once
_WELL_CONDITIONED = 1e2  # product of a triangle's largest entry and its inverse's
_WORK_OF_QR, _PASSES = 100_000, 5  # less is left to LAPACK; passes at the most
SAFE = 1e-15  # squares of numbers down to this one, and up to its inverse, are far from overflow
# Rows and columns of a Cholesky factor that are found at once, if there are more than the latter.
_SIZE, _LARGE = 256, 1500


def matmul(A: Array, B: Array) -> Array:
    """A @ B for matrices, or for a matrix and a vector.

    Examples
    --------
    >>> import numpy as np
    >>> matmul(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, 1.0]))
    array([3., 7.])
    """
    (n, inner), m = A.shape, B.shape[1] if B.ndim == 2 else 1
    work = n * inner * m + _MOVED * (n * inner + inner * m + n * m)
    side = max(n, m)
    # For a vector, the matrix is cut into blocks that are in one piece in memory.
    by_columns = m == 1 and A.strides[0] < A.strides[1] and n < _LONG * inner
    # `np.dot` releases Python's lock always, `np.matmul` only if the product has 500 numbers.
    if inner > _LONG * side or inner >= 2 * _SHORTEST > side or by_columns:
        cuts = _cuts(work, inner)
        parts: list[Any] = [None] * len(cuts)

        def multiply(j: int) -> None:
            parts[j] = np.dot(A[:, cuts[j]], B[cuts[j]])

        each(multiply, len(cuts))
        return np.asarray(_sum(parts))
    cuts = _cuts(work, side)
    if len(cuts) == 1:
        return np.asarray(np.dot(A, B))
    product = np.empty((n, *B.shape[1:]), np.result_type(A, B))

    def fill(j: int) -> None:
        if n >= m:
            np.dot(A[cuts[j]], B, out=product[cuts[j]])
        else:
            np.matmul(A, B[:, cuts[j]], out=product[:, cuts[j]])

    each(fill, len(cuts))
    return product


def gram(A: Array) -> Array:
    """AᵀA, at half the price of a product: only its upper triangle is computed.

    Examples
    --------
    >>> import numpy as np
    >>> gram(np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([[10., 14.],
           [14., 20.]])
    """
    n, k = A.shape
    if n > _LONG * k or n >= 2 * _SHORTEST > k:
        return matmul(A.T, A)  # of each part NumPy computes the upper triangle only
    cuts = _cuts((n * k * k + _MOVED * (n * k + k * k)) // 4, k)
    if len(cuts) == 1:
        return np.asarray(A.T @ A)
    product = np.empty((k, k), A.dtype)
    pairs = [(i, j) for i in range(len(cuts)) for j in range(i, len(cuts))]

    def fill(pair: int) -> None:
        rows, columns = (cuts[i] for i in pairs[pair])
        np.matmul(A[:, rows].T, A[:, columns], out=product[rows, columns])
        if rows != columns:
            product[columns, rows] = product[rows, columns].T

    each(fill, len(pairs))
    return product


def cholesky(M: Array) -> Array:
    """The lower triangle L of M = LLᵀ; raises `LinAlgError` if M is not positive definite.

    Examples
    --------
    >>> import numpy as np
    >>> cholesky(np.array([[4.0, 2.0], [2.0, 2.0]]))
    array([[2., 0.],
           [1., 1.]])
    """
    n = M.shape[0]
    if n <= _LARGE:
        return np.linalg.cholesky(M)
    cuts = [slice(start, min(start + _SIZE, n)) for start in range(0, n, _SIZE)]
    L = np.zeros((n, n), M.dtype)
    pairs = [(i, j) for i in cuts for j in cuts if j.start <= i.start]

    def copy(pair: int) -> None:
        L[pairs[pair]] = M[pairs[pair]]

    each(copy, len(pairs))
    for columns in cuts:
        L[columns, columns] = np.linalg.cholesky(L[columns, columns])
        L[columns.stop :, columns] = divide(L[columns.stop :, columns], L[columns, columns].T)
        pairs = [pair for pair in pairs if pair[1].start > columns.start]

        def subtract(pair: int, pairs: Any = pairs, columns: slice = columns) -> None:
            i, j = pairs[pair]
            L[i, j] -= L[i, columns] @ L[j, columns].T

        each(subtract, len(pairs))
    return L


def divide(A: Array, R: Array) -> Array:
    """A R⁻¹ with an upper triangle R, by substitution.

    Examples
    --------
    >>> import numpy as np
    >>> divide(np.array([[2.0, 4.0]]), np.array([[2.0, 1.0], [0.0, 3.0]]))
    array([[1., 1.]])
    """
    n, k = A.shape
    quotient = np.empty((n, k), A.dtype)
    panels = [slice(start, min(start + _PANEL, k)) for start in range(0, k, _PANEL)]
    # A product with the inverse of a small triangle is faster than substitution, and as accurate if
    # the triangle is well conditioned. NumPy's solver, which releases Python's lock, does a mere
    # substitution if the triangle is an upper one: Lᵀ from bottom right to top left.
    triangles = [R[panel, panel].T[::-1, ::-1] for panel in panels]
    inverses = [_inverse(triangle) for triangle in triangles]
    cuts = _cuts(n * k * k // 2 + _MOVED * n * k, n)

    def substitute(block: int) -> None:
        rows = cuts[block]
        for panel, triangle, inverse in zip(panels, triangles, inverses, strict=True):
            rest = A[rows, panel]
            if panel.start:
                rest = rest - quotient[rows, : panel.start] @ R[: panel.start, panel]
            if inverse is not None:
                np.matmul(rest, inverse[::-1, ::-1].T, out=quotient[rows, panel])
            else:
                quotient[rows, panel] = np.linalg.solve(triangle, rest.T[::-1])[::-1].T

    each(substitute, len(cuts))
    return quotient


def qr(A: Array) -> tuple[Array, Array]:
    """Q with orthonormal columns and an upper triangle R with A = QR, as `numpy.linalg.qr`.

    As robust as Householder's QR, and faster: Q is orthonormal whatever A is, and each column of A
    is that of QR up to rounding errors of the column's own size.

    Examples
    --------
    >>> import numpy as np
    >>> Q, R = qr(np.array([[3.0, 1.0], [4.0, 1.0], [0.0, 2.0]]))
    >>> np.allclose(Q.T @ Q, np.eye(2))
    True
    """
    # A = QR with RᵀR = AᵀA gives columns that are as orthonormal as AᵀA is accurate, and better
    # ones if it is done again. Where AᵀA is indefinite to rounding, a shift keeps R from becoming
    # singular, and Q is better conditioned than A (shifted CholeskyQR3, Fukaya et al., 2020).
    n, k = A.shape
    worth = n >= k and n * k * k >= _WORK_OF_QR
    if worth and SAFE < max(A.max(), -A.min()) < 1.0 / SAFE:
        Q, R = A, np.eye(k, dtype=A.dtype)
        for _ in range(_PASSES):
            M = gram(Q)
            lengths = np.sqrt(np.diag(M))
            if not np.all(lengths > 0.0):
                break
            M /= lengths
            M /= lengths[:, None]
            deviation = np.abs(M).sum(axis=0).max() - 1.0
            try:
                L = np.linalg.cholesky(M)
            except np.linalg.LinAlgError:
                M[np.diag_indices(k)] += 11.0 * (n + k) * k * np.finfo(M.dtype).eps
                L = np.linalg.cholesky(M)
            triangle = L.T * lengths
            Q, R = divide(Q, triangle), triangle @ R
            if deviation < 0.5:  # singular values were between √½ and √(3/2), and now are 1
                return Q, R
    return np.linalg.qr(A)


def _inverse(triangle: Array) -> Array | None:
    """The inverse, or None if products with it would lose digits."""
    inverse = np.linalg.inv(triangle)
    well = np.abs(inverse).max() * np.abs(triangle).max() < _WELL_CONDITIONED
    return np.asarray(inverse) if well else None


def _cuts(work: int, length: int) -> list[slice]:
    """Slices of about equal length, each with enough of the work, their number a power of two."""
    most = min(_MOST_BLOCKS, work // _WORK_OF_BLOCK, length // _SHORTEST)
    count = 1 << (max(1, most).bit_length() - 1)
    size = -8 * (-length // (8 * count))  # a multiple of the width of BLAS' inner loops
    return [
        slice(start, min(start + size, length)) for start in range(0, max(length, 1), size or 1)
    ]


def _sum(parts: list[Array]) -> Array:
    """Neighbours are added, then neighbours among these sums, and so on."""
    while len(parts) > 1:
        sums = [parts[j] + parts[j + 1] for j in range(0, len(parts) - 1, 2)]
        parts = sums + parts[len(parts) - len(parts) % 2 :]
    return parts[0]
