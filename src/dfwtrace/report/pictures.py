"""Which pictures a report has, and what they say to those who do not see them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dfwtrace._typing import FloatArray
from dfwtrace.report.chart import Chart, Series, to_svg
from dfwtrace.report.content import Radii, Report
from dfwtrace.report.numbers import duration, number
from dfwtrace.report.scales import Scale, drawable, linear, logarithmic
from dfwtrace.result import History

# From these ratios of the largest to the smallest value on, an axis is logarithmic.
_WIDE_OBJECTIVE = 30.0
_WIDE_SPECTRUM = 1000.0
_MANY_EPOCHS = 100

_MOST_BARS = 120


class Key(NamedTuple):
    """An entry of a legend."""

    name: str
    style: str
    dot: bool
    marker: str = ""


class Picture(NamedTuple):
    """A chart, drawn, with its caption and legend."""

    caption: str
    svg: str
    legend: list[Key]


class Choice(NamedTuple):
    """What validation says about the radius."""

    picture: Picture
    best: float
    loss: float
    tried: int
    least: float
    most: float
    folds: int


def convergence(report: Report) -> list[Picture]:
    """Objective and gap against epochs and against seconds; none of a run without epochs."""
    if not report.history:
        return []
    return [
        picture
        for draw in (_objective, _gap)
        for column in ("epoch", "seconds")
        if (picture := draw(report, column)) is not None
    ]


def spectrum(report: Report) -> Picture | None:
    """The singular values of W, or None if W = 0."""
    values = np.asarray(report.spectrum, dtype=np.float64)
    values = values[drawable(values, log=True)]
    if values.size == 0:
        return None
    place = np.arange(1.0, values.size + 1.0)
    wide = values.max() / values.min() > _WIDE_SPECTRUM
    below = np.append(values, 0.5 * values.min())  # so that the last bar has some height
    chart = Chart(
        "spectrum",
        "Singular values of W",
        f"{_counted(values.size, 'singular value')}, "
        f"from {number(values.max())} to {number(values.min())}.",
        "place",
        "singular value",
        linear(np.array([0.0, values.size + 1.0]), whole=True),
        logarithmic(below) if wide else linear(values, from_zero=True),
        [Series("singular value", place, values, "bars" if values.size <= _MOST_BARS else "line")],
    )
    return _picture("Singular values of W", chart)


def traffic(report: Report) -> Picture | None:
    """Numbers sent in an epoch, or None if none was."""
    series = [
        Series(label, _column(report.history, "epoch"), numbers, tone=tone)
        for tone, label, name in ((1, "oracle", "numbers_sent"), (2, "the rest", "other_numbers"))
        if (numbers := _column(report.history, name)).any() and np.isfinite(numbers).any()
    ]
    if not series:
        return None
    all_numbers = np.concatenate([one.y for one in series])
    total = float(np.nansum(all_numbers))
    chart = Chart(
        "traffic",
        "Numbers sent in each epoch",
        f"{number(int(total))} numbers in {_counted(len(report.history), 'epoch')}.",
        "epoch",
        "numbers sent",
        _epochs(report.history),
        linear(all_numbers, from_zero=True),
        series,
    )
    return _picture("Numbers sent in each epoch", chart)


def radii(path: Radii) -> Choice | None:
    """Validation losses against radii, or None if none is a number."""
    order = np.argsort(path.radii, kind="stable")
    at = np.asarray(path.radii, dtype=np.float64)[order]
    losses = np.asarray(path.validation, dtype=np.float64).reshape(len(at), -1)[order]
    losses[~drawable(losses)] = np.nan
    mean = losses.mean(axis=1)
    if not (drawable(mean) & drawable(at, log=True)).any():
        return None
    best, folds = int(np.nanargmin(mean)), losses.shape[1]
    here = slice(best, best + 1)
    series = [Series("mean", at, mean), Series("best", at[here], mean[here], "dots", 3, radius=5.0)]
    if folds > 1:
        each = Series("each fold", np.repeat(at, folds), losses.ravel(), "dots", 2)
        series.insert(0, each)
    chart = Chart(
        "radii",
        "Validation loss against the radius",
        f"Least, {number(mean[best])}, at a radius of {number(at[best])}.",
        "radius",
        "validation loss",
        logarithmic(at),
        linear(losses),
        series,
    )
    picture = _picture("Validation loss against the radius", chart)
    return Choice(picture, at[best], mean[best], len(at), at.min(), at.max(), folds)


def _objective(report: Report, against: str) -> Picture | None:
    values = _column(report.history, "objective")
    shown = values[drawable(values)]
    if shown.size == 0:  # a task that tells no objective
        return None
    positive = shown.min() > 0.0
    wide = positive and shown.max() / shown.min() > _WIDE_OBJECTIVE
    at = _column(report.history, against)
    chart = Chart(
        f"objective-{against}",
        f"Objective against {_plural(against)}",
        f"From {number(shown[0])} to {number(shown[-1])} in {_extent(report.history, against)}.",
        against,
        "objective F(W)",
        _across(report.history, against),
        logarithmic(shown) if wide else linear(shown),
        [Series("objective", at, values)],
    )
    return _picture(f"Objective, by {_plural(against)}", chart)


def _gap(report: Report, against: str) -> Picture | None:
    scale = abs(report.outcome.objective_at_zero)
    scale = scale if drawable(np.array([scale]), log=True)[0] else 1.0  # as `Result.relative_gap`
    at = _column(report.history, against)
    series = [
        Series(label, at, gaps, tone=tone, thin=tone == 2, radius=3.2)
        for tone, label, name in ((2, "estimated", "gap_estimate"), (1, "certified", "gap"))
        if drawable(gaps := _column(report.history, name) / scale, log=True).any()
    ]
    if not series:
        return None
    gaps = np.concatenate([one.y for one in series])
    tol = math.nan if report.settings.tol is None else report.settings.tol
    wanted = bool(drawable(np.array([tol]), log=True)[0])
    last = report.outcome.relative_gap
    known = "not known" if math.isnan(last) else number(last)
    chart = Chart(
        f"gap-{against}",
        f"Relative gap against {_plural(against)}",
        f"The certified gap is {known} after {_extent(report.history, against)}.",
        against,
        "gap / |F(0)|",
        _across(report.history, against),
        logarithmic(np.append(gaps, tol) if wanted else gaps),
        series,
        level=("tolerance", tol) if wanted else None,
    )
    return _picture(f"Relative gap, by {_plural(against)}", chart)


def _picture(caption: str, chart: Chart) -> Picture:
    """With a legend where there is more than one thing to tell apart."""
    legend = [Key(one.name, one.style, one.mark == "dots") for one in chart.series]
    if chart.level is not None:
        legend.append(Key(chart.level[0], "level", dot=False))
    return Picture(caption, to_svg(chart), legend if len(legend) > 1 else [])


def _column(history: History, name: str) -> FloatArray:
    """A column as floats; empty if no record has it."""
    if name not in history.columns:
        return np.full(len(history), np.nan)
    return np.asarray(history.column(name), dtype=np.float64)


def _across(history: History, against: str) -> Scale:
    if against == "epoch":
        return _epochs(history)
    return linear(_column(history, against), from_zero=True)


def _epochs(history: History) -> Scale:
    """Steps become small with time: many epochs are shown by their order of magnitude."""
    epochs = _column(history, "epoch")
    if len(history) >= _MANY_EPOCHS:
        return logarithmic(epochs)
    return linear(epochs, from_zero=True, whole=True)


def _extent(history: History, against: str) -> str:
    if against == "seconds":
        return duration(float(_column(history, "seconds")[-1]))
    return _counted(len(history), "epoch")


def _counted(count: int, noun: str) -> str:
    return f"{number(count)} {noun}" + ("" if count == 1 else "s")


def _plural(against: str) -> str:
    return "epochs" if against == "epoch" else against
