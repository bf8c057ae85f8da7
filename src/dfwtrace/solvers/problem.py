"""The problem min F(W) over the ball, with the data behind rounds: all that a solver sees."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dfwtrace._typing import FloatArray, Memory
from dfwtrace.data.shards import Folds
from dfwtrace.engines import Engine, LocalWorkers, Workers
from dfwtrace.linalg.certificate import FAILURE_PROBABILITY, Certificate, certify
from dfwtrace.linalg.golub_kahan import GolubKahan
from dfwtrace.linalg.gradient import GradientOperator, divide_rows
from dfwtrace.linalg.lowrank import LowRankMatrix, RankOne
from dfwtrace.lmo import Constants
from dfwtrace.solvers.intercept import Intercept
from dfwtrace.solvers.steps import Line
from dfwtrace.tasks.planning import Plan
from dfwtrace.tasks.program import FoldProgram, ShardProgram
from dfwtrace.tasks.task import (
    Centre,
    Columns,
    Representation,
    Summary,
    Task,
    standard_deviations,
)
from dfwtrace.validation import require_finite

# Numbers of a custom task may contradict each other by this share, or by this many times the
# precision of the data: it may compute in float32, and add up many rows one after the other.
_ALLOWANCE, _TIMES_PRECISION = 1e-5, 100.0
# Slopes of opposite signs count where they are more than this share of what they are made of:
# near the optimum that is all cancellation, and a sign that is wrong shows at once at W = 0.
_CLEARLY = 0.5
_FLATTEST = 1e-6  # a column of scores counts as curved at least this share of the most curved one
_CONSTANTS_STEPS = 12  # of Golub-Kahan: bounds of the constants need not be tight


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
    columns: Columns


class Start(NamedTuple):
    """Where a run begins, which is where the shards' states are, and what it aims at."""

    W: LowRankMatrix
    value: Value
    epochs: int
    target: float = 0.0  # the gap aimed at
    first: int = 0  # epochs that a resumed run has behind it
    memory: Memory | None = None  # and what the iterate after them remembered


class Iterate(NamedTuple):
    """What a solver yields after every epoch: W, F(W), ⟨W, ∇F(W)⟩, and how it got there."""

    epoch: int
    W: LowRankMatrix
    objective: float
    inner: float
    gap_estimate: float  # this and all below belong to the step from the last W to this one
    sigma: float
    gamma: float
    power_iterations: int
    memory: Callable[[], Memory] = dict  # returns what else continuing needs


