"""Scores as factors, S = (XU) diag(s) Vᵀ, for data whose n×m scores do not fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from dfwtrace._typing import Array, FloatArray
from dfwtrace.data.shards import RowBlock, RowBlocks, Shard
from dfwtrace.linalg.lowrank import LowRankMatrix, RankOne
from dfwtrace.tasks.features.representation import Representation

# Bytes of scores rebuilt at once: large enough for BLAS, small enough to stay in cache.
_BLOCK_BYTES = 4 << 20


@dataclass
class FactoredState:
    """Features, targets and the n×r factors of one shard's scores."""

    X: RowBlocks
    y: Array
    weights: Array
    scores: LowRankMatrix
    b: FloatArray  # the intercept, which is added to every row of scores
    known: tuple[float, float] | None = None  # Σ ℓ and ⟨S, R⟩, once computed


class FactoredTask(Representation[FactoredState]):
    """Scores rebuilt block by block in every product: O(n(d + rm)) time, O(nr) memory."""

    def stats(
        self, shard: Shard, W: LowRankMatrix, b: Array | None = None, centre: Array | None = None
    ) -> FactoredState:
        m = W.shape[1]
        rows = max(1, _BLOCK_BYTES // (m * shard.X.dtype.itemsize))
        X = RowBlocks(shard.X, rows, centre)
        scores = LowRankMatrix(X.times(W.U), W.s, W.V.astype(X.dtype))
        y, weights = self.targets_and_weights(shard)
        return FactoredState(X, y, weights, scores, np.zeros(m) if b is None else b)

    def update(self, state: FactoredState, atom: RankOne, gamma: float) -> FactoredState:
        state.scores, state.known = state.scores.toward(self._image(state, atom), gamma), None
        return state

    def shift(self, state: FactoredState, b: Array) -> FactoredState:
        state.b, state.known = b, None
        return state

    def balance(self, state: FactoredState) -> FloatArray:
        (n, m), weights = state.scores.shape, state.weights
        weight = weights.sum(dtype=np.float64) if weights.size else n
        total = self._sum(state, (m,), lambda block, R: R.sum(axis=0, dtype=np.float64))
        return np.concatenate([[*self._values(state), weight], total])

    def matvec(self, state: FactoredState, V: Array) -> FloatArray:
        V = V.astype(state.X.dtype)
        shape = (state.X.shape[1], *V.shape[1:])
        return self._sum(state, shape, lambda block, R: block.transpose_times(R @ V))

    def rmatvec(self, state: FactoredState, U: Array) -> FloatArray:
        U = U.astype(state.X.dtype)
        shape = (state.scores.shape[1], *U.shape[1:])
        return self._sum(state, shape, lambda block, R: R.T @ block.times(U))

    def tangent(self, state: FactoredState) -> FloatArray:
        images, right = state.scores.U, state.scores.V
        products, transposed = np.zeros((state.X.shape[1], right.shape[1])), np.zeros(right.shape)
        for block, R in self._evaluated(state):
            products += block.transpose_times(R @ right)
            transposed += R.T @ images[block.rows]
        return np.concatenate([self._values(state), products.ravel(), transposed.ravel()])

    def linesearch(self, state: FactoredState, atom: RankOne, gamma: float) -> tuple[float, float]:
        image = self._image(state, atom)
        q = (atom.scale * image.u).astype(state.X.dtype)
        slope, curvature, b = 0.0, 0.0, state.b.astype(state.X.dtype)
        for block, S in self._blocks(state):
            y, weights, rows = state.y[block.rows], state.weights[block.rows], q[block.rows]
            first, second = self.loss_on_scores.along(S, y, gamma, rows, image.v, weights, b)
            slope, curvature = slope + first, curvature + second
        return slope, curvature

    def loss(self, state: FactoredState) -> float:
        return self._values(state)[0]

    def inner(self, state: FactoredState) -> float:
        return self._values(state)[1]

    def gradient(self, state: FactoredState) -> FloatArray:
        shape = (state.X.shape[1], state.scores.shape[1])
        return self._sum(state, shape, lambda block, R: block.transpose_times(R))

    def _image(self, state: FactoredState, atom: RankOne) -> RankOne:
        """The atom as seen in the scores: scale · (Xu) vᵀ."""
        return RankOne(atom.scale, state.X.times(atom.u), atom.v.astype(state.X.dtype))

    def _blocks(self, state: FactoredState) -> Iterator[tuple[RowBlock, Array]]:
        """One block of rows after the other, with its scores, in memory that the next one takes."""
        left, right = state.scores.U, state.scores.V.T
        values, scratch = state.scores.s.astype(state.X.dtype), _scratch(state)
        for block in state.X:
            rows = left[block.rows]
            yield block, np.matmul(rows * values, right, out=scratch[: rows.shape[0]])

    def _evaluated(self, state: FactoredState) -> Iterator[tuple[RowBlock, Array]]:
        """One block of rows after the other, with its residual, in memory that the next one takes.

        Σ ℓ and ⟨S, R⟩ are known after the last block.
        """
        b, scratch = state.b.astype(state.X.dtype), _scratch(state)
        nothing = np.zeros(max(scratch.shape), scratch.dtype)
        still, across = nothing[: scratch.shape[0]], nothing[: scratch.shape[1]]
        value = inner = 0.0
        for block, S in self._blocks(state):
            n, y, weights = S.shape[0], state.y[block.rows], state.weights[block.rows]
            loss, product = self.loss_on_scores.advance(
                S, y, 1.0, still[:n], across, scratch[:n], across, np.empty(n, S.dtype), weights, b
            )
            value, inner = value + loss, inner + product
            yield block, scratch[:n]
        state.known = (value, inner)

    def _values(self, state: FactoredState) -> tuple[float, float]:
        if state.known is None:
            for _ in self._evaluated(state):
                pass
        assert state.known is not None  # by the pass
        return state.known

    def _sum(
        self,
        state: FactoredState,
        shape: tuple[int, ...],
        product: Callable[[RowBlock, Array], Array],
    ) -> FloatArray:
        """Σ over blocks of product(block, R), in float64."""
        total = np.zeros(shape)
        for block, R in self._evaluated(state):
            total += product(block, R)
        return total


def _scratch(state: FactoredState) -> Array:
    """Memory for the scores of one block, taken once in a pass: page faults cost time."""
    first = next(iter(state.X)).rows  # the longest
    return np.empty((first.stop - first.start, state.scores.shape[1]), state.X.dtype)
