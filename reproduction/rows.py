"""Rows: what was measured, one JSON object in a line."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from benchmarks.provenance import OtherWork, provenance

#: Experiment, settings, values, seconds, the share of other work, and where it was measured.
Row = Mapping[str, Any]
#: Everything that a run depends on: a row with the same settings is its row.
Settings = dict[str, Any]

_NAMES = ("experiment", "settings", "values", "seconds", "other_work")
_PLACE = ("commit", "date", "versions", "blas", "cpu", "cores")


class MissingRowError(LookupError):
    """A row that a claim needs has not been measured."""


class RowsBy(dict[Any, Row]):
    """Rows by one of their settings; asking for one that is not there is a `MissingRowError`."""

    def __init__(self, rows: Iterable[Row] = (), setting: str = "method") -> None:
        super().__init__((row["settings"][setting], row) for row in rows)

    def __missing__(self, value: Any) -> NoReturn:
        raise MissingRowError(f"There is no row for {value}.")


def read(folder: Path) -> list[Row]:
    """Return the rows of a folder; a ValueError names the line that is none."""
    file = folder / "rows.jsonl"
    rows: list[Row] = []
    for number, line in enumerate(file.read_bytes().split(b"\n") if file.exists() else (), start=1):
        if line.strip():
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            if not (isinstance(row, dict) and {*_NAMES, *_PLACE} <= set(row)):
                raise ValueError(f"{file}: line {number} is no row; remove it, or change --out.")
            rows.append(row)
    return rows


def find(rows: Sequence[Row], experiment: str, settings: Settings) -> Row | None:
    """Return the row of a run that was made already."""
    same = (r for r in rows if r["experiment"] == experiment and r["settings"] == settings)
    return next(same, None)


def refuse_mixture(
    rows: Sequence[Row], experiment: str, keys: Sequence[str], runs: Sequence[Settings]
) -> None:
    """Refuse rows of another scale or of other data, beside which new ones would mislead."""
    for row in rows:
        for run in runs if row["experiment"] == experiment else ():
            found = row["settings"]
            if found != run and all(found.get(key) == run.get(key) for key in keys):
                name = next(n for n in {**run, **found} if found.get(n) != run.get(n))
                raise ValueError(
                    f"--out: it holds a row of {label(experiment, run)} with {name} "
                    f"{found.get(name)}, not {run.get(name)}; name another folder."
                )


def label(experiment: str, settings: Settings) -> str:
    """Return one line about a run, for people."""
    hidden = ("scale", "seed", "source")
    shown = (f"{name} {value}" for name, value in settings.items() if name not in hidden)
    return f"{experiment}: {', '.join(shown)}"


def measure(
    experiment: str, settings: Settings, run: Callable[[Settings], Mapping[str, Any]]
) -> Row:
    """Make a run and return its row."""
    with OtherWork() as others:
        began = time.perf_counter()
        values = run(settings)
        seconds = time.perf_counter() - began
    parts = (experiment, settings, values, seconds, round(others.share, 3))
    return {**dict(zip(_NAMES, parts, strict=True)), **provenance()}


def add(folder: Path, row: Row) -> None:
    """Add a row to a folder: afterwards it is on the disk, or the file is as it was."""
    file = folder / "rows.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    before = file.read_text("utf-8") if file.exists() else ""
    write(file, f"{before}{json.dumps(row, ensure_ascii=False, allow_nan=False)}\n")


def write(path: Path, text: str) -> None:
    """Replace a file by another one that is complete."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
