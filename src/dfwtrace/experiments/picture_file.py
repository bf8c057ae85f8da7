"""An experiment's panels as one picture in a file of its own."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from importlib.resources import files
from textwrap import wrap

from dfwtrace.experiments import swatch
from dfwtrace.experiments.drawing import Group, groups
from dfwtrace.experiments.exhibits import Panel
from dfwtrace.report.chart import HEIGHT, WIDTH
from dfwtrace.report.pictures import Key, Picture

# The drawing's units.
_COLUMNS = 2
_GAP, _LINE = 24, 22
_TITLE, _LETTERS_OF_A_TITLE = 18, 56
_LETTER = 7.9  # figures are wider than most letters
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif"
_STYLE = f"""
text {{ font-family: {_FONT}; }}
.ground {{ fill: var(--sheet); }}
.title {{ fill: var(--ink); font-size: 13px; font-weight: 600; }}
.name {{ fill: var(--soft); font-size: 13px; }}
"""


def to_file(panels: Sequence[Panel], key: str) -> bytes:
    """All panels as one SVG file, which is as readable in the dark.

    Examples
    --------
    >>> panel = Panel("a", "epochs", "F", {"DFW-1": ([1, 2], [1.0, 0.5])})
    >>> to_file([panel], "example").startswith(b"<svg")
    True
    """
    drawn = groups(panels, key)
    across = min(max(len(group.pictures) for group in drawn), _COLUMNS)
    width = across * WIDTH + (across + 1) * _GAP
    svg = ET.Element("svg", xmlns="http://www.w3.org/2000/svg")
    own = files("dfwtrace.report").joinpath("chart.css").read_text("utf-8")
    ET.SubElement(svg, "style").text = own + _STYLE
    ET.SubElement(svg, "rect", {"class": "ground", "width": "100%", "height": "100%"})
    bottom = _GAP
    for group in drawn:
        bottom = _draw_group(svg, group, bottom, across, width)
    svg.set("viewBox", f"0 0 {width} {bottom}")
    svg.set("width", str(width))
    svg.set("height", str(bottom))
    return ET.tostring(svg, encoding="unicode").encode("utf-8")


def _draw_group(svg: ET.Element, group: Group, top: int, across: int, width: int) -> int:
    """A legend and its charts below each other; where they end."""
    for keys in _legend_lines(group.legend, width - 2 * _GAP):
        _draw_legend(svg, keys, top)
        top += _LINE
    for first in range(0, len(group.pictures), across):
        row = group.pictures[first : first + across]
        titles = [
            wrap(picture.caption, _LETTERS_OF_A_TITLE, break_on_hyphens=False) for picture in row
        ]
        room = _TITLE * max(map(len, titles))
        for place, (picture, title) in enumerate(zip(row, titles, strict=True)):
            _draw_chart(svg, picture, title, _GAP + place * (WIDTH + _GAP), top, room)
        top += room + HEIGHT + _GAP
    return top


def _draw_chart(
    svg: ET.Element, picture: Picture, title: Sequence[str], x: int, y: int, room: int
) -> None:
    """A chart below its title, whose last line is next to it."""
    for line, words in enumerate(title):
        at = {"x": str(x), "y": str(y + room - _TITLE * (len(title) - line) + 13)}
        ET.SubElement(svg, "text", {"class": "title", **at}).text = words
    chart = ET.fromstring(picture.svg)
    for name, value in (("x", x), ("y", y + room), ("width", WIDTH), ("height", HEIGHT)):
        chart.set(name, str(value))
    svg.append(chart)


def _legend_lines(legend: Sequence[Key], width: float) -> list[list[tuple[float, Key]]]:
    """Where each name begins, in lines that are no longer than the picture is wide."""
    lines: list[list[tuple[float, Key]]] = [[]]
    x = 0.0
    for key in legend:
        room = swatch.WIDTH + 6 + _LETTER * len(key.name) + 18
        if lines[-1] and x + room > width:
            lines.append([])
            x = 0.0
        lines[-1].append((x, key))
        x += room
    return lines


def _draw_legend(svg: ET.Element, keys: Sequence[tuple[float, Key]], y: int) -> None:
    for x, key in keys:
        group = ET.SubElement(svg, "g", {"class": f"swatch {key.style}"})
        group.set("transform", f"translate({_GAP + x:.1f} {y - 2})")
        swatch.draw_swatch(group, key)
        at = {"class": "name", "x": f"{_GAP + x + swatch.WIDTH + 6:.1f}", "y": str(y + 8)}
        ET.SubElement(svg, "text", at).text = key.name
