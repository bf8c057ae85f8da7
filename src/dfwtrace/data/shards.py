"""Rows of the data: examined, cut into logical shards and walked through in blocks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dfwtrace._typing import Array, DType, FloatArray, Matrix
from dfwtrace.kernels import add_transposed, add_transposed_vector, sparse_times

# Rows multiplied at once. Long enough for BLAS to run at memory bandwidth; short enough that the
# float32 partial sum of a block keeps its digits (blocks are added in float64).
ROWS_IN_BLOCK = 2048
_FAR = 8.0  # times their spread: rows at this distance from 0 are centred before products
_BYTES_WORTH_SHARDS = 1 << 20  # of features, from which shards keep a second thread busy


class Examined(NamedTuple):
    """Rows as the shards hold them, and the shape of W that they imply."""

    X: Matrix
    y: Array | None
    shape: tuple[int, int]


#: Refuses bad rows in one sentence and converts good ones. It may see all rows at once or some of
#: them at a time: W's shape is then the largest of the shapes that it returns.
Examine = Callable[[Matrix, Array | None], Examined]


@dataclass(frozen=True)
class Facts:
    """The sizes of a data set, as the shards hold it; `n_rows` to `dtype` are those of X."""

    n_rows: int
    n_columns: int
    stored: int  # numbers in X: all of them if it is dense, the non-zeros if it is sparse
    sparse: bool
    dtype: DType
    shape: tuple[int, int]  # (d, m) of W
    targets: DType | None  # of a row of y, with its shape


@dataclass(frozen=True)
class ArrayRows:
    """Rows in this process's memory, examined."""

    X: Matrix
    y: Array | None
    facts: Facts

    @classmethod
    def examined(cls, X: Matrix, y: Array | None, examine: Examine) -> ArrayRows:
        """Examine all rows at once, and copy those that do not lie one behind the other.

        BLAS may round differently for another layout, and every engine must get the same.
        """
        X, y, shape = examine(X, y)
        sparse = bool(sp.issparse(X))
        X = X if sparse else np.ascontiguousarray(X)
        y = None if y is None else np.ascontiguousarray(y)
        stored = int(X.nnz) if sparse else int(X.size)
        targets = None if y is None else np.dtype((y.dtype, y.shape[1:]))
        facts = Facts(int(X.shape[0]), int(X.shape[1]), stored, sparse, X.dtype, shape, targets)
        return cls(X, y, facts)


def copied_bytes(rows: ArrayRows, given: Sequence[object]) -> int:
    """Bytes of the rows' arrays that are not those of the data as they were given."""
    before = [part for one in given for part in _parts(one)]
    now = [*_parts(rows.X), *_parts(rows.y)]
    return sum(a.nbytes for a in now if not any(np.may_share_memory(a, b) for b in before))


def _parts(data: object) -> list[Array]:
    """The arrays that a matrix is made of."""
    if sp.issparse(data):
        names = ("data", "indices", "indptr", "row", "col")
        return [vars(data)[name] for name in names if name in vars(data)]
    return [data] if isinstance(data, np.ndarray) else []


@dataclass(frozen=True)
class Shard:
    """What one worker holds: some rows of the features and of the targets.

    Parameters
    ----------
    index : int
        Its place among the shards.
    X : array or CSR matrix of shape (n_rows, d)
        Features.
    y : array or None
        Targets.

    Examples
    --------
    >>> import numpy as np, dfwtrace as dt
    >>> dt.Shard(0, np.ones((5, 3)), np.ones(5)).n_rows
    5
    """

    index: int
    X: Matrix
    y: Array | None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def n_bytes(self) -> int:
        """Memory of the features' numbers."""
        return int(self.X.data.nbytes if sp.issparse(self.X) else self.X.nbytes)

    def digest(self) -> bytes:
        """Return sixteen bytes that change if anything in the shard changes."""
        sum_of_all, X = hashlib.blake2b(digest_size=16), self.X
        parts = (X.data, X.indices, X.indptr) if sp.issparse(X) else (X,)
        for part in parts if self.y is None else (*parts, self.y):
            sum_of_all.update(f"{part.dtype.str} {part.shape}".encode())
            for start in range(0, part.shape[0], ROWS_IN_BLOCK):
                sum_of_all.update(np.ascontiguousarray(part[start : start + ROWS_IN_BLOCK]).data)
        return sum_of_all.digest()

    @property
    def targets(self) -> Array:
        """The targets of a task that cannot do without."""
        if self.y is None:
            raise ValueError("y is missing: this task needs targets.")
        return self.y


