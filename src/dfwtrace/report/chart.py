"""Small charts as SVG, whose colours are the page's: readable in the light and in the dark."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dfwtrace._typing import Array, FloatArray
from dfwtrace.report import markers
from dfwtrace.report.numbers import clean, name
from dfwtrace.report.scales import Scale, drawable

# The drawing's own units. On a phone some 0.75 of a pixel each, on a desk some 1.2; the page sets
# larger letters where they are small, for which there is room.
WIDTH, HEIGHT = 420, 262
_TOP, _RIGHT, _BOTTOM = 26, 16, 50
_LETTER = 7.6  # room for a letter of a tick's label

_MOST_POINTS = 400  # of a line: more cannot be told apart
_MOST_DOTS = 40

Mark = Literal["line", "dots", "bars"]
Stroke = Literal["solid", "dashed", "dotted"]


@dataclass(frozen=True, eq=False)
class Series:
    """Points of one colour.

    Attributes
    ----------
    name : str
    x, y : array
        Points that are not finite are left out, and the line goes on behind them.
    mark : {"line", "dots", "bars"}
    tone : int
        Which of the page's colours, from 1.
    thin : bool
        Whether it stands back behind the others: a thinner line without dots.
    radius : float
        Of its dots.
    stroke : {"solid", "dashed", "dotted"}
        What is not solid was not measured: a bound, or a simulation.
    marker : str
        Of `markers.SHAPES`, at some places of the line; none if it is empty.
    shift : float
        From 0 to 1: the share of the way to the next marker by which all of them come later.
    """

    name: str
    x: Array
    y: Array
    mark: Mark = "line"
    tone: int = 1
    thin: bool = False
    radius: float = 2.6
    stroke: Stroke = "solid"
    marker: str = ""
    shift: float = 0.0

    @property
    def style(self) -> str:
        """The names by which the page's styles know it."""
        marks = (("thin", self.thin), (self.stroke, self.stroke != "solid"))
        return " ".join([f"tone{self.tone}", *(name for name, wanted in marks if wanted)])


@dataclass(frozen=True, eq=False)
class Chart:
    """A picture: series in a frame with two axes.

    Attributes
    ----------
    key : str
        A name for the picture that no other of the page has.
    title, description : str
        For people who do not see it.
    x_label, y_label : str
    x, y : Scale
    series : sequence of Series
    level : tuple of str and float, optional
        A dashed line across, and its name.
    """

    key: str
    title: str
    description: str
    x_label: str
    y_label: str
    x: Scale
    y: Scale
    series: Sequence[Series]
    level: tuple[str, float] | None = None


