"""Least squares through its second moments: after one pass over the data, n no longer matters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from dfwtrace._typing import Array, DType, FloatArray, Matrix
from dfwtrace.data.shards import ROWS_IN_BLOCK, Shard, slice_rows, subtracted
from dfwtrace.kernels import gram_advance
from dfwtrace.linalg.lowrank import LowRankMatrix, RankOne
from dfwtrace.linalg.parallel import gram, matmul
from dfwtrace.losses import inner_product
from dfwtrace.tasks.task import Centre, Representation, Summary, Task, Total

# Rows whose products BLAS may add at once. It adds up some 400 of them, and then these sums.
_ROWS_OF_BLAS = 1 << 18
# Numbers that BLAS, or SciPy for sparse rows, adds one after the other, blocks of rows included.
_LONGEST_SUM = {False: 1024, True: 2 * ROWS_IN_BLOCK}


class Moments:
    """A = XᵀX, B = XᵀY and ½‖Y‖² of one shard, or of all of them: moments add up.

    They are views of one array, `packed`, as a round replies. Its last number is `weight`.
    """

    def __init__(self, packed: FloatArray, shape: tuple[int, int]) -> None:
        d, m = shape
        self.packed = packed
        self.A = packed[: d * d].reshape(d, d)
        self.B = packed[d * d : d * (d + m)].reshape(d, m)

    @property
    def half_norm(self) -> float:
        return float(self.packed[-2])

    @property
    def weight(self) -> float:
        """Number of rows, or the sum of their weights."""
        return float(self.packed[-1])

    @property
    def n_rows(self) -> int:
        """Number of rows, about, where they have weights; zero only if they count nothing."""
        return int(np.ceil(self.weight))

    @classmethod
    def of(cls, shard: Shard, weighted: bool = False, centre: Array | None = None) -> Moments:
        """One pass over a shard, in float64: moments of float32 rows far from 0 lose all digits.

        With a centre, those of [x - centre, 1] and y - centre: `about_means` makes use of the 1.
        """
        X, Y, weights = shard.X, shard.targets, np.zeros(0)
        if weighted:
            Y, weights = Y[:, 1:], Y[:, 0]
        d, m = X.shape[1] + (centre is not None), Y.shape[1]
        moments = cls(np.zeros(d * (d + m) + 2), (d, m))
        # Rows that must be changed are taken in blocks, so that no copy of all of them is made, and
        # sparse ones too: SciPy adds row by row, and sums that are too long lose digits. BLAS adds
        # in blocks by itself.
        as_is = centre is None and not weighted and not sp.issparse(X)
        whole = as_is and X.dtype == np.float64 and Y.dtype == np.float64
        rows = _ROWS_OF_BLAS if whole else ROWS_IN_BLOCK
        for start in range(0, shard.n_rows, rows):
            stop = min(start + rows, shard.n_rows)
            x, y = slice_rows(X, start, stop), Y[start:stop]
            if centre is not None:  # entries of sparse rows change where it is not 0
                x, y = subtracted(x, centre[: d - 1]), y - centre[d - 1 :]
                both = x, np.ones((stop - start, 1))
                x = sp.hstack(both, format="csr") if sp.issparse(x) else np.hstack(both)
            moments._add(x, y, weights[start:stop], only=whole and shard.n_rows <= rows)
        moments.packed[-1] = weights.sum() if weighted else shard.n_rows
        return moments

    def _add(self, X: Matrix, Y: Array, weights: Array, only: bool) -> None:
        X, Y = X.astype(np.float64, copy=False), Y.astype(np.float64, copy=False)
        if weights.size:  # rows times the weights' roots: XᵀX remains a product of twice the same
            roots = np.sqrt(weights)[:, None]
            X, Y = X.multiply(roots).tocsr() if sp.issparse(X) else X * roots, Y * roots
        if only:  # straight to where they belong
            np.matmul(X.T, X, out=self.A)
            np.matmul(X.T, Y, out=self.B)
        else:
            product = X.T @ X
            self.A[...] += product.toarray() if sp.issparse(X) else product
            self.B[...] += X.T @ Y
        self.packed[-2] += 0.5 * inner_product(Y, Y)

    def about_means(self) -> tuple[Moments, Centre]:
        """The moments of x - x̄ and y - ȳ from those of [x, 1] and y, and where x̄ and ȳ are.

        Σ(x - x̄)(x - x̄)ᵀ = Σxxᵀ - (Σx)(Σx)ᵀ/n, exact to rounding for rows near their means.
        """
        d, m = self.B.shape[0] - 1, self.B.shape[1]
        # All rows outside a fold may weigh nothing: their moments and means are 0 then.
        x_sum, y_sum, n = self.A[d, :d], self.B[d], self.weight or 1.0
        centred = Moments(np.empty(d * (d + m) + 2), (d, m))
        np.subtract(self.A[:d, :d], np.outer(x_sum, x_sum / n), out=centred.A)
        np.subtract(self.B[:d], np.outer(x_sum, y_sum / n), out=centred.B)
        centred.packed[-2] = max(0.0, self.half_norm - 0.5 * float(y_sum @ y_sum) / n)
        centred.packed[-1] = self.weight
        return centred, Centre(x_sum / n, y_sum / n)


class Factors(NamedTuple):
    """W = U diag(s) Vᵀ, and products with its factors."""

    W: LowRankMatrix
    AU: Array  # A U diag(s)
    BV: Array
    VV: Array  # VᵀV


@dataclass
class GramState:
    """∇F = AW - B, dense once it is needed, and scalars that follow W by recursion."""

    moments: Moments
    quadratic_form: float  # ⟨W, AW⟩
    linear_form: float  # ⟨W, B⟩
    built_from: Factors | None = None
    _grad: FloatArray | None = None
    _image: tuple[Array, FloatArray] | None = None
    _along: tuple[RankOne, FloatArray, float, float, float] | None = None

    @property
    def grad(self) -> FloatArray:
        if self._grad is None:
            assert self.built_from is not None  # it is dropped only once there is a gradient
            self._grad = matmul(self.built_from.AU, self.built_from.W.V.T)
            self._grad -= self.moments.B
        return self._grad

    def times(self, V: Array) -> FloatArray:
        """∇F V; few columns do not need ∇F itself."""
        if self.built_from is None or not self._few(V):
            return matmul(self.grad, V)
        W, AU, *_ = self.built_from
        return matmul(AU, matmul(W.V.T, V)) - matmul(self.moments.B, V)

    def transpose_times(self, U: Array) -> FloatArray:
        """∇Fᵀ U; that of a vector is kept, since the oracle's last one is the next step's u."""
        if U.ndim == 1 and self._image is not None and np.array_equal(self._image[0], U):
            return self._image[1]
        if self.built_from is None or not self._few(U):
            product = matmul(self.grad.T, U)
        else:
            W, AU, *_ = self.built_from
            product = matmul(W.V, matmul(AU.T, U)) - matmul(self.moments.B.T, U)
        if U.ndim == 1:
            self._image = (U.copy(), product)
        return product

    def _few(self, columns: Array) -> bool:
        # Not whether the gradient is there already: a run that is resumed may not have it.
        d, m = self.moments.B.shape
        return (columns.size // len(columns)) * (d + m) < d * m

    def along(self, atom: RankOne) -> tuple[FloatArray, float, float, float]:
        """(Au, uᵀAu, uᵀ(AW)v, uᵀBv): what both the line search and the update need of an atom."""
        if self._along is None or not self._along[0].equals(atom):
            Au = matmul(self.moments.A, atom.u)
            uBv = float(atom.u @ matmul(self.moments.B, atom.v))
            uGv = float(self.transpose_times(atom.u) @ atom.v)
            self._along = (atom, Au, float(atom.u @ Au), uGv + uBv, uBv)
        return self._along[1:]


class GramTask(Representation[GramState]):
    """½‖XW - Y‖² = ½⟨W, AW⟩ - ⟨W, B⟩ + ½‖Y‖². A product costs O(dm), an update O(d² + dm)."""

    # A shard's own moments would have to be about the mean of all rows.
    centres_shards: ClassVar[bool] = False

    def precision(self, dtype: DType) -> float:
        return super().precision(np.dtype(np.float64))  # moments are

    # Sums over the rows

    def first_moments(self, shard: Shard) -> FloatArray:
        """[Σ x, Σ y, Σ (x ≠ 0), Σ 1], each row times its weight."""
        sums, weights = super().first_moments(shard), self.row_weights(shard)
        Y = shard.targets[:, 1:] if self.weighted else shard.targets
        stored = np.full(shard.X.shape[1], weights.sum())
        if sp.issparse(shard.X):
            rows = np.repeat(weights, np.diff(shard.X.indptr))
            stored = np.bincount(shard.X.indices, rows, shard.X.shape[1])
        targets = weights @ Y.astype(np.float64, copy=False)
        return np.concatenate([sums[:-1], targets, stored, sums[-1:]])

    def moments(self, shard: Shard, centre: Array | None = None) -> FloatArray:
        """A, B and ½‖Y‖² in one array; with a centre, those of [x - centre, 1] and y - centre."""
        return Moments.of(shard, self.weighted, centre).packed

    def fold_moments(
        self, shard: Shard, fold_of: Array, n_folds: int, *centre: Array
    ) -> FloatArray:
        """The moments of each fold's rows, and last of those in no fold. Each row is read once."""
        parts = []
        for fold in range(n_folds + 1):
            rows = np.flatnonzero(fold_of == fold if fold < n_folds else fold_of < 0)
            own = Shard(shard.index, shard.X[rows], shard.targets[rows])
            parts.append(self.moments(own, *centre))
        return np.concatenate(parts)

    def squared_norms(self, shard: Shard) -> FloatArray:
        moments = Moments.of(shard, self.weighted)
        return np.append(np.diag(moments.A), 2.0 * moments.half_norm)

    def summarise(
        self, total: Total, shape: tuple[int, int], *, centred: bool, sparse: bool, local: bool
    ) -> Summary:
        """The moments of all rows; where shards stay, only what bounds the rounding error."""
        if local:
            norms = total("squared_norms")
            return Summary(None, None, norms[:-1], float(norms[-1]), _LONGEST_SUM[sparse])
        near = self._near_means(total, shape, sparse) if centred else ()
        return _summary(total("moments", *near), near, shape, sparse)

    def summarise_folds(
        self, total: Total, shape: tuple[int, int], *, centred: bool, sparse: bool, cut: Any
    ) -> FoldSums:
        """The moments of each fold: all folds and all radii together take one pass."""
        near, (n_folds, before) = self._near_means(total, shape, sparse) if centred else (), cut
        packed = total("fold_moments", before, *near).reshape(n_folds + 1, -1)
        return FoldSums(self, packed, near, shape, sparse)

    def _near_means(self, total: Total, shape: tuple[int, int], sparse: bool) -> tuple[FloatArray]:
        """The means of features and targets: moments about them lose no digits.

        A sparse column stays where it is if at most half of it is stored: (Σx)² ≤ n/2 Σx² then, so
        that centring the moments afterwards costs one bit, and the column stays sparse.
        """
        sums = total("first_moments")
        weight = sums[-1]
        if not weight > 0.0:
            raise ValueError("sample_weight must not be zero for all rows.")
        means: FloatArray = sums[: sum(shape)] / weight
        if sparse:
            means[: shape[0]][sums[sum(shape) : -1] <= 0.5 * weight] = 0.0
        return (means,)

    # The methods of a task

    gradient = Task.gradient  # the state's `grad`

    def stats(self, shard: Shard | Moments, W: LowRankMatrix) -> GramState:
        moments = shard if isinstance(shard, Moments) else Moments.of(shard, self.weighted)
        left = W.U * W.s
        AU, BV, VV = matmul(moments.A, left), matmul(moments.B, W.V), gram(W.V)
        quadratic_form = float(np.vdot(left, matmul(AU, VV)))
        return GramState(moments, quadratic_form, float(np.vdot(left, BV)), Factors(W, AU, BV, VV))

    def tangent(self, state: GramState) -> FloatArray:
        """[F, ⟨W, ∇F⟩, ∇F V, ∇Fᵀ U, columns] with W's factors: O(d² + dm) for each column of U."""
        assert state.built_from is not None  # of what the state was built from
        W, AU, BV, VV = state.built_from
        products = matmul(AU, VV) - BV
        transposed = matmul(W.V, matmul(AU.T, W.U)) - matmul(state.moments.B.T, W.U)
        values = [self.loss(state), self.inner(state)]
        weight, m = state.moments.weight, W.shape[1]
        columns = np.concatenate([[weight], np.zeros(m), np.full(m, weight)])
        return np.concatenate([values, products.ravel(), transposed.ravel(), columns])

    def update(self, state: GramState, atom: RankOne, gamma: float) -> GramState:
        keep, share = 1.0 - gamma, gamma * atom.scale
        Au, uAu, uAWv, uBv = state.along(atom)
        cross = 2.0 * keep * share * uAWv
        state.quadratic_form = keep * keep * state.quadratic_form + cross + share * share * uAu
        state.linear_form = keep * state.linear_form + share * uBv
        # A((1-γ)W + γ c uvᵀ) - B = (1-γ)(AW - B) + γ c (Au) vᵀ - γB
        gradient, state.built_from = state.grad, None
        gram_advance(gradient, keep, share * Au, atom.v, gamma, state.moments.B)
        state._image = state._along = None
        return state

    def matvec(self, state: GramState, V: Array) -> FloatArray:
        return state.times(V)

    def rmatvec(self, state: GramState, U: Array) -> FloatArray:
        return state.transpose_times(U)

    def linesearch(self, state: GramState, atom: RankOne, gamma: float) -> tuple[float, float]:
        """φ'(γ) and φ'' along D = c uvᵀ - W: ⟨∇F, D⟩ + γ⟨D, AD⟩ and ⟨D, AD⟩."""
        c, (_, uAu, uAWv, uBv) = atom.scale, state.along(atom)
        curvature = c * c * uAu - 2.0 * c * uAWv + state.quadratic_form
        slope = c * (uAWv - uBv) - self.inner(state)
        return slope + gamma * curvature, curvature

    def loss(self, state: GramState) -> float:
        value = 0.5 * state.quadratic_form - state.linear_form + state.moments.half_norm
        return max(value, 0.0)  # rounding only: it is half of a sum of squares

    def inner(self, state: GramState) -> float:
        return state.quadratic_form - state.linear_form

    def curvature_product(self, state: GramState, U: Array) -> FloatArray:
        return matmul(state.moments.A, U)

    def second_moments(self, state: GramState) -> FloatArray:
        return state.moments.A

    def squared_lengths(self, state: GramState) -> FloatArray:
        return np.diag(state.moments.A).copy()


