"""An experiment's panels as charts of a page, and as a picture of their own."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from importlib.resources import files
from itertools import count
from math import ceil

import numpy as np

from dfwtrace._typing import FloatArray
from dfwtrace.experiments.exhibits import Panel
from dfwtrace.experiments.methods import COMPARED
from dfwtrace.report.chart import HEIGHT, WIDTH, Chart, Series, to_svg
from dfwtrace.report.numbers import number
from dfwtrace.report.pictures import Key, Picture
from dfwtrace.report.scales import Scale, linear, logarithmic

_TONES = 8
# An axis is logarithmic where it is asked for and its values differ by more than this.
_WIDE = 3.0

# In a picture of its own: the drawing's units.
_COLUMNS = 2
_GAP, _TITLE, _LEGEND = 24, 22, 22
_SWATCH, _LETTER = 26, 7.0
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif"
_STYLE = f"""
text {{ font-family: {_FONT}; }}
.ground {{ fill: var(--sheet); }}
.title {{ fill: var(--ink); font-size: 13px; font-weight: 600; }}
.name {{ fill: var(--soft); font-size: 13px; }}
"""


def pictures(panels: Sequence[Panel], key: str) -> tuple[list[Picture], list[Key]]:
    """A chart for each panel, and the legend that all of them share.

    Examples
    --------
    >>> panel = Panel("a", "epochs", "F", {"DFW-1": ([1, 2], [1.0, 0.5])})
    >>> charts, legend = pictures([panel], "example")
    >>> charts[0].svg.startswith("<svg"), legend[0].name
    (True, 'DFW-1')
    """
    tones = _tones(panels)
    drawn, legend = [], {}
    for place, panel in enumerate(panels):
        series = [
            Series(
                name,
                np.asarray(x, dtype=np.float64),
                np.asarray(y, dtype=np.float64),
                tone=tones[name],
                thin=True,
                dashed=name in panel.dashed,
            )
            for name, (x, y) in panel.lines.items()
        ]
        chart = Chart(
            f"{key}-{place}",
            f"{panel.y_label} against {panel.x_label}, {panel.title}",
            _described(series),
            panel.x_label,
            panel.y_label,
            _scale(np.concatenate([one.x for one in series]), panel.log_x),
            _scale(np.concatenate([one.y for one in series]), panel.log_y),
            series,
        )
        drawn.append(Picture(panel.title, to_svg(chart), []))
        legend.update({one.name: Key(one.name, one.style, dot=False) for one in series})
    return drawn, list(legend.values())


def to_file(panels: Sequence[Panel], key: str) -> bytes:
    """All panels as one SVG file, which is as readable in the dark."""
    charts, legend = pictures(panels, key)
    across = min(len(charts), _COLUMNS)
    width = across * WIDTH + (across + 1) * _GAP
    lines = _legend_lines(legend, width - 2 * _GAP)
    top = _GAP + len(lines) * _LEGEND
    step = _TITLE + HEIGHT + _GAP
    height = top + ceil(len(charts) / across) * step + _GAP
    svg = ET.Element("svg", xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width} {height}")
    svg.set("width", str(width))
    svg.set("height", str(height))
    own = files("dfwtrace.report").joinpath("chart.css").read_text("utf-8")
    ET.SubElement(svg, "style").text = own + _STYLE
    ET.SubElement(svg, "rect", {"class": "ground", "width": "100%", "height": "100%"})
    for line, keys in enumerate(lines):
        _draw_legend(svg, keys, _GAP + line * _LEGEND)
    for place, chart in enumerate(charts):
        x = _GAP + (place % across) * (WIDTH + _GAP)
        y = top + (place // across) * step
        title = ET.SubElement(svg, "text", {"class": "title", "x": str(x), "y": str(y + 14)})
        title.text = chart.caption
        drawn = ET.fromstring(chart.svg)
        for name, value in (("x", x), ("y", y + _TITLE), ("width", WIDTH), ("height", HEIGHT)):
            drawn.set(name, str(value))
        svg.append(drawn)
    return ET.tostring(svg, encoding="unicode").encode("utf-8")


def _legend_lines(legend: Sequence[Key], width: float) -> list[list[tuple[float, Key]]]:
    """Where each name begins, in lines that are no longer than the picture is wide."""
    lines: list[list[tuple[float, Key]]] = [[]]
    x = 0.0
    for key in legend:
        room = _SWATCH + 6 + _LETTER * len(key.name) + 18
        if lines[-1] and x + room > width:
            lines.append([])
            x = 0.0
        lines[-1].append((x, key))
        x += room
    return lines


def _draw_legend(svg: ET.Element, keys: Sequence[tuple[float, Key]], y: float) -> None:
    for x, key in keys:
        group = ET.SubElement(svg, "g", {"class": f"swatch {key.style}"})
        left, middle = _GAP + x, y + 4
        ends = {"x1": left, "x2": left + _SWATCH, "y1": middle, "y2": middle}
        ET.SubElement(group, "line", {name: f"{value:.1f}" for name, value in ends.items()})
        at = {"class": "name", "x": f"{left + _SWATCH + 6:.1f}", "y": f"{middle + 4:.1f}"}
        ET.SubElement(svg, "text", at).text = key.name


def _tones(panels: Sequence[Panel]) -> dict[str, int]:
    """A method has the same colour everywhere; what else there is takes those that are free."""
    names = dict.fromkeys(name for panel in panels for name in panel.lines)
    tones = {name: 1 + COMPARED.index(name) for name in names if name in COMPARED}
    free = (tone for tone in count() if 1 + tone % _TONES not in tones.values() or tone >= _TONES)
    return {name: tones.get(name) or 1 + next(free) % _TONES for name in names}


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
