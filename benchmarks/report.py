"""Rows as tables for people and as JSON lines for later."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from benchmarks.harness import Row


def table(title: str, ratio: str, rows: Sequence[Row], *, judged: bool) -> Table:
    """The rows of one benchmark, with times and details in words: there may be many."""
    has_target = any(row.target is not None for row in rows)
    shown = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    for heading in ("case", "sizes"):
        shown.add_column(heading, no_wrap=True)  # headings may wrap, and leave room enough
    shown.add_column(ratio, justify="right", style="bold")
    for heading in ("target", "met") if has_target else ():
        shown.add_column(heading, justify="right")
    shown.add_column("seen")
    for row in rows:
        verdict = _verdict(row.met if judged else None)
        target = ("", "") if row.target is None else (f"≤ {row.target:g}", verdict)
        shown.add_row(
            row.case,
            " ".join(f"{name}={size}" for name, size in row.sizes.items()),
            f"{row.ratio:.3g}",
            *(target if has_target else ()),
            ", ".join(
                [f"{name} {_time(seconds)}" for name, seconds in row.seconds.items()]
                + [f"{name} {value:.3g}" for name, value in row.detail.items()]
                + [f"“{message}”" for message in row.messages]
            ),
        )
    return shown


def record(row: Row, *, judged: bool, **circumstances: Any) -> dict[str, Any]:
    """A row with all that is needed to understand it later."""
    return {**asdict(row), "met": row.met if judged else None, **circumstances}


def append(records: Iterable[Mapping[str, Any]], folder: Path) -> Path:
    """Add records to the file of their date and commit; earlier runs stay in it."""
    records = list(records)
    day, commit = records[0]["date"][:10], records[0]["commit"]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{day}-{commit}.jsonl"
    with path.open("a", encoding="utf-8") as lines:
        for entry in records:
            lines.write(json.dumps(entry, ensure_ascii=False) + "\n")
    return path


def written(page: str, begin: str, end: str, table: str) -> str:
    """The page with a table between two markers."""
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{table}\n{end}{after}"


def _verdict(met: bool | None) -> str:
    return {True: "[green]yes[/]", False: "[red]no[/]", None: "[yellow]?[/]"}[met]


def _time(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms" if seconds < 1.0 else f"{seconds:.3g} s"
