"""One run from start to result: history, certificates, stopping, checkpoints, progress, Ctrl-C."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import KW_ONLY, asdict, dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

from dfwtrace._typing import FloatArray, Memory
from dfwtrace.files.checkpoint import (
    Checkpoint,
    CheckpointFile,
    checkpoint_errors,
    settings_of,
    start_of,
)
from dfwtrace.linalg.certificate import FAILURE_PROBABILITY, Certificate
from dfwtrace.linalg.lowrank import LowRankMatrix
from dfwtrace.result import History, Record, Result, Status
from dfwtrace.solvers.early_stopping import HELD_OUT, SCORE, EarlyStopping, best_epoch
from dfwtrace.solvers.problem import Iterate, Problem, Start, Value
from dfwtrace.solvers.solver import Callback, Solver, StoppingCriteria
from dfwtrace.validation import describe, require_finite

# Columns of a record, in the order of the fields of what they come from.
_TRAFFIC = ("rounds", "numbers_sent", "other_rounds", "other_numbers")
_COST = ("bytes_on_wire", "compute_seconds", "wait_seconds", "reduce_seconds")


# F itself ends a run once it is below this share of the tolerance.
_CLEARLY = 0.1
Show = Callable[[Record], None]  # called with the record of each epoch


class _Point(NamedTuple):
    """An iterate with all that is known of it."""

    objective: float
    W: LowRankMatrix
    certificate: Certificate | None
    b: FloatArray | None


class DigitsLostError(Exception):
    """Rounding in the sums that F is computed from may hide a gap within the tolerance."""


@dataclass(eq=False, repr=False)
class Runner:
    """A solver on a problem with workers, followed from the start to the result."""

    problem: Problem
    solver: Solver
    criteria: StoppingCriteria
    _: KW_ONLY
    callback: Callback | None = None
    early_stopping: EarlyStopping | None = None  # where the problem is without the held-out rows
    verbose: bool | int | None = None
    checkpoint: Checkpoint | None = None
    # "moments" ends with an error where rounding in moments hides the tolerance; "rows" follows it.
    attempt: Literal["only", "moments", "rows"] = "only"
    began: float = field(default_factory=time.perf_counter)  # the user's call
    title: str = "dfwtrace"  # of the progress bar

    def __post_init__(self) -> None:
        self._checkpoint_file: CheckpointFile | None = None
        self._history = History()
        self._certificate: Certificate | None = None
        self._n_certificates = 0
        self._deflates = self.solver.deflates and self.problem.summary is None
        # max over certified W of F(W) - gap: F* is not below it
        self._lower_bound = 0.0 if self.problem.task.nonnegative else -math.inf
        self._rounding = 0.0  # the largest allowance for it in a certificate so far
        # A certificate is due for the tolerance if the estimate is below this value, and from that
        # epoch on if it is below the tolerance.
        self._certify_from, self._certify_below = 0, 0.0

    def run(self, radius: float, W: LowRankMatrix, seed: int) -> Result:
        """Minimise F over the ball from W."""
        problem, criteria = self.problem, self.criteria
        problem.prepare_run(radius, seed)
        W = problem.scaled(W)
        saved = None
        reading: AbstractContextManager[None] = nullcontext()
        if self.checkpoint is not None:
            self._checkpoint_file = CheckpointFile(self.checkpoint, self._identity(W))
            given_up = "gram" if self.attempt == "rows" else None
            saved = self._checkpoint_file.read(given_up)
            reading = reading if saved is None else checkpoint_errors(self.checkpoint.path)
        with reading:
            if saved is None:
                start = Start(W, problem.begin(W), criteria.max_iter)
            else:
                problem.restore(saved["problem"])
                value, first = Value(*saved["iterate"]), len(saved["history"])
                start = Start(saved["W"], value, criteria.max_iter, 0.0, first, saved["solver"])
            at_zero = problem.objective_at_zero
            self._tol = None if criteria.tol is None else criteria.tol * abs(at_zero)
            self._certify_below = self._tol or 0.0
            self._W, self._value = start.W, start.value
            self._best = self._here()
            iterates = self.solver.iterates(problem, start._replace(target=self._tol or 0.0))
            if saved is not None:
                self._restore(saved)
        with display(criteria, at_zero, self.verbose, self.title) as show:
            setup_seconds = time.perf_counter() - self.began
            if saved is None:
                problem.workers.take()  # setting up belongs to no epoch
            point, status = self._follow(iterates, show)
        W = problem.unscaled(point.W.compress())
        return Result(
            W=W,
            objective=point.objective,
            gap=self._gap_of(point),
            status=status,
            history=self._history,
            objective_at_zero=at_zero,
            certificate=point.certificate,
            plan=problem.plan,
            rounds=self._rounds(),
            intercept=problem.intercept_of(W, point.b),
            setup_seconds=setup_seconds,
            radius=radius,
            scale=problem.scale,
        )

    def _follow(self, iterates: Iterator[Iterate], show: Show) -> tuple[_Point, Status]:
        """Run the solver to its end, to the tolerance, to a limit or to Ctrl-C."""
        try:
            status = self._follow_uninterrupted(iterates, show)
            if self.criteria.certified:
                self._certificate = self._certificate or self._certify()
            here = self._here()
            gap = self._gap_of(here)
            if self._history:
                self._history[-1]["gap"] = gap
            if self._certificate is None:
                return self._best, status
            # Without a tolerance, a gap within its own rounding counts as none.
            tol = self._certificate.rounding if self._tol is None else self._tol
            status = "optimal" if gap <= tol or self._stationary() else status
            if status == "stalled":
                self._digits_lost()
            if self._is_best:
                return here, status
            if self._gap_of(self._best) <= tol:
                return self._best, "optimal"
            return self._best, "early_stopping" if status in ("optimal", "stalled") else status
        except KeyboardInterrupt:
            return self._best, "interrupted"

    def _follow_uninterrupted(self, iterates: Iterator[Iterate], show: Show) -> Status:
        criteria = self.criteria
        for iterate in iterates:
            self._W, self._value = iterate.W, Value(iterate.objective, iterate.inner)
            self._certificate = self._certify() if self._certificate_due(iterate) else None
            record = self._record(iterate)
            self._history.append(record)
            # Before the callback, where Ctrl-C may well arrive.
            if self._improves:
                self._best = self._here()
            stop = self._call_back(record)
            show(record)
            if self._reached_tolerance(iterate):
                return "optimal"
            if stop:
                return "stopped"
            if self._tol is not None and self.problem.hides(self._tol, self._W):
                self._digits_lost()
            if self.early_stopping is not None and self.early_stopping.is_over(self._history):
                return "early_stopping"
            if criteria.max_time is not None and record["seconds"] >= criteria.max_time:
                return "max_time"
            if self._checkpoint_file is not None and self._checkpoint_file.due(iterate.epoch):
                self._checkpoint_file.write(self._memory(iterate))
        # A solver that ends before its limit knows no better step.
        return "stalled" if len(self._history) < criteria.max_iter else "max_iter"

    def _digits_lost(self) -> None:
        if self.attempt == "moments":
            raise DigitsLostError

    def _here(self) -> _Point:
        intercept = self.problem.intercept
        b = None if intercept is None else intercept.b
        return _Point(self._value.objective, self._W, self._certificate, b)

    @property
    def _improves(self) -> bool:
        """Whether this iterate is the best so far, by its score or by F; also if F is not known."""
        if self.early_stopping is not None:
            return best_epoch(self._history) == len(self._history) - 1
        return not self._value.objective > self._best.objective

    @property
    def _is_best(self) -> bool:
        """Whether the run returns its last iterate."""
        return self.early_stopping is None or not self._history or self._improves

    def _score(self) -> float:
        """That of the present iterate on the rows left out."""
        here, problem = self._here(), self.problem
        W = problem.unscaled(here.W)
        loss = problem.held_out_loss(HELD_OUT, W, problem.intercept_of(W, here.b))
        return -require_finite(loss, "the loss of the rows left out")

    def _certificate_due(self, iterate: Iterate) -> bool:
        every = self.criteria.certify_every
        if every is not None and iterate.epoch % every == 0:
            return True
        if self._tol is None or not self.criteria.certified:
            return False
        # As F is no lower than 0, say. A loose tolerance is for the gap of W, which says more.
        known = iterate.objective - self._lower_bound
        if known <= _CLEARLY * self._tol and not self._n_certificates:
            return True
        # The estimate lies below the certified gap: while it is above tol, none can be reached, and
        # after a failed attempt not before it has fallen by as much as the gap was too large.
        if iterate.epoch < self._certify_from:
            return iterate.gap_estimate <= self._certify_below
        # A bound from products may be loose by a tenth of tol.
        return not iterate.gap_estimate > (0.9 if self._deflates else 1.0) * self._tol

    def _certify(self) -> Certificate:
        self._n_certificates = k = self._n_certificates + 1
        # Σ 1/(k(k+1)) = 1: all certificates of a run together fail with this probability.
        probability = FAILURE_PROBABILITY / (k * (k + 1))
        W, inner, near = self._W, self._value.inner, self._W.V if self._deflates else None
        certificate = self.problem.certificate(W, inner, self._tol or 0.0, probability, near)
        if self.problem.intercept is not None:  # it was settled: F, b and the gap belong together
            self._value = self.problem.evaluate(W)
        self._rounding = max(self._rounding, certificate.rounding)
        lower_bound = self._value.objective - certificate.gap
        if not math.isnan(lower_bound):
            self._lower_bound = max(self._lower_bound, lower_bound)
        return certificate

    def _gap_of(self, point: _Point) -> float:
        """F(W) - F* is at most W's own gap, and at most F(W) less any lower bound of F*."""
        if self._n_certificates == 0:  # what rounding may do is not known
            return math.nan
        # Two values of F are as far off as their rounding allows, whatever their difference is.
        own = math.inf if point.certificate is None else point.certificate.gap
        known = max(point.objective - self._lower_bound, 0.0) + self._rounding
        gap = own if math.isnan(known) else min(own, known)
        return gap if gap < math.inf else math.nan

    def _stationary(self) -> bool:
        """Whether ∇F(W) = 0: there is no better W, whatever the rounding allows."""
        known = self._certificate
        return known is not None and known.sigma_bound == 0.0 and known.excess <= known.rounding

    def _reached_tolerance(self, iterate: Iterate) -> bool:
        if self._tol is not None and not self.criteria.certified:
            above = iterate.objective - self._lower_bound  # such as 0
            return min(iterate.gap_estimate, above) <= self._tol
        if self._certificate is None or self._tol is None:
            return False
        gap = self._history[-1]["gap"]
        if gap <= self._tol or self._stationary():
            return True
        # A certificate costs several epochs: try again only after some more, or when it may do.
        epochs, estimate = len(self._history), self._history[-1]["gap_estimate"]
        self._certify_from = epochs + max(5, epochs // 10)
        self._certify_below = max(estimate, 0.0) * self._tol / gap
        return False

    def _record(self, iterate: Iterate) -> Record:
        score = {} if self.early_stopping is None else {SCORE: self._score()}
        *traffic, cost = self.problem.workers.take()
        return {
            "epoch": iterate.epoch,
            "objective": self._value.objective,
            "gap_estimate": iterate.gap_estimate,
            "gap": self._gap_of(self._here()) if self._certificate else math.nan,
            "sigma": iterate.sigma,
            "gamma": iterate.gamma,
            "power_iterations": iterate.power_iterations,
            "rank": iterate.W.rank,
            **dict(zip((*_TRAFFIC, *_COST), (*traffic, *cost), strict=True)),
            "seconds": time.perf_counter() - self.began,
            **score,
        }

    def _rounds(self) -> History:
        """A record for each round. Those after the last epoch were for the certificate of its W."""
        rounds, names = History(), ("epoch", "oracle", "method", "numbers_sent", *_COST)
        for epoch, *made, cost in self.problem.workers.rounds:
            values = min(epoch, len(self._history)), *made, *cost
            rounds.append(dict(zip(names, values, strict=True)))
        return rounds

    def _call_back(self, record: Record) -> bool:
        answer = None
        if self.callback is not None:
            answer = self.callback(self.problem.unscaled(self._W), dict(record))
        if isinstance(answer, Mapping):
            clash = sorted(set(answer) & set(record))
            if clash:
                raise ValueError(f"callback may not replace the column {clash[0]!r}.")
            record.update(answer)
            return False
        if answer is None or isinstance(answer, bool | np.bool_):
            return bool(answer)
        raise TypeError(f"callback must return a mapping, True or None, got {describe(answer)}.")

    def _identity(self, start: LowRankMatrix) -> Memory:
        """What must be the same for the run to continue."""
        problem, task, facts = self.problem, self.problem.task, self.problem.rows.facts
        early = self.early_stopping
        return {  # named as in an error message
            "task": settings_of(task.identity),
            "radius": problem.radius,
            "solver": settings_of(self.solver),
            "intercept": problem.learns_intercept,
            "standardize": problem.standardize,
            "use of sample_weight": task.weighted,
            "validation_fraction": None if early is None else float(early.validation_fraction),
            "representation": problem.plan.representation,
            "seed": problem.seed,
            "start": start_of(start),
            "number of rows": facts.n_rows,
            "shape of W": list(facts.shape),
            "precision of X": str(facts.dtype),
            "number of shards": problem.engine.n_shards,
            "rows of the shards": [bytes(each.astype(np.uint8)).hex() for each in problem.digests],
        }

    def _memory(self, iterate: Iterate) -> Memory:
        """All that the run depends on from here."""
        best, known = self._best, (self._certificate, self._best.certificate)
        certificate, of_best = (None if each is None else asdict(each) for each in known)
        return {
            "problem": self.problem.memory(),
            "solver": iterate.memory(),
            "W": self._W,
            "iterate": (iterate.objective, iterate.inner),  # before b was settled for a certificate
            "value": self._value,
            "certificate": certificate,
            "best": (best.objective, best.W, of_best, best.b),
            "history": list(self._history),
            "certificates": (self._n_certificates, self._certify_from, self._certify_below),
            "lower_bound": (self._lower_bound, self._rounding),
            "seconds": time.perf_counter() - self.began,
        }

    def _restore(self, memory: Memory) -> None:
        """Continue where another run was; W is this one's already."""
        self._value = Value(*memory["value"])
        objective, W, of_best, b = memory["best"]
        known = memory["certificate"], of_best
        self._certificate, of_best = (None if c is None else Certificate(**c) for c in known)
        self._best = _Point(objective, W, of_best, b)
        self._history.extend(memory["history"])
        self._n_certificates, self._certify_from, self._certify_below = memory["certificates"]
        self._lower_bound, self._rounding = memory["lower_bound"]
        self.began -= memory["seconds"]


@contextmanager
def display(
    criteria: StoppingCriteria,
    objective_at_zero: float,
    wanted: bool | int | None,
    title: str = "dfwtrace",
) -> Iterator[Show]:
    """Show a run in a bar if wanted, or by default if standard error is a terminal."""
    console = Console(stderr=True)
    if not (console.is_terminal if wanted is None else wanted):
        yield lambda record: None
        return
    columns = TextColumn("{task.description}"), BarColumn(None), TextColumn("{task.fields[facts]}")
    whole = Column(no_wrap=True)  # only the bar gives way where space is short
    times = TimeElapsedColumn(whole), TimeRemainingColumn(compact=True, table_column=whole)
    # Runs may be many: on a terminal, each bar gives way to the next.
    with Progress(*columns, *times, console=console, transient=console.is_terminal) as bar:
        task, scale = bar.add_task(title, total=1.0, facts=""), abs(objective_at_zero) or 1.0

        def show(record: Record) -> None:
            gap, about = record["gap"] / scale, ""
            if math.isnan(gap):
                gap, about = record["gap_estimate"] / scale, "≈ "
            facts = f"{record['epoch']}/{criteria.max_iter}  F {record['objective']:.5g}"
            facts += f"  gap {about}{gap:.1e}  rank {record['rank']}"
            done = max(bar.tasks[0].completed, share_done(criteria, record, gap))
            bar.update(task, completed=done, facts=facts)

        yield show


def share_done(criteria: StoppingCriteria, record: Record, gap: float) -> float:
    """Return how much of a run is done: of its epochs, its time, or the way of log(gap) to tol."""
    shares: list[float] = [record["epoch"] / criteria.max_iter]
    if criteria.max_time is not None:
        shares.append(record["seconds"] / criteria.max_time)
    if criteria.tol and 0.0 < gap < 1.0 and criteria.tol < 1.0:
        shares.append(math.log(gap) / math.log(criteria.tol))
    return min(1.0, max(shares))
