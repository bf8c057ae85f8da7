"""What an experiment consists of: runs, and the rows that they leave."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from dfwtrace.experiments.other_work import OtherWork
from dfwtrace.experiments.provenance import commit, provenance
from dfwtrace.io.atomic import atomic_write

#: A row as it is stored: experiment, settings, values, seconds, the share of the processors' time
#: that other programs had meanwhile, and where it was measured.
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """One thing to measure.

    Attributes
    ----------
    experiment : str
        Which figure or table it is for.
    settings : dict
        Everything that it depends on, in JSON's types: a row with the same settings is this run's.
    measure : callable
        Returns the values, in JSON's types.
    """

    experiment: str
    settings: Mapping[str, Any]
    measure: Callable[[], Mapping[str, Any]]

    @property
    def label(self) -> str:
        """One line for people."""
        told = ", ".join(
            str(value) if name == "method" else f"{name} {value}"
            for name, value in self.settings.items()
            if name not in ("scale", "seed")
        )
        return f"{self.experiment}: {told}"


class Rows:
    """The rows of a folder, one JSON object in a line; a run is made once.

    Parameters
    ----------
    folder : path
        Made if it is not there. Rows that it holds are kept, and their runs are not made again.

    Examples
    --------
    >>> import tempfile
    >>> run = Run("figure 1", {"method": "SVA"}, lambda: {"objective": [2.0, 1.0]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first, again = Rows(folder).of(run), Rows(folder).of(run)
    >>> first["values"], again == first
    ({'objective': [2.0, 1.0]}, True)
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        commit()  # what runs from here on is what is there now
        self._file = Path(folder) / "rows.jsonl"
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._rows = list(_read(self._file))

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def find(self, run: Run) -> Row | None:
        """The row of a run that was made already."""
        for row in self._rows:
            if row["experiment"] == run.experiment and row["settings"] == dict(run.settings):
                return row
        return None

    def of(self, run: Run) -> Row:
        """The row of a run, which is made now if it never was. Rows are safe once they are here."""
        known = self.find(run)
        if known is not None:
            return known
        with OtherWork() as others:
            began = time.perf_counter()
            values = run.measure()
            took = time.perf_counter() - began
        row: dict[str, Any] = {
            "experiment": run.experiment,
            "settings": dict(run.settings),
            "values": dict(values),
            "seconds": took,
            "other_work": round(others.share, 3),
            **provenance(),
        }
        row = json.loads(json.dumps(row, allow_nan=False))  # what a later look at the file gives
        self._rows.append(row)
        text = "".join(f"{json.dumps(kept, ensure_ascii=False)}\n" for kept in self._rows)
        with atomic_write(self._file) as file:
            file.write(text.encode("utf-8"))
        return row


class MissingRowsError(LookupError):
    """Rows that are to be compared are not all there."""


class BySetting(dict[Any, Row]):
    """Rows by the value of one of their settings; one that is not there is missing."""

    def __missing__(self, value: Any) -> NoReturn:
        raise MissingRowsError(f"there is no row for {value}.")


def by_setting(rows: Iterable[Row], name: str) -> BySetting:
    """Rows by the value of one of their settings.

    Examples
    --------
    >>> rows = by_setting([{"settings": {"method": "SVA"}, "values": {}}], "method")
    >>> list(rows)
    ['SVA']
    >>> rows["Naive"]
    Traceback (most recent call last):
    dfwtrace.experiments.runs.MissingRowsError: there is no row for Naive.
    """
    return BySetting((row["settings"][name], row) for row in rows)


def of_experiment(rows: Sequence[Row], experiment: str, **settings: Any) -> list[Row]:
    """The rows of one experiment whose settings have these values."""
    return [
        row
        for row in rows
        if row["experiment"] == experiment
        and all(row["settings"].get(name) == value for name, value in settings.items())
    ]


def _read(file: Path) -> Iterator[Row]:
    if not file.exists():
        return
    for number, line in enumerate(file.read_text("utf-8").splitlines(), start=1):
        try:
            row = json.loads(line)
            complete = isinstance(row, dict) and {"experiment", "settings", "values"} <= set(row)
        except ValueError:
            complete = False
        if not complete:
            raise ValueError(f"{file}: line {number} is no row of an experiment; remove it.")
        yield row
