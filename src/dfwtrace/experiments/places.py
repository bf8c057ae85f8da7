"""Where and when rows were measured, for the end of a page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from dfwtrace.experiments.runs import Row


class Place(NamedTuple):
    """A commit on a machine, and what is known of its rows by name."""

    title: str
    facts: dict[str, str]


def places(rows: Sequence[Row]) -> list[Place]:
    """Commits and machines, each with its number of rows."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        versions = ", ".join(f"{name} {number}" for name, number in row["versions"].items())
        key = (row["commit"], row["cpu"], row["cores"], ", ".join(row["blas"]), versions)
        found.setdefault(key, []).append(row)
    return [_place(own, *key) for key, own in found.items()]


def _place(
    rows: Sequence[Row], commit: str, cpu: str, cores: int, blas: str, versions: str
) -> Place:
    dates = [row["date"] for row in rows]
    facts = {
        "Runs": str(len(rows)),
        "From": _moment(min(dates)),
        "To": _moment(max(dates)),
        "Processor": cpu,
        "Cores": str(cores),
        "BLAS": blas,
        "Versions": versions,
        "Time of the processors that other programs had": _other_work(rows),
    }
    return Place(f"Commit {commit}", facts)


def _moment(date: str) -> str:
    """To the minute, for people.

    Examples
    --------
    >>> _moment("2026-11-17T14:18:05+00:00")
    '2026-11-17 14:18 UTC'
    """
    return f"{datetime.fromisoformat(date).astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _other_work(rows: Sequence[Row]) -> str:
    known = [row for row in rows if row["other_work"] is not None]
    total = sum(row["seconds"] for row in known)
    if not total:
        return "not known"
    # Short runs are counted in ticks of a hundredth of a second: they tell of it together only.
    return f"{sum(row['other_work'] * row['seconds'] for row in known) / total:.1%}"
