"""All methods on the same problems: what figures 1, 2 and 3 have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any

from dfwtrace.experiments import curves
from dfwtrace.experiments.exhibits import Claim, Exhibit, Panel, Setting, Table
from dfwtrace.experiments.methods import ACCELERATED, COMPARED, PAPER
from dfwtrace.experiments.runs import BySetting, Row, Run, by_setting
from dfwtrace.report.numbers import duration

#: The paper's own methods among those that it compares.
VARIANTS = ("DFW-1", "DFW-2", "DFW-log")
#: Rows by the problem's title, and then by method.
Problems = Mapping[str, BySetting]
#: What a row has in each column of a table, by the column's heading.
Columns = Mapping[str, Callable[[Row], str]]
# Times are compared where F still has this share of the way to the worst end before it.
_BEFORE_THE_END = 0.01


def runs_of_all(
    experiment: str,
    setting: Setting,
    problem: Mapping[str, Any],
    measure: Callable[[str], Mapping[str, Any]],
    methods: Sequence[str] = COMPARED,
) -> list[Run]:
    """These methods on a problem with these settings."""
    return [
        Run(
            experiment,
            {"method": method, **problem, "engine": setting.where, "seed": 0},
            partial(measure, method),
        )
        for method in methods
    ]


def by_problem(
    rows: Sequence[Row], setting: str, title: Callable[[Mapping[str, Any]], str]
) -> dict[str, BySetting]:
    """Rows by the title of their problem, in the order of what tells the problems apart."""
    problems: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["settings"][setting]):
        problems.setdefault(title(row["settings"]), []).append(row)
    return {name: by_setting(own, "method") for name, own in problems.items()}


def exhibit(
    problems: Problems,
    error: curves.ShownError,
    columns: Columns,
    notes: Sequence[str] = (),
    told: Sequence[str] = COMPARED,
) -> Exhibit:
    """Objective and error against epochs and time, without and with what is beyond the paper.

    The table tells of all methods in `told`.
    """
    panels: list[Panel] = []
    beyond: list[Panel] = []
    for title, methods in problems.items():
        panels += curves.panels(methods, PAPER, title, error)
        beyond += curves.panels(methods, COMPARED, title, error)
    cells = [
        [
            title,
            name,
            methods[name]["values"]["representation"],
            str(len(methods[name]["values"]["epoch"])),
            *(tell(methods[name]) for tell in columns.values()),
            duration(curves.seconds_an_epoch(methods[name])),
            duration(methods[name]["values"]["seconds"][-1]),
        ]
        for title, methods in problems.items()
        for name in told
    ]
    headings = ["problem", "method", "form", "epochs", *columns, "an epoch", "all epochs"]
    return Exhibit(panels, beyond, [Table("At the end", headings, cells, names=2)], notes)


def over(
    problems: Problems, one: str, others: Sequence[str], choose: Callable[..., float]
) -> dict[str, float]:
    """One method's objective at the end over the best (min) or worst (max) of some others'."""
    return {
        title: curves.objective(methods[one])
        / choose(curves.objective(methods[name]) for name in others)
        for title, methods in problems.items()
    }


def epochs_in_which(
    methods: BySetting, one: str, leads: Callable[[float, Sequence[float]], bool]
) -> str:
    """In how many epochs a method's objective leads all others of the paper's, in words."""
    own = methods[one]["values"]["objective"]
    others = [methods[name]["values"]["objective"] for name in PAPER if name != one]
    # A limit of time may have ended one of them before the others.
    verdicts = [leads(value, rest) for value, *rest in zip(own, *others, strict=False)]
    return f"{sum(verdicts)} of {len(verdicts)}"


def dfw_is_quicker(problems: Problems, text: str, reason: str) -> Claim:
    """Every variant is sooner than both baselines where the variants and Naive all get to."""
    told, holds = [], True
    for title, methods in problems.items():
        target = _nearly(max(curves.objective(methods[name]) for name in ("Naive", *VARIANTS)))
        times = {name: curves.time_to(methods[name], target) for name in PAPER}
        epochs = {name: 1e3 * curves.seconds_an_epoch(methods[name]) for name in PAPER}
        told.append(
            f"{title}, seconds to {target:.3g} F(0): {curves.listed(times)}; milliseconds of an "
            f"epoch: {curves.listed(epochs)}"
        )
        holds &= max(times[name] for name in VARIANTS) < min(times["Naive"], times["SVA"])
    return Claim(text, f"{'; '.join(told)}.", holds, reason)


def accelerated_goes_further(problems: Problems) -> Claim:
    """Where the best of the paper's methods nearly ends, the accelerated solver was sooner."""
    told, holds, all_there = [], True, True
    for title, methods in problems.items():
        best = min(PAPER, key=lambda name: curves.objective(methods[name]))
        target, row = _nearly(curves.objective(methods[best])), methods[ACCELERATED]
        own, others = curves.time_to(row, target), curves.time_to(methods[best], target)
        told.append(
            f"{title}, seconds to {target:.4g} F(0): "
            f"{curves.listed({ACCELERATED: own, best: others})}; it ends at "
            f"{curves.objective(row):.4g} F(0), certified to {row['values']['relative_gap']:.1g} "
            f"F(0)"
        )
        holds &= own < others
        all_there &= own < inf
    return Claim(
        "Beyond the paper: the accelerated solver is sooner where the best of them ends.",
        f"{'; '.join(told)}.",
        holds,
        "A step of it costs more than an epoch of Frank-Wolfe."
        if all_there
        else "It ended before: its certified gap was small enough, or no step went on.",
        kind="beyond",
    )


def _nearly(end: float) -> float:
    """A little before the end, which would make a whole run the time of whoever ends there."""
    return end + _BEFORE_THE_END * abs(1.0 - end)
