"""Progress on the terminal, where there is one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from dfwtrace.result import Record


class Display(Protocol):
    """Shows records as they come."""

    def show(self, record: Record) -> None:
        """Show one more."""


class Quiet:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing to clean up."""

    def show(self, record: Record) -> None:
        """Nothing to show."""


class Bar(Quiet):
    """A line with epochs done, objective, gap and rank."""

    def __init__(self, epochs: int, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[facts]}"),
            console=console,
        )
        self._task = self._progress.add_task("dfwtrace", total=epochs, facts="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def show(self, record: Record) -> None:
        gap, name = record["gap"], "gap"
        if math.isnan(gap):
            gap, name = record["gap_estimate"], "gap ≈"
        facts = f"F {record['objective']:.5g}  {name} {gap:.2g}  rank {record['rank']}"
        self._progress.update(self._task, completed=record["epoch"], facts=facts)


class Aim(NamedTuple):
    """What a run is about to do: epochs and seconds at the most, the gap it is after, and F(0)."""

    epochs: int
    tol: float | None = None
    max_time: float | None = None
    objective_at_zero: float = math.nan


Show = Callable[[Aim], AbstractContextManager[Any]]
_shown_by: ContextVar[Show | None] = ContextVar("shown_by", default=None)


@contextmanager
def shown_by(show: Show) -> Iterator[None]:
    """Within the block, runs are shown by a custom display, nested runs too.

    Examples
    --------
    >>> from contextlib import nullcontext
    >>> with shown_by(lambda aim: nullcontext(Quiet())), display(Aim(3), wanted=True) as shown:
    ...     shown.show({"epoch": 1})
    """
    before = _shown_by.set(show)
    try:
        yield
    finally:
        _shown_by.reset(before)


def display(aim: Aim, wanted: bool | None) -> AbstractContextManager[Any]:
    """A bar if wanted, or by default if standard error is a terminal; see also `shown_by`.

    Examples
    --------
    >>> with display(Aim(epochs=10), wanted=False) as shown:
    ...     shown.show({"epoch": 1})
    """
    show = _shown_by.get()
    if show is not None:
        return show(aim)
    console = Console(stderr=True)
    shown = wanted or (wanted is None and console.is_terminal)
    return Bar(aim.epochs, console) if shown else Quiet()
