"""Follows a solver's iterates: history, certificate, stopping, interruption."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from dfwtrace._typing import FloatArray
from dfwtrace.certificate import FAILURE_PROBABILITY, Certificate
from dfwtrace.history import History, Record
from dfwtrace.lowrank import LowRankMatrix
from dfwtrace.result import Status
from dfwtrace.solvers.iterate import Iterate
from dfwtrace.solvers.problem import Problem, Value
from dfwtrace.validation import describe

#: Called after every epoch with the iterate and its record; see `dfwtrace.solve`.
Callback = Callable[[LowRankMatrix, Record], Mapping[str, Any] | bool | None]


class Display(Protocol):
    """Something that shows records as they come."""

    def show(self, record: Record) -> None: ...


@dataclass(frozen=True)
class Rules:
    """When to stop and what to do after every epoch.

    `tol` is absolute here: the gap at which the run ends.
    """

    tol: float | None = None
    epochs: int | None = None
    max_time: float | None = None
    certify_every: int | None = None
    callback: Callback | None = None
    snapshots: Snapshots | None = None


class Snapshots(Protocol):
    """Keeps a run's memory, now and then."""

    def due(self, epoch: int) -> bool: ...

    def write(self, memory: dict[str, Any]) -> None: ...


@dataclass(frozen=True)
class Outcome:
    """Where a run ended."""

    W: LowRankMatrix
    objective: float
    gap: float
    certificate: Certificate | None
    status: Status
    history: History
    intercept: FloatArray | None = None


class _Best(NamedTuple):
    """The best iterate so far."""

    objective: float
    W: LowRankMatrix
    certificate: Certificate | None
    intercept: FloatArray | None