class FoldSums(NamedTuple):
    """The moments of each fold, and last of the rows in none; sums of them are training sets.

    A fold is left out by adding the others: subtraction would lose digits where a row is large.
    """

    task: GramTask
    packed: FloatArray
    near: tuple[FloatArray, ...]  # the centre of the moments, if they have one
    shape: tuple[int, int]
    sparse: bool

    def summary(self, without: int | None = None) -> Summary:
        """All rows, or those outside one fold."""
        kept = np.arange(len(self.packed)) != (-1 if without is None else without)
        return _summary(self.packed[kept].sum(axis=0), self.near, self.shape, self.sparse)

    def mean_loss(self, fold: int, W: LowRankMatrix, b: FloatArray | None) -> float:
        """The loss of a row of the fold, on average."""
        d, m = self.shape
        held_out = Moments(self.packed[fold], (d + (b is not None), m))
        if b is not None:
            # The rows are [x - near, 1]: W gets one more row, b about the same point.
            shift = b - Centre(*np.split(self.near[0], [d])).intercept(W)
            left = np.zeros((d + 1, W.rank + 1))
            left[:-1, :-1], left[-1, -1] = W.U, 1.0
            W = LowRankMatrix(left, np.append(W.s, 1.0), np.column_stack([W.V, shift]))
        return self.task.loss(self.task.stats(held_out, W)) / (held_out.weight or 1.0)


def _summary(
    packed: FloatArray, near: tuple[FloatArray, ...], shape: tuple[int, int], sparse: bool
) -> Summary:
    d, m = shape
    moments = Moments(packed, (d + len(near), m))
    known = np.diag(moments.A)[:d].copy(), 2.0 * moments.half_norm, _LONGEST_SUM[sparse]
    if not near:
        return Summary(moments, None, *known)
    about, means = moments.about_means()
    return Summary(about, Centre(near[0][:d] + means.x, near[0][d:] + means.y), *known)
