"""From values to places along an axis, with ticks that people can read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dfwtrace._typing import FloatArray
from dfwtrace.report.numbers import power_of_ten

# Larger and smaller numbers are not drawn: differences and ratios of these cannot overflow.
_LARGEST = 1e250
_SMALLEST = 1e-250

_MOST_DECADES = 5  # with a label each
# Up to these ratios there are ticks between the powers of ten.
_CLOSE, _NEAR = 20.0, 100.0
_PLAIN_DECADES = range(-2, 4)  # 0.01 to 1000 need no powers
# An axis of few decades tells its ends, too, if they are so far from the next power of ten, as a
# share of the axis: there is room for both labels then.
_ROOM_FOR_A_LABEL = 0.2


class Tick(NamedTuple):
    """A value on an axis and what is written there."""

    value: float
    label: str


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high`.

    Attributes
    ----------
    low, high : float
    ticks : tuple of Tick
    log : bool
    unit : str
        What the labels are to be multiplied with, such as "×10³"; empty if they are as they are.
    """

    low: float
    high: float
    ticks: tuple[Tick, ...]
    log: bool = False
    unit: str = ""

    def place(self, values: FloatArray) -> FloatArray:
        """0 at `low`, 1 at `high`."""
        low, high = self.low, self.high
        if self.log:
            values, low, high = np.log10(values), math.log10(low), math.log10(high)
        return np.clip((values - low) / (high - low), 0.0, 1.0)

    @property
    def zero_or_low(self) -> float:
        """Where bars stand."""
        return self.low if self.log else min(max(self.low, 0.0), self.high)


def drawable(values: FloatArray, log: bool = False) -> npt.NDArray[np.bool_]:
    """Which values can be drawn: finite, not too large, and above zero on a logarithmic axis."""
    with np.errstate(invalid="ignore"):
        if log:
            return (values > _SMALLEST) & (values < _LARGEST)
        return np.abs(values) < _LARGEST


def linear(values: FloatArray, from_zero: bool = False, whole: bool = False) -> Scale:
    """An axis with even steps; of whole numbers, where there is nothing between them.

    Examples
    --------
    >>> import numpy as np
    >>> [tick.label for tick in linear(np.array([3.0, 47.0]), from_zero=True).ticks]
    ['0', '10', '20', '30', '40', '50']
    >>> scale = linear(np.array([1.2e6, 2.9e6]))
    >>> scale.unit, [tick.label for tick in scale.ticks]
    ('×10⁶', ['1.0', '1.5', '2.0', '2.5', '3.0'])
    """
    values = values[drawable(values)]
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
    if from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    largest = max(abs(low), abs(high), _SMALLEST)
    if high - low <= 1e-9 * largest:  # one value: give it some room
        room = 0.5 * largest if largest > _SMALLEST else 0.5
        low, high = (0.0, 1.0) if low == 0.0 else (low - room, high + room)
    step = _nice_step((high - low) / 5.0)
    if whole:
        step = max(step, 1.0)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    factor = _factor(max(abs(first), abs(last)) * step)
    decimals = max(0, factor - math.floor(math.log10(step) + 1e-9))
    ticks = tuple(
        Tick(k * step, f"{k * step / 10.0**factor:.{decimals}f}".replace("-", "−"))
        for k in range(first, last + 1)
    )
    unit = f"×{power_of_ten(factor)}" if factor else ""
    return Scale(ticks[0].value, ticks[-1].value, ticks, unit=unit)


def logarithmic(values: FloatArray) -> Scale:
    """An axis on which every factor of ten takes as much room.

    Examples
    --------
    >>> import numpy as np
    >>> [tick.label for tick in logarithmic(np.array([2e-4, 0.5])).ticks]
    ['10⁻³', '0.01', '0.1', '0.5']
    >>> [tick.label for tick in logarithmic(np.array([1.0, 15.0])).ticks]
    ['1', '2', '5', '10', '20']
    >>> [tick.label for tick in logarithmic(np.array([0.023, 3.3])).ticks]
    ['0.02', '0.1', '1', '5']
    """
    values = values[drawable(values, log=True)]
    low, high = (float(values.min()), float(values.max())) if values.size else (1.0, 10.0)
    if high / low > _NEAR:
        return _decades(low, high)
    bottom, top = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    between = (1, 2, 5) if high / low <= _CLOSE else (1, 3)
    marks = [(e, mark) for e in range(bottom - 1, top + 2) for mark in between]
    sizes = np.array([mark * 10.0**e for e, mark in marks])
    first = int(np.flatnonzero(sizes <= low * (1.0 + 1e-9))[-1])
    last = int(np.flatnonzero(sizes >= high * (1.0 - 1e-9))[0])
    marks = marks[first : last + 1] if first < last else marks[first - 1 : first + 2]
    ticks = tuple(_log_tick(e, mark) for e, mark in marks)
    return Scale(ticks[0].value, ticks[-1].value, ticks, log=True)


def _decades(low: float, high: float) -> Scale:
    """Ticks at powers of ten; the ends are the values', so that little room is lost."""
    bottom, top = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    stride = math.ceil((top - bottom + 1) / _MOST_DECADES)
    ticks = [_log_tick(e, 1) for e in range(bottom, top + 1) if e % stride == 0]
    if stride == 1:
        room = (high / low) ** _ROOM_FOR_A_LABEL
        first, last = _below(low, bottom - 1), _above(high, top)
        if first is not None and room * first.value <= ticks[0].value:
            ticks.insert(0, first)
        if last is not None and last.value >= room * ticks[-1].value:
            ticks.append(last)
    return Scale(min(low, ticks[0].value), max(high, ticks[-1].value), tuple(ticks), log=True)


def _below(low: float, exponent: int) -> Tick | None:
    """The last of 1, 2, 5 times this power of ten that is not above; None for long labels."""
    marks = [_log_tick(exponent, mark) for mark in (1, 2, 5)]
    fitting = [tick for tick in marks if tick.value <= low * (1.0 + 1e-9)]
    return fitting[-1] if exponent in _PLAIN_DECADES else None


def _above(high: float, exponent: int) -> Tick | None:
    """The first of 2, 5, 10 times this power of ten that is not below; None for long labels."""
    marks = [_log_tick(exponent, 2), _log_tick(exponent, 5), _log_tick(exponent + 1, 1)]
    fitting = [tick for tick in marks if tick.value >= high * (1.0 - 1e-9)]
    return fitting[0] if exponent in _PLAIN_DECADES else None


def _log_tick(exponent: int, mark: int) -> Tick:
    return Tick(mark * 10.0**exponent, _log_label(exponent, mark))


def _log_label(exponent: int, mark: int) -> str:
    if exponent in _PLAIN_DECADES:
        return f"{mark * 10.0**exponent:.{max(0, -exponent)}f}"
    return power_of_ten(exponent) if mark == 1 else f"{mark}×{power_of_ten(exponent)}"


def _nice_step(rough: float) -> float:
    """The next of 1, 2, 5, 10 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(mark * power for mark in (1.0, 2.0, 5.0, 10.0, 20.0) if mark * power >= rough)


def _factor(largest: float) -> int:
    """The power of a thousand that keeps labels short; 0 for numbers of everyday size."""
    exponent = math.floor(math.log10(largest) + 1e-9)
    return 3 * math.floor(exponent / 3) if not -2 <= exponent <= 3 else 0
