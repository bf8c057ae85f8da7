"""A task as a worker runs it: called by name, arrays and numbers in, one array out."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dfwtrace._typing import Array, FloatArray
from dfwtrace.data.shards import Folds, Shard
from dfwtrace.linalg.golub_kahan import GolubKahan, uniform_on_sphere
from dfwtrace.linalg.gradient import divide_rows
from dfwtrace.linalg.lowrank import LowRankMatrix, RankOne
from dfwtrace.tasks.task import Representation, Task, dense_gradient
from dfwtrace.validation import as_number

# A worker's own top pair is iterated until it changes by less than this, relatively.
_LOCAL_PAIR_TOLERANCE, _LOCAL_PAIR_STEPS = 1e-9, 10
_OPTIONAL = ("expect", "gradient", "matvec", "renew", "rmatvec")


class ShardState(NamedTuple):
    """A task's state on a shard of `n_rows` rows; None on an empty shard, which adds zero."""

    n_rows: int
    state: Any
    built_from: LowRankMatrix | None = None  # W, until the first update
    held_out: Shard | None = None  # rows of the shard that the state leaves out


class ShardProgram:
    """What engines run on each shard, by these names; a task never sees an empty shard."""

    def __init__(self, task: Task[Any], shape: tuple[int, int]) -> None:
        self.task: Any = task
        self.shape = shape
        self.name = class_name(task)  # of errors
        # Asked once: a round may take no longer than the question.
        self._own = {name for name in _OPTIONAL if task.supports(name)}
        self.reuses_memory = "renew" in self._own  # builds a state in the memory of the last one

    def stats(
        self, shard: Shard, U: Array, s: Array, V: Array, *b: Array, old: object = None
    ) -> ShardState:
        """The state at W, with an intercept, the point to centre X at and its scale, if any."""
        W, state, method = LowRankMatrix(U, s, V), None, "stats"
        if shard.n_rows and isinstance(old, ShardState) and old.n_rows == shard.n_rows:
            state, method = self.task.renew(old.state, shard, W, *b[:1]), "renew"
        elif shard.n_rows:
            state = self.task.stats(shard, W, *b)
        return self._at(shard.n_rows, state, method, W)

    def update(
        self, held: ShardState, scale: float, u: Array, v: Array, gamma: float, *expected: int
    ) -> ShardState:
        """Move to (1-γ) W + γ·scale·uvᵀ; `expected` (seed, t) determines the v₀ that follows."""
        state = held.state
        if held.n_rows and expected and "expect" in self._own:
            state = self.task.expect(state, uniform_on_sphere(self.shape[1], *expected))
        if held.n_rows:
            state = self.task.update(state, RankOne(scale, u, v), gamma)
        return self._at(held.n_rows, state, "update")._replace(held_out=held.held_out)

    def shift(self, held: ShardState, b: Array) -> ShardState:
        return held._replace(state=self.task.shift(held.state, b)) if held.n_rows else held

    def matvec(self, held: ShardState, V: Array) -> FloatArray:
        if held.n_rows and "matvec" not in self._own:
            return self.gradient(held) @ V
        return self._ask(held, "matvec", self.task.matvec, (self.shape[0], *V.shape[1:]), V)

    def rmatvec(self, held: ShardState, U: Array) -> FloatArray:
        if held.n_rows and "rmatvec" not in self._own:
            return self.gradient(held).T @ U
        return self._ask(held, "rmatvec", self.task.rmatvec, (self.shape[1], *U.shape[1:]), U)

    def gradient(self, held: ShardState) -> FloatArray:
        if held.n_rows == 0 or "gradient" in self._own:
            return self._ask(held, "gradient", self.task.gradient, self.shape)
        if "matvec" in self._own and dense_gradient(held.state) is None:
            return self.matvec(held, np.eye(self.shape[1]))
        return _reply(self.task.gradient(held.state), f"grad in {self.name}'s state", self.shape)

    def report(self, held: ShardState) -> FloatArray:
        """[F_j(W), ⟨W, ∇F_j(W)⟩], with NaN for what the task does not know."""
        if held.n_rows == 0:
            return np.zeros(2)
        return np.array([self._number("loss", held.state), self._number("inner", held.state)])

    def tangent(self, held: ShardState) -> FloatArray:
        """[F_j(W), ⟨W, ∇F_j(W)⟩, ∇F_j V, ∇F_jᵀ U, columns], W = U diag(s) Vᵀ as it was built from.

        The columns of scores are zeros where the task does not know of any.
        """
        W = held.built_from
        if W is None:
            raise TypeError("the state must be built from W before its tangent is asked for.")
        size, unknown = 2 + W.rank * sum(self.shape), np.zeros(1 + 2 * self.shape[1])
        if held.n_rows == 0:
            return np.zeros(size + unknown.size)
        reply = self.task.tangent(held.state)
        if reply is not None:
            name, reply = f"{self.name}.tangent", np.asarray(reply)
            if reply.shape != (size + unknown.size,):
                reply = np.concatenate([_reply(reply, name, (size,)), unknown])
            return _reply(reply, name, (size + unknown.size,))
        right, left = self.matvec(held, W.V), self.rmatvec(held, W.U)
        value, inner = self.report(held)
        if np.isnan(inner):
            inner = np.vdot(W.U * W.s, right)
        columns = self.balance(held)[2:] if self.task.supports("balance") else unknown
        return np.concatenate([[value, inner], right.ravel(), left.ravel(), columns])

    def balance(self, held: ShardState) -> FloatArray:
        """[F_j, ⟨S, R⟩, Σ weights, Rᵀ1, c]: the gradient in the intercept, and its curvature."""
        return self._ask(held, "balance", self.task.balance, (3 + 2 * self.shape[1],))

    def imbalance(self, held: ShardState, b: Array) -> FloatArray:
        """What the loss takes to find how b should move from there; see `Loss.correction`."""
        size = self.task.loss_on_scores.imbalance_size(self.shape[1])
        return self._ask(held, "imbalance", self.task.imbalance, (size,), b)

    def excess(self, held: ShardState, b: Array, change: Array, *scale: Array) -> FloatArray:
        """[Σ D_i, ⟨S, Δ⟩, Σ ‖x_i‖‖Δ_i‖]: what a change of the residual adds to the gap."""
        return self._ask(held, "excess", self.task.excess, (3,), b, change, *scale)

    def linesearch(
        self, held: ShardState, scale: float, u: Array, v: Array, gamma: float
    ) -> FloatArray:
        """[φ_j'(γ), φ_j''(γ)] along the segment from W to the atom."""
        atom = RankOne(scale, u, v)
        return self._ask(held, "linesearch", self.task.linesearch, (2,), atom, gamma)

    def curvature_product(self, held: ShardState, U: Array) -> FloatArray:
        return self._ask(held, "curvature_product", self.task.curvature_product, U.shape, U)

    def second_moments(self, held: ShardState) -> FloatArray:
        d = self.shape[0]
        return self._ask(held, "second_moments", self.task.second_moments, (d, d))

    def squared_lengths(self, held: ShardState) -> FloatArray:
        return self._ask(held, "squared_lengths", self.task.squared_lengths, self.shape[:1])

    def local_pair(
        self, held: ShardState, seed: int, scale: FloatArray | None = None
    ) -> FloatArray:
        """The top singular pair (u_j, v_j) of ∇F_j, one behind the other; zeros if ∇F_j = 0.

        With a scale, that of diag(1/scale) ∇F_j.
        """
        d, m = self.shape
        start = np.random.default_rng(seed).standard_normal(m)
        if held.n_rows == 0:
            return np.zeros(d + m)
        process = GolubKahan(
            lambda v: divide_rows(self.matvec(held, v), scale),
            lambda u: self.rmatvec(held, divide_rows(u, scale)),
            start,
        )
        sigma, previous = 0.0, -1.0
        while sigma - previous > _LOCAL_PAIR_TOLERANCE * sigma and not process.exhausted:
            sigma, previous = float(process.run(_LOCAL_PAIR_STEPS).singular_values()[0]), sigma
        if process.steps == 0:
            return np.zeros(d + m)
        pair = process.top_pair()
        return np.concatenate([pair.u, pair.v])

    def digest(self, shard: Shard) -> FloatArray:
        """Sixteen bytes, as numbers, that change if any of the shard's rows do."""
        return np.frombuffer(shard.digest(), np.uint8).astype(np.float64)

    # Sums over a shard's rows, as the task defines them

    def first_moments(self, shard: Shard) -> FloatArray:
        return np.asarray(self.task.first_moments(shard))

    def class_weights(self, shard: Shard) -> FloatArray:
        return np.asarray(self.task.class_weights(shard, self.shape[1]))

    def deviations(self, shard: Shard, centre: Array) -> FloatArray:
        return np.asarray(self.task.deviations(shard, centre))

    def moments(self, shard: Shard, *centre: Array) -> FloatArray:
        return np.asarray(self.task.moments(shard, *centre))

    def squared_norms(self, shard: Shard) -> FloatArray:
        return np.asarray(self.task.squared_norms(shard))

    def _ask(
        self, held: ShardState, name: str, method: Any, shape: tuple[int, ...], *args: object
    ) -> FloatArray:
        if held.n_rows == 0:
            return np.zeros(shape)
        return _reply(method(held.state, *args), f"{self.name}.{name}", shape)

    def _number(self, name: str, state: object) -> float:
        method = getattr(self.task, name)
        value = np.nan if method is None else method(state)  # None takes a method away
        return as_number(value, f"{self.name}.{name}")

    def _at(
        self, n_rows: int, state: object, method: str, W: LowRankMatrix | None = None
    ) -> ShardState:
        if n_rows and state is None:
            raise TypeError(f"{self.name}.{method} must return the state, got None.")
        return ShardState(n_rows, state, W)


