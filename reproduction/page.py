"""Draw the figures and write the page, from rows alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import jinja2
import pandas as pd
from matplotlib.figure import Figure

from dfwtrace import plotting
from reproduction.claims import KINDS, Claim, counts
from reproduction.rows import Row, write

_INCHES = (5.4, 3.3)
# An axis is logarithmic where it is asked for and its values differ by more than this.
_WIDE = 3.0
_STYLE = """svg { color: #171b1f; background: var(--sheet); font-family: sans-serif; }
@media (prefers-color-scheme: dark) { svg { color: #f3f5f9; } }
"""


class Panel(NamedTuple):
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[plotting.Series]
    x_log: bool = False
    y_log: bool = False


class Shown(NamedTuple):
    """Panels by what is added to the figure's name, a table of text, and sentences below."""

    figures: Mapping[str, Sequence[Panel]]
    table: pd.DataFrame | None = None
    notes: Sequence[str] = ()


class Part(NamedTuple):
    """A section of the page."""

    anchor: str
    title: str
    about: str
    shown: Shown
    claims: Sequence[Claim]

    def of(self, claim: Claim) -> str:
        """What a claim is about, and whose it is."""
        whose = "" if claim.kind == "paper" else f" ({KINDS[claim.kind]})"
        return f"{self.title.partition(':')[0]}{whose}"


def parts(experiments: Sequence[ModuleType], rows: Sequence[Row]) -> list[Part]:
    """Return what the experiments that have rows show."""
    found = []
    for experiment in experiments:
        own = [row for row in rows if row["experiment"] == experiment.NAME]
        if own:
            group = experiment.group(own)
            claims = [claim.judged(group) for claim in experiment.CLAIMS]
            names = (experiment.NAME.replace(" ", "-"), experiment.TITLE, experiment.ABOUT)
            found.append(Part(*names, experiment.show(group), claims))
    return found


def write_results(folder: Path, found: Sequence[Part], rows: Sequence[Row], scale: str) -> None:
    """Write figures, table of claims and page into a folder."""
    for part in found:
        for ending, panels in part.shown.figures.items():
            write(folder / f"{part.anchor}{ending}.svg", draw(panels))
    write(folder / "claims.md", claims_table(found))
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    page = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    ).get_template("page.html.jinja")
    summary = counts([claim for part in found for claim in part.claims])
    text = page.render(
        parts=found, scale=scale, row_count=len(rows), counts=summary, places=places(rows)
    )
    write(folder / "report.html", text)


def draw(panels: Sequence[Panel]) -> str:
    """Return all panels as one SVG file, readable in light and in dark."""
    n_columns = min(len(panels), 2)
    n_rows = ceil(len(panels) / n_columns)
    names = [[one.label for one in panel.series] for panel in panels]
    shared = all(labels == names[0] for labels in names)
    legend = 0.25 * ceil(len(names[0]) / (2 * n_columns)) if shared else 0.0
    width, height = n_columns * _INCHES[0], n_rows * _INCHES[1] + legend
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for ax, (title, x_label, y_label, series, x_log, y_log) in zip(axes, panels, strict=False):
        lines = plotting.draw_lines(
            ax,
            series,
            x_label=x_label,
            y_label=y_label,
            title=title,
            x_log=x_log and _is_wide([one.x for one in series]),
            y_log=y_log and _is_wide([one.y for one in series]),
        )
        if shared and ax.get_legend() is not None:
            ax.get_legend().remove()
    for ax in axes[len(panels) :]:
        ax.remove()
    if shared:
        figure.legend(handles=lines, loc="outside upper left", ncols=2 * n_columns)
    start, end, rest = plotting.to_svg(figure).partition(">")
    style = f"<style>{plotting.page_colours()}{_STYLE}</style>"
    return f'{start} width="{width:g}in"{end}{style}{rest}\n'


def _is_wide(columns: Sequence[Any]) -> bool:
    values = [float(value) for column in columns for value in column]
    return min(values) > 0.0 and max(values) > _WIDE * min(values)


def claims_table(found: Sequence[Part]) -> str:
    """Return all claims with what was measured, in Markdown."""
    headings = ["", "claim", "measured", "verdict"]
    return _markdown(
        headings,
        [[part.of(c), c.text, c.explained, c.verdict] for part in found for c in part.claims],
    )


def verdicts_table(scales: Mapping[str, Sequence[Part]]) -> str:
    """Return the verdict on every claim at each scale, in Markdown."""
    verdicts: dict[tuple[str, str], list[str]] = {}
    for found in scales.values():
        for part in found:
            for claim in part.claims:
                verdicts.setdefault((part.of(claim), claim.text), []).append(claim.verdict)
    return _markdown(["", "claim", *scales], [[*key, *cells] for key, cells in verdicts.items()])


def _markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def places(rows: Sequence[Row]) -> pd.DataFrame:
    """Return where and when rows were measured, a line for each commit and machine."""
    frame = pd.DataFrame(rows)
    frame["processor"] = frame["cpu"] + ", " + frame["cores"].astype(str) + " cores"
    frame["BLAS"] = frame["blas"].map(", ".join)
    frame["software"] = frame["versions"].map(lambda v: ", ".join(" ".join(i) for i in v.items()))
    # Short runs are counted in ticks: only together do they say how busy the machine was.
    frame["other"] = frame["other_work"] * frame["seconds"]
    grouped = frame.groupby(["commit", "processor", "BLAS", "software"], sort=False)
    table = grouped.agg(
        runs=("date", "size"),
        first=("date", "min"),
        last=("date", "max"),
        other=("other", "sum"),
        seconds=("seconds", "sum"),
    )
    table["other work"] = (table.pop("other") / table.pop("seconds")).map("{:.1%}".format)
    return table.reset_index().set_index("commit")


def duration(seconds: float) -> str:
    """Return a time with its unit.

    Examples
    --------
    >>> duration(0.0123), duration(95.0)
    ('12.3 ms', '95 s')
    """
    return f"{1e3 * seconds:.3g} ms" if seconds < 1.0 else f"{seconds:.4g} s"
