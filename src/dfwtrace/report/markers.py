"""Marks along a line: lines can be told apart without their colours, and where they coincide."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dfwtrace._typing import FloatArray

#: Outlines around a place, as an SVG path goes on from there.
_OUTLINES = {
    "disc": "m-2.9 0a2.9 2.9 0 1 0 5.8 0a2.9 2.9 0 1 0 -5.8 0z",
    "open-square": "m-2.8 -2.8h5.6v5.6h-5.6z",
    "triangle": "m0 -3.7l3.4 5.9h-6.8z",
    "open-diamond": "m0 -4l3.4 4l-3.4 4l-3.4 -4z",
    "cross": "m-2.9 -2.9l5.8 5.8m0 -5.8l-5.8 5.8",
    "ring": "m-3.2 0a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0 -6.4 0z",
    "downward": "m0 3.7l3.4 -5.9h-6.8z",
    "plus": "m-3.6 0h7.2m-3.6 -3.6v7.2",
    "square": "m-2.5 -2.5h5v5h-5z",
}
_OPEN = ("open-square", "open-diamond", "ring")

#: Nine of them: with eight colours, a pair of shape and colour comes again after 72 lines only.
SHAPES = tuple(_OUTLINES)

# Up to so many points have a mark each; of more, some have, so far apart in a chart's units.
_FEW = 12
_APART = 60.0
_MOST = 40
# Ways that are shorter are not counted: a line that trembles gets no more marks for it.
_FELT = 8.0


def style(shape: str) -> str:
    """The names by which a page's styles know it.

    Examples
    --------
    >>> style("disc"), style("ring")
    ('marker', 'marker open')
    """
    return "marker open" if shape in _OPEN else "marker"


def outlines(shape: str, x: Iterable[float], y: Iterable[float]) -> str:
    """The shape at every place, as one path.

    Examples
    --------
    >>> outlines("square", [10.0], [5.0])
    'M10.0 5.0m-2.5 -2.5h5v5h-5z'
    """
    return "".join(f"M{a:.1f} {b:.1f}{_OUTLINES[shape]}" for a, b in zip(x, y, strict=True))


def chosen(x: FloatArray, y: FloatArray, shift: float) -> list[int]:
    """Which points of a line have a mark, evenly along it.

    `shift`, from 0 to 1, is the share of the way to the next mark by which all of them come later:
    lines that coincide show their marks in turn.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.linspace(0.0, 240.0, 25)
    >>> chosen(x, 0.0 * x, 0.0), chosen(x, 0.0 * x, 0.5)
    ([0, 6, 12, 18], [3, 9, 15, 21])
    """
    if x.size <= _FEW:
        return list(range(x.size))
    along = _along(x, y)
    count = min(max(2, round(float(along[-1]) / _APART)), _MOST)
    wanted = (np.arange(count) + shift) / count * along[-1]
    nearest = np.abs(along[None, :] - wanted[:, None]).argmin(axis=1)
    return sorted({int(k) for k in nearest})


def _along(x: FloatArray, y: FloatArray) -> FloatArray:
    """How far along the line every point is."""
    way, here = 0.0, 0
    ways = np.zeros(x.size)
    for k in range(1, x.size):
        step = float(np.hypot(x[k] - x[here], y[k] - y[here]))
        if step >= _FELT:
            way, here, step = way + step, k, 0.0
        ways[k] = way + step
    return ways