class Watch:
    """One run, followed from the value at its start to its outcome."""

    def __init__(
        self,
        problem: Problem,
        W: LowRankMatrix,
        start: Value,
        rules: Rules,
        display: Display,
        began: float | None = None,
    ) -> None:
        self._problem, self._rules, self._display = problem, rules, display
        self._history = History()
        self._began = time.perf_counter() if began is None else began
        self._W, self._value = W, start
        self._certificate: Certificate | None = None
        self._n_certificates = 0
        self._lower_bound = -math.inf  # max over certified W of F(W) - gap: what is known of F*
        self._best = _Best(start.objective, W, None, problem.b)
        # A certificate is tried on the tolerance's account if the estimate is below this one, and
        # from that epoch on if it is below the tolerance.
        self._certify_from, self._certify_below = 0, rules.tol or 0.0

    def follow(self, iterates: Iterator[Iterate]) -> Outcome:
        """Run the solver to its end, to the tolerance, to a limit or to Ctrl-C."""
        try:
            status = self._follow(iterates)
            if self._certificate is None:
                self._certificate = self._certify()
                if self._history:
                    self._history[-1]["gap"] = self._gap()
            # Without a tolerance, a gap within its own rounding counts as none.
            tol = self._rules.tol
            if self._gap() <= (self._certificate.rounding if tol is None else tol):
                status = "optimal"
            return self._outcome(self._here(), status)
        except KeyboardInterrupt:
            return self._outcome(self._best, "interrupted")

    def _outcome(self, at: _Best, status: Status) -> Outcome:
        gap = self._gap_of(at.objective, at.certificate)
        W, history = at.W.compress(), self._history
        return Outcome(W, at.objective, gap, at.certificate, status, history, at.intercept)

    def _here(self) -> _Best:
        return _Best(self._value.objective, self._W, self._certificate, self._problem.b)

    def _follow(self, iterates: Iterator[Iterate]) -> Status:
        for iterate in iterates:
            self._W, self._value = iterate.W, Value(iterate.objective, iterate.inner)
            due = self._certificate_due(iterate)
            self._certificate = self._certify() if due else None
            self._history.append(self._record(iterate))
            record = self._history[-1]
            self._remember_best()  # before the callback, where Ctrl-C may well arrive
            stop = self._call_back(record)
            self._display.show(record)
            if self._reached_tolerance():
                return "optimal"
            if stop:
                return "stopped"
            if self._rules.max_time is not None and record["seconds"] >= self._rules.max_time:
                return "max_time"
            snapshots = self._rules.snapshots
            if snapshots is not None and snapshots.due(iterate.epoch):
                snapshots.write(self._memory(iterate))
        # A solver that ends before its time knows no better step.
        short = self._rules.epochs is not None and len(self._history) < self._rules.epochs
        return "stalled" if short else "max_epochs"

    def _memory(self, iterate: Iterate) -> dict[str, Any]:
        """All that the run depends on from here."""
        best = self._best
        certificate = None if best.certificate is None else asdict(best.certificate)
        return {
            "problem": self._problem.memory(),
            "solver": iterate.memory(),
            "W": self._W,
            "value": tuple(self._value),
            "certificate": None if self._certificate is None else asdict(self._certificate),
            "best": (best.objective, best.W, certificate, best.intercept),
            "history": list(self._history),
            "certificates": (self._n_certificates, self._certify_from, self._certify_below),
            "lower_bound": self._lower_bound,
            "seconds": time.perf_counter() - self._began,
        }

    def restore(self, memory: dict[str, Any]) -> None:
        """Go on where another run was; W and its value are this one's already."""
        objective, W, certificate, intercept = memory["best"]
        self._best = _Best(objective, W, _certificate_of(certificate), intercept)
        self._certificate = _certificate_of(memory["certificate"])
        for record in memory["history"]:
            self._history.append(record)
        self._n_certificates, self._certify_from, self._certify_below = memory["certificates"]
        self._lower_bound = memory["lower_bound"]
        self._began -= memory["seconds"]

    def _certificate_due(self, iterate: Iterate) -> bool:
        every = self._rules.certify_every
        if every is not None and iterate.epoch % every == 0:
            return True
        if self._rules.tol is None:
            return False
        # The estimate lies below the certified gap: while it is above tol, none can be reached, and
        # after an attempt in vain not before it has fallen by as much as the gap was too large.
        if iterate.epoch < self._certify_from:
            return iterate.gap_estimate <= self._certify_below
        # A bound from products may be loose by a tenth of tol.
        share = 0.9 if self._problem.deflates else 1.0
        return not iterate.gap_estimate > share * self._rules.tol

    def _certify(self) -> Certificate:
        self._n_certificates += 1
        certificate = self._problem.certificate(
            self._value.inner,
            wanted=self._rules.tol or 0.0,
            # ½ + ¼ + … of it, so that all of a run's certificates together fail that seldom.
            failure_probability=FAILURE_PROBABILITY / 2.0**self._n_certificates,
            W=self._W,
        )
        lower_bound = self._value.objective - certificate.gap
        if not math.isnan(lower_bound):
            self._lower_bound = max(self._lower_bound, lower_bound)
        return certificate

    def _gap(self) -> float:
        """The certified gap at the present W."""
        return self._gap_of(self._value.objective, self._certificate)

    def _gap_of(self, objective: float, certificate: Certificate | None) -> float:
        """F(W) - F* is at most W's own gap, and at most F(W) less any lower bound of F*."""
        own = math.inf if certificate is None else certificate.gap
        known = objective - self._lower_bound
        gap = own if math.isnan(known) else min(own, max(known, 0.0))
        return gap if gap < math.inf else math.nan

    def _reached_tolerance(self) -> bool:
        if self._certificate is None or self._rules.tol is None:
            return False
        if self._gap() <= self._rules.tol:
            return True
        # A certificate costs several epochs: try again only after some more, or when it may do.
        epochs, estimate = len(self._history), self._history[-1]["gap_estimate"]
        self._certify_from = epochs + max(5, epochs // 10)
        self._certify_below = max(estimate, 0.0) * self._rules.tol / self._gap()
        return False

    def _record(self, iterate: Iterate) -> Record:
        oracle, other, cost = self._problem.workers.take()
        return {
            "epoch": iterate.epoch,
            "objective": iterate.objective,
            "gap_estimate": iterate.gap_estimate,
            "gap": self._gap() if self._certificate else math.nan,
            "sigma": iterate.sigma,
            "gamma": iterate.gamma,
            "power_iterations": iterate.power_iterations,
            "rank": iterate.W.rank,
            "rounds": oracle.rounds,
            "numbers_sent": oracle.numbers,
            "other_rounds": other.rounds,
            "other_numbers": other.numbers,
            "bytes_on_wire": cost.bytes,
            "compute_seconds": cost.compute,
            "wait_seconds": cost.wait,
            "reduce_seconds": cost.reduce,
            "seconds": time.perf_counter() - self._began,
        }

    def _call_back(self, record: Record) -> bool:
        if self._rules.callback is None:
            return False
        answer = self._rules.callback(self._W, dict(record))
        if isinstance(answer, Mapping):
            clash = sorted(set(answer) & set(record))
            if clash:
                raise ValueError(f"callback may not replace the column {clash[0]!r}.")
            record.update(answer)
            return False
        if answer is None or isinstance(answer, bool | np.bool_):
            return bool(answer)
        raise TypeError(f"callback must return a mapping, True or None, got {describe(answer)}.")

    def _remember_best(self) -> None:
        # Also if the task tells no objective.
        if not self._value.objective > self._best.objective:
            self._best = self._here()


def _certificate_of(fields: dict[str, Any] | None) -> Certificate | None:
    return None if fields is None else Certificate(**fields)
