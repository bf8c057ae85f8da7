"""Least squares through its second moments: after one pass over the data, n no longer matters."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dfwtrace._typing import Array, FloatArray
from dfwtrace.kernels import gram_advance
from dfwtrace.lowrank import LowRankMatrix, RankOne
from dfwtrace.shards import RowBlocks, Shard

# Moments are one matrix product a block, so blocks may be long; BLAS sums within them.
_ROWS_IN_BLOCK = 16384


@dataclass(frozen=True)
class Moments:
    """A = XᵀX, B = XᵀY and ½‖Y‖² of one shard, or of all of them: moments add up."""

    A: FloatArray
    B: FloatArray
    half_norm: float
    n_rows: int

    @classmethod
    def of(cls, shard: Shard) -> Moments:
        y = shard.targets
        X = RowBlocks(shard.X, _ROWS_IN_BLOCK)
        A, B = X.moments(y.astype(X.dtype, copy=False))
        half_norm = 0.5 * float(np.einsum("ij,ij->i", y, y).sum(dtype=np.float64))
        return cls(A, B, half_norm, shard.n_rows)

    def pack(self) -> FloatArray:
        """As the one array that a reply of a round is."""
        return np.concatenate(
            [self.A.ravel(), self.B.ravel(), [self.half_norm, float(self.n_rows)]]
        )

    @classmethod
    def unpack(cls, packed: FloatArray, shape: tuple[int, int]) -> Moments:
        d, m = shape
        A, B, rest = np.split(packed, [d * d, d * d + d * m])
        return cls(A.reshape(d, d), B.reshape(d, m), float(rest[0]), int(rest[1]))


@dataclass
class GramState:
    """∇F = AW - B, with the scalars that follow W by recursion instead of by passes over W."""

    moments: Moments
    grad: FloatArray
    quadratic_form: float  # ⟨W, AW⟩
    linear_form: float  # ⟨W, B⟩
    _along: tuple[RankOne, FloatArray, float, float, float] | None = field(default=None, repr=False)

    def along(self, atom: RankOne) -> tuple[FloatArray, float, float, float]:
        """(Au, uᵀAu, uᵀ(AW)v, uᵀBv): what both the line search and the update need of an atom."""
        if self._along is None or not self._along[0].equals(atom):
            Au = self.moments.A @ atom.u
            uBv = float(atom.u @ (self.moments.B @ atom.v))
            uGv = float(atom.u @ (self.grad @ atom.v))
            self._along = (atom, Au, float(atom.u @ Au), uGv + uBv, uBv)
        return self._along[1:]

    def forget(self) -> None:
        """W has moved: what was worked out for the last atom no longer holds."""
        self._along = None


class GramTask:
    """½‖XW - Y‖² = ½⟨W, AW⟩ - ⟨W, B⟩ + ½‖Y‖². A product costs O(dm), an update O(d² + dm)."""

    quadratic = True

    def moments(self, shard: Shard) -> FloatArray:
        return Moments.of(shard).pack()

    def stats(self, shard: Shard | Moments, W: LowRankMatrix) -> GramState:
        moments = shard if isinstance(shard, Moments) else Moments.of(shard)
        BV, left = moments.B @ W.V, W.U * W.s
        AW = (moments.A @ left) @ W.V.T
        quadratic_form = float(np.vdot(left, AW @ W.V))
        return GramState(moments, AW - moments.B, quadratic_form, float(np.vdot(left, BV)))

    def update(self, state: GramState, atom: RankOne, gamma: float) -> GramState:
        c, keep = atom.scale, 1.0 - gamma
        Au, uAu, uAWv, uBv = state.along(atom)
        state.quadratic_form = (
            keep**2 * state.quadratic_form + 2.0 * gamma * keep * c * uAWv + (gamma * c) ** 2 * uAu
        )
        state.linear_form = keep * state.linear_form + gamma * c * uBv
        # A((1-γ)W + γ c uvᵀ) - B = (1-γ)(AW - B) + γ c (Au) vᵀ - γB
        gram_advance(state.grad, keep, (gamma * c) * Au, atom.v, gamma, state.moments.B)
        state.forget()
        return state

    def matvec(self, state: GramState, V: Array) -> FloatArray:
        product: FloatArray = state.grad @ V
        return product

    def rmatvec(self, state: GramState, U: Array) -> FloatArray:
        product: FloatArray = state.grad.T @ U
        return product

    def linesearch(self, state: GramState, atom: RankOne, gamma: float) -> tuple[float, float]:
        """φ'(γ) and φ'' along D = c uvᵀ - W: ⟨∇F, D⟩ + γ⟨D, AD⟩ and ⟨D, AD⟩."""
        c = atom.scale
        _, uAu, uAWv, uBv = state.along(atom)
        curvature = c**2 * uAu - 2.0 * c * uAWv + state.quadratic_form
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
