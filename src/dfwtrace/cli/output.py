"""What a command prints: lines and tables for people, one JSON object for programs, progress."""

from __future__ import annotations

import json
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Annotated, Any

import numpy as np
from rich import box
from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from typer import Option

from dfwtrace.cli.guard import visible
from dfwtrace.report import duration
from dfwtrace.result import Record
from dfwtrace.solvers.progress import Aim, shown_by

Json = Annotated[bool, Option("--json", help="One JSON object on standard output, nothing else.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Only warnings and errors.")]
Verbose = Annotated[bool, Option("--verbose", "-v", help="Lines of progress without a terminal.")]

_BETWEEN_LINES = 2.0  # seconds
_LONGEST_NAME = 160


class Output:
    """Prints one JSON object on standard output, or lines; if quiet, only warnings and errors."""

    def __init__(self, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json, self.silent = as_json, as_json or quiet
        self.warnings: list[str] = []

    def say(self, what: str | Table, note: bool = False) -> None:
        """Print a part of the result, or a note about what is being done."""
        if self.silent:
            return
        if isinstance(what, Table):
            Console(highlight=False, markup=False).print(what)
        else:
            print(visible(what), file=sys.stderr if note else sys.stdout, flush=True)

    def warn(self, text: str) -> None:
        """Print a warning, once."""
        if text not in self.warnings:
            self.warnings.append(text)
            if not self.as_json:
                print(f"Warning: {visible(text)}", file=sys.stderr, flush=True)

    def finish(self, facts: dict[str, Any]) -> None:
        """Print all facts, for programs."""
        if self.as_json:
            facts = facts | ({"warnings": self.warnings} if self.warnings else {})
            print(json.dumps(plain(facts), allow_nan=False))

    @contextmanager
    def watching(self, verbose: bool, runs: int) -> Iterator[None]:
        """Show the runs of a fit, and print libraries' warnings as lines of our own."""
        from sklearn.exceptions import ConvergenceWarning  # only here: it takes a second

        console = Console(stderr=True, highlight=False, markup=False)
        live = console.is_terminal and not self.silent
        monitor = Monitor(runs, console if live else None, verbose and not (live or self.silent))
        # How a fit ended is in its result, and the other two are for programmers.
        left_out = ConvergenceWarning | DeprecationWarning | FutureWarning
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            try:
                with monitor.following():
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
        description = TextColumn("{task.description}", markup=False)
        columns = (description, TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
        self._progress = Progress(*columns, console=console, transient=True, get_time=clock)
        self._task = self._progress.add_task("starting", total=runs)
        self._live = self._progress if console is not None else nullcontext()

    @contextmanager
    def following(self) -> Iterator[None]:
        """Show all runs within the block, also those that an estimator makes by itself."""
        with shown_by(self.begin), self._live:
            yield

    def begin(self, aim: Aim) -> AbstractContextManager[Monitor]:
        """Count another run."""
        if aim.epochs:  # else it only evaluates W = 0
            self._run, self._aim = self._run + 1, aim
        return nullcontext(self)

    def show(self, record: Record) -> None:
        """Show an epoch that has ended."""
        aim, scale = self._aim, abs(self._aim.objective_at_zero) or 1.0
        certified = not math.isnan(record["gap"])
        gap = record["gap"] if certified else record["gap_estimate"]
        # How much of the run is done: of its epochs, its time, or the way of log(gap) to tol.
        shares: list[float] = [record["epoch"] / aim.epochs]
        if aim.max_time is not None:
            shares.append(record["seconds"] / aim.max_time)
        if aim.tol and 0.0 < gap < scale and aim.tol < scale:
            shares.append(math.log(scale / gap) / math.log(scale / aim.tol))
        done = self._run - 1 + min(1.0, max(shares))
        # Of many runs the objectives say little, and the line must fit into 80 columns.
        parts = [f"run {self._run} of {self._runs}"] if self._runs > 1 else []
        parts.append(f"epoch {record['epoch']}")
        parts += [f"objective {record['objective']:.5g}"] if self._runs == 1 else []
        parts += [f"gap {'' if certified else '≈ '}{gap / scale:.1e}", f"rank {record['rank']}"]
        line, task = " · ".join(parts), self._progress.tasks[0]
        self._progress.update(self._task, description=line, completed=max(done, task.completed))
        if self._lines and self._clock() >= self._due:
            self._due = self._clock() + _BETWEEN_LINES
            print(f"{line} · {duration(task.elapsed or 0.0)}", file=sys.stderr, flush=True)


def plain(value: Any) -> Any:
    """Return what strict JSON can hold; null for numbers that are not finite."""

    def other(value: Any) -> Any:
        return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)

    return json.loads(json.dumps(value, default=other), parse_constant=lambda _: None)


def word(value: Any) -> str:
    """Return a name from a file, in one line and cut short."""
    text = visible(str(value).replace("\n", "\\n"))
    return text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 1] + "…"


def lines(facts: Iterable[tuple[str, Any]]) -> str:
    """Return names and values below each other."""
    known = list(facts)
    width = max((len(name) for name, _ in known), default=0)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in known)


def table(rows: Sequence[dict[str, str]], title: str | None = None) -> Table:
    """Return a table of numbers, one column for each name; "solver" and "" hold words."""
    found = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    found.collapse_padding = title is not None
    for name in rows[0]:
        found.add_column(name, justify="left" if name in ("solver", "") else "right")
    for row in rows:
        found.add_row(*row.values())
    return found
