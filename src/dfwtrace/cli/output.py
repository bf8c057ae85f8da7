"""What a command prints: lines and tables for people, one JSON object for programs, progress."""

from __future__ import annotations

import json
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from dfwtrace.cli.guard import visible
from dfwtrace.report import counted as counted
from dfwtrace.report import duration as duration
from dfwtrace.report import number as number
from dfwtrace.report import size as size
from dfwtrace.result import Record
from dfwtrace.solvers.progress import Aim, shown_by

_BETWEEN_LINES = 2.0  # seconds
_LONGEST_NAME = 160


class Output:
    """Prints one JSON object on standard output, or lines; if quiet, only warnings and errors."""

    def __init__(self, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json, self.quiet = as_json, quiet
        self.warnings: list[str] = []

    @property
    def silent(self) -> bool:
        return self.as_json or self.quiet

    def say(self, text: str = "") -> None:
        """Print a part of the result."""
        if not self.silent:
            print(visible(text), flush=True)

    def note(self, text: str) -> None:
        """Print what is being done."""
        if not self.silent:
            print(visible(text), file=sys.stderr, flush=True)

    def warn(self, text: str) -> None:
        """Print what should not be missed."""
        if text in self.warnings:
            return
        self.warnings.append(text)
        if not self.as_json:
            print(f"Warning: {visible(text)}", file=sys.stderr, flush=True)

    def show(self, table: Table) -> None:
        """Print a table."""
        if not self.silent:
            Console(highlight=False, markup=False).print(table)

    def tell(self, facts: dict[str, Any]) -> None:
        """Print the whole result, for programs."""
        if self.as_json:
            if self.warnings:
                facts = {**facts, "warnings": self.warnings}
            print(json.dumps(plain(facts), allow_nan=False))

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Print libraries' warnings as lines of our own."""
        from sklearn.exceptions import ConvergenceWarning  # only here: it takes a second

        # How a fit ended is in its result, and the other two are for programmers.
        left_out = ConvergenceWarning | DeprecationWarning | FutureWarning
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            try:
                yield
            finally:
                for warning in heard:
                    if not issubclass(warning.category, left_out):
                        self.warn(" ".join(str(warning.message).split()))


class Monitor:
    """Shows the runs of a fit: live on a terminal, as lines on standard error, or not at all."""

    def __init__(
        self,
        runs: int = 1,
        console: Console | None = None,
        lines: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runs, self._lines, self._clock = runs, lines, clock
        self._run, self._aim, self._due = 0, Aim(0), clock()
        self._live = console is not None
        columns = (TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        self._progress = Progress(
            *(*columns, TextColumn("left"), TimeRemainingColumn()),
            console=console,
            transient=True,
            get_time=clock,
        )
        self._task = self._progress.add_task("starting", total=runs)

    @contextmanager
    def following(self) -> Iterator[None]:
        """Show all runs within the block, also those that an estimator makes by itself."""
        with shown_by(self.begin), self._progress if self._live else nullcontext():
            yield

    def begin(self, aim: Aim) -> AbstractContextManager[Monitor]:
        """Another run begins."""
        if aim.epochs:  # else it only evaluates W = 0
            self._run, self._aim = self._run + 1, aim
        return nullcontext(self)

    def show(self, record: Record) -> None:
        """An epoch has ended."""
        line = self._line(record)
        done = self._run - 1 + min(1.0, self._share(record))
        task = self._progress.tasks[0]
        self._progress.update(self._task, description=line, completed=max(done, task.completed))
        if self._lines and self._clock() >= self._due:
            self._due = self._clock() + _BETWEEN_LINES
            print(f"{line} · {duration(task.elapsed or 0.0)}", file=sys.stderr, flush=True)

    def _line(self, record: Record) -> str:
        gap, certified = _gap(record)
        epoch, objective = f"epoch {record['epoch']}", f"objective {record['objective']:.5g}"
        # Of many runs the objectives say little, and the line must fit into 80 columns.
        several = self._runs > 1
        parts = [f"run {self._run} of {self._runs}", epoch] if several else [epoch, objective]
        parts.append(f"gap {'' if certified else '≈ '}{gap / self._scale:.1e}")
        parts.append(f"rank {record['rank']}")
        return " · ".join(parts)

    @property
    def _scale(self) -> float:
        return abs(self._aim.objective_at_zero) or 1.0

    def _share(self, record: Record) -> float:
        """How much of the run is done: of its epochs, its time, or the way of log(gap) to tol."""
        aim, gap = self._aim, _gap(record)[0]
        shares: list[float] = [record["epoch"] / aim.epochs]
        if aim.max_time is not None:
            shares.append(record["seconds"] / aim.max_time)
        if aim.tol and 0.0 < gap < self._scale and aim.tol < self._scale:
            shares.append(math.log(self._scale / gap) / math.log(self._scale / aim.tol))
        return max(shares)


def monitor_for(output: Output, verbose: bool, runs: int = 1) -> Monitor:
    """A monitor as the user asked for, and as standard error allows."""
    if output.silent:
        return Monitor(runs)
    console = Console(stderr=True, highlight=False, markup=False)
    if console.is_terminal:
        return Monitor(runs, console)
    return Monitor(runs, lines=verbose)


def _gap(record: Record) -> tuple[float, bool]:
    """The gap, and whether it is certified."""
    certified = not math.isnan(record["gap"])
    return (record["gap"] if certified else record["gap_estimate"]), certified


def plain(value: Any) -> Any:
    """What strict JSON can hold; null for numbers that are not finite."""
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def word(value: Any) -> str:
    """A name from a file, in one line and cut short."""
    text = visible(str(value).replace("\n", "\\n"))
    return text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 1] + "…"


def words(values: Sequence[Any], most: int = 8) -> str:
    """The first few of many names."""
    shown = ", ".join(map(word, values[:most]))
    return shown + (f", … ({len(values)} in all)" if len(values) > most else "")


def lines(facts: Iterable[tuple[str, Any]]) -> str:
    """Names and values below each other."""
    known = [(name, str(value)) for name, value in facts]
    width = max((len(name) for name, _ in known), default=0)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in known)
