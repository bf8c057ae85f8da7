"""All methods on the same problems: what figures 1, 2 and 3 have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf

import pandas as pd

from dfwtrace.plotting import Series
from reproduction.claims import Judged, listed
from reproduction.methods import ACCELERATED, COMPARED, PAPER, SHOWN, VARIANTS
from reproduction.page import Panel, Shown, duration
from reproduction.rows import Row, RowsBy, Settings

#: Rows by the problem's title, and then by method.
Problems = dict[str, RowsBy]
#: Why `accelerated_goes_further` may not hold.
ACCELERATED_REASON = "Its steps cost more than epochs of Frank-Wolfe, or its gap was small before."
# Times are compared where F still has this share of the way to the worst end before it.
_BEFORE_THE_END = 0.01


def by_problem(rows: Sequence[Row], setting: str, title: Callable[[Settings], str]) -> Problems:
    """Return rows by the title of their problem, in the order of the setting that differs."""
    problems: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["settings"][setting]):
        problems.setdefault(title(row["settings"]), []).append(row)
    return {name: RowsBy(own) for name, own in problems.items()}


def objective(row: Row) -> float:
    """F(W_t)/F(0) at the end."""
    return float(row["values"]["objective"][-1])


def error(row: Row, name: str) -> float:
    """The last error of that name."""
    return float(row["values"]["errors"][name]["error"][-1])


def epoch_ms(row: Row) -> float:
    """Milliseconds of an epoch: the mean, without the set-up."""
    seconds = row["values"]["seconds"]
    return 1e3 * float(seconds[-1] / len(seconds))


def time_to(row: Row, target: float) -> float:
    """Seconds until F(W)/F(0) was at most `target`; infinite if it never was."""
    pairs = zip(row["values"]["seconds"], row["values"]["objective"], strict=True)
    return next((second for second, value in pairs if value <= target), inf)


def time_to_error(row: Row, name: str, target: float) -> float:
    """Seconds until an error that was computed was at most `target`; infinite if none was."""
    column, seconds = row["values"]["errors"][name], row["values"]["seconds"]
    pairs = zip(column["epoch"], column["error"], strict=True)
    return next((seconds[epoch - 1] for epoch, value in pairs if value <= target), inf)


def decimal(value: float) -> str:
    """Four decimals; three digits of what is smaller."""
    return f"{value:.4f}" if abs(value) >= 1e-3 else f"{value:.2e}"


def show(
    problems: Problems, errors: Mapping[str, str], shown_error: str, notes: Sequence[str] = ()
) -> Shown:
    """Return objective and error against epochs and time, without and with our own solver.

    `errors` has the label of each error; the first part of the table's columns are they.
    """
    figures = {
        ending: [
            panel
            for title, methods in problems.items()
            for panel in _panels(title, methods, names, shown_error, errors[shown_error])
        ]
        for ending, names in (("", SHOWN), ("-accelerated", COMPARED))
    }
    cells = [
        {
            "problem": title,
            "method": name,
            "form": row["values"]["representation"],
            "epochs": len(row["values"]["epoch"]),
            "F / F(0)": decimal(objective(row)),
            **{label: decimal(error(row, key)) for key, label in errors.items()},
            "rank": f"{row['values']['rank'][-1]:g}",
            "set-up": duration(row["values"]["setup_seconds"]),
            "an epoch": duration(1e-3 * epoch_ms(row)),
            "all epochs": duration(row["values"]["seconds"][-1]),
        }
        for title, methods in problems.items()
        for name, row in methods.items()
    ]
    return Shown(figures, pd.DataFrame(cells).set_index(["problem", "method"]), notes)


def _panels(
    problem: str, methods: RowsBy, names: Sequence[str], shown_error: str, label: str
) -> list[Panel]:
    panels = []
    for axis, x_label in (("epoch", "epochs"), ("seconds", "seconds")):
        objectives, errors = [], []
        for style, name in enumerate(COMPARED):
            if name in names and name in methods:
                values = methods[name]["values"]
                x, column = values[axis], values["errors"][shown_error]
                at = [x[epoch - 1] for epoch in column["epoch"]]
                objectives.append(Series(name, x, values["objective"], style=style))
                errors.append(Series(name, at, column["error"], style=style))
        log = axis == "seconds"
        panels += [
            Panel(f"{problem}: objective", x_label, "F / F(0)", objectives, log, True),
            Panel(f"{problem}: error", x_label, label, errors, log, True),
        ]
    return panels


def epochs_in_which(methods: RowsBy, one: str, choose: Callable[[list[float]], float]) -> str:
    """Return in how many epochs a method's objective is the least (min) or largest (max)."""
    own = methods[one]["values"]["objective"]
    others = [methods[name]["values"]["objective"] for name in PAPER if name != one]
    # A time limit may have ended one of them before the others.
    verdicts = [at[0] == choose(list(at)) for at in zip(own, *others, strict=False)]
    return f"{sum(verdicts)} of {len(verdicts)}"


def dfw_is_faster(problems: Problems) -> Judged:
    """Every variant is faster than both baselines to where the variants and Naive all get."""
    words, holds = [], True
    for title, methods in problems.items():
        target = _nearly(max(objective(methods[name]) for name in ("Naive", *VARIANTS)))
        times = {name: time_to(methods[name], target) for name in PAPER}
        epochs = {name: epoch_ms(methods[name]) for name in PAPER}
        words.append(
            f"{title}, seconds to {target:.3g} F(0): {listed(times)}; milliseconds of an epoch: "
            f"{listed(epochs)}"
        )
        holds &= max(times[name] for name in VARIANTS) < min(times["Naive"], times["SVA"])
    return f"{'; '.join(words)}.", holds


def accelerated_goes_further(problems: Problems) -> Judged:
    """The accelerated solver is faster to where the best of them ends."""
    words, holds = [], True
    for title, methods in problems.items():
        best = min(PAPER, key=lambda name: objective(methods[name]))
        target, row = _nearly(objective(methods[best])), methods[ACCELERATED]
        times = {name: time_to(methods[name], target) for name in (ACCELERATED, best)}
        words.append(
            f"{title}, seconds to {target:.4g} F(0): {listed(times)}; it ends at "
            f"{objective(row):.4g} F(0), certified to {row['values']['relative_gap']:.1g} F(0)"
        )
        holds &= times[ACCELERATED] < times[best]
    return f"{'; '.join(words)}.", holds


def _nearly(end: float) -> float:
    """A little before the end, which would make a whole run the time of whoever ends there."""
    return end + _BEFORE_THE_END * abs(1.0 - end)
