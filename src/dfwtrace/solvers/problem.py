"""The problem min F(W) over the ball, with the data behind rounds: all that a solver sees."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from dfwtrace._typing import FloatArray, Memory
from dfwtrace.data.shards import Facts
from dfwtrace.engines import Engine, LocalWorkers, Workers
from dfwtrace.linalg.certificate import FAILURE_PROBABILITY, Certificate, certify
from dfwtrace.linalg.golub_kahan import GolubKahan
from dfwtrace.linalg.gradient import GradientOperator
from dfwtrace.linalg.lowrank import LowRankMatrix, RankOne
from dfwtrace.lmo import Constants, Setting
from dfwtrace.solvers.intercept import Intercept
from dfwtrace.solvers.steps import Line
from dfwtrace.tasks import Centre, ShardProgram, Summary, Task
from dfwtrace.tasks.planning import Plan
from dfwtrace.validation import require_finite

# Lanczos steps for σ₁ of the gradient and of the curvature: bounds, so they need not be tight.
_CONSTANTS_STEPS = 12

Product = Callable[[FloatArray], FloatArray]


class Value(NamedTuple):
    """F(W) and ⟨W, ∇F(W)⟩."""

    objective: float
    inner: float


class Tangent(NamedTuple):
    """F(W) and ⟨W, ∇F(W)⟩ with the products ∇F V and ∇Fᵀ U of the gradient and W's own factors."""

    objective: float
    inner: float
    products: FloatArray
    transposed: FloatArray


class Start(NamedTuple):
    """Where a run begins, which is where the shards' states are, and what it aims at."""

    W: LowRankMatrix
    value: Value
    epochs: int
    target: float = 0.0  # the gap aimed at
    first: int = 0  # epochs that a resumed run has behind it
    memory: Memory | None = None  # and what the iterate after them remembered


class Iterate(NamedTuple):
    """What a solver yields after every epoch: W, F(W), ⟨W, ∇F(W)⟩, and how it got there.

    `gap_estimate`, `sigma`, `gamma` and `power_iterations` belong to the step that led to W: the
    oracle saw the gradient where the epoch began. `memory` returns what else continuing needs.
    """

    epoch: int
    W: LowRankMatrix
    objective: float
    inner: float
    gap_estimate: float
    sigma: float
    gamma: float
    power_iterations: int
    memory: Callable[[], Memory] = dict


