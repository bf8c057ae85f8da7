"""Figure 1: multi-task least squares on synthetic data, at two dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

from reproduction import comparison
from reproduction.claims import Claim, Judged, claim, listed
from reproduction.comparison import Problems, error, objective
from reproduction.data import cached, multitask
from reproduction.methods import COMPARED, PAPER, VARIANTS, Options, Scale, follow, runs_of
from reproduction.page import Shown
from reproduction.rows import MissingRowError, Row, RowsBy, Settings

NAME = "figure 1"
TITLE = "Figure 1: multi-task least squares"
KEYS = ("method", "d")
ABOUT = (
    "X is Gaussian and Y = XW, with W of rank 10 and trace norm 1, which is the radius. All "
    "Frank-Wolfe methods use line search; DFW-log takes K = ⌊1 + log t⌋, log to base 10. Time does "
    "not include the set-up, which is the same for all: XᵀX and XᵀY, once. Their sums over the "
    "workers are all that every method but SVA needs, so these run on the master alone; SVA needs "
    "the singular vectors of each worker's own gradient. It resolves their signs as the paper "
    "does, by the largest entry; “SVA (agreement)” takes the signs that agree best. Both run once "
    "more with so many workers that none has more rows than the larger dimension."
)
CLAIMS: list[Claim] = []

#: Rows, the two dimensions d = m, epochs, workers.
_SIZES: dict[Scale, tuple[int, tuple[int, int], int, int]] = {
    "toy": (600, (10, 16), 6, 3),
    "small": (20_000, (100, 300), 60, 24),
    "paper": (100_000, (300, 1000), 100, 24),
}
_ERROR = "frobenius"
_MANY = ("SVA (many workers)", "SVA (agreement, many workers)")
# DFW-2 nearly matches Naive if its objective fell nearly as far, on the logarithmic scale of the
# paper's figures.
_NEARLY = 1.5
# A difference that is more than chance.
_CLEARLY = 1.05


def runs(options: Options) -> list[Settings]:
    """Every method at both dimensions, and SVA on workers with few rows."""
    n, dimensions, epochs, workers = _SIZES[options.scale]
    cases = [(COMPARED, workers), (_MANY, ceil(n / max(dimensions)))]
    return [
        run
        for methods, shards in cases
        for d in dimensions
        for run in runs_of(methods, n=n, d=d, m=d, shards=shards, epochs=epochs)
    ]


def measure(options: Options, run: Settings) -> dict[str, Any]:
    """Solve by one method."""
    return follow(cached(multitask, run["n"], run["d"], run["m"]), run, step="linesearch")


def group(rows: Sequence[Row]) -> Problems:
    """Rows by dimension and method."""
    return comparison.by_problem(rows, "d", lambda settings: f"d = m = {settings['d']}")


def show(problems: Problems) -> Shown:
    """Objective and error of W against epochs and time."""
    return comparison.show(problems, {_ERROR: "‖W − W*‖ / ‖W*‖"}, _ERROR)


def _larger(problems: Problems) -> tuple[str, RowsBy]:
    if len(problems) < 2:
        raise MissingRowError("There are rows of one dimension only.")
    return list(problems.items())[-1]


def _ends(problems: Problems, names: Sequence[str]) -> tuple[str, dict[str, float]]:
    title, methods = _larger(problems)
    ends = {name: objective(methods[name]) for name in names}
    return f"F/F(0) after all epochs at {title}: {listed(ends)}", ends


@claim(CLAIMS, "A step towards an inexact pair can be luckier than one towards the exact pair.")
def _naive_is_best(problems: Problems) -> Judged:
    """Naive-DFW, whose pair is exact, is best per epoch."""
    words, ends = _ends(problems, PAPER)
    leads = comparison.epochs_in_which(_larger(problems)[1], "Naive", min)
    holds = ends["Naive"] <= _CLEARLY * min(ends.values())
    return f"{words}. It is lowest in {leads} epochs.", holds


@claim(
    CLAIMS,
    "With few workers, how many of their signs agree depends on the draw: compare with many.",
)
def _sva_degrades(problems: Problems) -> Judged:
    """SVA degrades as the dimension grows."""
    many = _larger(problems)[1]["SVA (many workers)"]["settings"]["shards"]
    words, ratios = [], {}
    for name in ("SVA", "SVA (agreement)", *_MANY):
        ratios[name] = {
            title: error(methods[name], _ERROR) / error(methods["Naive"], _ERROR)
            for title, methods in problems.items()
        }
        words.append(f"{name}: {listed(ratios[name], '.3f')}")
    before, *_, after = ratios["SVA"].values()
    measured = f"Error of W over Naive's at the end. {'; '.join(words)}. Many are {many} workers."
    return measured, after > _CLEARLY * before


@claim(
    CLAIMS,
    "The closer to the optimum, the flatter is the gradient's spectrum: two iterations from a "
    "random start then find less of it.",
)
def _two_are_nearly_exact(problems: Problems) -> Judged:
    """Two power iterations nearly match the exact solution."""
    words, ends = _ends(problems, ("Naive", "DFW-1", "DFW-2"))
    return f"{words}.", ends["DFW-2"] <= _NEARLY * ends["Naive"]


@claim(CLAIMS, "K grows to two after ten epochs: what the first ones missed is not made up for.")
def _log_catches_up(problems: Problems) -> Judged:
    """With K = ⌊1 + log t⌋, fewer iterations are as good as two in every epoch."""
    words, ends = _ends(problems, VARIANTS)
    methods = _larger(problems)[1]
    work = {name: sum(methods[name]["values"]["power_iterations"]) for name in VARIANTS}
    holds = ends["DFW-log"] <= _CLEARLY * ends["DFW-2"] and work["DFW-log"] < work["DFW-2"]
    return f"{words}, with {listed(work, '.0f')} power iterations.", holds


@claim(CLAIMS, "In this form nothing is sent, and the exact pair of a small matrix is cheap.")
def _dfw_is_faster(problems: Problems) -> Judged:
    """All DFW variants beat the baselines in time at the larger dimension (set-up apart)."""
    title, methods = _larger(problems)
    words, holds = comparison.dfw_is_faster({title: methods})
    setups = {name: methods[name]["values"]["setup_seconds"] for name in PAPER}
    return f"{words} Seconds of the set-up before that: {listed(setups)}.", holds


@claim(CLAIMS, comparison.ACCELERATED_REASON, "beyond")
def _accelerated_goes_further(problems: Problems) -> Judged:
    """The accelerated solver is faster to where the best of them ends."""
    return comparison.accelerated_goes_further(dict([_larger(problems)]))
