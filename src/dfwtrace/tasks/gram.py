"""Least squares through its second moments: after one pass over the data, n no longer matters."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dfwtrace._typing import Array, FloatArray
from dfwtrace.kernels import gram_advance
from dfwtrace.lowrank import LowRankMatrix, RankOne
from dfwtrace.shards import Shard
from dfwtrace.tasks.moments import Moments, first_moments


def folds_of(shard: Shard, n_folds: int, seed: int, before: int = 0) -> Array:
    """The fold of every row: at random, and as many rows in each as can be.

    `before` is the number of rows in the shards before this one: its first row goes to the fold
    after their last, so that the folds of all shards together are of one size too.
    """
    rng = np.random.default_rng([seed, 0xF01D, shard.index])
    return (before + rng.permutation(shard.n_rows)) % n_folds


@dataclass
class GramState:
    """∇F = AW - B, with the scalars that follow W by recursion instead of by passes over W.

    Built from W = U diag(s) Vᵀ it has A U diag(s), and the dense ∇F only once it is asked for.
    """

    moments: Moments
    quadratic_form: float  # ⟨W, AW⟩
    linear_form: float  # ⟨W, B⟩
    built_from: tuple[FloatArray, FloatArray, LowRankMatrix] | None = None  # A U diag(s), B V, W
    _grad: FloatArray | None = field(default=None, repr=False)
    _image: tuple[Array, FloatArray] | None = field(default=None, repr=False)
    _along: tuple[RankOne, FloatArray, float, float, float] | None = field(default=None, repr=False)

    @property
    def grad(self) -> FloatArray:
        """The dense d×m gradient."""
        if self._grad is None:
            assert self.built_from is not None  # it is given up only once there is a gradient
            AU, _, W = self.built_from
            self._grad = AU @ W.V.T - self.moments.B
        return self._grad

    def transpose_times(self, u: Array) -> FloatArray:
        """∇Fᵀu, kept: the oracle's last u is the direction of the step that follows."""
        if self._image is None or not np.array_equal(self._image[0], u):
            self._image = (u.copy(), self.grad.T @ u)
        return self._image[1]

    def along(self, atom: RankOne) -> tuple[FloatArray, float, float, float]:
        """(Au, uᵀAu, uᵀ(AW)v, uᵀBv): what both the line search and the update need of an atom."""
        if self._along is None or not self._along[0].equals(atom):
            Au = self.moments.A @ atom.u
            uBv = float(atom.u @ (self.moments.B @ atom.v))
            uGv = float(self.transpose_times(atom.u) @ atom.v)
            self._along = (atom, Au, float(atom.u @ Au), uGv + uBv, uBv)
        return self._along[1:]

    def forget(self) -> None:
        """W has moved: what was worked out where it stood no longer holds."""
        self._image = self._along = None


class GramTask:
    """½‖XW - Y‖² = ½⟨W, AW⟩ - ⟨W, B⟩ + ½‖Y‖². A product costs O(dm), an update O(d² + dm)."""

    quadratic = True

    def __init__(self, weighted: bool = False) -> None:
        self.weighted = weighted

    def first_moments(self, shard: Shard) -> FloatArray:
        return first_moments(shard, self.weighted)

    def moments(self, shard: Shard, centre: Array | None = None) -> FloatArray:
        return Moments.of(shard, self.weighted, centre).packed

    def fold_moments(
        self,
        shard: Shard,
        n_folds: int,
        seed: int,
        before: int,
        fold_of: Array,
        centre: Array | None = None,
    ) -> FloatArray:
        """The moments of each fold's rows, one behind the other. Every row is looked at once.

        The last ones are of the rows that are in no fold.
        """
        if not fold_of.size:
            fold_of = folds_of(shard, n_folds, seed, before)
        parts = []
        for fold in range(n_folds + 1):
            rows = np.flatnonzero(fold_of == fold if fold < n_folds else fold_of < 0)
            own = Shard(shard.index, shard.X[rows], shard.targets[rows])
            parts.append(Moments.of(own, self.weighted, centre).packed)
        return np.concatenate(parts)

    def stats(self, shard: Shard | Moments, W: LowRankMatrix) -> GramState:
        moments = shard if isinstance(shard, Moments) else Moments.of(shard, self.weighted)
        left, V = W.U * W.s, np.asarray(W.V)
        AU, BV = moments.A @ left, moments.B @ V
        quadratic_form = float(np.vdot(left, AU @ (V.T @ V)))
        return GramState(moments, quadratic_form, float(np.vdot(left, BV)), (AU, BV, W))

    def tangent(self, state: GramState) -> FloatArray:
        """[F, ⟨W, ∇F⟩, ∇F V, ∇Fᵀ U] with the factors of W: O(d² + dm) for each of its columns."""
        assert state.built_from is not None  # of what the state was built from
        AU, BV, W = state.built_from
        products = AU @ (W.V.T @ W.V) - BV
        transposed = W.V @ (AU.T @ W.U) - state.moments.B.T @ W.U
        return np.concatenate(
            [[self.loss(state), self.inner(state)], products.ravel(), transposed.ravel()]
        )

    def update(self, state: GramState, atom: RankOne, gamma: float) -> GramState:
        c, keep = atom.scale, 1.0 - gamma
        Au, uAu, uAWv, uBv = state.along(atom)
        share = gamma * c
        cross = 2.0 * keep * share * uAWv
        state.quadratic_form = keep * keep * state.quadratic_form + cross + share * share * uAu
        state.linear_form = keep * state.linear_form + share * uBv
        # A((1-γ)W + γ c uvᵀ) - B = (1-γ)(AW - B) + γ c (Au) vᵀ - γB
        gradient, state.built_from = state.grad, None
        gram_advance(gradient, keep, share * Au, atom.v, gamma, state.moments.B)
        state.forget()
        return state

    def matvec(self, state: GramState, V: Array) -> FloatArray:
        product: FloatArray = state.grad @ V
        return product

    def rmatvec(self, state: GramState, U: Array) -> FloatArray:
        if U.ndim == 1:
            return state.transpose_times(U)
        product: FloatArray = state.grad.T @ U
        return product

    def linesearch(self, state: GramState, atom: RankOne, gamma: float) -> tuple[float, float]:
        """φ'(γ) and φ'' along D = c uvᵀ - W: ⟨∇F, D⟩ + γ⟨D, AD⟩ and ⟨D, AD⟩."""
        c = atom.scale
        _, uAu, uAWv, uBv = state.along(atom)
        curvature = c * c * uAu - 2.0 * c * uAWv + state.quadratic_form
        slope = c * (uAWv - uBv) - self.inner(state)
        return slope + gamma * curvature, curvature

    def loss(self, state: GramState) -> float:
        value = 0.5 * state.quadratic_form - state.linear_form + state.moments.half_norm
        return max(value, 0.0)  # rounding only: it is half of a sum of squares

    def inner(self, state: GramState) -> float:
        return state.quadratic_form - state.linear_form

    def gradient(self, state: GramState) -> FloatArray:
        return state.grad

    def curvature_product(self, state: GramState, U: Array) -> FloatArray:
        product: FloatArray = state.moments.A @ U
        return product
