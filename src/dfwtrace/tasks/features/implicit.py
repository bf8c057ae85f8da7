"""Scores in memory, gradient never formed: ∇F_j = Xᵀ R through the products Xᵀ(R v), Rᵀ(X u)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from dfwtrace._typing import Array, FloatArray
from dfwtrace.data.shards import ROWS_IN_BLOCK, RowBlocks, Shard
from dfwtrace.linalg.lowrank import LowRankMatrix, RankOne
from dfwtrace.tasks.features.representation import Representation
from dfwtrace.tasks.task import Task

# Bytes of scores that are made at once from dense features: they and the residual stay in cache.
_PIECE_BYTES = 2 << 20


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
    grad: FloatArray | None = None
    tangent: FloatArray | None = None  # until the first update
    _image: tuple[Array, Array] | None = None

    def image(self, u: Array) -> Array:
        """X u, kept: the oracle's last u is the direction of the step that follows."""
        if self._image is None or not np.array_equal(self._image[0], u):
            self._image = (u.copy(), self.X.times(u))
        return self._image[1]


class ImplicitTask(Representation[ScoresState]):
    """Scores and residual (n×m) in memory; a product costs O(n(d + m)) and an update O(nm)."""

    def stats(
        self, shard: Shard, W: LowRankMatrix, b: Array | None = None, centre: Array | None = None
    ) -> ScoresState:
        X, (n, m) = RowBlocks(shard.X, centre=centre), (shard.n_rows, W.shape[1])
        rows = max(_PIECE_BYTES // (m * int(X.dtype.itemsize)) // 64, 1) * 64  # as BLAS likes
        dense = not sp.issparse(shard.X)
        pieces = RowBlocks(shard.X, min(rows, ROWS_IN_BLOCK), centre) if dense else X
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
        left, weights, right = W.U.astype(dtype), W.s.astype(dtype), W.V.astype(dtype)
        images, still = np.empty((s.S.shape[0], W.rank), dtype), np.zeros(s.S.shape[0], dtype)
        products, transposed = np.zeros((d, W.rank)), np.zeros((m, W.rank))
        s.value = s.inner = 0.0
        for block in s.pieces:
            S, R, XU = s.S[block.rows], s.R[block.rows], images[block.rows]
            XU[:] = block.times(left)
            np.matmul(XU * weights, right.T, out=S)
            value, inner = self._pass(s, block.rows, 1.0, still, s.ahead)
            s.value, s.inner = s.value + value, s.inner + inner
            if b is None:  # else it is about to change
                products += block.transpose_times(R @ right)
                transposed += R.T @ XU
        s.tangent, s._image = None, (W.U.copy(), images)
        if b is None:
            s.tangent = np.concatenate([[s.value, s.inner], products.ravel(), transposed.ravel()])
        return self._residual_is_new(s)

    def shift(self, state: ScoresState, b: Array) -> ScoresState:
        state.b = _cast(b, state)
        still, across = (np.zeros(size, state.S.dtype) for size in state.S.shape)
        return self._advance(state, 1.0, still, across)

    def balance(self, state: ScoresState) -> FloatArray:
        (n, m), weights = state.S.shape, state.weights
        weight, total = weights.sum(dtype=np.float64) if weights.size else n, np.zeros(m)
        for block in state.X:
            total += state.R[block.rows].sum(axis=0, dtype=np.float64)
        return np.concatenate([[state.value, state.inner, weight], total])

    def update(self, state: ScoresState, atom: RankOne, gamma: float) -> ScoresState:
        # S ← (1-γ) S + γ·scale·(X u) vᵀ
        q = ((gamma * atom.scale) * state.image(atom.u)).astype(state.S.dtype)
        return self._advance(state, 1.0 - gamma, q, _cast(atom.v, state))

    def _advance(self, state: ScoresState, decay: float, q: Array, v: Array) -> ScoresState:
        state.ahead, state.tangent = state.expected, None
        state.value, state.inner = self._pass(state, slice(None), decay, q, v)
        return self._residual_is_new(state)

    def _residual_is_new(self, state: ScoresState) -> ScoresState:
        """The state after a pass, with what else belongs to it."""
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


class DenseTask(ImplicitTask):
    """The same scores, and the d×m gradient formed at every update: O(ndm), products O(dm)."""

    matvec, rmatvec, gradient = Task.matvec, Task.rmatvec, Task.gradient  # from the state's `grad`

    def _residual_is_new(self, state: ScoresState) -> ScoresState:
        state.grad = super().gradient(state)
        return state


def _cast(vector: Array, state: ScoresState) -> Array:
    return vector.astype(state.S.dtype, copy=False)