def to_svg(chart: Chart) -> str:
    """The chart as an ``<svg>`` element, everything escaped.

    Examples
    --------
    >>> import numpy as np
    >>> from dfwtrace.report.scales import linear
    >>> x = np.array([1.0, 2.0])
    >>> chart = Chart("a", "a < b", "", "x", "y", linear(x), linear(x), [Series("s", x, x)])
    >>> "a &lt; b" in to_svg(chart)
    True
    """
    left = 30.0 + _LETTER * max(len(tick.label) for tick in chart.y.ticks)
    frame = _Frame(left, WIDTH - _RIGHT, _TOP, HEIGHT - _BOTTOM, chart.x, chart.y)
    svg = ET.Element("svg", _attributes(viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img"))
    # Names by reference, since some screen readers know no other way.
    svg.set("aria-labelledby", f"{chart.key}-title {chart.key}-desc")
    svg.set("class", "chart")
    ET.SubElement(svg, "title", id=f"{chart.key}-title").text = name(chart.title)
    ET.SubElement(svg, "desc", id=f"{chart.key}-desc").text = clean(chart.description)
    _draw_axes(svg, chart, frame)
    if chart.level is not None and _within(chart.y, chart.level[1]):
        y = frame.down(np.array([chart.level[1]]))[0]
        _line(svg, frame.left, y, frame.right, y, "level")
    for series in chart.series:
        _draw_series(svg, series, frame)
    return ET.tostring(svg, encoding="unicode")


@dataclass(frozen=True)
class _Frame:
    left: float
    right: float
    top: float
    bottom: float
    x: Scale
    y: Scale

    def across(self, values: FloatArray) -> FloatArray:
        return self.left + (self.right - self.left) * self.x.place(values)

    def down(self, values: FloatArray) -> FloatArray:
        return self.bottom - (self.bottom - self.top) * self.y.place(values)


def _draw_axes(svg: ET.Element, chart: Chart, frame: _Frame) -> None:
    for tick in chart.y.ticks:
        y = frame.down(np.array([tick.value]))[0]
        _line(svg, frame.left, y, frame.right, y, "grid")
        _text(svg, frame.left - 7, y + 4, tick.label, "tick end")
    for tick in chart.x.ticks:
        x = frame.across(np.array([tick.value]))[0]
        _line(svg, x, frame.bottom, x, frame.bottom + 4, "axis")
        _text(svg, x, frame.bottom + 18, tick.label, "tick middle")
    _line(svg, frame.left, frame.bottom, frame.right, frame.bottom, "axis")
    middle = (frame.left + frame.right) / 2
    _text(svg, middle, HEIGHT - 10, _with_unit(chart.x_label, chart.x), "label middle")
    # Over the axis and not along it: nobody has to turn their head.
    _text(svg, 4, 13, _with_unit(chart.y_label, chart.y), "label")


def _draw_series(svg: ET.Element, series: Series, frame: _Frame) -> None:
    x, y = np.asarray(series.x, dtype=np.float64), np.asarray(series.y, dtype=np.float64)
    shown = drawable(x, frame.x.log) & drawable(y, frame.y.log)
    x, y = frame.across(x[shown]), frame.down(y[shown])
    if x.size == 0:
        return
    group = ET.SubElement(svg, "g", {"class": series.style})
    if series.mark == "bars":
        _draw_bars(group, x, y, frame)
        return
    if series.mark == "line" and x.size > 1:
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in _fewer(x, y))
        ET.SubElement(group, "polyline", points=points)
    if series.marker:
        _draw_markers(group, series, x, y)
        return
    few = x.size == 1 or (x.size <= _MOST_DOTS and not series.thin)
    if series.mark == "dots" or few:
        for a, b in zip(x, y, strict=True):
            ET.SubElement(group, "circle", _attributes(cx=a, cy=b, r=series.radius))


def _draw_markers(group: ET.Element, series: Series, x: FloatArray, y: FloatArray) -> None:
    at = markers.chosen(x, y, series.shift)
    path = {
        "class": markers.style(series.marker),
        "d": markers.outlines(series.marker, x[at], y[at]),
    }
    ET.SubElement(group, "path", path)


def _draw_bars(group: ET.Element, x: FloatArray, y: FloatArray, frame: _Frame) -> None:
    ground = float(frame.down(np.array([frame.y.zero_or_low]))[0])
    gap = float(np.diff(np.sort(x)).min()) if x.size > 1 else frame.right - frame.left
    width = float(np.clip(0.7 * gap, 0.4, 26.0))
    for a, b in zip(x, y, strict=True):
        top, height = min(b, ground), max(abs(ground - b), 0.5)
        bar = _attributes(x=a - width / 2, y=top, width=width, height=height)
        ET.SubElement(group, "rect", {**bar, "rx": "1.5" if width > 4.0 else "0"})


def _fewer(x: FloatArray, y: FloatArray) -> list[tuple[float, float]]:
    """At most so many points that nobody sees the difference: peaks and valleys stay."""
    if x.size <= _MOST_POINTS:
        return list(zip(x.tolist(), y.tolist(), strict=True))
    keep = {0, x.size - 1}
    span = float(np.ptp(x)) or 1.0
    columns = np.floor((x - x.min()) / span * (_MOST_POINTS // 2)).astype(int)
    order = np.argsort(columns, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(columns[order])) + 1):
        keep.add(int(part[np.argmin(y[part])]))
        keep.add(int(part[np.argmax(y[part])]))
    return [(float(x[k]), float(y[k])) for k in sorted(keep)]


def _with_unit(label: str, scale: Scale) -> str:
    return f"{label} ({scale.unit})" if scale.unit else label


def _within(scale: Scale, value: float) -> bool:
    return bool(drawable(np.array([value]), scale.log)[0]) and scale.low <= value <= scale.high


def _line(svg: ET.Element, x1: float, y1: float, x2: float, y2: float, style: str) -> None:
    ET.SubElement(svg, "line", {**_attributes(x1=x1, y1=y1, x2=x2, y2=y2), "class": style})


def _text(svg: ET.Element, x: float, y: float, text: str, style: str) -> None:
    ET.SubElement(svg, "text", {**_attributes(x=x, y=y), "class": style}).text = name(text)


def _attributes(**values: float | str) -> dict[str, str]:
    """Places to a tenth of a unit, which is less than a pixel."""
    return {key: v if isinstance(v, str) else f"{v:.1f}" for key, v in values.items()}
