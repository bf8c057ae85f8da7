"""The rows of peers as a table in Markdown: the one that docs/benchmarks.md shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_HEADINGS = {
    "problem, n×d×m": "---",
    "peer": "---",
    "to": "---",
    "accelerated": "--:",
    "peer's time": "--:",
    "ratio (least–largest)": "--:",
    "numbers, peer's": "--:",
}


def markdown(records: Iterable[Mapping[str, Any]]) -> str:
    """All rows of the last run among these records; a problem is named in its first row only."""
    kept = [record for record in records if record["benchmark"] == "peers"]
    if not kept:
        raise ValueError("there are no rows of peers among these records.")
    lines = [_line(_HEADINGS), f"|{'|'.join(_HEADINGS.values())}|"]
    before = ""
    for record in kept:
        if record.get("date") != kept[-1].get("date"):  # of an earlier run
            continue
        problem, peer, goal = record["case"].split(", ")
        problem += ", " + "×".join(str(record["sizes"][letter]) for letter in "ndm")
        lines.append(_line(["" if problem == before else problem, peer, *_measured(record, goal)]))
        before = problem
    return "\n".join(lines)


def _measured(record: Mapping[str, Any], goal: str) -> list[str]:
    """The goal, both times, their ratio and the sizes of both models."""
    detail, seconds = record["detail"], record["seconds"]
    if "target" in detail:
        goal = f"{goal} {detail['target']:.3g}{' †' if detail.get('cut short') else ''}"
    else:
        goal = f"F* + {goal}·F(0)"
    ratio, theirs = f"{record['ratio']:.2g}", _time(seconds["peer"])
    if not detail["reached"]:
        ratio, theirs = f"< {ratio}", f"> {theirs}"
    elif "least ratio" in detail:
        ratio += f" ({detail['least ratio']:.2g}–{detail['largest ratio']:.2g})"
    numbers = f"{detail['numbers']:.0f}, {detail['their numbers']:.0f}"
    return [goal, _time(seconds["accelerated"]), theirs, ratio, numbers]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1.0 else f"{1e3 * seconds:.3g} ms"
