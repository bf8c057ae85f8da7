"""What a solver sees of the problem: F, ∇F and moves of the shards' states, as rounds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from dfwtrace._typing import FloatArray
from dfwtrace.certificate import FAILURE_PROBABILITY, Certificate, certify
from dfwtrace.engines import Workers
from dfwtrace.finite import require_finite
from dfwtrace.gradient import GradientOperator
from dfwtrace.lanczos import GolubKahan
from dfwtrace.lmo import Constants, Setting
from dfwtrace.lowrank import LowRankMatrix, RankOne
from dfwtrace.solvers.intercept import Intercept
from dfwtrace.steps import Line

# Lanczos steps for σ₁ of the gradient and of the curvature: bounds, so they need not be tight.
_CONSTANTS_STEPS = 12


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


class Problem:
    """min F(W) over ‖W‖_* ≤ radius, with the data behind rounds.

    Parameters
    ----------
    workers : Workers
        Workers that run a `ShardProgram`.
    shape : (d, m)
    radius : float
        μ.
    quadratic : bool
        Whether F is quadratic along lines.
    tells_objective : bool
        Whether the task has a `loss`.
    tells_curvature : bool
        Whether the task has a `curvature_product`.
    seed : int
        The seed that all workers share.
    precision : float
        Relative rounding error of the shards' arithmetic.
    deflates : bool
        Whether a certificate makes use of W's factors being near the gradient's leading vectors.
    intercept : Intercept, optional
        F is then the least over all intercepts, which is where the shards' states are.
    """

    def __init__(
        self,
        workers: Workers,
        shape: tuple[int, int],
        radius: float,
        *,
        quadratic: bool = False,
        tells_objective: bool = True,
        tells_curvature: bool = False,
        seed: int = 0,
        precision: float = 0.0,
        deflates: bool = False,
        intercept: Intercept | None = None,
    ) -> None:
        self.workers = workers
        self.gradient = GradientOperator(shape, workers)
        self.shape = shape
        self.radius = radius
        self.quadratic = quadratic
        self.tells_objective = tells_objective
        self.tells_curvature = tells_curvature
        self.seed = seed
        self.precision = precision
        self.deflates = deflates
        self.intercept = intercept
        self.objective_at_zero = math.nan

    def begin(self, W: LowRankMatrix) -> Value:
        """Go to W, with a look at F(0), which tolerances and rounding errors are relative to."""
        zero = LowRankMatrix.zeros(self.shape)
        self.restart(zero)
        value = self.evaluate(zero)
        self.objective_at_zero = value.objective
        if W.rank == 0:
            return value
        self.restart(W)
        return self.evaluate(W)

    def memory(self) -> dict[str, Any]:
        """What a run that goes on must know: also where the shards' states are."""
        return {
            "objective_at_zero": self.objective_at_zero,
            "expected": self.gradient.expected,
            "intercept": None if self.intercept is None else self.intercept.memory(),
            "workers": self.workers.memory(),
        }

    def restore(self, memory: dict[str, Any]) -> None:
        """Go to where another run was."""
        self.objective_at_zero = memory["objective_at_zero"]
        self.gradient.expected = memory["expected"]
        if self.intercept is not None:
            self.intercept.restore(memory["intercept"])
        self.workers.restore(memory["workers"])

    def restart(self, W: LowRankMatrix) -> None:
        """Build every shard's state from W: line 3, a warm start, a recovery."""
        if self.intercept is None:
            self.workers.build("stats", W.U, W.s, W.V)
        else:
            self.workers.build("stats", W.U, W.s, W.V, self.intercept.b, self.intercept.centre)
            self.intercept.settle()

    def update(self, atom: RankOne, gamma: float) -> None:
        """Move every shard's state to (1-γ) W + γ atom; tell it what it is multiplied by next."""
        expected, self.gradient.expected = self.gradient.expected or (), None
        self.workers.apply("update", atom.scale, atom.u, atom.v, gamma, *expected)
        if self.intercept is not None:
            self.intercept.settle()

    def evaluate(self, W: LowRankMatrix) -> Value:
        """F and ⟨W, ∇F⟩ at W, which must be where the shards' states are."""
        if self.intercept is not None:
            return Value(self.intercept.objective, self.intercept.inner)
        objective, inner = (float(x) for x in self.workers.sum("report"))
        if self.tells_objective:
            require_finite(objective, "the objective")
        if math.isnan(inner):  # the task does not tell: ⟨W, G⟩ = Σ s_i u_iᵀ G v_i
            inner = float(np.vdot(W.U * W.s, self.gradient.times(W.V))) if W.rank else 0.0
        return Value(objective, require_finite(inner, "the objective's slope"))

    def tangent(self, W: LowRankMatrix) -> Tangent:
        """Go to W, in two rounds: F there, and its gradient along W's own factors U and V."""
        self.restart(W)
        d, m = self.shape
        reply = require_finite(self.workers.sum("tangent"), "the objective or its gradient")
        products, transposed = np.split(reply[2:], [d * W.rank])
        return Tangent(
            float(reply[0]),
            float(reply[1]),
            products.reshape(d, W.rank),
            transposed.reshape(m, W.rank),
        )

    def line(self, atom: RankOne) -> Line:
        """F along the segment from W to the atom."""

        def derivatives(gamma: float) -> tuple[float, float]:
            reply = self.workers.sum("linesearch", atom.scale, atom.u, atom.v, gamma)
            slope, curvature = require_finite(reply, "the objective's slope or curvature")
            return float(slope), float(curvature)

        return Line(derivatives, self.quadratic)

    @property
    def b(self) -> FloatArray | None:
        """The intercept that belongs to the present W, if there is one."""
        return None if self.intercept is None else self.intercept.b

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
        inner: float,
        wanted: float = 0.0,
        failure_probability: float = FAILURE_PROBABILITY,
        W: LowRankMatrix | None = None,
    ) -> Certificate:
        """A true upper bound of F(W) - F* at the present W, whose factors may help to find it."""
        return certify(
            self.gradient,
            inner,
            self.radius,
            near=W.V if W is not None and self.deflates else None,
            precision=self.precision,
            scale=0.0 if math.isnan(self.objective_at_zero) else self.objective_at_zero,
            seed=self.seed,
            wanted=wanted,
            failure_probability=failure_probability,
        )

    def curvature_times(self, U: FloatArray) -> FloatArray:
        """H U, where ∇²F ⪯ I ⊗ H."""
        return self.workers.sum("curvature_product", U)

    def setting(self) -> Setting:
        """What the oracle may know."""
        return Setting(self.radius, self.shape, self.seed, self._constants)

    def _constants(self) -> Constants:
        """Bounds of L and C_F that hold over the whole ball.

        With ∇²F ⪯ λ I: C_F ≤ λ·diam² = 4 λ μ² (the ball's Frobenius diameter is 2μ), and
        σ₁(∇F(W)) ≤ σ₁(∇F(W₀)) + 2 λ μ.
        """

        def bound(process: GolubKahan) -> float:
            return process.run(_CONSTANTS_STEPS).upper_bound(FAILURE_PROBABILITY)

        rng = np.random.default_rng([self.seed, 0xC0])
        d, m = self.shape
        times = self.curvature_times
        largest = bound(GolubKahan(times, times, rng.standard_normal(d)))
        gradient = GolubKahan(
            self.gradient.times, self.gradient.transpose_times, rng.standard_normal(m)
        )
        lipschitz = bound(gradient) + 2.0 * largest * self.radius
        return Constants(lipschitz, 4.0 * largest * self.radius * self.radius)