@dataclass(eq=False, repr=False)
class Problem:
    """min F(W) over ‖W‖_* ≤ radius: `start` brings workers, and each `prepare_run` a radius.

    If it is to `standardize`, W is that of features divided by their `scale`. Only here and in the
    gradient: what shards are sent are rows of W divided by it, in the user's units.
    """

    task: Task[Any]
    rows: Any
    engine: Engine
    plan: Plan
    _: KW_ONLY
    learns_intercept: bool = False  # F is the least over all intercepts
    standardize: bool = False
    scale: FloatArray | None = None  # that of all rows, also where the problem is on some of them
    workers: Workers = field(init=False)
    gradient: GradientOperator = field(init=False)

    def __post_init__(self) -> None:
        facts = self.rows.facts
        self.shape: tuple[int, int] = facts.shape
        self.precision = self.task.precision(facts.dtype)
        self._allowance = max(_ALLOWANCE, _TIMES_PRECISION * self.precision)
        self.digests: Sequence[FloatArray] = ()
        self.summary: Summary | None = None
        self.radius, self.seed, self.objective_at_zero = math.nan, 0, math.nan
        self.intercept: Intercept | None = None
        self._centre: Centre | None = None
        self._sums: Any = None  # over each fold of the rows, where F depends on sums
        self._fold: int | None = None  # whose rows the shards' states leave out
        self._before = np.zeros(1)  # rows before each shard
        # What earlier runs have found at W = 0, by the fold that was left out, and their last b.
        self._at_zero: dict[int | None, tuple[float, Memory | None]] = {}
        self._last_b: dict[int | None, FloatArray] = {}
        self._has_loss = self.task.supports("loss")
        # A compiled loss is ours, and right; whatever a user wrote may be wrong.
        loss = getattr(self.task, "loss_on_scores", None)
        self._own = loss is not None and loss.kernel is not None
        self._program = ShardProgram(self.task, self.shape)
        self._form = {"centred": self.learns_intercept, "sparse": facts.sparse}  # of sums over rows

    def start(self, digest: bool = False, folds: Folds | None = None) -> Problem:
        """Bring the rows to workers. Where F depends on a sum over them, only that is kept."""
        task, program = self.task, self._program
        if folds is not None:
            program = FoldProgram(task, self.shape, folds)
        workers = self.engine.start(program, self.rows)
        try:
            self.digests = workers.gather("digest") if digest else ()
            self._before = np.concatenate([[0.0], np.cumsum(workers.shard_rows)[:-1]])
            if folds is not None and folds.share is not None:
                self._before = folds.places(np.array(workers.gather("class_sizes")))
            self._find_scale(workers)
            local = self.plan.workload.local  # the shards' own gradients are needed
            summary = None
            # Shards that learn without the first fold to the end must stay what they are.
            stay = local and folds is not None and folds.share is not None
            if folds is not None and task.supports("summarise_folds") and not stay:
                cut = folds.n_folds, self._before
                self._sums = task.summarise_folds(workers.sum, self.shape, **self._form, cut=cut)
                summary = None if local else self._sums.summary()
            if summary is None:
                summary = task.summarise(workers.sum, self.shape, **self._form, local=local)
            if summary is not None and summary.shard is not None:
                workers = LocalWorkers(self._program, [summary.shard]).continue_from(workers)
            return self._attach(workers, summary)
        except BaseException:
            workers.close()
            raise

    def without(self, fold: int | None) -> Problem:
        """The problem on the rows outside a fold, which is this one from now on if it has no sums.

        With None it is that on all rows.
        """
        if self.intercept is not None:
            self._last_b[self._fold] = self.intercept.b
        self._fold = fold
        if self._sums is None or fold is None:
            return self
        summary, shard_rows = self._sums.summary(fold), self.workers.shard_rows
        workers = LocalWorkers(self._program, [summary.shard], shard_rows=shard_rows)
        problem = replace(self)
        problem.digests, problem._sums = self.digests, self._sums
        return problem._attach(workers, summary)

    def held_out_loss(self, fold: int, W: LowRankMatrix, b: FloatArray | None) -> float:
        """The mean loss of a row of the fold, which was left out last."""
        if self._sums is not None:
            return float(self._sums.mean_loss(fold, W, b))
        shift: tuple[FloatArray, ...] = ()
        if b is not None and self._centre is not None:
            shift = b - self._centre.intercept(W), self._centre.x, *self._scale
        loss, weight = self.workers.sum("held_out_loss", W.U, W.s, W.V, *shift)
        return float(loss / (weight or 1.0))

    def radius_scale(self) -> float:
        """F(0)/σ₁(∇F(0)): by convexity F > 0 at every smaller radius; 0 if W = 0 is optimal."""
        zero = LowRankMatrix.zeros(self.shape)
        self.prepare_run(1.0, 0)
        value = self.begin(zero)
        sigma = self.certificate(zero, value.inner).sigma_bound
        return abs(value.objective) / sigma if sigma > 0.0 else 0.0

    def hides(self, gap: float, W: LowRankMatrix) -> bool:
        """Whether rounding in XᵀX and XᵀY alone may be as large as such a gap at W."""
        if self.summary is None:
            return False
        return bool(self.precision * self.summary.rounding(W, self.radius) > gap)

    @property
    def _scale(self) -> tuple[FloatArray, ...]:
        """As the last argument of a round, if there is one."""
        return () if self.scale is None else (self.scale,)

    def _find_scale(self, workers: Workers) -> None:
        if self.standardize and self.scale is None:
            self.scale = standard_deviations(workers.sum, self.shape[0])

    def _attach(self, workers: Workers, summary: Summary | None) -> Problem:
        if summary is not None and self.scale is not None:
            squared_norms = summary.squared_norms / self.scale**2
            summary = summary._replace(squared_norms=squared_norms)
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
        self.workers.close()

    def prepare_run(self, radius: float, seed: int) -> None:
        """Set the ball, and forget what an earlier run counted and learned."""
        if not math.isnan(self.radius):
            self.workers.reset_accounting()
        self.gradient = GradientOperator(self.shape, self.workers, self.scale)
        self.radius, self.seed, self.objective_at_zero = radius, seed, math.nan
        self.intercept = None
        if self._centre is not None and self.summary is None:
            assert isinstance(self.task, Representation)  # of a loss on scores
            loss = self.task.loss_on_scores
            self.intercept = Intercept(self.workers, self._centre, loss, self.precision)

    def scaled(self, W: LowRankMatrix) -> LowRankMatrix:
        """W of the features divided by their scale, shrunk to the ball, from the user's W."""
        if self.scale is None:
            return W
        W = LowRankMatrix(W.U * self.scale[:, None], W.s, W.V).compress()
        norm = float(W.s.sum())
        return W * (self.radius / norm) if norm > self.radius else W

    def unscaled(self, W: LowRankMatrix) -> LowRankMatrix:
        """W in the user's units."""
        # Not compressed: a QR of rows of very different sizes would lose the digits of the small.
        return W if self.scale is None else LowRankMatrix(divide_rows(W.U, self.scale), W.s, W.V)

    def begin(self, W: LowRankMatrix) -> Value:
        """Go to W, by way of F(0), which tolerances and rounding errors are relative to."""
        if W.rank and self._fold in self._at_zero:  # an earlier run on these rows was there
            self.objective_at_zero, memory = self._at_zero[self._fold]
            if self.intercept is not None and memory is not None:
                self.intercept.restore(memory)
                self.intercept.b = self._last_b.get(self._fold, self.intercept.b)
            self.restart(W)
            return self.evaluate(W)
        zero = LowRankMatrix.zeros(self.shape)
        self.restart(zero)
        if self.intercept is not None:  # compared with b = 0 first
            self.objective_at_zero = self.intercept.before
        value = self.evaluate(zero)
        self.objective_at_zero = value.objective
        if self.intercept is not None:
            self.intercept.leave_zero()
        memory = None if self.intercept is None else self.intercept.memory()
        self._at_zero[self._fold] = self.objective_at_zero, memory
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
        self._build(W)
        if self.intercept is not None:
            self.intercept.settle()

    def _build(self, W: LowRankMatrix) -> None:
        """Every shard's state at W and the present b."""
        shift: tuple[FloatArray, ...] = ()
        if self.intercept is not None:
            shift = self.intercept.b, self.intercept.centre, *self._scale
        U = divide_rows(W.U, self.scale)
        if self._fold is None or self._sums is not None:
            self.workers.build("stats", U, W.s, W.V, *shift)
        else:
            self.workers.build("stats_without", self._fold, self._before, U, W.s, W.V, *shift)

    def move_to(self, W: LowRankMatrix, b: FloatArray | None) -> None:
        """Build every shard's state from W and b, as they are."""
        if self.intercept is not None and b is not None:
            self.intercept.b = b
        self._build(W)

    def update(self, atom: RankOne, gamma: float) -> None:
        """Move every shard's state to (1-γ) W + γ atom, and announce the next product."""
        expected, self.gradient.expected = self.gradient.expected or (), None
        u = divide_rows(atom.u, self.scale)
        self.workers.apply("update", atom.scale, u, atom.v, gamma, *expected)
        if self.intercept is not None:
            self.intercept.settle()

    def evaluate(self, W: LowRankMatrix) -> Value:
        """F and ⟨W, ∇F⟩ at W, which must be where the shards' states are."""
        if self.intercept is not None:
            objective, inner = self.intercept.objective, self.intercept.inner
            self._check_rise(objective, inner)
            return Value(objective, inner)
        objective, inner = (float(x) for x in self.workers.sum("report"))
        if self._has_loss:
            require_finite(objective, "the objective")
        if math.isnan(inner):  # the task does not know: ⟨W, G⟩ = Σ s_i u_iᵀ G v_i
            inner = float(np.vdot(W.U * W.s, self.gradient.times(W.V))) if W.rank else 0.0
        self._check_rise(objective, require_finite(inner, "the objective's slope"))
        return Value(objective, inner)

    def tangent(
        self, W: LowRankMatrix, b: FloatArray | None = None, there: bool = False
    ) -> Tangent:
        """Go to W and b, unless there: F there, and its gradient along W's factors U and V."""
        if not there:
            self.move_to(W, b)
        d, m = self.shape
        reply = require_finite(self.workers.sum("tangent"), "the objective or its gradient")
        products, transposed, reply_columns = np.split(reply[2:], [d * W.rank, (d + m) * W.rank])
        products = divide_rows(products.reshape(d, W.rank), self.scale)
        transposed = transposed.reshape(m, W.rank)  # with the rows of U divided, on the shards
        objective, inner = float(reply[0]), float(reply[1])
        columns = self._columns(reply_columns)
        if self.intercept is not None:
            self.intercept.seen_at(objective, inner, columns)
        self._check_rise(objective, inner)
        return Tangent(objective, inner, products, transposed, columns)

    def _columns(self, reply: FloatArray) -> Columns:
        weight, (slope, curvature) = float(reply[0]), np.split(reply[1:], 2)
        most = self.task.smoothness * weight
        relative = np.ones_like(curvature)
        if most > 0.0 and curvature.max() > 0.0:
            relative = np.maximum(curvature, _FLATTEST * curvature.max()) / most
        return Columns(weight, slope, curvature, relative)

    def _check_rise(self, objective: float, inner: float) -> None:
        """Stop where F is higher than its gradient allows: F(W) - F(0) ≤ ⟨W, ∇F(W)⟩ if convex."""
        zero, rise = self.objective_at_zero, objective - self.objective_at_zero
        if self._own or not rise > 0.0:
            return
        allowed = inner + (0.0 if self.intercept is None else self.intercept.rise_allowed())
        if rise > allowed + self._allowance * (abs(zero) + abs(objective) + abs(inner)):
            raise RuntimeError(
                f"F rose from F(0) = {zero:.6g} to {objective:.6g}, by more than its gradient "
                f"allows a convex F (⟨W, ∇F(W)⟩ = {allowed:.3g}): the gradient or the loss of "
                f"{self._author} is wrong; dfwtrace.check_task(task, X, y) names the method."
            )

    def check_slope(self, atom: RankOne, slope: float, inner: float) -> None:
        """Stop where the line search sees F rise on a way on which the gradient says it falls."""
        zero = self.objective_at_zero
        if self._own or slope <= _CLEARLY * abs(inner):
            return
        along = atom.scale * float(atom.u @ self.gradient.times(atom.v))  # ⟨atom, ∇F(W)⟩
        least = max(
            _CLEARLY * (abs(along) + abs(inner)),
            0.0 if math.isnan(zero) else self._allowance * abs(zero),
        )
        if slope > least and along - inner < -least:
            raise RuntimeError(
                f"{self._author}.linesearch gives F a slope of {slope:.3g}, the gradient one of "
                f"{along - inner:.3g}: one of them is wrong; dfwtrace.check_task(task, X, y) names "
                "the method."
            )

    @property
    def _author(self) -> str:
        """The class that a user wrote: the task's, or its loss's."""
        return type(self.task.identity).__name__

    def line(self, atom: RankOne) -> Line:
        """F along the segment from W to the atom."""
        u = divide_rows(atom.u, self.scale)
        ask = partial(self.workers.sum, "linesearch", atom.scale, u, atom.v)
        return Line(ask, self.task.quadratic)

    def intercept_of(self, W: LowRankMatrix, b: FloatArray | None) -> FloatArray | None:
        """(X - 1x̄ᵀ)W + 1b'ᵀ = XW + 1bᵀ with b = b' - Wᵀx̄; where Y is centred too, b' is ȳ.

        In the user's units.
        """
        if self._centre is None:
            return None
        centred = self._centre.intercept(W)
        return centred if b is None else centred + b

    def certificate(
        self,
        W: LowRankMatrix,
        inner: float,
        wanted: float = 0.0,
        failure_probability: float = FAILURE_PROBABILITY,
        near: FloatArray | None = None,
    ) -> Certificate:
        """A true upper bound of F(W) - F* at the present W; see `certify`.

        With an intercept, b is settled first: F(W) and ⟨W, ∇F(W)⟩ are then as `evaluate` returns.
        """
        excess = 0.0
        if self.intercept is not None:
            excess = self.intercept.certify(self.radius, *self._scale)
            inner = self.intercept.inner
        scale = 0.0 if math.isnan(self.objective_at_zero) else abs(self.objective_at_zero)
        if self.summary is not None:
            scale = max(scale, self.summary.rounding(W, self.radius))
        return certify(
            self.gradient, inner, self.radius, near=near, precision=self.precision, scale=scale,
            excess=excess, seed=self.seed, wanted=wanted, failure_probability=failure_probability,
        )  # fmt: skip

    def noise(self, W: LowRankMatrix, objective: float) -> float:
        """What rounding may do to a difference of F near W, about."""
        # Rows' errors are many and of both signs. Where scores are large and F is small, as with
        # least squares that fit well, they go like the root of F(W)·F(0).
        now, at_zero = abs(objective), abs(self.objective_at_zero)
        size, added = max(now, math.sqrt(now * at_zero)), self.rows.facts.n_rows
        if self.summary is not None:
            size, added = max(size, self.summary.size(W)), self.shape[0]
        # Sums are in float64, whatever the rows are.
        return size * max(self.precision / 32.0, math.sqrt(added) * np.finfo(np.float64).eps)

    def curvature_product(self, U: FloatArray) -> FloatArray:
        """H U with ∇²F ⪯ I ⊗ H."""
        product = self.workers.sum("curvature_product", divide_rows(U, self.scale))
        return divide_rows(product, self.scale)

    def second_moments(self) -> FloatArray:
        """H itself."""
        H = self.workers.sum("second_moments")
        if self.scale is not None:
            H = H / np.multiply.outer(self.scale, self.scale)
        return require_finite(H, "the features' second moments")

    def squared_lengths(self) -> FloatArray:
        """The diagonal of H."""
        lengths = self.workers.sum("squared_lengths")
        if self.scale is not None:
            lengths = lengths / self.scale**2
        return require_finite(lengths, "the features' second moments")

    def constants(self) -> Constants:
        """Bounds of L and C_F that hold over the whole ball."""
        # With ∇²F ⪯ I ⊗ H ⪯ λ I: C_F ≤ λ·diam² = 4 λ μ² (the ball's Frobenius diameter is 2μ), and
        # σ₁(∇F(W)) ≤ σ₁(∇F(W₀)) + 2 λ μ.
        rng = np.random.default_rng([self.seed, 0xC0])
        (d, m), G, H = self.shape, self.gradient, self.curvature_product
        bounds = []
        for times, transpose_times, size in ((H, H, d), (G.times, G.transpose_times, m)):
            process = GolubKahan(times, transpose_times, rng.standard_normal(size))
            bounds.append(process.run(_CONSTANTS_STEPS).upper_bound(FAILURE_PROBABILITY))
        largest, here = bounds
        lipschitz = here + 2.0 * largest * self.radius
        return Constants(lipschitz, 4.0 * largest * self.radius * self.radius)