class FoldProgram(ShardProgram):
    """The same, and states that leave out the rows of a fold, for validation on these."""

    def __init__(self, task: Task[Any], shape: tuple[int, int], folds: Folds) -> None:
        super().__init__(task, shape)
        self._folds = folds
        # By shard: the fold that was left out last, and the rows outside and inside of it.
        self._parts: dict[int, tuple[int, Shard, Shard]] = {}

    def stats(
        self, shard: Shard, U: Array, s: Array, V: Array, *b: Array, old: object = None
    ) -> ShardState:
        self._parts.pop(shard.index, None)  # copies of its rows, needed no longer
        return super().stats(shard, U, s, V, *b, old=old)

    def stats_without(
        self, shard: Shard, fold: int, before: Array, *at: Array, old: object = None
    ) -> ShardState:
        """The state at W on the rows outside a fold; `before` counts the rows before each shard."""
        if self._parts.get(shard.index, (None,))[0] != fold:
            fold_of = self.fold_of(shard, before)
            outside, inside = (
                Shard(shard.index, shard.X[rows], None if shard.y is None else shard.y[rows])
                for rows in (np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold))
            )
            self._parts[shard.index] = int(fold), outside, inside
        _, outside, inside = self._parts[shard.index]
        same = isinstance(old, ShardState) and old.held_out is inside
        state = super().stats(outside, *at, old=old if same else None)
        return state._replace(held_out=inside)

    def held_out_loss(
        self, held: ShardState, U: Array, s: Array, V: Array, *b: Array
    ) -> FloatArray:
        """[Σ loss, Σ weights] of the rows left out, at W and b."""
        rows = held.held_out
        if rows is None or not rows.n_rows:
            return np.zeros(2)
        state = self.task.stats(rows, LowRankMatrix(U, s, V), *b)
        weight = rows.targets[:, 0].sum() if self.task.weighted else rows.n_rows
        return np.array([self.task.loss(state), weight], np.float64)

    def fold_moments(self, shard: Shard, before: Array, *centre: Array) -> FloatArray:
        fold_of = self.fold_of(shard, before)
        return np.asarray(self.task.fold_moments(shard, fold_of, self._folds.n_folds, *centre))

    def class_sizes(self, shard: Shard) -> FloatArray:
        """How many rows of each class weigh something; of all rows, if there are no classes."""
        classes = self._classes(shard)
        return np.bincount(classes[classes >= 0], minlength=self._folds.n_classes).astype(float)

    def fold_of(self, shard: Shard, before: Array) -> Array:
        """The fold of every row; `before` counts the rows before each shard, perhaps by class."""
        own = before[shard.index]
        if self._folds.share is None:
            return self._folds.of(shard, int(own))
        return self._folds.by_class(shard, own, self._classes(shard))

    def _classes(self, shard: Shard) -> Array:
        """The class of every row, negative where it weighs nothing; 0 if there are no classes."""
        y, classes = shard.targets, np.zeros(shard.n_rows, np.int64)
        if self._folds.n_classes > 1:
            classes = (y[:, -1] if y.ndim == 2 else y).astype(np.int64)
        return np.where(y[:, 0] > 0.0, classes, -1) if self.task.weighted else classes


def class_name(task: Task[Any]) -> str:
    """The name of the class that has the task's methods, as its author knows it."""
    return type(task if isinstance(task, Representation) else task.identity).__name__


def _reply(value: object, what: str, shape: tuple[int, ...]) -> FloatArray:
    """Every reply of a round is one dense float64 array; a custom task may err."""
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or array.shape != shape:
        kind = f"shape {array.shape}" if array.dtype.kind in "biuf" else type(value).__name__
        raise TypeError(f"{what} must give a dense real array of shape {shape}, got {kind}.")
    array = array.astype(np.float64, copy=False)
    # Without gaps, as a wire would carry it: BLAS may round differently for another layout.
    return array if array.flags.forc else np.ascontiguousarray(array)
