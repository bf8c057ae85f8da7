"""What is shown of a fit while it runs: a live line on a terminal, plain lines, or nothing."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from dfwtrace.cli.output import Output
from dfwtrace.cli.time_left import TimeLeft
from dfwtrace.report import duration
from dfwtrace.result import Record
from dfwtrace.solvers.progress import Aim

# Seconds between plain lines.
_BETWEEN_LINES = 2.0


class Monitor:
    """Follows one run, or the many of a cross-validation; shows nothing.

    Parameters
    ----------
    runs : int
        How many there will be at the most.
    clock : callable
    """

    def __init__(self, runs: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        self._runs, self._clock = runs, clock
        self._began = clock()
        self._run = 0
        self._at_zero = 1.0
        self._max_time: float | None = None
        self._left = TimeLeft(None)
        self._record: Record = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing to clean up."""

    def begin(self, aim: Aim) -> None:
        """Another run begins."""
        if not aim.epochs:  # no run, but a look at W = 0
            return
        self._run += 1
        self._at_zero = abs(aim.objective_at_zero) or 1.0
        self._max_time = aim.max_time
        self._left = TimeLeft(aim.tol)

    def show(self, record: Record) -> None:
        """An epoch has ended."""
        self._record = record
        self._left.add(record["seconds"], _gap(record)[0])

    def line(self) -> str:
        """All that is known now, in one line."""
        record = self._record
        if not record:
            return "starting"
        gap, certified = _gap(record)
        parts = [f"run {self._run} of {self._runs}"] if self._runs > 1 else []
        parts += [
            f"epoch {record['epoch']}",
            f"objective {record['objective']:.5g}",
            f"gap {'' if certified else '≈ '}{gap / self._at_zero:.1e}",
            f"rank {record['rank']}",
            duration(self._elapsed()),
            f"left {self._time_left()}",
        ]
        return " · ".join(parts)

    def _elapsed(self) -> float:
        return self._clock() - self._began

    def _time_left(self) -> str:
        left = self._left.seconds()
        if self._runs > 1:  # what one run takes tells little of the others: count them
            done = self._run - 1
            left = self._elapsed() * (self._runs - done) / done if done >= 3 else None
        elif self._max_time is not None:
            most = max(self._max_time - self._record["seconds"], 0.0)
            left = most if left is None else min(left, most)
        return "—" if left is None else f"≈ {duration(left)}"


class LiveLine(Monitor):
    """One line on a terminal, which goes when the fit has ended."""

    def __init__(
        self, console: Console, runs: int = 1, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(runs, clock)
        self._live = Live(self, console=console, refresh_per_second=8, transient=True)

    def __rich__(self) -> Text:
        return Text(self.line())

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()


class PlainLines(Monitor):
    """A line now and then, for a log file."""

    def __init__(self, runs: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(runs, clock)
        self._due = self._began

    def show(self, record: Record) -> None:
        super().show(record)
        if self._clock() >= self._due:
            self._due = self._clock() + _BETWEEN_LINES
            print(self.line(), file=sys.stderr, flush=True)


def monitor_for(output: Output, verbose: bool, runs: int = 1) -> Monitor:
    """What the user asked for, and what standard error is good for."""
    if output.silent:
        return Monitor(runs)
    console = Console(stderr=True, highlight=False, markup=False)
    if console.is_terminal:
        return LiveLine(console, runs)
    return PlainLines(runs) if verbose else Monitor(runs)


def _gap(record: Record) -> tuple[float, bool]:
    """The gap, and whether it is certified."""
    certified = not math.isnan(record["gap"])
    return (record["gap"] if certified else record["gap_estimate"]), certified
