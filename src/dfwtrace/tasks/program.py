"""A task as a worker runs it: called by name, arrays and numbers in, one array out."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dfwtrace._typing import Array, FloatArray
from dfwtrace.lanczos import GolubKahan
from dfwtrace.lowrank import LowRankMatrix, RankOne
from dfwtrace.sphere import uniform_on_sphere
from dfwtrace.tasks.task import dense_gradient

# A worker's own top pair is iterated until it changes by less than this, relatively.
_LOCAL_PAIR_TOLERANCE = 1e-9
_LOCAL_PAIR_STEPS = 10


class Held(NamedTuple):
    """A shard's state and its number of rows; an empty shard has no state and answers zero.

    `built_from` is the W that the state was built from, as long as it is there.
    """

    n_rows: int
    state: Any
    built_from: LowRankMatrix | None = None


class ShardProgram:
    """What engines run on each shard. They know these names and nothing of tasks.

    Empty shards are answered here, so that a task never sees one.
    """

    def __init__(self, task: Any, shape: tuple[int, int]) -> None:
        self.task = task
        self.shape = shape

    def _held(self, n_rows: int, state: Any, method: str) -> Held:
        if state is None:
            raise TypeError(f"task.{method} must return the state, got None.")
        return Held(n_rows, state)

    @property
    def reuses_memory(self) -> bool:
        """Whether a state can be built in the memory of one that is not needed any more."""
        return hasattr(self.task, "renew")

    def stats(self, shard: Any, U: Array, s: Array, V: Array, *b: Array, old: Any = None) -> Held:
        """The state at W, with an intercept and the point to centre X at, if there are any."""
        W = LowRankMatrix(U, s, V)
        if shard.n_rows == 0:
            return Held(0, None, W)
        if isinstance(old, Held):
            state = self.task.renew(old.state, shard, W, *b)
            return self._held(shard.n_rows, state, "renew")._replace(built_from=W)
        state = self.task.stats(shard, W, *b)
        return self._held(shard.n_rows, state, "stats")._replace(built_from=W)

    def shift(self, held: Held, b: Array) -> Held:
        """The state at another intercept."""
        if held.n_rows == 0:
            return held
        return held._replace(state=self.task.shift(held.state, b))

    def balance(self, held: Held) -> FloatArray:
        """[F_j, ⟨S, R⟩, Σ weights, Rᵀ1]: the last is the gradient in the intercept."""
        if held.n_rows == 0:
            return np.zeros(3 + self.shape[1])
        balance: FloatArray = self.task.balance(held.state)
        return balance

    def update(
        self, held: Held, scale: float, u: Array, v: Array, gamma: float, *expected: int
    ) -> Held:
        """Move to (1-γ) W + γ·scale·uvᵀ; `expected` (seed, t) tells the v₀ that comes next."""
        if held.n_rows == 0:
            return Held(0, None)
        state = held.state
        if expected and hasattr(self.task, "expect"):
            state = self.task.expect(state, uniform_on_sphere(self.shape[1], *expected))
        state = self.task.update(state, RankOne(scale, u, v), gamma)
        return self._held(held.n_rows, state, "update")

    def matvec(self, held: Held, V: Array) -> FloatArray:
        """∇F_j V for a vector or a block of vectors."""
        if held.n_rows == 0:
            return np.zeros((self.shape[0], *V.shape[1:]))
        if hasattr(self.task, "matvec"):
            shape = (self.shape[0], *V.shape[1:])
            return _reply(self.task.matvec(held.state, V), "task.matvec", shape)
        return self.gradient(held) @ V

    def rmatvec(self, held: Held, U: Array) -> FloatArray:
        """∇F_jᵀ U for a vector or a block of vectors."""
        if held.n_rows == 0:
            return np.zeros((self.shape[1], *U.shape[1:]))
        if hasattr(self.task, "rmatvec"):
            shape = (self.shape[1], *U.shape[1:])
            return _reply(self.task.rmatvec(held.state, U), "task.rmatvec", shape)
        return self.gradient(held).T @ U

    def gradient(self, held: Held) -> FloatArray:
        """∇F_j as a dense array."""
        if held.n_rows == 0:
            return np.zeros(self.shape)
        if hasattr(self.task, "gradient"):
            return _reply(self.task.gradient(held.state), "task.gradient", self.shape)
        gradient = dense_gradient(held.state)
        if gradient is not None:
            return _reply(gradient, "grad", self.shape)
        if not hasattr(self.task, "matvec"):
            raise TypeError("task has neither matvec and rmatvec nor a state with a dense `grad`.")
        return self.matvec(held, np.eye(self.shape[1]))

    def report(self, held: Held) -> FloatArray:
        """[F_j(W), ⟨W, ∇F_j(W)⟩], with NaN for what the task does not tell."""
        if held.n_rows == 0:
            return np.zeros(2)
        return np.array(
            [
                self.task.loss(held.state) if hasattr(self.task, "loss") else np.nan,
                self.task.inner(held.state) if hasattr(self.task, "inner") else np.nan,
            ],
            dtype=np.float64,
        )

    def tangent(self, held: Held) -> FloatArray:
        """[F_j(W), ⟨W, ∇F_j(W)⟩, ∇F_j V, ∇F_jᵀ U] where W = U diag(s) Vᵀ is what was built from."""
        W = held.built_from
        if W is None:
            raise TypeError("the state must be built from W before its tangent is asked for.")
        if held.n_rows == 0:
            return np.zeros(2 + W.rank * sum(self.shape))
        reply = self.task.tangent(held.state) if hasattr(self.task, "tangent") else None
        if reply is not None:
            return _reply(reply, "task.tangent", (2 + W.rank * sum(self.shape),))
        right, left = self.matvec(held, W.V), self.rmatvec(held, W.U)
        value, inner = self.report(held)
        if np.isnan(inner):
            inner = np.vdot(W.U * W.s, right)
        return np.concatenate([[value, inner], right.ravel(), left.ravel()])

    def linesearch(self, held: Held, scale: float, u: Array, v: Array, gamma: float) -> FloatArray:
        """[φ_j'(γ), φ_j''(γ)] along the segment from W to the atom."""
        if held.n_rows == 0:
            return np.zeros(2)
        derivatives = self.task.linesearch(held.state, RankOne(scale, u, v), gamma)
        return _reply(derivatives, "task.linesearch", (2,))

    def curvature_product(self, held: Held, U: Array) -> FloatArray:
        if held.n_rows == 0:
            return np.zeros_like(U)
        product = self.task.curvature_product(held.state, U)
        return _reply(product, "task.curvature_product", U.shape)

    def local_pair(self, held: Held, seed: int) -> FloatArray:
        """The top singular pair (u_j, v_j) of ∇F_j, one behind the other; zeros if ∇F_j = 0."""
        d, m = self.shape
        start = np.random.default_rng(seed).standard_normal(m)
        if held.n_rows == 0:
            return np.zeros(d + m)
        process = GolubKahan(lambda v: self.matvec(held, v), lambda u: self.rmatvec(held, u), start)
        previous = 0.0
        while not process.run(_LOCAL_PAIR_STEPS).exhausted:
            sigma = float(process.singular_values()[0])
            if sigma - previous <= _LOCAL_PAIR_TOLERANCE * sigma:
                break
            previous = sigma
        if process.steps == 0:
            return np.zeros(d + m)
        pair = process.top_pair()
        return np.concatenate([pair.u, pair.v])

    def digest(self, shard: Any) -> FloatArray:
        """Sixteen bytes, as numbers, that change if any of the shard's rows do."""
        return np.frombuffer(shard.digest(), np.uint8).astype(np.float64)

    def first_moments(self, shard: Any) -> FloatArray:
        """[Σ x, Σ y, Σ 1] over the shard's rows, times their weights; Σ y if it has a meaning."""
        moments: FloatArray = self.task.first_moments(shard)
        return moments

    def moments(self, shard: Any, *centre: Array) -> FloatArray:
        """The shard's second moments, for tasks that need no more than their sum."""
        moments: FloatArray = self.task.moments(shard, *centre)
        return moments

    def fold_moments(
        self, shard: Any, n_folds: int, seed: int, before: Array, fold_of: Array, *centre: Array
    ) -> FloatArray:
        """The second moments of each fold's rows, and last of those that are in none.

        `before` has the number of rows before each shard, `fold_of` each row's fold or nothing.
        """
        first = int(before[shard.index])
        own = fold_of[first : first + shard.n_rows]
        moments: FloatArray = self.task.fold_moments(shard, n_folds, seed, first, own, *centre)
        return moments


def _reply(value: Any, what: str, shape: tuple[int, ...]) -> FloatArray:
    """Every reply of a round is one dense float64 array; a task of one's own may err."""
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or array.shape != shape:
        kind = f"shape {array.shape}" if array.dtype.kind in "biuf" else type(value).__name__
        raise TypeError(f"{what} must give a dense real array of shape {shape}, got {kind}.")
    array = array.astype(np.float64, copy=False)
    # Without gaps, as a wire would carry it: BLAS may round differently for another layout.
    return array if array.flags.forc else np.ascontiguousarray(array)
