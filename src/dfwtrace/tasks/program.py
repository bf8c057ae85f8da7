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
    """A shard's state and its number of rows; an empty shard has no state and answers zero."""

    n_rows: int
    state: Any


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

    def stats(self, shard: Any, U: Array, s: Array, V: Array) -> Held:
        if shard.n_rows == 0:
            return Held(0, None)
        return self._held(shard.n_rows, self.task.stats(shard, LowRankMatrix(U, s, V)), "stats")

    def update(
        self, held: Held, scale: float, u: Array, v: Array, gamma: float, *expected: int
    ) -> Held:
        """Move to (1-γ) W + γ·scale·uvᵀ; `expected` (seed, t) tells the v₀ that comes next."""
        if held.n_rows == 0:
            return held
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

    def moments(self, shard: Any) -> FloatArray:
        """The shard's second moments, for tasks that need no more than their sum."""
        moments: FloatArray = self.task.moments(shard)
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
