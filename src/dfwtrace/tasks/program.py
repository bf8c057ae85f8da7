"""A task as a worker runs it: called by name, arrays and numbers in, one array out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dfwtrace._typing import Array, FloatArray
from dfwtrace.linalg.golub_kahan import GolubKahan, uniform_on_sphere
from dfwtrace.linalg.lowrank import LowRankMatrix, RankOne
from dfwtrace.tasks.task import Task, dense_gradient

# A worker's own top pair is iterated until it changes by less than this, relatively.
_LOCAL_PAIR_TOLERANCE = 1e-9
_LOCAL_PAIR_STEPS = 10


class ShardState(NamedTuple):
    """A task's state on a shard of `n_rows` rows; None on an empty shard, which adds zero."""

    n_rows: int
    state: Any
    built_from: LowRankMatrix | None = None  # W, until the first update


class ShardProgram:
    """What engines run on each shard, by these names; a task never sees an empty shard."""

    def __init__(self, task: Task[Any], shape: tuple[int, int]) -> None:
        self.task: Any = task
        self.shape = shape

    @property
    def reuses_memory(self) -> bool:
        """Whether a state can be built in the memory of one that is no longer needed."""
        return bool(self.task.supports("renew"))

    def stats(
        self, shard: Any, U: Array, s: Array, V: Array, *b: Array, old: Any = None
    ) -> ShardState:
        """The state at W, with an intercept and the point to centre X at, if there are any."""
        W, state = LowRankMatrix(U, s, V), None
        if shard.n_rows and isinstance(old, ShardState):
            state = _not_none(self.task.renew(old.state, shard, W, *b), "renew")
        elif shard.n_rows:
            state = _not_none(self.task.stats(shard, W, *b), "stats")
        return ShardState(shard.n_rows, state, W)

    def update(
        self, held: ShardState, scale: float, u: Array, v: Array, gamma: float, *expected: int
    ) -> ShardState:
        """Move to (1-γ) W + γ·scale·uvᵀ; `expected` (seed, t) determines the v₀ that follows."""
        if held.n_rows == 0:
            return ShardState(0, None)
        state = held.state
        if expected:
            state = self.task.expect(state, uniform_on_sphere(self.shape[1], *expected))
        state = _not_none(self.task.update(state, RankOne(scale, u, v), gamma), "update")
        return ShardState(held.n_rows, state)

    def shift(self, held: ShardState, b: Array) -> ShardState:
        """The state at another intercept."""
        return held._replace(state=self.task.shift(held.state, b)) if held.n_rows else held

    def matvec(self, held: ShardState, V: Array) -> FloatArray:
        """∇F_j V for a vector or a block of vectors."""
        if held.n_rows and not self.task.supports("matvec"):
            return self.gradient(held) @ V
        return self._ask(held, "matvec", self.task.matvec, (self.shape[0], *V.shape[1:]), V)

    def rmatvec(self, held: ShardState, U: Array) -> FloatArray:
        """∇F_jᵀ U for a vector or a block of vectors."""
        if held.n_rows and not self.task.supports("rmatvec"):
            return self.gradient(held).T @ U
        return self._ask(held, "rmatvec", self.task.rmatvec, (self.shape[1], *U.shape[1:]), U)

    def gradient(self, held: ShardState) -> FloatArray:
        """∇F_j as a dense array."""
        if held.n_rows == 0 or self.task.supports("gradient"):
            return self._ask(held, "gradient", self.task.gradient, self.shape)
        if self.task.supports("matvec") and dense_gradient(held.state) is None:
            return self.matvec(held, np.eye(self.shape[1]))
        return _reply(self.task.gradient(held.state), "grad", self.shape)

    def report(self, held: ShardState) -> FloatArray:
        """[F_j(W), ⟨W, ∇F_j(W)⟩], with NaN for what the task does not know."""
        if held.n_rows == 0:
            return np.zeros(2)
        return np.array([self.task.loss(held.state), self.task.inner(held.state)], np.float64)

    def tangent(self, held: ShardState) -> FloatArray:
        """[F_j(W), ⟨W, ∇F_j(W)⟩, ∇F_j V, ∇F_jᵀ U] where W = U diag(s) Vᵀ is what was built from."""
        W = held.built_from
        if W is None:
            raise TypeError("the state must be built from W before its tangent is asked for.")
        size = 2 + W.rank * sum(self.shape)
        if held.n_rows == 0:
            return np.zeros(size)
        reply = self.task.tangent(held.state)
        if reply is not None:
            return _reply(reply, "task.tangent", (size,))
        right, left = self.matvec(held, W.V), self.rmatvec(held, W.U)
        value, inner = self.report(held)
        if np.isnan(inner):
            inner = np.vdot(W.U * W.s, right)
        return np.concatenate([[value, inner], right.ravel(), left.ravel()])

    def balance(self, held: ShardState) -> FloatArray:
        """[F_j, ⟨S, R⟩, Σ weights, Rᵀ1]: the last is the gradient in the intercept."""
        return self._ask(held, "balance", self.task.balance, (3 + self.shape[1],))

    def linesearch(
        self, held: ShardState, scale: float, u: Array, v: Array, gamma: float
    ) -> FloatArray:
        """[φ_j'(γ), φ_j''(γ)] along the segment from W to the atom."""
        return self._ask(
            held, "linesearch", self.task.linesearch, (2,), RankOne(scale, u, v), gamma
        )

    def curvature_product(self, held: ShardState, U: Array) -> FloatArray:
        """H U with ∇²F_j ⪯ I ⊗ H."""
        return self._ask(held, "curvature_product", self.task.curvature_product, U.shape, U)

    def local_pair(self, held: ShardState, seed: int) -> FloatArray:
        """The top singular pair (u_j, v_j) of ∇F_j, one behind the other; zeros if ∇F_j = 0."""
        d, m = self.shape
        start = np.random.default_rng(seed).standard_normal(m)
        if held.n_rows == 0:
            return np.zeros(d + m)
        process = GolubKahan(lambda v: self.matvec(held, v), lambda u: self.rmatvec(held, u), start)
        sigma, previous = 0.0, -1.0
        while sigma - previous > _LOCAL_PAIR_TOLERANCE * sigma and not process.exhausted:
            sigma, previous = float(process.run(_LOCAL_PAIR_STEPS).singular_values()[0]), sigma
        if process.steps == 0:
            return np.zeros(d + m)
        pair = process.top_pair()
        return np.concatenate([pair.u, pair.v])

    def digest(self, shard: Any) -> FloatArray:
        """Sixteen bytes, as numbers, that change if any of the shard's rows do."""
        return np.frombuffer(shard.digest(), np.uint8).astype(np.float64)

    def first_moments(self, shard: Any) -> FloatArray:
        """Sums over the shard's rows that give the means to centre at."""
        return np.asarray(self.task.first_moments(shard))

    def moments(self, shard: Any, *centre: Array) -> FloatArray:
        """The shard's second moments, for tasks that need no more than their sum."""
        return np.asarray(self.task.moments(shard, *centre))

    def squared_norms(self, shard: Any) -> FloatArray:
        """The squared length of every column of X, and of Y."""
        return np.asarray(self.task.squared_norms(shard))

    def fold_moments(
        self, shard: Any, n_folds: int, seed: int, before: Array, fold_of: Array, *centre: Array
    ) -> FloatArray:
        """The second moments of each fold's rows, and last of those that are in none.

        `before` has the number of rows before each shard, `fold_of` each row's fold or nothing.
        """
        first = int(before[shard.index])
        own = fold_of[first : first + shard.n_rows]
        return np.asarray(self.task.fold_moments(shard, n_folds, seed, first, own, *centre))

    def _ask(
        self,
        held: ShardState,
        name: str,
        method: Callable[..., Any],
        shape: tuple[int, ...],
        *args: Any,
    ) -> FloatArray:
        if held.n_rows == 0:
            return np.zeros(shape)
        return _reply(method(held.state, *args), f"task.{name}", shape)


def _not_none(state: Any, method: str) -> Any:
    if state is None:
        raise TypeError(f"task.{method} must return the state, got None.")
    return state


def _reply(value: Any, what: str, shape: tuple[int, ...]) -> FloatArray:
    """Every reply of a round is one dense float64 array; a custom task may err."""
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or array.shape != shape:
        kind = f"shape {array.shape}" if array.dtype.kind in "biuf" else type(value).__name__
        raise TypeError(f"{what} must give a dense real array of shape {shape}, got {kind}.")
    array = array.astype(np.float64, copy=False)
    # Without gaps, as a wire would carry it: BLAS may round differently for another layout.
    return array if array.flags.forc else np.ascontiguousarray(array)