@dataclass(eq=False, repr=False)
class Problem:
    """min F(W) over ‖W‖_* ≤ radius, on rows that have been examined.

    It gets workers by `start`, and a radius by `prepare_run`, as often as there are runs.
    """

    task: Task[Any]
    rows: Any
    engine: Engine
    plan: Plan
    _: KW_ONLY
    learns_intercept: bool = False  # F is the least over all intercepts
    local: bool = False  # the shards' own gradients are needed, not only their sum
    workers: Workers = field(init=False)
    gradient: GradientOperator = field(init=False)

    def __post_init__(self) -> None:
        facts: Facts = self.rows.facts
        self.shape = facts.shape
        self.precision = self.task.precision(facts.dtype)
        self.digests: Sequence[FloatArray] = ()
        self.summary: Summary | None = None
        self.radius, self.seed, self.objective_at_zero = math.nan, 0, math.nan
        self.intercept: Intercept | None = None
        self._centre: Centre | None = None
        # How a sum over the rows is taken.
        self._form = {"centred": self.learns_intercept, "sparse": facts.sparse}

    # Data to workers

    def start(self, digest: bool = False) -> Problem:
        """Bring the rows to workers. Where F depends on a sum over them, only that is kept."""
        workers = self.engine.start(ShardProgram(self.task, self.shape), self.rows)
        try:
            self.digests = workers.gather("digest") if digest else ()
            summary = self.task.summarise(workers.sum, self.shape, **self._form, local=self.local)
            if summary is not None and summary.shard is not None:
                workers = self._on_driver(summary).continue_from(workers)
            return self._attach(workers, summary)
        except BaseException:
            workers.close()
            raise

    def on(self, rows: Any) -> Problem:
        """The same problem on other rows."""
        return replace(self, rows=rows)

    def fold_sums(self, n_folds: int, seed: int, fold_of: FloatArray) -> tuple[Any, list[int]]:
        """What F depends on, summed over each fold of the rows, and the sizes of the shards."""
        with closing(self.engine.start(ShardProgram(self.task, self.shape), self.rows)) as workers:
            shard_rows = workers.shard_rows
            before = np.concatenate([[0.0], np.cumsum(shard_rows)[:-1]])
            cut = n_folds, seed, before, fold_of
            sums = self.task.summarise_folds(workers.sum, self.shape, **self._form, cut=cut)
        return sums, shard_rows

    def summed(self, summary: Summary, shard_rows: list[int]) -> Problem:
        """The problem on the rows of a sum that is known already, with workers."""
        return self.on(self.rows)._attach(self._on_driver(summary, shard_rows), summary)

    def _on_driver(self, summary: Summary, shard_rows: list[int] | None = None) -> LocalWorkers:
        program = ShardProgram(self.task, self.shape)
        return LocalWorkers(program, [summary.shard], shard_rows=shard_rows)

    def _attach(self, workers: Workers, summary: Summary | None) -> Problem:
        self.workers, self.summary = workers, summary
        if summary is not None:
            self._centre = summary.centre
        elif self.learns_intercept:
            sums = workers.sum("first_moments")
            if not sums[-1] > 0.0:
                raise ValueError("sample_weight must not be zero for all rows.")
            self._centre = Centre(sums[:-1] / sums[-1], np.zeros(self.shape[1]))
        return self

    def close(self) -> None:
        """Let the workers go."""
        self.workers.close()

    # One run

    def prepare_run(self, radius: float, seed: int) -> None:
        """Set the ball, and forget what an earlier run counted and learned."""
        if not math.isnan(self.radius):
            self.workers.reset_accounting()
        self.gradient = GradientOperator(self.shape, self.workers)
        self.radius, self.seed, self.objective_at_zero = radius, seed, math.nan
        self.intercept = None
        if self._centre is not None and self.summary is None:
            self.intercept = Intercept(
                self.workers, self._centre.x, self.shape[1], self.task.smoothness, self.precision
            )

    def begin(self, W: LowRankMatrix) -> Value:
        """Go to W, by way of F(0), which tolerances and rounding errors are relative to."""
        zero = LowRankMatrix.zeros(self.shape)
        self.restart(zero)
        value = self.evaluate(zero)
        self.objective_at_zero = value.objective
        if W.rank == 0:
            return value
        self.restart(W)
        return self.evaluate(W)

    def memory(self) -> Memory:
        """What a resumed run must know: also where the shards' states are."""
        return {
            "objective_at_zero": self.objective_at_zero,
            "expected": self.gradient.expected,
            "intercept": None if self.intercept is None else self.intercept.memory(),
            "workers": self.workers.memory(),
        }

    def restore(self, memory: Memory) -> None:
        self.objective_at_zero = memory["objective_at_zero"]
        self.gradient.expected = memory["expected"]
        if self.intercept is not None:
            self.intercept.restore(memory["intercept"])
        self.workers.restore(memory["workers"])

    def restart(self, W: LowRankMatrix) -> None:
        """Build every shard's state from W: line 3, a warm start, a recovery."""
        shift = () if self.intercept is None else (self.intercept.b, self.intercept.centre)
        self.workers.build("stats", W.U, W.s, W.V, *shift)
        if self.intercept is not None:
            self.intercept.settle()

    def update(self, atom: RankOne, gamma: float) -> None:
        """Move every shard's state to (1-γ) W + γ atom, and announce the next product."""
        expected, self.gradient.expected = self.gradient.expected or (), None
        self.workers.apply("update", atom.scale, atom.u, atom.v, gamma, *expected)
        if self.intercept is not None:
            self.intercept.settle()

    def evaluate(self, W: LowRankMatrix) -> Value:
        """F and ⟨W, ∇F⟩ at W, which must be where the shards' states are."""
        if self.intercept is not None:
            return Value(self.intercept.objective, self.intercept.inner)
        objective, inner = (float(x) for x in self.workers.sum("report"))
        if self.task.supports("loss"):
            require_finite(objective, "the objective")
        if math.isnan(inner):  # the task does not know: ⟨W, G⟩ = Σ s_i u_iᵀ G v_i
            inner = float(np.vdot(W.U * W.s, self.gradient.times(W.V))) if W.rank else 0.0
        return Value(objective, require_finite(inner, "the objective's slope"))

    def tangent(self, W: LowRankMatrix) -> Tangent:
        """Go to W, in two rounds: F there, and its gradient along W's own factors U and V."""
        self.restart(W)
        d, m = self.shape
        reply = require_finite(self.workers.sum("tangent"), "the objective or its gradient")
        products, transposed = np.split(reply[2:], [d * W.rank])
        shapes = products.reshape(d, W.rank), transposed.reshape(m, W.rank)
        return Tangent(float(reply[0]), float(reply[1]), *shapes)

    def line(self, atom: RankOne) -> Line:
        """F along the segment from W to the atom."""

        def derivatives(gamma: float) -> tuple[float, float]:
            reply = self.workers.sum("linesearch", atom.scale, atom.u, atom.v, gamma)
            slope, curvature = require_finite(reply, "the objective's slope or curvature")
            return float(slope), float(curvature)

        return Line(derivatives, self.task.quadratic)

    @property
    def b(self) -> FloatArray | None:
        """The intercept that belongs to the present W and to centred rows, if there is one."""
        return None if self.intercept is None else self.intercept.b

    def intercept_of(self, W: LowRankMatrix, b: FloatArray | None) -> FloatArray | None:
        """(X - 1x̄ᵀ)W + 1b'ᵀ = XW + 1bᵀ with b = b' - Wᵀx̄; where Y is centred too, b' is ȳ."""
        if self._centre is None:
            return None
        centred = self._centre.intercept(W)
        return centred if b is None else centred + b

    @contextmanager
    def counted_for_oracle(self) -> Iterator[None]:
        """Rounds within are the oracle's, which the paper's table counts."""
        self.workers.count_for_oracle(True)
        try:
            yield
        finally:
            self.workers.count_for_oracle(False)

    def certificate(
        self,
        W: LowRankMatrix,
        inner: float,
        wanted: float = 0.0,
        failure_probability: float = FAILURE_PROBABILITY,
        near: FloatArray | None = None,
    ) -> Certificate:
        """A true upper bound of F(W) - F* at the present W; see `certify`."""
        scale = 0.0 if math.isnan(self.objective_at_zero) else abs(self.objective_at_zero)
        if self.summary is not None:
            scale = max(scale, self.summary.rounding(W, self.radius))
            near = None  # the dense gradient is at hand
        return certify(
            self.gradient, inner, self.radius, near=near, precision=self.precision, scale=scale,
            seed=self.seed, wanted=wanted, failure_probability=failure_probability,
        )  # fmt: skip

    def curvature_times(self, U: FloatArray) -> FloatArray:
        """H U, where ∇²F ⪯ I ⊗ H."""
        return self.workers.sum("curvature_product", U)

    def setting(self) -> Setting:
        """What the oracle may know."""
        return Setting(self.radius, self.shape, self.seed, self._constants)

    def _constants(self) -> Constants:
        """Bounds of L and C_F that hold over the whole ball."""
        # With ∇²F ⪯ λ I: C_F ≤ λ·diam² = 4 λ μ² (the ball's Frobenius diameter is 2μ), and
        # σ₁(∇F(W)) ≤ σ₁(∇F(W₀)) + 2 λ μ.
        rng = np.random.default_rng([self.seed, 0xC0])

        def bound(times: Product, transpose_times: Product, size: int) -> float:
            process = GolubKahan(times, transpose_times, rng.standard_normal(size))
            return process.run(_CONSTANTS_STEPS).upper_bound(FAILURE_PROBABILITY)

        G, H = self.gradient, self.curvature_times
        largest = bound(H, H, self.shape[0])
        lipschitz = bound(G.times, G.transpose_times, self.shape[1]) + 2.0 * largest * self.radius
        return Constants(lipschitz, 4.0 * largest * self.radius * self.radius)
