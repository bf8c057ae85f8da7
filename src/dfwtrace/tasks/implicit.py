"""Scores in memory, gradient never formed: ∇F_j = Xᵀ R through the products Xᵀ(R v), Rᵀ(X u)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dfwtrace._typing import Array, FloatArray
from dfwtrace.losses import Loss
from dfwtrace.lowrank import LowRankMatrix, RankOne
from dfwtrace.shards import RowBlocks, Shard


@dataclass
class ScoresState:
    """Scores S = XW and residual R = ∂ℓ/∂S of one shard, with Σ ℓ and ⟨S, R⟩ = ⟨W, ∇F_j⟩."""

    X: RowBlocks
    y: Array
    S: Array
    R: Array
    product: Array  # R times `ahead`, which came out of the pass that made R
    ahead: Array
    expected: Array  # what `ahead` shall be in the next such pass
    value: float = 0.0
    inner: float = 0.0
    grad: FloatArray | None = None
    _image: tuple[Array, Array] | None = field(default=None, repr=False)

    def image(self, u: Array) -> Array:
        """X u, kept: the oracle's last u is the direction of the step that follows.

        So are the images of the factors that the state was built from.
        """
        if self._image is None or not np.array_equal(self._image[0], u):
            self._image = (u.copy(), self.X.times(u))
        return self._image[1]


class ImplicitTask:
    """Scores and residual (n×m) in memory; a product costs O(n(d + m)) and an update O(nm)."""

    def __init__(self, loss: Loss) -> None:
        self.loss_on_scores = loss
        self.quadratic = loss.quadratic
        self.unsupported = () if loss.searchable else ("linesearch",)

    def stats(self, shard: Shard, W: LowRankMatrix) -> ScoresState:
        X, (n, m) = RowBlocks(shard.X), (shard.n_rows, W.shape[1])
        S, nothing = np.empty((n, m), X.dtype), np.zeros(m, X.dtype)
        product = np.zeros(n, X.dtype)
        state = ScoresState(X, shard.targets, S, np.empty_like(S), product, nothing, nothing)
        return self.renew(state, shard, W)

    def renew(self, state: ScoresState, shard: Shard, W: LowRankMatrix) -> ScoresState:
        """The same as `stats`, in the memory of a state that is not needed any more."""
        s, dtype = state, state.S.dtype
        s.expected = np.zeros(W.shape[1], dtype)
        images, weights, right = s.image(W.U), W.s.astype(dtype), W.V.astype(dtype)
        for rows, _, _ in s.X:
            np.matmul(images[rows] * weights, right.T, out=s.S[rows])
        return self._advance(s, 1.0, np.zeros(s.S.shape[0], dtype), s.expected)

    def update(self, state: ScoresState, atom: RankOne, gamma: float) -> ScoresState:
        # S ← (1-γ) S + γ·scale·(X u) vᵀ
        q = ((gamma * atom.scale) * state.image(atom.u)).astype(state.S.dtype)
        return self._advance(state, 1.0 - gamma, q, _cast(atom.v, state))

    def _advance(self, state: ScoresState, decay: float, q: Array, v: Array) -> ScoresState:
        s = state
        s.ahead = s.expected
        s.value, s.inner = self.loss_on_scores.advance(
            s.S, s.y, decay, q, v, s.R, s.ahead, s.product
        )
        return s

    def expect(self, state: ScoresState, v: Array) -> ScoresState:
        """After the next update comes the product ∇F_j v: let R v come out of the same pass."""
        state.expected = _cast(v, state)
        return state

    def matvec(self, state: ScoresState, V: Array) -> FloatArray:
        V = _cast(V, state)
        known = V.ndim == 1 and np.array_equal(V, state.ahead)
        return state.X.transpose_times(state.product if known else state.R @ V)

    def rmatvec(self, state: ScoresState, U: Array) -> FloatArray:
        images = state.image(U)
        total = np.zeros((state.R.shape[1], *U.shape[1:]))
        for rows, _, _ in state.X:
            total += state.R[rows].T @ images[rows]
        return total

    def linesearch(self, state: ScoresState, atom: RankOne, gamma: float) -> tuple[float, float]:
        q = (atom.scale * state.image(atom.u)).astype(state.S.dtype)
        return self.loss_on_scores.along(state.S, state.y, gamma, q, _cast(atom.v, state))

    def loss(self, state: ScoresState) -> float:
        return state.value

    def inner(self, state: ScoresState) -> float:
        return state.inner

    def gradient(self, state: ScoresState) -> FloatArray:
        return state.X.transpose_times(state.R)

    def curvature_product(self, state: ScoresState, U: Array) -> FloatArray:
        product = state.X.transpose_times(state.X.times(U))
        return self.loss_on_scores.smoothness * product


class DenseTask(ImplicitTask):
    """The same scores, and the d×m gradient formed at every update: O(ndm), products O(dm)."""

    def renew(self, state: ScoresState, shard: Shard, W: LowRankMatrix) -> ScoresState:
        state = super().renew(state, shard, W)
        state.grad = super().gradient(state)
        return state

    def update(self, state: ScoresState, atom: RankOne, gamma: float) -> ScoresState:
        state = super().update(state, atom, gamma)
        state.grad = super().gradient(state)
        return state

    def matvec(self, state: ScoresState, V: Array) -> FloatArray:
        return self.gradient(state) @ V

    def rmatvec(self, state: ScoresState, U: Array) -> FloatArray:
        return self.gradient(state).T @ U

    def gradient(self, state: ScoresState) -> FloatArray:
        assert state.grad is not None  # set by stats and by every update
        return state.grad


def _cast(vector: Array, state: ScoresState) -> Array:
    return vector.astype(state.S.dtype, copy=False)
