"""Gradient never formed: ∇F_j = Xᵀ R through the products Xᵀ(R v) and Rᵀ(X u).

The scores are in memory, or S = (XU) diag(s) Vᵀ as factors for data whose n×m scores do not fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from dfwtrace._typing import Array, FloatArray
from dfwtrace.data.shards import ROWS_IN_BLOCK, RowBlock, RowBlocks, Shard, centred_if_far
from dfwtrace.linalg.lowrank import LowRankMatrix, RankOne
from dfwtrace.tasks.task import Representation, Task

# Bytes of scores that are made at once from dense features: they and the residual stay in cache.
_PIECE_BYTES = 2 << 20
# Bytes of scores rebuilt at once: large enough for BLAS, small enough to stay in cache; but so many
# rows at least, as factors of W with as many columns as a row of scores are read for each block.
_BLOCK_BYTES, _BLOCK_ROWS = 4 << 20, 32


@dataclass
class ScoresState:
    """Scores S = XW and residual R = ∂ℓ/∂S at S + 1bᵀ, with Σ ℓ and ⟨S, R⟩ = ⟨W, ∇F_j⟩."""

    X: RowBlocks
    pieces: RowBlocks  # the same, in blocks that a state is built by
    y: Array
    weights: Array
    S: Array
    R: Array
    product: Array  # R times `ahead`, which came out of the pass that made R
    ahead: Array
    expected: Array  # `ahead` of the next such pass
    b: Array  # the intercept, which is added to every row of scores
    value: float = 0.0
    inner: float = 0.0
    grad: FloatArray | None = None  # in the form `dense`, once it was asked for
    tangent: FloatArray | None = None  # as the task's `tangent` returns it, until the first update
    columns: FloatArray | None = None  # [Σ weights, Rᵀ1, c], once it was asked for
    _image: tuple[Array, Array] | None = None

    def image(self, u: Array) -> Array:
        """X u, kept: the oracle's last u is the direction of the step that follows."""
        if self._image is not None and np.array_equal(self._image[0], u):
            return self._image[1]
        image = self.X.times(u)
        if u.ndim == 1:  # nobody asks for a block again, and many features are long to copy
            self._image = (u.copy(), image)
        return image


