"""From a setting to rows, figures and a page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from dfwtrace.experiments import (
    figure1,
    figure2,
    figure3,
    figure4,
    spectrum,
    starts,
    table1,
    table2,
    theorem,
)
from dfwtrace.experiments.exhibits import Experiment, Setting
from dfwtrace.experiments.markdown import claims_table
from dfwtrace.experiments.page import Part, file_name, part_of, render
from dfwtrace.experiments.picture_file import to_file
from dfwtrace.experiments.problems import last
from dfwtrace.experiments.runs import Row, Run
from dfwtrace.experiments.store import Rows, RunFailedError
from dfwtrace.files.atomic import atomic_write
from dfwtrace.validation import describe

EXPERIMENTS: dict[str, Experiment] = {
    experiment.NAME: experiment
    for experiment in (
        figure1,
        figure2,
        figure3,
        figure4,
        table1,
        table2,
        spectrum,
        theorem,
        starts,
    )
}


class Progress(NamedTuple):
    """A run that is about to be made, or that is known."""

    number: int
    of: int
    run: Run
    known: bool


def choose(names: Sequence[str]) -> list[Experiment]:
    """The experiments of these names; all, if none is given.

    Examples
    --------
    >>> [experiment.NAME for experiment in choose(["table 1", "table 1"])]
    ['table 1']
    """
    for name in names:
        if name not in EXPERIMENTS:
            known = ", ".join(EXPERIMENTS)
            raise ValueError(f"--only: there is no experiment {describe(name)}; there are {known}.")
    return [EXPERIMENTS[name] for name in dict.fromkeys(names or EXPERIMENTS)]


def measure(
    setting: Setting,
    experiments: Sequence[Experiment],
    rows: Rows,
    tell: Callable[[Progress], None],
    fail: Callable[[str, BaseException], None],
) -> Iterator[Row]:
    """Make all runs that were not made yet, one after another.

    Parameters
    ----------
    setting : Setting
    experiments : sequence of Experiment
    rows : Rows
    tell : callable
        Hears of every run before it is made.
    fail : callable
        Hears of an experiment that could not be made, and why; the others are made all the same,
        unless it raises.
    """
    numbered = list(enumerate((e.NAME, run) for e in experiments for run in e.runs(setting)))
    for name, own in groupby(numbered, key=lambda item: item[1][0]):
        try:
            for number, (_, run) in own:
                tell(Progress(number + 1, len(numbered), run, rows.find(run) is not None))
                yield rows.of(run)
        except RunFailedError as failed:  # and not what is wrong with the rows: a full disk
            fail(name, failed.__cause__ or failed)
        last.forget()


def missing(parts: Sequence[Part], rows: Sequence[Row]) -> list[str]:
    """Experiments that have rows, but not all that they need to show anything."""
    shown = {part.anchor for part in parts}
    begun = dict.fromkeys(str(row["experiment"]) for row in rows)
    return [name for name in begun if file_name(name) not in shown]


def write(folder: Path, rows: Sequence[Row], scale: str) -> list[Part]:
    """Draw the figures and write the page, from rows alone."""
    parts = []
    folder.mkdir(parents=True, exist_ok=True)
    for experiment in EXPERIMENTS.values():
        part = part_of(experiment, rows)
        if part is None:
            continue
        parts.append(part)
        for panels, ending in ((part.shown.panels, ""), (part.shown.beyond, "-accelerated")):
            if panels:
                file = f"{part.anchor}{ending}"
                _write(folder / f"{file}.svg", to_file(panels, file))
    _write(folder / "claims.md", claims_table(parts).encode("utf-8"))
    _write(folder / "report.html", render(parts, rows, scale).encode("utf-8"))
    return parts


def _write(path: Path, content: bytes) -> None:
    with atomic_write(path) as file:
        file.write(content)
