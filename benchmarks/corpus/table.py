"""Wins and losses as Markdown, from rows or from records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.corpus import runs

_SIDES = {"before": "before", "projected": "projected gradient", "lbfgs": "L-BFGS"}
_NAMES = {"ours": "ours", **_SIDES}

#: A row of the benchmark, as it was kept.
Kept = Mapping[str, Any]


def markdown(path: Path) -> str:
    """A line for each problem, one for each side, and what was not certified."""
    rows = read_rows(path)
    return f"{problems(rows)}\n{summary(rows)}"


def problems(rows: Sequence[Kept]) -> str:
    """A line for each problem of the last run among all rows."""
    return "\n".join(_problems(_last(rows))) + "\n"


def summary(rows: Sequence[Kept]) -> str:
    """A line for each side, and what was not certified."""
    rows = _last(rows)
    return "\n".join([*_summary(rows), "", *_failures(rows)]) + "\n"


def read_rows(path: Path) -> list[Kept]:
    """The rows of the last run in a file of results; or those made of the records in it."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    kept = _last(lines)
    if kept:
        return kept
    records = runs.read(path, "ours")
    if not records:
        raise ValueError(f"there are neither rows nor records of the corpus in {path}.")
    others = runs.recorded()
    return [{"benchmark": "corpus", **asdict(runs.row(r, others))} for r in records.values()]


def _last(rows: Sequence[Kept]) -> list[Kept]:
    kept = [row for row in rows if row.get("benchmark") == "corpus"]
    return [row for row in kept if row.get("date") == kept[-1].get("date")]


def _problems(rows: Sequence[Kept]) -> Iterator[str]:
    sides = [f"passes, {name} | seconds, {name}" for name in _SIDES.values()]
    yield f"| problem | n×d×m | passes | gap | rank | seconds | {' | '.join(sides)} |"
    yield f"|---|---{(4 + 2 * len(_SIDES)) * '|--:'}|"
    for row in rows:
        detail = row["detail"]
        cells = [
            row["case"],
            "×".join(str(row["sizes"][letter]) for letter in "ndm"),
            f"{detail['ours: passes']:.0f}",
            _marked(f"{detail['ours: gap']:.1e}", bad=not detail["ours: certified"]),
            f"{detail['rank']:.0f}",
            f"{row['seconds']['ours']:.2g}",
        ]
        for side in _SIDES:
            cells += [_cell(row, side, "passes"), _cell(row, side, "seconds")]
        yield f"| {' | '.join(cells)} |"


def _cell(row: Kept, side: str, what: str) -> str:
    """Ours over a side's: an upper bound if only ours has certified; bold if ours is worse."""
    ours, theirs = (_certified(row, one) for one in ("ours", side))
    if theirs is None:
        return ""
    if not ours:
        return _marked("not reached", bad=True) if theirs else "neither"
    ratio = _ratio(row, side, what)
    if ratio is None:
        return "not tried"
    return _marked(f"{ratio:.2g}", bad=ratio > 1.0) if theirs else f"< {ratio:.2g}"


def _certified(row: Kept, side: str) -> bool | None:
    """Whether a side has certified the gap; None if there is no run of it."""
    known = row["detail"].get(f"{side}: certified")
    return None if known is None else bool(known)


def _ratio(row: Kept, side: str, what: str) -> float | None:
    """Ours over a side's; None if it has not tried."""
    detail, seconds = row["detail"], row["seconds"]
    if not detail[f"{side}: passes"]:
        return None
    if what == "seconds":
        return float(seconds["ours"] / seconds[side])
    return float(detail["ours: passes"] / detail[f"{side}: passes"])


def _summary(rows: Sequence[Kept]) -> Iterator[str]:
    yield (
        "| ours over | problems | certified by both | only ours | only the other | neither "
        "| passes: median | worst | fewer or equal | more "
        "| seconds: median | worst | fewer or equal | more |"
    )
    yield f"|---{13 * '|--:'}|"
    for side, name in _SIDES.items():
        there = [row for row in rows if _certified(row, side) is not None]
        if not there:
            continue
        kinds = [(_certified(row, "ours"), _certified(row, side)) for row in there]
        both = [row for row, kind in zip(there, kinds, strict=True) if kind == (True, True)]
        counts = [kinds.count(kind) for kind in _KINDS]
        cells = [name, str(len(there)), *map(str, counts)]
        for what in ("passes", "seconds"):
            cells += _spread([(_ratio(row, side, what) or np.nan, row["case"]) for row in both])
        yield f"| {' | '.join(cells)} |"


_KINDS = ((True, True), (True, False), (False, True), (False, False))


def _spread(ratios: Sequence[tuple[float, str]]) -> list[str]:
    """Median, worst, and the numbers of wins and losses, where both have certified the gap."""
    if not ratios:
        return ["", "", "0", "0"]
    values = np.array([ratio for ratio, _ in ratios])
    worst, name = max(ratios)
    losses = int((values > 1.0).sum())
    return [
        f"{np.median(values):.2g}",
        f"{worst:.2g} ({name})",
        str(len(values) - losses),
        str(losses),
    ]


def _failures(rows: Sequence[Kept]) -> Iterator[str]:
    for side, name in _NAMES.items():
        failed = [row["case"] for row in rows if _certified(row, side) is False]
        if failed:
            yield f"- Not certified, {name} ({len(failed)}): {'; '.join(failed)}."


def _marked(text: str, *, bad: bool) -> str:
    return f"**{text}**" if bad else text
