"""The rows of a folder: what was measured is safe, and is not measured again."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dfwtrace.experiments.other_work import OtherWork
from dfwtrace.experiments.provenance import commit, provenance
from dfwtrace.experiments.runs import Row, Run
from dfwtrace.files.atomic import atomic_write

#: What every row has, and of which type.
_PARTS: dict[str, type | tuple[type, ...]] = {
    "experiment": str,
    "settings": dict,
    "values": dict,
    "seconds": (int, float),
    "other_work": (int, float, type(None)),  # not every system tells
    "commit": str,
    "date": str,
    "versions": dict,
    "blas": list,
    "cpu": str,
    "cores": int,
}


class RunFailedError(RuntimeError):
    """A run could not be made; its cause says why. Nothing is wrong with the rows."""


class Rows:
    """The rows of a folder, one JSON object in a line; a run is made once.

    Parameters
    ----------
    folder : path
        Made with the first row. Rows that it holds are kept, and their runs are not made again.

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
            try:
                values = run.measure()
            except Exception as error:
                raise RunFailedError(run.label) from error
            took = time.perf_counter() - began
        row: dict[str, Any] = {
            "experiment": run.experiment,
            "settings": dict(run.settings),
            "values": dict(values),
            "seconds": took,
            "other_work": None if others.share is None else round(others.share, 3),
            **provenance(),
        }
        return self._add(run, json.loads(json.dumps(row, allow_nan=False)))

    def _add(self, run: Run, row: Row) -> Row:
        # Another process may have added rows, and its user removed some, while this one measured.
        self._rows = list(_read(self._file))
        made_meanwhile = self.find(run)
        if made_meanwhile is not None:
            return made_meanwhile
        self._rows.append(row)
        text = "".join(f"{json.dumps(kept, ensure_ascii=False)}\n" for kept in self._rows)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(self._file) as file:
            file.write(text.encode("utf-8"))
        return row


def _read(file: Path) -> Iterator[Row]:
    if not file.exists():
        return
    for number, line in enumerate(file.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)  # UTF-8, or a ValueError
            complete = isinstance(row, dict) and all(
                part in row and isinstance(row[part], kind) for part, kind in _PARTS.items()
            )
        except ValueError:
            complete = False
        if not complete:
            raise ValueError(
                f"{file}: line {number} is no row of an experiment, or one of another version; "
                "name another folder, or remove the line."
            )
        yield row
