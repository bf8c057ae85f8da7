"""Progress on the terminal, where there is one."""

from __future__ import annotations

import math
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from dfwtrace.history import Record


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


def display(epochs: int, wanted: bool | None) -> Quiet:
    """A bar if wanted, or if nobody said and standard error is a terminal.

    Examples
    --------
    >>> with display(epochs=10, wanted=False) as shown:
    ...     shown.show({"epoch": 1})
    """
    console = Console(stderr=True)
    return Bar(epochs, console) if wanted or (wanted is None and console.is_terminal) else Quiet()