def shard_bounds(n_rows: int, n_shards: int) -> list[tuple[int, int]]:
    """Row ranges of the shards: contiguous, sizes differing by at most one, perhaps empty."""
    return list(pairwise(n_rows * j // n_shards for j in range(n_shards + 1)))


def split_rows(X: Matrix, y: Array | None, n_shards: int) -> list[Shard]:
    """Cut the data into shards that share the caller's memory."""
    return [
        Shard(j, slice_rows(X, a, b), None if y is None else y[a:b])
        for j, (a, b) in enumerate(shard_bounds(X.shape[0], n_shards))
    ]


def default_shards(n_bytes: int) -> int:
    """For features of that size; by the data alone, so that every machine gives the same bits."""
    return 8 if n_bytes >= _BYTES_WORTH_SHARDS else 1


class Folds(NamedTuple):
    """How rows are cut for validation: into folds that are drawn, or into those of `of_rows`."""

    n_folds: int
    seed: int
    of_rows: FloatArray  # each row's fold, negative for rows of none; empty if they are drawn
    share: float | None = None  # of the first fold, which is drawn by class; else all are equal
    n_classes: int = 1  # of the rows, if there is a share

    def of(self, shard: Shard, before: int) -> Array:
        """The folds of a shard's rows, of which there are `before` in the shards before it."""
        if self.of_rows.size:
            return self.of_rows[before : before + shard.n_rows]
        return random_folds(shard, self.n_folds, self.seed, before)

    def places(self, counts: FloatArray) -> FloatArray:
        """Where each shard's rows of each class begin, from the number of these rows.

        That is in a list of all rows, one class after the other. A class with so few rows that the
        first fold might take all of them is not in it: its places are NaN.
        """
        assert self.share is not None
        sizes = counts.sum(axis=0)
        enough = sizes * (1.0 - self.share) >= 1.0
        if not enough.any():
            rows = "1 row" if sizes.max() == 1 else f"{sizes.max():.0f} rows"
            where = "in the largest class" if self.n_classes > 1 else "in all"
            raise ValueError(
                "validation_fraction must leave rows to learn from and rows to validate on, got "
                f"{self.share:g} of {rows} {where}."
            )
        by_class = np.where(enough, counts, 0.0).T
        places = (np.cumsum(by_class) - by_class.ravel()).reshape(by_class.shape).T
        return np.where(enough, places, np.nan)

    def by_class(self, shard: Shard, places: FloatArray, classes: Array) -> FloatArray:
        """The folds of a shard's rows, of which those of each class begin at these places.

        Rows in random order go to the first fold at even distances, and to the others in turn, so
        that the share of it is the same in all classes. Rows with a negative class go to none.
        """
        assert self.share is not None
        rows = np.random.default_rng([self.seed, 0x5417, shard.index]).permutation(shard.n_rows)
        rows = rows[np.argsort(classes[rows], kind="stable")]
        rows = rows[classes[rows] >= 0]
        ordered = classes[rows]
        place = places[ordered] + np.arange(rows.size) - np.searchsorted(ordered, ordered)
        taken = np.ceil(place * self.share)  # by the first fold, of the rows before
        first = np.ceil((place + 1.0) * self.share) > taken
        fold_of = np.full(shard.n_rows, -1.0)
        if self.n_folds > 1:
            fold_of[rows] = np.nan_to_num(1.0 + (place - taken) % (self.n_folds - 1), nan=-1.0)
        fold_of[rows[first]] = 0.0
        return fold_of


def random_folds(shard: Shard, n_folds: int, seed: int, before: int = 0) -> Array:
    """The fold of every row: at random, with sizes that differ by one at most.

    `before` is the number of rows in the shards before this one: its first row goes to the fold
    after their last, so that the folds of all shards together are balanced too.
    """
    rng = np.random.default_rng([seed, 0xF01D, shard.index])
    return (before + rng.permutation(shard.n_rows)) % n_folds


def slice_rows(X: Matrix, start: int, stop: int) -> Matrix:
    """Rows start..stop of a dense or CSR matrix, without copying the numbers."""
    if not sp.issparse(X):
        return X[start:stop]
    first, last = int(X.indptr[start]), int(X.indptr[stop])
    pointers = X.indptr[start : stop + 1] - X.indptr[start]
    return compressed_rows(X.data[first:last], X.indices[first:last], pointers, X.shape[1])


def compressed_rows(data: Array, indices: Array, indptr: Array, n_columns: int) -> Matrix:
    """The CSR matrix of these arrays, which it shares."""
    rows = sp.csr_array((indptr.size - 1, n_columns), dtype=data.dtype)
    return _filled(rows, data, indices, indptr)


def _filled(matrix: Matrix, data: Array, indices: Array, indptr: Array) -> Matrix:
    """An empty sparse matrix with its arrays set: SciPy's constructor would copy small views."""
    matrix.data, matrix.indices, matrix.indptr = data, indices, indptr
    return matrix


def subtracted(X: Matrix, centre: FloatArray) -> Matrix:
    """X - 1cᵀ in float64; a sparse X stays sparse where c is 0."""
    if not sp.issparse(X):
        return X - centre
    ones = sp.csr_array(np.ones((X.shape[0], 1)))
    return X.astype(np.float64) - ones @ sp.csr_array(centre[None]) if centre.any() else X


def centred_if_far(
    X: Matrix, centre: FloatArray | None, scale: FloatArray | None = None
) -> tuple[Matrix, FloatArray | None]:
    """X and c; where the rows are far from 0, a copy X - 1cᵀ and what is left to subtract.

    In the products XU - 1(cᵀU), a distance of κ times the rows' spread costs log₁₀ κ digits. With
    the standard deviations as scale, all features count the same, whatever their units.
    """
    if centre is None or not X.shape[0]:
        return X, centre
    if scale is None:
        far = is_far(X, centre)
    else:
        far = float(np.sum((centre / scale) ** 2)) > _FAR**2 * scale.size
    if not far:
        return X, centre
    if not sp.issparse(X):
        copy = np.empty_like(X, subok=False)
        return np.subtract(X, centre, out=copy, casting="same_kind"), None
    # Columns that are mostly zero are not far from it.
    some = _first_rows(X)
    stored = np.bincount(some.indices, minlength=X.shape[1])
    moved = np.where(2 * stored > some.shape[0], centre, 0.0)
    return subtracted(X, moved).astype(X.dtype), centre - moved


def is_far(X: Matrix, centre: FloatArray | None = None) -> bool:
    """Whether the centre of the rows is many times as far from 0 as the first of them from it."""
    some = _first_rows(X)
    values = (some.data if sp.issparse(some) else some).astype(np.float64, copy=False)
    sums = np.asarray(some.sum(axis=0, dtype=np.float64))
    centre = sums / some.shape[0] if centre is None else centre
    far = some.shape[0] * (centre @ centre)
    spread = float(np.vdot(values, values)) - 2.0 * float(centre @ sums) + far
    return bool(far > _FAR**2 * spread)


def _first_rows(X: Matrix) -> Matrix:
    return slice_rows(X, 0, min(X.shape[0], ROWS_IN_BLOCK))


class RowBlock(NamedTuple):
    """Some rows of the features, as they are stored."""

    rows: slice
    X: Matrix
    centre: FloatArray | None = None

    def add_transposed(self, T: Array, total: FloatArray) -> None:
        """Add Xᵀ T to `total`; of sparse rows, only to the features that they have."""
        if not sp.issparse(self.X):
            total += self.X.T @ T
        else:  # sums in float64, whatever the rows' precision
            add = add_transposed_vector if T.ndim == 1 else add_transposed
            add(self.X.indptr, self.X.indices, self.X.data, T, total)

    def lengths(self, scale: FloatArray | None = None) -> FloatArray:
        """‖(x_i - c)/scale‖ of every row."""
        d = self.X.shape[1]
        centre = np.zeros(d) if self.centre is None else self.centre
        scale = np.ones(d) if scale is None else scale
        if not sp.issparse(self.X):
            return np.asarray(np.linalg.norm((self.X - centre) / scale, axis=1))
        rows = self.X.astype(np.float64)  # a copy
        rows.sum_duplicates()
        # Σ (x - c)² = Σ c² + Σ x(x - 2c), of which only the second sum is over stored entries.
        of_stored = centre[rows.indices], scale[rows.indices]
        rows.data *= (rows.data - 2.0 * of_stored[0]) / of_stored[1] ** 2
        squares = np.asarray(rows.sum(axis=1)).ravel() + np.sum((centre / scale) ** 2)
        return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


class RowBlocks:
    """A shard's features as blocks of rows, dense or CSR alike: the products with X live here.

    With a centre c, they are those of X - 1cᵀ, which is never formed.
    """

    def __init__(
        self, X: Matrix, rows: int = ROWS_IN_BLOCK, centre: FloatArray | None = None
    ) -> None:
        self.shape: tuple[int, int] = (int(X.shape[0]), int(X.shape[1]))
        self.dtype, self.centre = X.dtype, centre
        self._X, self._made_of, self._blocks = X, (X, rows, centre), list[RowBlock]()
        for start in range(0, self.shape[0], rows):
            stop = min(start + rows, self.shape[0])
            block = slice_rows(X, start, stop)
            self._blocks.append(RowBlock(slice(start, stop), block, centre))

    def __iter__(self) -> Iterator[RowBlock]:
        return iter(self._blocks)

    def __reduce__(self) -> tuple[type[RowBlocks], tuple[Any, ...]]:
        return RowBlocks, self._made_of  # X once: pickle would write every view out in full

    def images(self, U: Array, product: Array) -> Iterator[RowBlock]:
        """Yield each block once its rows of `product` are those of X U, in the data's precision.

        Those of dense rows are computed when it is their turn, so that the rows stay in cache.
        """
        shift = None if self.centre is None else (self.centre @ U).astype(self.dtype)
        in_columns = U.ndim == 1 or U.flags.f_contiguous
        wide = sp.issparse(self._X) and self._X.nnz < self.shape[1] and in_columns
        if wide:  # more numbers in U than it takes: it is neither converted nor brought in order
            self._multiply_columns(U, product)
        else:
            U = U.astype(self.dtype, order="C", copy=False)
        for block in self:
            if not wide:
                product[block.rows] = block.X @ U
            if shift is not None:
                product[block.rows] -= shift
            yield block

    def _multiply_columns(self, U: Array, product: Array) -> None:
        X, image = self._X, np.empty(self.shape[0], self.dtype)
        for j in range(U.shape[1] if U.ndim == 2 else 1):
            u, place = (U, product) if U.ndim == 1 else (U[:, j], product[:, j])
            sparse_times(X.indptr, X.indices, X.data, u, image)
            place[...] = image

    def times(self, U: Array) -> Array:
        """X U, in the data's precision."""
        product = np.empty((self.shape[0], *U.shape[1:]), self.dtype)
        for _ in self.images(U, product):
            pass
        return product

    def transpose_times(self, T: Array) -> FloatArray:
        """Xᵀ T, blocks summed in float64."""
        total = np.zeros((self.shape[1], *T.shape[1:]))
        for block in self:
            block.add_transposed(T[block.rows], total)
        self.centre_transposed(total, T.sum(axis=0, dtype=np.float64))
        return total

    def centre_transposed(self, total: FloatArray, sums: FloatArray) -> None:
        """Make (X - 1cᵀ)ᵀ T of Xᵀ T; `sums` are those of the columns of T."""
        if self.centre is not None:
            total -= np.multiply.outer(self.centre, sums)