class ImplicitTask(Representation[ScoresState]):
    """Scores and residual (n×m) in memory; a product costs O(n(d + m)) and an update O(nm)."""

    def stats(
        self,
        shard: Shard,
        W: LowRankMatrix,
        b: Array | None = None,
        centre: Array | None = None,
        scale: Array | None = None,
    ) -> ScoresState:
        features, centre = centred_if_far(shard.X, centre, scale)
        X, (n, m) = RowBlocks(features, centre=centre), (shard.n_rows, W.shape[1])
        rows = max(_PIECE_BYTES // (m * X.dtype.itemsize) // 64, 1) * 64  # as BLAS likes
        rows = min(rows, ROWS_IN_BLOCK)
        pieces = X if sp.issparse(features) else RowBlocks(features, rows, centre)
        y, weights = self.targets_and_weights(shard)
        S, R, nothing = np.empty((n, m), X.dtype), np.empty((n, m), X.dtype), np.zeros(m, X.dtype)
        rest = np.zeros(n, X.dtype), nothing, nothing, nothing
        return self.renew(ScoresState(X, pieces, y, weights, S, R, *rest), shard, W, b)

    def renew(
        self, state: ScoresState, shard: Shard, W: LowRankMatrix, b: Array | None = None
    ) -> ScoresState:
        s, dtype, (d, m) = state, state.S.dtype, W.shape
        s.ahead = s.expected = np.zeros(m, dtype)
        s.b = s.expected if b is None else _cast(b, s)
        weights, right = W.s.astype(dtype), W.V.astype(dtype)
        images, still = np.empty((s.S.shape[0], W.rank), dtype), np.zeros(s.S.shape[0], dtype)
        # All of it in one array, as it is replied: a copy of many features takes its time.
        tangent = np.zeros(2 + (d + m) * W.rank + 1 + 2 * m)
        values, products, transposed, s.columns = _parts(tangent, d, m)
        sums = np.zeros(W.rank)
        for block in s.pieces.images(W.U, images):
            S, R, XU = s.S[block.rows], s.R[block.rows], images[block.rows]
            np.matmul(XU * weights, right.T, out=S)
            values += self._pass(s, block.rows, 1.0, still, s.ahead)
            T = R @ right
            block.add_transposed(T, products)
            sums += T.sum(axis=0, dtype=np.float64)
            transposed += R.T @ XU
            self.add_columns(s.columns, R, s.y[block.rows], s.weights[block.rows])
        s.pieces.centre_transposed(products, sums)
        s.value, s.inner = (float(value) for value in values)
        tangent.flags.writeable = False  # replied as it is
        s.tangent, s.grad, s._image = tangent, None, (W.U, images)
        return s

    def shift(self, state: ScoresState, b: Array) -> ScoresState:
        state.b = _cast(b, state)
        still, across = (np.zeros(size, state.S.dtype) for size in state.S.shape)
        return self._advance(state, 1.0, still, across)

    def balance(self, state: ScoresState) -> FloatArray:
        if state.columns is None:
            state.columns = np.zeros(1 + 2 * state.S.shape[1])
            for block in state.X:
                R, y, weights = (each[block.rows] for each in (state.R, state.y, state.weights))
                self.add_columns(state.columns, R, y, weights)
        return np.concatenate([[state.value, state.inner], state.columns])

    def scores(self, state: ScoresState) -> Iterator[tuple[RowBlock, Array]]:
        for block in state.pieces:
            yield block, state.S[block.rows]

    def update(self, state: ScoresState, atom: RankOne, gamma: float) -> ScoresState:
        # S ← (1-γ) S + γ·scale·(X u) vᵀ
        q = ((gamma * atom.scale) * state.image(atom.u)).astype(state.S.dtype)
        return self._advance(state, 1.0 - gamma, q, _cast(atom.v, state))

    def _advance(self, state: ScoresState, decay: float, q: Array, v: Array) -> ScoresState:
        state.ahead = state.expected
        state.tangent = state.columns = state.grad = None
        state.value, state.inner = self._pass(state, slice(None), decay, q, v)
        return state

    def _pass(
        self, s: ScoresState, rows: slice, decay: float, q: Array, v: Array
    ) -> tuple[float, float]:
        """S ← decay·S + q vᵀ and all that follows from it, for some rows; their Σ ℓ and ⟨S, R⟩."""
        S, y, R, weights = s.S[rows], s.y[rows], s.R[rows], s.weights[rows]
        return self.loss_on_scores.advance(
            S, y, decay, q[rows], v, R, s.ahead, s.product[rows], weights, s.b
        )

    def expect(self, state: ScoresState, v: Array) -> ScoresState:
        state.expected = _cast(v, state)
        return state

    def matvec(self, state: ScoresState, V: Array) -> FloatArray:
        V = _cast(V, state)
        known = V.ndim == 1 and np.array_equal(V, state.ahead)
        return state.X.transpose_times(state.product if known else state.R @ V)

    def rmatvec(self, state: ScoresState, U: Array) -> FloatArray:
        images = state.image(U)
        total = np.zeros((state.R.shape[1], *U.shape[1:]))
        for block in state.X:
            total += state.R[block.rows].T @ images[block.rows]
        return total

    def tangent(self, state: ScoresState) -> FloatArray | None:
        return state.tangent

    def linesearch(self, state: ScoresState, atom: RankOne, gamma: float) -> tuple[float, float]:
        q = (atom.scale * state.image(atom.u)).astype(state.S.dtype)
        v = _cast(atom.v, state)
        return self.loss_on_scores.along(state.S, state.y, gamma, q, v, state.weights, state.b)

    def loss(self, state: ScoresState) -> float:
        return state.value

    def inner(self, state: ScoresState) -> float:
        return state.inner

    def gradient(self, state: ScoresState) -> FloatArray:
        return state.X.transpose_times(state.R)


def _parts(tangent: FloatArray, d: int, m: int) -> tuple[FloatArray, ...]:
    """[F_j, ⟨W, ∇F_j⟩], ∇F_j V, ∇F_jᵀ U and the columns of scores: views of one array."""
    rank = (tangent.size - 3 - 2 * m) // (d + m)
    values, products, transposed, columns = np.split(tangent, [2, 2 + d * rank, 2 + (d + m) * rank])
    return values, products.reshape(d, rank), transposed.reshape(m, rank), columns


class DenseTask(ImplicitTask):
    """The same scores, and the d×m gradient once it is asked for: O(ndm), products O(dm)."""

    matvec, rmatvec = Task.matvec, Task.rmatvec  # from the gradient

    def gradient(self, state: ScoresState) -> FloatArray:
        if state.grad is None:
            state.grad = super().gradient(state)
        return state.grad


@dataclass
class FactoredState:
    """Features, targets and the n×r factors of one shard's scores."""

    X: RowBlocks
    y: Array
    weights: Array
    scores: LowRankMatrix
    b: FloatArray  # the intercept, which is added to every row of scores
    ahead: Array  # what R is multiplied by in every pass, at no cost
    expected: Array  # `ahead` from the next update on
    known: tuple[float, float] | None = None  # Σ ℓ and ⟨S, R⟩, once computed
    product: Array | None = None  # R times `ahead`, likewise
    image: tuple[Array, Array] | None = None  # the last u and X u


class FactoredTask(Representation[FactoredState]):
    """Scores rebuilt block by block in every product: O(n(d + rm)) time, O(nr) memory."""

    def stats(
        self,
        shard: Shard,
        W: LowRankMatrix,
        b: Array | None = None,
        centre: Array | None = None,
        scale: Array | None = None,
    ) -> FactoredState:
        m = W.shape[1]
        rows = max(_BLOCK_ROWS, _BLOCK_BYTES // (m * shard.X.dtype.itemsize))
        features, centre = centred_if_far(shard.X, centre, scale)
        X = RowBlocks(features, rows, centre)
        scores = LowRankMatrix(X.times(W.U), W.s, W.V.astype(X.dtype))
        y, weights = self.targets_and_weights(shard)
        b, nothing = np.zeros(m) if b is None else b, np.zeros(m, X.dtype)
        return FactoredState(X, y, weights, scores, b, nothing, nothing)

    def update(self, state: FactoredState, atom: RankOne, gamma: float) -> FactoredState:
        state.scores = state.scores.toward(self._image(state, atom), gamma)
        state.ahead, state.known, state.product = state.expected, None, None
        return state

    def shift(self, state: FactoredState, b: Array) -> FactoredState:
        state.b, state.known, state.product = b, None, None
        return state

    def expect(self, state: FactoredState, v: Array) -> FactoredState:
        state.expected = v.astype(state.X.dtype)
        return state

    def balance(self, state: FactoredState) -> FloatArray:
        columns = np.zeros(1 + 2 * state.scores.shape[1])
        for block, R in self._evaluated(state):
            self.add_columns(columns, R, state.y[block.rows], state.weights[block.rows])
        return np.concatenate([self._values(state), columns])

    def matvec(self, state: FactoredState, V: Array) -> FloatArray:
        V = V.astype(state.X.dtype)
        if V.ndim == 1:
            if not np.array_equal(V, state.ahead):
                state.ahead, state.product = V, None
            return state.X.transpose_times(self._product(state))
        products = np.empty((state.X.shape[0], V.shape[1]), state.X.dtype)
        for block, R in self._evaluated(state):
            products[block.rows] = R @ V
        return state.X.transpose_times(products)

    def rmatvec(self, state: FactoredState, U: Array) -> FloatArray:
        images = self._times(state, U) if U.ndim == 1 else state.X.times(U)
        total = np.zeros((state.scores.shape[1], *U.shape[1:]))
        for block, R in self._evaluated(state):
            total += R.T @ images[block.rows]
        return total

    def tangent(self, state: FactoredState) -> FloatArray:
        images, right = state.scores.U, state.scores.V
        (m, rank), d = right.shape, state.X.shape[1]
        tangent, sums = np.zeros(2 + (d + m) * rank + 1 + 2 * m), np.zeros(rank)
        values, products, transposed, columns = _parts(tangent, d, m)
        for block, R in self._evaluated(state):
            T = R @ right
            block.add_transposed(T, products)
            sums += T.sum(axis=0, dtype=np.float64)
            transposed += R.T @ images[block.rows]
            self.add_columns(columns, R, state.y[block.rows], state.weights[block.rows])
        state.X.centre_transposed(products, sums)
        values[:] = self._values(state)
        return tangent

    def linesearch(self, state: FactoredState, atom: RankOne, gamma: float) -> tuple[float, float]:
        image = self._image(state, atom)
        q = (atom.scale * image.u).astype(state.X.dtype)
        slope, curvature, b = 0.0, 0.0, state.b.astype(state.X.dtype)
        for block, S in self.scores(state):
            y, weights, rows = state.y[block.rows], state.weights[block.rows], q[block.rows]
            first, second = self.loss_on_scores.along(S, y, gamma, rows, image.v, weights, b)
            slope, curvature = slope + first, curvature + second
        return slope, curvature

    def loss(self, state: FactoredState) -> float:
        return self._values(state)[0]

    def inner(self, state: FactoredState) -> float:
        return self._values(state)[1]

    def gradient(self, state: FactoredState) -> FloatArray:
        m = state.scores.shape[1]
        total, sums = np.zeros((state.X.shape[1], m)), np.zeros(m)
        for block, R in self._evaluated(state):
            block.add_transposed(R, total)
            sums += R.sum(axis=0, dtype=np.float64)
        state.X.centre_transposed(total, sums)
        return total

    def _image(self, state: FactoredState, atom: RankOne) -> RankOne:
        """The atom as seen in the scores: scale · (Xu) vᵀ."""
        return RankOne(atom.scale, self._times(state, atom.u), atom.v.astype(state.X.dtype))

    def _times(self, state: FactoredState, u: Array) -> Array:
        """X u, kept: the oracle's last u is the direction of the step that follows."""
        if state.image is None or not np.array_equal(state.image[0], u):
            state.image = (u.copy(), state.X.times(u))
        return state.image[1]

    def scores(self, state: FactoredState) -> Iterator[tuple[RowBlock, Array]]:
        """One block of rows after the other, with its scores, in memory that the next one takes."""
        left, right = state.scores.U, state.scores.V.T
        values, scratch = state.scores.s.astype(state.X.dtype), _scratch(state)
        for block in state.X:
            rows = left[block.rows]
            yield block, np.matmul(rows * values, right, out=scratch[: rows.shape[0]])

    def _evaluated(self, state: FactoredState) -> Iterator[tuple[RowBlock, Array]]:
        """The same with the residuals; after the last block, the state knows their sums."""
        b, scratch = state.b.astype(state.X.dtype), _scratch(state)
        still, across = (np.zeros(size, scratch.dtype) for size in scratch.shape)
        ahead, products = state.ahead, np.empty(state.X.shape[0], scratch.dtype)
        value = inner = 0.0
        for block, S in self.scores(state):
            n, y, weights = S.shape[0], state.y[block.rows], state.weights[block.rows]
            R, product = scratch[:n], products[block.rows]
            loss, along = self.loss_on_scores.advance(
                S, y, 1.0, still[:n], across, R, ahead, product, weights, b
            )
            value, inner = value + loss, inner + along
            yield block, R
        state.known, state.product = (value, inner), products

    def _product(self, state: FactoredState) -> Array:
        if state.product is None:
            for _ in self._evaluated(state):
                pass
        assert state.product is not None  # by the pass
        return state.product

    def _values(self, state: FactoredState) -> tuple[float, float]:
        if state.known is None:
            for _ in self._evaluated(state):
                pass
        assert state.known is not None  # by the pass
        return state.known


def _scratch(state: FactoredState) -> Array:
    """Memory for the scores of one block, taken once in a pass: page faults cost time."""
    first = next(iter(state.X)).rows  # the longest
    return np.empty((first.stop - first.start, state.scores.shape[1]), state.X.dtype)


def _cast(vector: Array, state: ScoresState) -> Array:
    return vector.astype(state.S.dtype, copy=False)
