"""Reading the rows of runs that were followed epoch by epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from dfwtrace.experiments.exhibits import Line, Panel
from dfwtrace.experiments.runs import Row
from dfwtrace.report.numbers import number


class ShownError(NamedTuple):
    """An error as figures show it.

    Attributes
    ----------
    key : str
        Its name in the rows.
    name : str
        In words.
    label : str
        Of its axis.
    """

    key: str
    name: str
    label: str


# Four decimals say too little of what is smaller.
_SMALL = 1e-3


def objective(row: Row) -> float:
    """F(W_t)/F(0) at the end."""
    values: list[float] = row["values"]["objective"]
    return values[-1]


def error(row: Row, name: str) -> float:
    """The last error of that name."""
    values: list[float] = row["values"]["errors"][name]["error"]
    return values[-1]


def seconds_an_epoch(row: Row) -> float:
    """The mean, without the set-up."""
    seconds: list[float] = row["values"]["seconds"]
    return seconds[-1] / len(seconds)


def time_to(row: Row, target: float) -> float:
    """Seconds until F(W)/F(0) was at most that; infinite if it never was."""
    values = row["values"]
    reached = (
        second
        for second, value in zip(values["seconds"], values["objective"], strict=True)
        if value <= target
    )
    return next(reached, inf)


def time_to_error(row: Row, name: str, target: float) -> float:
    """Seconds until an error that was looked at was at most that; infinite if none was."""
    told, seconds = row["values"]["errors"][name], row["values"]["seconds"]
    reached = (
        seconds[int(epoch) - 1]
        for epoch, value in zip(told["epoch"], told["error"], strict=True)
        if value <= target
    )
    return next(reached, inf)


def panels(
    rows: Mapping[str, Row], methods: Iterable[str], problem: str, error: ShownError
) -> list[Panel]:
    """Objective and error of these methods, against epochs and against time."""
    rows = {name: rows[name] for name in methods}
    axes: list[tuple[str, str, Callable[[Row], Sequence[float]], bool]] = [
        ("epochs", "epochs", lambda row: row["values"]["epoch"], False),
        ("time", "seconds", lambda row: row["values"]["seconds"], True),
    ]
    shown = []
    for by, label, place, log in axes:
        objectives = {name: (place(row), row["values"]["objective"]) for name, row in rows.items()}
        errors = {name: _errors(row, place(row), error.key) for name, row in rows.items()}
        shown += [
            Panel(f"{problem}: objective by {by}", label, "F / F(0)", objectives, log, log_y=True),
            Panel(f"{problem}: {error.name} by {by}", label, error.label, errors, log, log_y=True),
        ]
    return shown


def _errors(row: Row, place: Sequence[float], name: str) -> Line:
    told = row["values"]["errors"][name]
    return [place[epoch - 1] for epoch in told["epoch"]], told["error"]


def decimal(value: float) -> str:
    """Four decimals, which stand below each other in a table; fewer digits of what is smaller.

    Examples
    --------
    >>> decimal(0.0205), decimal(6.074e-11)
    ('0.0205', '6.07×10⁻¹¹')
    """
    return f"{value:.4f}" if abs(value) >= _SMALL else number(value, 3)


def listed(values: Mapping[str, float], style: str = ".3g") -> str:
    """Numbers by name, in one line; a time that never ended is "never".

    Examples
    --------
    >>> listed({"Naive": 0.25, "DFW-1": 1434.2, "SVA": float("inf")})
    'Naive 0.25, DFW-1 1430, SVA never'
    """
    return ", ".join(f"{name} {_number(value, style)}" for name, value in values.items())


def _number(value: float, style: str) -> str:
    if value == inf:
        return "never"
    told = f"{value:{style}}"
    return f"{float(told):.0f}" if "e+0" in told else told  # thousands are read more easily so
