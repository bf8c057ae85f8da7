"""Table 1: what an epoch sends, counted."""

from __future__ import annotations

from typing import Any

import pandas as pd

from reproduction.claims import Claim, Judged, claim, listed
from reproduction.data import cached, classification, multiclass
from reproduction.methods import ACCELERATED, PAPER, SHOWN, Options, Scale, follow, runs_of
from reproduction.page import Shown
from reproduction.rows import RowsBy, Settings

NAME = "table 1"
TITLE = "Table 1: communication of an epoch"
KEYS = ("method",)
ABOUT = (
    "Numbers and rounds of the oracle as the library counts them, summed over the run, beside the "
    "paper's formulas. N workers, W of d × m, K(t) power iterations. The accelerated solver has no "
    "oracle whose messages would be counted here: what it sends is in the history's other_numbers "
    "and other_rounds."
)
CLAIMS: list[Claim] = []
group = RowsBy

_COUNTED = (*SHOWN, "DFW-linear", "DFW-1 from SVA")
#: Rows, d, m, workers, epochs.
_SIZES: dict[Scale, tuple[int, int, int, int, int]] = {
    "toy": (120, 9, 7, 3, 12),
    "small": (2000, 60, 40, 5, 30),
    "paper": (20_000, 600, 400, 24, 30),
}
_FORMULAS = {
    "Naive": "N·d·m in 1 round",
    "SVA": "N·(d+m) in 1 round",
    "SVA (agreement)": "N·(d+m) in 1 round",
    "DFW-1 from SVA": "2·N·K·(d+m) + N·(d+m) in 2K + 1 rounds",
    "DFW-1 from SVA (agreement)": "2·N·K·(d+m) + N·(d+m) in 2K + 1 rounds",
    ACCELERATED: "O(N·r·(d+m)) for factors of r columns",
}
_POWER = "2·N·K·(d+m) in 2K rounds"
_COLUMNS = ("numbers_sent", "expected_numbers", "rounds", "expected_rounds")


def runs(options: Options) -> list[Settings]:
    """One run of every method."""
    n, d, m, shards, epochs = _SIZES[options.scale]
    return runs_of((*_COUNTED, ACCELERATED), n=n, d=d, m=m, shards=shards, epochs=epochs)


def measure(options: Options, run: Settings) -> dict[str, Any]:
    """Solve by one method, and count."""
    d, m, method = run["d"], run["m"], run["method"]
    problem = classification(cached(multiclass, run["n"], d, m, 10), 30.0)
    values = follow(problem, run, step="harmonic", every=run["epochs"])
    if method == ACCELERATED:
        return values
    expected = [formula(method, d, m, run["shards"], int(K)) for K in values["power_iterations"]]
    numbers, rounds = zip(*expected, strict=True)
    return {**values, "expected_numbers": list(numbers), "expected_rounds": list(rounds)}


def formula(method: str, d: int, m: int, workers: int, iterations: int) -> tuple[int, int]:
    """Return the numbers and rounds of an epoch.

    Examples
    --------
    >>> formula("DFW-2", d=3, m=2, workers=4, iterations=2)
    (80, 4)
    """
    if method == "Naive":
        return workers * d * m, 1
    pair = workers * (d + m)
    if method in ("SVA", "SVA (agreement)"):
        return pair, 1
    numbers, rounds = 2 * pair * iterations, 2 * iterations
    return (numbers + pair, rounds + 1) if method == "DFW-1 from SVA" else (numbers, rounds)


def show(methods: RowsBy) -> Shown:
    """Counted beside expected."""
    cells = []
    for method, row in methods.items():
        values, cell = row["values"], {"method": method}
        cell |= {"an epoch": _FORMULAS.get(method, _POWER), "epochs": len(values["epoch"])}
        for name in _COLUMNS:
            # What the accelerated solver sends is not what an oracle sends: a zero is no count.
            counted = method != ACCELERATED
            cell[name.replace("_", " ")] = f"{sum(values[name]):,.0f}" if counted else "–"
        cells.append(cell)
    run = next(iter(methods.values()))["settings"]
    note = f"N = {run['shards']}, d = {run['d']}, m = {run['m']}."
    return Shown({}, pd.DataFrame(cells).set_index("method"), [note])


@claim(CLAIMS, "The library's way of counting differs from the paper's.")
def _agrees(methods: RowsBy) -> Judged:
    """An epoch sends what Table 1 says."""
    counts = [[methods[name]["values"][key] for key in _COLUMNS] for name in _COUNTED]
    agree = sum(a == b and c == d for a, b, c, d in counts)
    words = f"Numbers and rounds of every epoch are the formula's for {agree} of {len(counts)}"
    return f"{words} methods.", agree == len(counts)


@claim(CLAIMS, "d and m are too small: 4(d + m) is not far below d·m.")
def _sends_less(methods: RowsBy) -> Judged:
    """DFW sends far less than Naive: O(d + m) instead of O(d·m)."""
    sent = {name: sum(methods[name]["values"]["numbers_sent"]) for name in PAPER}
    run = methods["Naive"]["settings"]
    return (
        f"Numbers in the whole run at {run['d']} × {run['m']}: {listed(sent, ',.0f')}; for DFW-2, "
        "a third of Naive's is asked.",
        sent["DFW-2"] <= sent["Naive"] / 3.0,
    )
