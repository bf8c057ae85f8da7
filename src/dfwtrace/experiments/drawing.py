"""An experiment's panels as charts with their legends."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

import numpy as np

from dfwtrace._typing import FloatArray
from dfwtrace.experiments.exhibits import Panel
from dfwtrace.experiments.methods import COMPARED
from dfwtrace.report.chart import Chart, Series, Stroke, to_svg
from dfwtrace.report.markers import SHAPES
from dfwtrace.report.numbers import number
from dfwtrace.report.pictures import Key, Picture
from dfwtrace.report.scales import Scale, linear, logarithmic

_TONES = 8
# An axis is logarithmic where it is asked for and its values differ by more than this.
_WIDE = 3.0


class Group(NamedTuple):
    """Charts that share a legend."""

    pictures: Sequence[Picture]
    legend: Sequence[Key]


def groups(panels: Sequence[Panel], key: str) -> list[Group]:
    """A chart for each panel; those that follow each other and share lines have one legend.

    Examples
    --------
    >>> lines = {"DFW-1": ([1, 2], [1.0, 0.5])}
    >>> by_epochs, by_time = (Panel("F", label, "F", lines) for label in ("epochs", "seconds"))
    >>> other = Panel("Speed-up", "cores", "speed-up", {"Spark": ([1, 2], [1.0, 1.9])})
    >>> drawn = groups([by_epochs, by_time, other], "example")
    >>> [(len(group.pictures), [key.name for key in group.legend]) for group in drawn]
    [(2, ['DFW-1']), (1, ['Spark'])]
    """
    order = _order(panels)
    members: list[list[Picture]] = []
    legends: list[dict[str, Key]] = []
    for place, panel in enumerate(panels):
        series = _series(panel, order)
        if not legends or not legends[-1].keys() & panel.lines.keys():
            members.append([])
            legends.append({})
        members[-1].append(_picture(panel, series, f"{key}-{place}"))
        legends[-1].update({one.name: _key(one) for one in series})
    return [
        Group(pictures, list(legend.values()))
        for pictures, legend in zip(members, legends, strict=True)
    ]


def _order(panels: Sequence[Panel]) -> dict[str, int]:
    """A number for each line: a method has its own everywhere, the others take what is free."""
    names = dict.fromkeys(name for panel in panels for name in panel.lines)
    own = {name: COMPARED.index(name) for name in names if name in COMPARED}
    free = (place for place in count() if place not in own.values())
    return {name: own[name] if name in own else next(free) for name in names}


def _series(panel: Panel, order: dict[str, int]) -> list[Series]:
    """Lines that were measured have markers, one after another where they coincide."""
    made = []
    for place, (name, (x, y)) in enumerate(panel.lines.items()):
        stroke = _stroke(panel, name)
        made.append(
            Series(
                name,
                np.asarray(x, dtype=np.float64),
                np.asarray(y, dtype=np.float64),
                tone=1 + order[name] % _TONES,
                thin=True,
                stroke=stroke,
                marker=SHAPES[order[name] % len(SHAPES)] if stroke == "solid" else "",
                shift=place / len(panel.lines),
            )
        )
    return made


def _stroke(panel: Panel, name: str) -> Stroke:
    """The second of two lines that were not measured is dotted: these can coincide, too."""
    if name not in panel.dashed:
        return "solid"
    return "dashed" if panel.dashed.index(name) % 2 == 0 else "dotted"


def _picture(panel: Panel, series: Sequence[Series], key: str) -> Picture:
    chart = Chart(
        key,
        f"{panel.title} ({panel.y_label} against {panel.x_label})",
        _described(series),
        panel.x_label,
        panel.y_label,
        _scale(np.concatenate([one.x for one in series]), panel.log_x),
        _scale(np.concatenate([one.y for one in series]), panel.log_y),
        series,
    )
    return Picture(panel.title, to_svg(chart), [])


def _key(series: Series) -> Key:
    return Key(series.name, series.style, dot=False, marker=series.marker)


def _scale(values: FloatArray, log: bool) -> Scale:
    positive = values[values > 0.0]
    if log and positive.size == values.size and positive.max() > _WIDE * positive.min():
        return logarithmic(values)
    return linear(values)


def _described(series: Sequence[Series]) -> str:
    """For those who do not see it: where every line ends."""
    ends = (
        f"{one.name} {number(float(one.y[-1]))} at {number(float(one.x[-1]))}" for one in series
    )
    return f"Where the lines end: {'; '.join(ends)}."
