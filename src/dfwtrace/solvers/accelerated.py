"""Corrective Frank-Wolfe: quasi-Newton steps in the factors of W, new columns from a block oracle.

An epoch moves the factors that W has (`_search`, or `_project` where F is evenly curved) or adds
columns to them (`_add`), and `_frank_wolfe` makes sure that it ends no higher than what
Frank-Wolfe's own step promises, so that F converges as it does there: docs/solver.md has the lemma.
All else is there to be faster.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dfwtrace._typing import FloatArray, Memory
from dfwtrace.linalg.golub_kahan import GolubKahan, Product
from dfwtrace.linalg.lowrank import LowRankMatrix
from dfwtrace.linalg.parallel import gram, matmul
from dfwtrace.solvers.block_oracle import (
    Pairs,
    Probes,
    Seen,
    first_look,
    look,
    next_probes,
    outside_pairs,
    random_probes,
)
from dfwtrace.solvers.columns import amounts_of, ridge
from dfwtrace.solvers.factors import (
    Point,
    evaluate,
    factors_of,
    join,
    refactored,
    rejoined,
    split,
    widened,
    with_slack,
)
from dfwtrace.solvers.lbfgs import LBFGS
from dfwtrace.solvers.metric import EPS, Metric, Model, metric_of
from dfwtrace.solvers.problem import Iterate, Problem, Start
from dfwtrace.solvers.projection import SMALLEST, project, view
from dfwtrace.tasks.task import Columns

_PROBES, _FIRST_PROBES = 8, 16
_GROWTH = 4  # of the first probes, as long as all of them are worth a column
_MOST_PROBES = 256  # and as long as W's columns leave room: at most half of the smaller side
_SHORTEST = 1e-4  # share of a step that is tried
_TRIM = 0.002  # share of what a step promises by which columns that are dropped may raise F
_PATIENCE = 40  # epochs within F's rounding error, if the gap does not fall either
_LAST_PRODUCTS = 30  # with G, of each side, before a run ends without a step
_SLOW = 3  # epochs in which the gap has not fallen until other steps take the projections' place


class Descent:
    """Where the run is, and the steps from there."""

    # What a resumed run must know, beside the point, the metric and the pairs of L-BFGS.
    _REMEMBERED = (
        "_first", "_gamma", "_scale", "_curvature", "_lipschitz", "_last_gap", "_known",
        "_since", "_without_progress",
    )  # fmt: skip

    def __init__(self, problem: Problem, start: Start) -> None:
        self._problem = problem
        self._rng = np.random.default_rng([problem.seed, 0xACC])
        self._width = 0 if problem.intercept is None else problem.shape[1]
        self._lbfgs = LBFGS()
        self._gamma = 0.0
        self._view = np.zeros((problem.shape[1], 0))  # what the last projection was restricted to
        self._scale = 1.0  # curvatures over the metric's
        self._curvature = 0.0  # C: F's along the way to Frank-Wolfe's atom, the largest seen
        self._last_gap, self._since, self._without_progress = np.inf, 0, 0
        self._point: Point
        self._seen: Seen
        if start.memory is not None:
            self._restore(start.memory)
            return
        metric = metric_of(problem)
        self._known = metric is not None
        self._metric = metric or Metric(np.ones(problem.shape[0]))
        self._lipschitz = float(self._metric.values.mean()) or 1.0
        b = np.zeros(0) if problem.intercept is None else problem.intercept.b
        self._accept(self._arrive(start.W, b), 0.0)
        self._first = self._point.objective
        if self._known:
            self._expect_curvature()

    def iterates(self, start: Start) -> Iterator[Iterate]:
        """Yield W_1, W_2, …; end early if nothing lowers F beyond its rounding error."""
        for t in range(start.first, start.epochs):
            if self._vanished or not (self.step() or self._last_look()):
                self._return()
                return
            point, how = self._point, (self._seen.sigma, self._gamma, 1)
            known = point.objective, point.inner, self._gap
            yield Iterate(t + 1, point.W, *known, *how, self.memory)

    def step(self) -> bool:
        """One epoch; False if there is no step that is worth it."""
        if self._without_progress > _PATIENCE:
            return False
        before, seen = self._point, self._seen
        moved = self._metric.even and self._since <= _SLOW and self._project()
        if not moved and self._metric.even:
            self._metric = self._metric.whole()
        if not moved and before.W.rank == 0:
            self._look_around()
            before, seen = self._point, self._seen
            moved = self._begin()
        elif not moved:
            moved = self._move()
        return self._frank_wolfe(before, seen) or moved

    # What is known of the present point

    @property
    def _vanished(self) -> bool:
        """Whether F is a rounding error of where it began: there is no digit left of it."""
        return bool(abs(self._point.objective) <= EPS**2 * abs(self._first))

    @property
    def _gap(self) -> float:
        """⟨W, G⟩ + μσ: a lower bound of the certified gap, since σ is one of σ₁(G)."""
        return self._point.inner + self._problem.radius * self._seen.sigma

    @property
    def _noise(self) -> float:
        """What rounding may do to a difference of F."""
        return self._problem.noise(self._point.W, self._point.objective)

    @property
    def _multiplier(self) -> float:
        """λ = -⟨W, G⟩/μ: what F gains for each unit of trace norm that W has."""
        return max(-self._point.inner / self._problem.radius, 0.0)

    def _evaluate(self, x: FloatArray, probes: Probes) -> Point:
        return evaluate(self._problem, x, self._width, probes)

    def _parts(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        return split(x, self._problem.shape, self._width)

    def _next_probes(self, x: FloatArray) -> Probes:
        A, B, _, _ = self._parts(x)
        return next_probes(self._point, A, B, _PROBES, self._rng)

    def _accept(self, point: Point, gamma: float) -> None:
        first = self._last_gap == np.inf
        gain = np.inf if first else self._point.objective - point.objective
        self._point, self._seen, self._gamma = point, look(point), gamma
        gap = max(self._gap, 0.0)  # below zero by rounding only
        falls = gap < 0.9 * self._last_gap  # also if it takes several steps
        self._last_gap = gap if falls else self._last_gap
        self._since = 0 if falls else self._since + 1
        self._without_progress = 0 if falls or gain > self._noise else self._without_progress + 1

    def _return(self) -> None:
        """Bring the shards' states back to the present point."""
        self._problem.move_to(self._point.W, self._point.parts.b if self._width else None)

    # Frank-Wolfe's step: the frame

    def _promise(self, before: Point, seen: Seen) -> float:
        """What the step below lowers F by, if F curves by no more than C on the way.

        p = max over γ in [0, 1] of γg̃ - ½γ²C, and what the step in b is sure to gain.
        """
        gap, gamma = self._fall(before, seen), self._share(before, seen)
        return gamma * gap - 0.5 * gamma**2 * self._curvature + self._gain_in_b(before)

    def _fall(self, before: Point, seen: Seen) -> float:
        """g̃ = ⟨W, G⟩ + μσ: minus the slope of F on the way to -μuvᵀ."""
        return before.inner + self._problem.radius * seen.sigma

    def _share(self, before: Point, seen: Seen) -> float:
        """The γ of the promise."""
        gap = self._fall(before, seen)
        return 1.0 if self._curvature <= gap else gap / self._curvature

    def _gain_in_b(self, before: Point) -> float:
        """‖∂F/∂b‖²/4L: what the step in b gains at least, beside the one in W."""
        return 0.5 * float(before.columns.slope @ self._step_in_b(before))

    def _step_in_b(self, before: Point) -> FloatArray:
        """(∂F/∂b)/2L with F's largest curvature L in b."""
        steepest = self._problem.task.smoothness * before.columns.weight or 1.0
        return before.columns.slope / (2.0 * steepest)

    def _frank_wolfe(self, before: Point, seen: Seen) -> bool:
        """Steps from the point before, until F has fallen by half of what one promises."""
        gap, gained = self._fall(before, seen), self._gain_in_b(before)
        tried, best, lowest, chosen = None, None, self._point.objective, 0.0
        while True:
            promise, gamma = self._promise(before, seen), self._share(before, seen)
            if before.objective - lowest >= 0.5 * promise or promise <= self._noise:
                break
            tried = self._toward_atom(before, seen, gamma)
            fall = before.objective - tried.objective
            if tried.objective < lowest:
                best, lowest, chosen = tried, tried.objective, gamma
            if gamma * gap <= self._noise:
                break
            # A trial that falls short of half of its promise has seen C to be 1.5 times as large.
            measured = 2.0 * (gamma * gap + gained - fall) / gamma**2
            self._curvature = max(self._curvature, measured)
        if tried is None:
            return False
        if best is None or lowest >= self._point.objective - self._noise:
            self._return()
            return False
        # What is known of F's curvature still holds, unless the epoch has other columns by now.
        if chosen < 1.0 and self._point.x.size == before.x.size:
            if best.x.size > before.x.size:
                self._remember_wider(1)
        else:
            self._lbfgs = LBFGS()
        self._accept(best, chosen)
        return True

    def _last_look(self) -> bool:
        """The same for a pair of G that is sought by itself, where no other step helps."""
        self._return()
        gradient, start = self._problem.gradient, self._rng.standard_normal(self._problem.shape[1])
        process = GolubKahan(gradient.times, gradient.transpose_times, start).run(_LAST_PRODUCTS)
        if not process.steps:
            return False
        pair = process.top_pair()
        if not pair.sigma > self._seen.sigma:
            return False
        self._seen = self._seen._replace(sigma=pair.sigma, u=pair.u, v=pair.v)
        return self._frank_wolfe(self._point, self._seen)

    def _toward_atom(self, before: Point, seen: Seen, gamma: float) -> Point:
        """(1-γ) W - γμ uvᵀ, with q as it was, and the step in b."""
        (A, B, z, b), radius = before.parts, self._problem.radius
        kept, added = np.sqrt(1.0 - gamma), np.sqrt(gamma * radius * before.q(radius))
        b = b - self._step_in_b(before) if self._width else b
        wide_A = np.column_stack([kept * A, -added * seen.u])
        wide_B = np.column_stack([kept * B, added * seen.v])
        x = join(wide_A, wide_B, kept * z, b)
        if A.shape[1] == min(self._problem.shape):  # W's rank cannot be higher
            A, B, _, _ = refactored(wide_A, wide_B, A, B)
            x = with_slack(join(A, B, kept * z, b), x, self._width)
        return self._evaluate(x, self._next_probes(x))

    # The first columns, and more of them

    def _arrive(self, W: LowRankMatrix, b: FloatArray) -> Point:
        """The point at which the run begins, where the shards' states are."""
        problem, x = self._problem, factors_of(W, self._problem.radius, b)
        if W.rank == 0:
            point = evaluate(problem, x, self._width)
            return first_look(problem.gradient, point, _FIRST_PROBES, self._rng)
        room = max(0, min(problem.shape) - W.rank)  # beside W's factors
        return self._evaluate(x, random_probes(problem.shape, min(_PROBES, room), self._rng))

    def _look_around(self) -> None:
        """At W = 0: more probes, as long as all of them are worth a column."""
        smaller, count = min(self._problem.shape), _FIRST_PROBES
        most = min(smaller, max(_MOST_PROBES // 4, min(_MOST_PROBES, smaller // 2)))
        gradient = self._problem.gradient
        while count < most and self._amounts(outside_pairs(self._point))[-1] > 0.0:
            count = min(_GROWTH * count, most)
            self._point = first_look(gradient, self._point, count, self._rng)
        self._seen = look(self._point)

    def _expect_curvature(self, times: float = 1.0) -> None:
        """Let C be at least that multiple of what the model has from here to the atom."""
        u, v = self._seen.u[:, None], self._seen.v[:, None]
        along = self._along(u, v, self._point.columns)
        self._curvature = max(self._curvature, times * float(along[0]) * self._problem.radius**2)

    def _begin(self) -> bool:
        """The first columns, from the leading singular pairs of the gradient at W = 0."""
        pairs = outside_pairs(self._point)
        if not pairs.s.any():
            return False
        if not self._known:  # F's curvature has to be found out first
            moved = self._frank_wolfe(self._point, self._seen)
            self._scale = max(self._curvature, 0.0) / self._problem.radius**2 or 1.0
            return moved
        amounts = self._amounts(pairs)
        along = self._along(pairs.U, pairs.V, self._point.columns)
        model = -amounts @ pairs.s + 0.5 * amounts**2 @ along
        return self._ridge(pairs, float(model)) or self._add(pairs, amounts)

    def _along(self, U: FloatArray, V: FloatArray, columns: Columns) -> FloatArray:
        """F's curvature along uvᵀ for each column of U and V."""
        curved = self._scale * self._metric.along(U) * (columns.relative @ V**2)
        return np.asarray(np.maximum(curved, EPS * curved.max(initial=0.0)))

    def _amounts(self, pairs: Pairs) -> FloatArray:
        """How much of each pair is to be added: (σ - θ)₊ over the curvature, as far as it fits."""
        if not pairs.s.any():
            return np.zeros_like(pairs.s)
        radius, columns = self._problem.radius, self._point.columns
        curved = self._along(pairs.U, pairs.V, columns)
        curved = np.maximum(curved, pairs.s[0] * SMALLEST / radius)
        # With θ ≥ λ, each is worth what other columns lose.
        return amounts_of(pairs.s, curved, self._multiplier, radius)

    def _ridge(self, pairs: Pairs, other: float) -> bool:
        """All columns at once, if that promises more than adding the pairs one by one does."""
        start, radius = self._point, self._problem.radius
        W, model = ridge(pairs, self._metric, start.columns.relative, radius)
        if not model < other:
            return False
        x = factors_of(W, radius, start.parts.b)
        tried = self._evaluate(x, self._next_probes(x))
        if tried.objective > start.objective:
            return False
        self._accept(tried, 1.0)
        return True

    def _add(self, pairs: Pairs, amounts: FloatArray) -> bool:
        """Add a column for each pair; less and less of them until F falls."""
        kept, point, radius = amounts > 0.0, self._point, self._problem.radius
        U, s, V, amounts = pairs.U[:, kept], pairs.s[kept], pairs.V[:, kept], amounts[kept]
        if not amounts.size:
            return False
        (A, B, z, b), q, gamma = point.parts, point.q(radius), 1.0
        while gamma > _SHORTEST:
            roots = np.sqrt(gamma * q * amounts)
            # Whatever room the ball has left goes first: W shrinks only once there is none.
            slack = np.sqrt(np.maximum(z**2 - 2.0 * gamma * q * amounts.sum(), 0.0))
            x = join(np.hstack([A, -U * roots]), np.hstack([B, V * roots]), slack, b)
            tried = self._evaluate(x, self._next_probes(x))
            slope = -float(amounts @ (s - self._multiplier))
            rise = tried.objective - point.objective
            if rise <= self._noise:
                if point.W.rank == 0:  # how much more F has curved than the model says
                    model = 0.5 * gamma**2 * float(amounts**2 @ self._along(U, V, point.columns))
                    self._expect_curvature((rise - gamma * slope) / model)
                self._remember_wider(amounts.size)
                self._accept(tried, gamma)
                return True
            share = shorter(slope * gamma, rise)
            gamma *= share
            self._scale /= share
        return False

    def _remember_wider(self, more: int) -> None:
        """Let L-BFGS go on where there are more columns, of which it knows nothing."""
        shape, width = self._problem.shape, self._width
        self._lbfgs = self._lbfgs.map(lambda vector: widened(vector, shape, width, more))

    # The columns that W has

    def _move(self) -> bool:
        """The step that promises more: along the columns that W has, or to new ones."""
        point, pairs = self._point, outside_pairs(self._point)
        amounts = self._amounts(pairs)
        promised = 0.5 * float(amounts @ (pairs.s - self._multiplier))
        while point.W.rank:
            direction = self._direction()
            first = promised > -0.5 * float(direction @ point.gradient)
            if (first and self._add(pairs, amounts)) or self._search(direction):
                return True
            if not self._lbfgs.pairs:
                break
            self._lbfgs = LBFGS()
        return self._add(pairs, amounts)

    def _direction(self) -> FloatArray:
        """Newton's, or that of L-BFGS."""
        point, exact = self._point, self._problem.task.quadratic and self._metric.exact
        model = Model(point, self._metric, self._problem.radius, self._scale, self._seen.inside)
        if exact:
            return -model.newton(point.gradient)
        direction = self._lbfgs.direction(point.gradient, model.divide)
        return -model.divide(point.gradient) if direction is None else direction

    def _project(self) -> bool:
        """Projected gradient steps where least squares are curved about alike in all directions.

        They find new directions and drop others at once.
        """
        point, problem, rank = self._point, self._problem, self._point.W.rank
        G, H, L = problem.gradient.gather(), self._metric.matrix, self._lipschitz
        assert H is not None  # as it is in gram form
        count = rank + rank // 2 + _PROBES if rank else _MOST_PROBES // 2
        self._view = view(point.W, G, L, min(count, *problem.shape), self._view)
        step = project(point.W, G, H, L, problem.radius, self._view)
        if step is None:
            return False
        x = factors_of(step.W, problem.radius, point.parts.b)
        U, V = step.rest
        tried = self._evaluate(x, (U[:, :_PROBES], V[:, :_PROBES]))
        if tried.objective - point.objective > self._noise:
            self._return()
            return False
        self._lipschitz, self._lbfgs = step.lipschitz, LBFGS()
        self._accept(tried, 1.0 / L)
        return True

    def _search(self, direction: FloatArray) -> bool:
        """To the first point on the way, from the whole step down, where F is low enough."""
        point, slope, t = self._point, float(direction @ self._point.gradient), 1.0
        while slope < 0.0 and t > _SHORTEST:
            x = point.x + t * direction
            change = self._trimming(x, -t * slope)
            x = with_slack(change(x), x, self._width)
            tried = self._evaluate(x, self._next_probes(x))
            rise, left = tried.objective - point.objective, change(direction) @ tried.gradient
            # Where rounding hides whether F falls, its slope decides (Hager and Zhang, 2005).
            level = rise <= self._noise and left <= -0.8 * slope
            if rise < 0.0 or level:
                if change is not np.positive:
                    self._lbfgs = self._lbfgs.map(change)
                self._lbfgs.remember(x - change(point.x), tried.gradient - change(point.gradient))
                self._accept(tried, t)
                return True
            t *= shorter(slope * t, rise)
        return False

    def _trimming(self, x: FloatArray, promised: float) -> Product:
        """The map that drops columns of x worth less than a share of what a step promises."""
        (A, B, _, _), shape, radius = self._parts(x), self._problem.shape, self._problem.radius
        rank = A.shape[1]
        if rank < 2:
            return np.positive
        # A rotation of the columns of A and B together changes neither W nor any length.
        values, turn = np.linalg.eigh(gram(A) + gram(B))
        q = float(x[: x.size - self._width] @ x[: x.size - self._width]) / (2.0 * radius)
        mass = 0.5 * np.maximum(values, 0.0) / q
        # F rises by σ₁(G)·mass at the most, and by what it curves.
        curved = self._scale * self._metric.along(matmul(A, turn))
        curved *= self._point.columns.relative @ matmul(B, turn) ** 2
        rise = self._seen.sigma * mass + 0.5 * curved / q**2
        dropped = np.cumsum(rise) < _TRIM * promised
        dropped[-1] = False
        if not dropped.any():
            return np.positive
        kept = turn[:, ~dropped]
        return lambda vector: rejoined(vector, kept, sum(shape), self._width)

    # Checkpoints

    def memory(self) -> Memory:
        """All that the next steps depend on, beside W, the value there and the shards' states."""
        return {
            "numbers": {name: getattr(self, name) for name in self._REMEMBERED},
            "point": self._point.memory(),
            "seen": tuple(self._seen),
            "metric": tuple(self._metric),
            "pairs": self._lbfgs.memory(),
            "view": self._view,
            "random": self._rng.bit_generator.state,
        }

    def _restore(self, memory: Memory) -> None:
        for name in self._REMEMBERED:
            setattr(self, name, memory["numbers"][name])
        self._point = Point.restored(memory["point"], self._problem.shape, self._problem.radius)
        self._seen, self._metric = Seen(*memory["seen"]), Metric(*memory["metric"])
        self._lbfgs.restore(memory["pairs"])
        self._view = memory["view"]
        self._rng.bit_generator.state = memory["random"]


def shorter(slope: float, rise: float) -> float:
    """The share of a step at which a parabola of that slope and rise is lowest, within limits."""
    return min(0.5, max(0.1, -slope / (2.0 * (rise - slope))))
