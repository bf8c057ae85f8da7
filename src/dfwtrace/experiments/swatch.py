"""What stands before a name in a legend: a piece of its line."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from dfwtrace.report import markers
from dfwtrace.report.pictures import Key

WIDTH, HEIGHT = 30, 12


def draw_swatch(parent: ET.Element, key: Key) -> None:
    """Add a piece of the line, with its marker, to an element whose style is the key's."""
    ends = {"x1": 1, "x2": WIDTH - 1, "y1": HEIGHT // 2, "y2": HEIGHT // 2}
    ET.SubElement(parent, "line", {name: str(value) for name, value in ends.items()})
    if key.marker:
        middle = markers.outlines(key.marker, [WIDTH / 2], [HEIGHT / 2])
        ET.SubElement(parent, "path", {"class": markers.style(key.marker), "d": middle})


def swatch(key: Key) -> str:
    """The piece as an ``<svg>`` element of its own.

    Examples
    --------
    >>> swatch(Key("DFW-1", "tone3 thin", dot=False, marker="plus")).startswith("<svg")
    True
    """
    svg = ET.Element("svg", {"class": f"swatch {key.style}", "viewBox": f"0 0 {WIDTH} {HEIGHT}"})
    svg.set("aria-hidden", "true")
    draw_swatch(svg, key)
    return ET.tostring(svg, encoding="unicode")
