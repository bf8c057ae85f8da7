"""A progress bar on standard error."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import repeat

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

from dfwtrace.result import Record
from dfwtrace.solvers.solver import StoppingCriteria

Show = Callable[[Record], None]  # called with the record of each epoch
#: Titles of the bars to come; for a caller that knows how many runs there will be.
titles: ContextVar[Iterator[str]] = ContextVar("titles")


@contextmanager
def display(
    criteria: StoppingCriteria, objective_at_zero: float, wanted: bool | None
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
        title = next(titles.get(repeat("dfwtrace")))
        task, scale = bar.add_task(title, total=1.0, facts=""), abs(objective_at_zero) or 1.0

        def show(record: Record) -> None:
            gap, about = record["gap"] / scale, ""
            if math.isnan(gap):
                gap, about = record["gap_estimate"] / scale, "≈ "
            facts = f"{record['epoch']}/{criteria.epochs}  F {record['objective']:.5g}"
            facts += f"  gap {about}{gap:.1e}  rank {record['rank']}"
            done = max(bar.tasks[0].completed, share_done(criteria, record, gap))
            bar.update(task, completed=done, facts=facts)

        yield show


def share_done(criteria: StoppingCriteria, record: Record, gap: float) -> float:
    """Return how much of a run is done: of its epochs, its time, or the way of log(gap) to tol."""
    shares: list[float] = [record["epoch"] / criteria.epochs]
    if criteria.max_time is not None:
        shares.append(record["seconds"] / criteria.max_time)
    if criteria.tol and 0.0 < gap < 1.0 and criteria.tol < 1.0:
        shares.append(math.log(gap) / math.log(criteria.tol))
    return min(1.0, max(shares))
