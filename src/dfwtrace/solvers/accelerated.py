"""Projected gradient steps, and quasi-Newton steps in the factors of W.

A projected gradient step finds directions that W does not have yet and cuts off those that it no
longer needs; it is fast where F is curved about as much in all directions. Where it is not, L-BFGS
is faster, on F as a function of x = (A, B, z), from which every W of the ball comes (see
`factor_steps`); but it cannot leave the span of W's factors. So there are phases of both.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dfwtrace._typing import Memory
from dfwtrace.solvers.factor_steps import BallPoint, FactorSteps, evaluate, evaluate_at, trimmed
from dfwtrace.solvers.problem import Iterate, Problem, Start, Tangent, Value
from dfwtrace.solvers.projection import View, as_orthonormal, outside_span, spectral_norm

_EXTRA = 8  # directions explored beyond those of W, and a quarter of W's rank
# A projected step leaves out directions as long as it keeps this share of what it promises: far
# from the optimum there are many, and each of them makes the passes more expensive.
_SHARE = 0.999
_SUFFICIENT = 0.1  # it must lower F by this share of its slope, where L is to ensure one half
_FAST = 0.7  # such steps go on while each lowers F by at most this share of what the last one did
_GROWTHS = 3  # and not if the rank keeps growing: it may become larger than it is at the optimum
# That W lacks directions is no reason for one that makes passes this much more expensive, unless
# nothing else is left to do.
_COST_RATIO = 1.5
_REFINEMENTS = 2  # subspace iterations of an exploration between quasi-Newton steps
# Quasi-Newton steps until the next exploration; then twice as many, and so on up to the last.
_FIRST_WAIT, _LAST_WAIT = 8, 64
_STEEPEST = 1e12  # a projected step gives up when L would have to grow by this factor
_PATIENCE = 40  # it ends after these steps within F's rounding error, if the gap does not fall


class Descent:
    """Where the run is, and the steps from there."""

    # What a resumed run must know, beside W and the value there.
    _REMEMBERED = (
        "_sigma", "_orthonormal", "_spare", "_lipschitz", "_projecting", "_last_gain", "_growths",
        "_wait", "_since_exploration", "_explored_gap", "_last_gap", "_explored_objective",
        "_without_progress", "_gamma",
    )  # fmt: skip

    def __init__(self, problem: Problem, start: Start) -> None:
        self._problem, self._target = problem, start.target
        self._rng = np.random.default_rng([problem.seed, 0xACC])
        self._W, self._value = start.W, start.value
        self._sigma = self._gamma = 0.0
        self._point: BallPoint | None = None  # zero has no factors
        self._orthonormal = False  # the factors of W
        self._spare = np.zeros((problem.shape[1], 0))  # right vectors that were nearly taken in
        self._steps = FactorSteps(problem)
        self._lipschitz = 0.0  # L of the projected steps; not known before the first
        self._projecting, self._last_gain = True, np.inf
        self._growths = 0  # projected steps in a row that have made W's rank much larger
        self._wait, self._since_exploration = _FIRST_WAIT, 0
        self._explored_gap = self._explored_objective = self._last_gap = np.inf
        self._without_progress = self._explorations = 0
        if start.memory is not None:
            self._restore(start.memory)

    def iterates(self, start: Start) -> Iterator[Iterate]:
        """Yield W_1, W_2, …; end early if nothing lowers F beyond its rounding error."""
        W = start.W
        if start.memory is None and W.rank:
            self._accept(evaluate_at(self._problem, W), 0.0, orthonormal=True)
        for t in range(start.first, start.epochs):
            if not self.step():
                if self._W is not W:  # trimmed without a step that followed
                    self._problem.restart(W)
                return
            W = self._W
            value, how = self._value, (self._sigma, self._gamma, self._explorations)
            yield Iterate(t + 1, W, value.objective, value.inner, self._gap, *how, self.memory)

    def memory(self) -> Memory:
        """All that the next steps depend on, beside W, the value there and the shards' states."""
        point = self._point
        return {
            "numbers": {name: getattr(self, name) for name in self._REMEMBERED},
            "point": None if point is None else (point.x, point.tangent, point.gradient),
            "steps": self._steps.memory(),
            "random": self._rng.bit_generator.state,
        }

    def _restore(self, memory: Memory) -> None:
        for name in self._REMEMBERED:
            setattr(self, name, memory["numbers"][name])
        if memory["point"] is not None:
            x, tangent, gradient = memory["point"]
            self._point = BallPoint(x, self._W, Tangent(*tangent), gradient)
        self._steps.restore(memory["steps"])
        self._rng.bit_generator.state = memory["random"]

    def step(self) -> bool:
        """One step; False if there is none that is worth it."""
        self._explorations = 0
        if self._without_progress > _PATIENCE:
            return False
        if self._projecting:
            return self._projected_step(self._explore()) or self._quasi_newton_step()
        reached = self._gap <= self._target < self._explored_gap
        due = self._since_exploration >= self._wait or self._without_progress == _PATIENCE
        if reached or due or self._gap <= 0.1 * self._explored_gap:
            view, gained = self._explore(), self._explored_objective - self._value.objective
            if self._better_project(view) and self._projected_step(view):
                return True
            self._trim(gained)
        return self._quasi_newton_step() or self._projected_step(self._explore())

    @property
    def _noise(self) -> float:
        """What rounding may do to a difference of F."""
        # Rows' errors are many and of both signs. Where scores are large and F is small, as with
        # least squares that fit well, they go like the root of F(W)·F(0).
        now, at_zero = abs(self._value.objective), abs(self._problem.objective_at_zero)
        return self._problem.precision * max(now, float(np.sqrt(now * at_zero))) / 32.0

    @property
    def _gap(self) -> float:
        """⟨W, G⟩ + μσ: a lower bound of the certified gap, since σ is one of σ₁(G)."""
        return self._value.inner + self._problem.radius * self._sigma

    def _better_project(self, view: View) -> bool:
        """Whether a projected step promises more than the last quasi-Newton steps gave, each."""
        # Or if most of the gap comes from directions that W lacks, and they are not too many.
        step = view.step(self._lipschitz)
        self._spare = step.spare  # so that explorations add up to a subspace iteration
        promised = -step.slope - 0.5 * self._lipschitz * step.squared
        given = (self._explored_objective - self._value.objective) / max(1, self._since_exploration)
        self._explored_gap, self._since_exploration = self._gap, 0
        self._explored_objective = self._value.objective
        self._wait = min(2 * self._wait, _LAST_WAIT)
        # What the passes after it cost, over what they cost now; a few columns make no difference.
        cost_ratio = max(1.0, step.W.rank / (self._W.rank + _EXTRA))
        settled = self._without_progress > 0 or self._gap <= self._target
        return promised > cost_ratio * given or (
            self._lacks(view) and (settled or cost_ratio < _COST_RATIO)
        )

    def _lacks(self, view: View) -> bool:
        """Whether most of the gap comes from directions that W's factors do not have."""
        missing = self._problem.radius * (spectral_norm(view.g) - self._sigma)
        return missing > 0.5 * max(self._gap, self._target)

    def _explore(self) -> View:
        """The gradient in W's span and beyond, until a projected step needs no more directions."""
        extra = _EXTRA + self._W.rank // 4
        while True:
            view = self._view(extra)
            if view.step(self._lipschitz).complete or extra > self._W.rank + _EXTRA:
                return view
            extra *= 2

    def _view(self, extra: int) -> View:
        """A step of subspace iteration on W - G/L, from W's right factors and others."""
        # The others are those nearly taken in last time and random ones, improved first where no
        # projected step follows that would do so.
        W, gradient, point = self._W, self._problem.gradient, self._point
        known = np.zeros((W.shape[0], 0)) if point is None else point.tangent.products
        extra = max(0, min(extra, min(W.shape) - W.rank))
        spare = self._spare[:, : max(0, extra - 2)]
        random = self._rng.standard_normal((W.shape[1], extra - spare.shape[1]))
        others = np.hstack([spare, random])
        others /= np.maximum(np.linalg.norm(others, axis=0), np.finfo(np.float64).tiny)
        if extra and not self._projecting:
            others = outside_span(gradient, W.V, others, _REFINEMENTS)
        images = np.hstack([known, gradient.times(others) if extra else known[:, :0]])
        self._explorations += 1
        if self._lipschitz == 0.0:  # the first step is to reach the boundary
            total = np.linalg.svd(images, compute_uv=False).sum()
            self._lipschitz = float(total) / self._problem.radius or 1.0
        moved = (W.U * W.s) @ (W.V.T @ np.hstack([W.V, others])) - images / self._lipschitz
        # With W's own left factors in the view, a step in it may stay where it is.
        Q = np.linalg.qr(np.hstack([W.U, moved[:, W.rank :], moved[:, : W.rank]]))[0]
        if point is None or not self._orthonormal:
            g = gradient.transpose_times(Q)
        else:  # Gᵀ U is known
            added = Q[:, W.rank :]
            Q = np.hstack([W.U, added])
            g = np.hstack([point.tangent.transposed, gradient.transpose_times(added)])
        return View(Q, (W.V * W.s) @ (W.U.T @ Q), g, self._problem.radius, _SHARE)

    def _trim(self, gained: float) -> None:
        """Drop columns of A and B that make up so little of W that the gap hardly changes."""
        # F rises by at most σ₁(G)τ + ½Lτ² where the trace norm τ is dropped, about; but never by
        # more than half of what was gained since the last exploration. L-BFGS keeps its memory.
        point = self._point
        if point is None or self._sigma == 0.0:
            return
        q = float(point.x @ point.x) / (2.0 * self._problem.radius)
        rise = 0.01 * max(0.0, self._gap)
        mass = min(rise / self._sigma, np.sqrt(2.0 * rise / self._lipschitz))
        change = trimmed(point.x, point.gradient, self._problem.shape, mass * q)
        x = change(point.x)
        if x.size == point.x.size:
            return
        tried = evaluate(self._problem, x)
        allowed = max(self._noise, min(2.0 * rise, 0.5 * gained))
        if tried.tangent.objective > point.tangent.objective + allowed:
            self._problem.restart(self._W)
            return
        self._steps.lbfgs = self._steps.lbfgs.map(change)
        self._accept(tried, self._gamma)

    def _projected_step(self, view: View) -> bool:
        """W⁺, the projection of W - G/L, with L large enough for F(W⁺) to be well below F(W)."""
        # That is so at the latest where F(W⁺) ≤ F(W) + ⟨G, W⁺ - W⟩ + ½L‖W⁺ - W‖². A direction
        # that W lacks may lower the gap where F's rounding hides what it does to F.
        problem, known, first = self._problem, self._value.objective, self._lipschitz
        lacked = self._lacks(view)
        least = 0.0 if lacked else self._noise
        while True:
            step = view.step(self._lipschitz)
            if -step.slope <= least or self._lipschitz > _STEEPEST * first:
                self._lipschitz, self._projecting, self._last_gain = first, False, np.inf
                self._explored_objective, self._since_exploration = known, 0
                problem.restart(self._W)
                return False
            point = evaluate_at(problem, step.W)
            gain = known - point.tangent.objective
            # F(W⁺) = F(W) + ⟨G, W⁺ - W⟩ + ½·curvature·‖W⁺ - W‖².
            curvature = 2.0 * (-gain - step.slope) / step.squared if step.squared > 0.0 else 0.0
            if gain >= _SUFFICIENT * -step.slope - self._noise:
                break
            self._lipschitz = max(2.0 * self._lipschitz, min(curvature, 100.0 * self._lipschitz))
        self._spare = step.spare
        self._growths = self._growths + 1 if step.W.rank > 1.5 * self._W.rank else 0
        self._accept(point, 1.0 / self._lipschitz, orthonormal=True)
        if lacked:  # the gap is seen in more directions from here on
            self._last_gap = max(self._last_gap, self._gap)
        self._steps.begin_at(point)
        self._projecting = gain <= _FAST * self._last_gain and self._growths < _GROWTHS
        self._last_gain = gain if self._projecting else np.inf
        self._explored_objective, self._since_exploration = point.tangent.objective, 0
        if -step.slope > 100.0 * self._noise:  # the curvature just seen, with some room
            self._lipschitz = max(1.1 * curvature, 0.3 * self._lipschitz)
        return True

    def _quasi_newton_step(self) -> bool:
        """x⁺ along the direction of L-BFGS."""
        if self._point is None:
            return False
        self._since_exploration += 1
        taken = self._steps.take(self._point, self._lipschitz, self._noise)
        if taken is None:
            self._problem.restart(self._W)
            return False
        self._accept(*taken)
        return True

    def _accept(self, point: BallPoint, gamma: float, orthonormal: bool = False) -> None:
        gain = self._value.objective - point.tangent.objective
        self._point = point if point.W.rank else None
        self._W, self._gamma, self._orthonormal = point.W, gamma, orthonormal
        self._value = Value(point.tangent.objective, point.tangent.inner)
        # σ₁ of the gradient within the span of W's factors comes with every evaluation.
        self._sigma = spectral_norm(as_orthonormal(point.tangent.products, point.W.V))
        gap = max(self._gap, 0.0)  # below zero by rounding only
        falls = gap < 0.9 * self._last_gap  # also if it takes several steps
        self._last_gap = gap if falls else self._last_gap
        self._without_progress = 0 if falls or gain > self._noise else self._without_progress + 1
