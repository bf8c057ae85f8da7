"""What an experiment has to show: pictures, tables, and what became of the paper's claims."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from dfwtrace.engines import Engine
from dfwtrace.experiments.runs import Row, Run

Scale = Literal["toy", "small", "paper"]
Line = tuple[Sequence[float], Sequence[float]]
#: Whose claim it is: the paper's; the paper's, said of data or machines that stand in for its own;
#: or one beyond the paper.
Kind = Literal["paper", "stand-in", "beyond"]
#: Where there is nothing to tell.
NONE = "–"


@dataclass(frozen=True)
class Setting:
    """At which size, where, and on which data.

    Attributes
    ----------
    scale : {"toy", "small", "paper"}
    where : {"local", "spark"}
        The engine's name.
    engine : callable
        The engine with so many shards.
    intents : path or None
        The file or folder with CLINC150.
    imagenet : path or None
        A folder of features, see `dfwtrace.experiments.features`.
    spark : SparkSession or None
        For what is measured on Spark wherever the rest runs.
    """

    scale: Scale
    where: str
    engine: Callable[[int], Engine]
    intents: Path | None = None
    imagenet: Path | None = None
    spark: Any = None


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes
    ----------
    title, x_label, y_label : str
    lines : dict
        Points by the name of what they belong to.
    log_x, log_y : bool
    dashed : tuple of str
        Lines that were not measured: bounds and simulations.
    """

    title: str
    x_label: str
    y_label: str
    lines: Mapping[str, Line]
    log_x: bool = False
    log_y: bool = False
    dashed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """Cells of text.

    Attributes
    ----------
    title : str
    columns : sequence of str
        Their headings.
    rows : sequence of sequence of str
    names : int
        How many of the first columns say what a row is about.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    names: int = 1

    @property
    def figures(self) -> list[bool]:
        """Which columns hold figures: all cells begin with a digit, whatever the unit behind it.

        Examples
        --------
        >>> Table("", ["method", "an epoch"], [["DFW-1", "2 ms"], ["SVA", NONE]]).figures
        [False, True]
        """
        return [
            all(row[place] == NONE or re.match(r"(× )?[−-]?\d", row[place]) for row in self.rows)
            for place in range(len(self.columns))
        ]


@dataclass(frozen=True)
class Exhibit:
    """All that an experiment shows: the paper's panels, and the same with what is beyond it."""

    panels: Sequence[Panel] = ()
    beyond: Sequence[Panel] = ()
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, or beside it, and what was found.

    Attributes
    ----------
    text : str
    measured : str
    holds : bool or None
        None where it could not be measured.
    reason : str
        Why it does not hold here, as far as it is known.
    kind : {"paper", "stand-in", "beyond"}
        Whose it is.
    """

    text: str
    measured: str
    holds: bool | None
    reason: str = field(default="")
    kind: Kind = "paper"

    @property
    def verdict(self) -> str:
        """In a word or two."""
        return {True: "holds", False: "does not hold here", None: "not measured"}[self.holds]


class Experiment(Protocol):
    """A figure or table of the paper: a module with these names."""

    NAME: str
    TITLE: str
    #: The settings that tell the rows of one folder apart.
    KEYS: tuple[str, ...]
    ABOUT: str

    def runs(self, setting: Setting) -> list[Run]:
        """What is to be measured."""

    def exhibit(self, rows: Sequence[Row]) -> Exhibit:
        """What the experiment's rows show."""

    def claims(self, rows: Sequence[Row]) -> list[Claim]:
        """What the paper says, beside the experiment's rows."""
