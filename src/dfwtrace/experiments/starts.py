"""Where the power method starts: at random, at SVA's average, or where the last epoch ended."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from dfwtrace.experiments import curves
from dfwtrace.experiments.exhibits import Claim, Exhibit, Panel, Scale, Setting, Table
from dfwtrace.experiments.methods import follow
from dfwtrace.experiments.problems import last, multitask
from dfwtrace.experiments.runs import Row, Run, by_setting
from dfwtrace.report.numbers import duration

NAME = "starts"
TITLE = "SVA as a warm start, and K = O(t)"
KEYS = ("method",)
ABOUT = (
    "Least squares as in figure 1. SVA's average as the power method's start costs one more round "
    "of N·(d+m) numbers in every epoch, for which each worker finds the top singular pair of its "
    "own gradient; the vector of the last epoch costs nothing."
)

_METHODS = (
    "DFW-1",
    "DFW-1 from SVA",
    "DFW-1 from the last epoch",
    "SVA",
    "DFW-2",
    "DFW-log",
    "DFW-linear",
)
#: Rows, d = m, epochs, workers.
_SIZES: dict[Scale, tuple[int, int, int, int]] = {
    "toy": (400, 12, 6, 3),
    "small": (10_000, 200, 60, 8),
    "paper": (100_000, 1000, 100, 24),
}


def runs(setting: Setting) -> list[Run]:
    """Every start."""
    n, d, epochs, shards = _SIZES[setting.scale]
    return [
        Run(
            NAME,
            {
                "method": method,
                "n": n,
                "d": d,
                "m": d,
                "shards": shards,
                "epochs": epochs,
                "engine": setting.where,
                "seed": 0,
            },
            partial(_measure, setting, method, n, d, epochs, shards),
        )
        for method in _METHODS
    ]


def _measure(
    setting: Setting, method: str, n: int, d: int, epochs: int, shards: int
) -> dict[str, Any]:
    problem, engine = last.of(multitask, n, d, d), setting.engine(shards)
    return follow(problem, method, epochs=epochs, step="linesearch", engine=engine)


def exhibit(rows: Sequence[Row]) -> Exhibit:
    """The objective against epochs and against numbers sent."""
    methods = by_setting(rows, "method")
    epochs = {
        name: (row["values"]["epoch"], row["values"]["objective"]) for name, row in methods.items()
    }
    numbers = {
        name: (_running(row["values"]["numbers_sent"]), row["values"]["objective"])
        for name, row in methods.items()
    }
    settings = rows[0]["settings"]
    problem = f"d = m = {settings['d']}"
    cells = [
        [
            name,
            curves.decimal(curves.objective(row)),
            f"{sum(row['values']['numbers_sent']):,.0f}",
            f"{sum(row['values']['rounds']):,.0f}",
            duration(row["values"]["seconds"][-1]),
        ]
        for name, row in methods.items()
    ]
    return Exhibit(
        [
            Panel(f"{problem}: objective by epochs", "epochs", "F / F(0)", epochs, log_y=True),
            Panel(
                f"{problem}: objective by what was sent",
                "numbers sent",
                "F / F(0)",
                numbers,
                log_x=True,
                log_y=True,
            ),
        ],
        tables=[
            Table("At the end", ["method", "F / F(0)", "numbers", "rounds", "all epochs"], cells)
        ],
    )


def _running(values: Sequence[float]) -> list[float]:
    total, sums = 0.0, []
    for value in values:
        total += value
        sums.append(total)
    return sums


def claims(rows: Sequence[Row]) -> list[Claim]:
    """What the starts and the schedule are worth."""
    methods = by_setting(rows, "method")
    ends = {name: curves.objective(methods[name]) for name in _METHODS}
    compared = ("DFW-1", "DFW-1 from SVA", "DFW-1 from the last epoch", "SVA", "DFW-2")
    took = {name: methods[name]["values"]["seconds"][-1] for name in compared}
    linear = {name: ends[name] for name in ("DFW-log", "DFW-linear")}
    sent = {name: sum(methods[name]["values"]["numbers_sent"]) for name in linear}
    return [
        Claim(
            "SVA serves as a warm start of the power method.",
            f"F/F(0) at the end: {curves.listed({name: ends[name] for name in compared})}; seconds "
            f"of all epochs: {curves.listed(took)}.",
            ends["DFW-1 from SVA"] < ends["DFW-1"],
            "The workers' own pairs point elsewhere than the pair of the sum.",
        ),
        Claim(
            "K = O(t), which the theory asks for in general, is more than is needed in practice.",
            f"F/F(0) at the end: {curves.listed(linear)}, with "
            f"{', '.join(f'{name} {count:,.0f}' for name, count in sent.items())} numbers sent.",
            ends["DFW-log"] <= 1.5 * ends["DFW-linear"],
            "The gradient's spectrum gets flat before the end of the run.",
        ),
    ]
