"""Where the power method starts: at random, at SVA's average, or where the last epoch ended."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pandas as pd

from dfwtrace.plotting import Series
from reproduction.claims import Claim, Judged, claim, listed
from reproduction.comparison import decimal, objective
from reproduction.data import cached, multitask
from reproduction.methods import Options, Scale, follow, runs_of
from reproduction.page import Panel, Shown, duration
from reproduction.rows import RowsBy, Settings

NAME = "starts"
TITLE = "SVA as a warm start, and K = O(t)"
KEYS = ("method",)
ABOUT = (
    "Least squares as in figure 1. SVA's average as the power method's start costs one more round "
    "of N·(d+m) numbers in every epoch, for which each worker finds the top singular pair of its "
    "own gradient; the vector of the last epoch costs nothing."
)
CLAIMS: list[Claim] = []
group = RowsBy

_STARTS = ("DFW-1", "DFW-1 from SVA", "DFW-1 from the last epoch")
_METHODS = (*_STARTS, "SVA", "SVA (agreement)", "DFW-2", "DFW-log", "DFW-linear")
#: Rows, d = m, epochs, workers.
_SIZES: dict[Scale, tuple[int, int, int, int]] = {
    "toy": (400, 12, 6, 3),
    "small": (10_000, 200, 60, 8),
    "paper": (100_000, 1000, 100, 24),
}


def runs(options: Options) -> list[Settings]:
    """Every start."""
    n, d, epochs, shards = _SIZES[options.scale]
    return runs_of(_METHODS, n=n, d=d, m=d, shards=shards, epochs=epochs)


def measure(options: Options, run: Settings) -> dict[str, Any]:
    """Solve by one method."""
    return follow(cached(multitask, run["n"], run["d"], run["m"]), run, step="linesearch")


def show(methods: RowsBy) -> Shown:
    """The objective against epochs and against numbers sent."""
    by_epoch, by_numbers, cells = [], [], []
    for name, row in methods.items():
        values = row["values"]
        sent = list(accumulate(values["numbers_sent"]))
        by_epoch.append(Series(name, values["epoch"], values["objective"]))
        by_numbers.append(Series(name, sent, values["objective"]))
        cell = {"method": name, "F / F(0)": decimal(objective(row)), "numbers": f"{sent[-1]:,.0f}"}
        cell["rounds"] = f"{sum(values['rounds']):,.0f}"
        cells.append({**cell, "all epochs": duration(values["seconds"][-1])})
    title = f"d = m = {next(iter(methods.values()))['settings']['d']}: objective"
    panels = [
        Panel(title, "epochs", "F / F(0)", by_epoch, y_log=True),
        Panel(title, "numbers sent", "F / F(0)", by_numbers, x_log=True, y_log=True),
    ]
    return Shown({"": panels}, pd.DataFrame(cells).set_index("method"))


@claim(CLAIMS, "The workers' own pairs point elsewhere than the pair of the sum.")
def _sva_is_a_start(methods: RowsBy) -> Judged:
    """SVA serves as a warm start of the power method."""
    compared = (*_STARTS, "SVA", "DFW-2")
    ends = {name: objective(methods[name]) for name in compared}
    took = {name: methods[name]["values"]["seconds"][-1] for name in compared}
    words = f"F/F(0) at the end: {listed(ends)}; seconds of all epochs: {listed(took)}."
    return words, ends["DFW-1 from SVA"] < ends["DFW-1"]


@claim(CLAIMS, "The gradient's spectrum gets flat before the end of the run.")
def _linear_is_more_than_needed(methods: RowsBy) -> Judged:
    """K = O(t), which the theory asks for in general, is more than is needed in practice."""
    names = ("DFW-log", "DFW-linear")
    ends = {name: objective(methods[name]) for name in names}
    sent = {name: sum(methods[name]["values"]["numbers_sent"]) for name in names}
    words = f"F/F(0) at the end: {listed(ends)}, with {listed(sent, ',.0f')} numbers sent."
    return words, ends["DFW-log"] <= 1.5 * ends["DFW-linear"]
