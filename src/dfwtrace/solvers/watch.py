"""Follows a solver's iterates: history, certificate, stopping, interruption."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

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


@dataclass(frozen=True)
class Outcome:
    """Where a run ended."""

    W: LowRankMatrix
    objective: float
    gap: float
    certificate: Certificate | None
    status: Status
    history: History


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
        self._best: tuple[float, LowRankMatrix, Certificate | None] = (start.objective, W, None)
        # A certificate is tried on the tolerance's account if the estimate is below this one, which
        # is the tolerance itself from that epoch on.
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
            return self._outcome(self._value.objective, self._W, self._certificate, status)
        except KeyboardInterrupt:
            return self._outcome(*self._best, "interrupted")

    def _outcome(
        self, objective: float, W: LowRankMatrix, certificate: Certificate | None, status: Status
    ) -> Outcome:
        gap = self._gap_of(objective, certificate)
        return Outcome(W.compress(), objective, gap, certificate, status, self._history)

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
        # A solver that ends before its time knows no better step.
        short = self._rules.epochs is not None and len(self._history) < self._rules.epochs
        return "stalled" if short else "max_epochs"

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
        return not iterate.gap_estimate > self._rules.tol

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
        if not self._value.objective > self._best[0]:  # also if the task tells no objective
            self._best = (self._value.objective, self._W, self._certificate)
