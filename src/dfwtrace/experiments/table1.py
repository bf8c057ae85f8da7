"""Table 1: what an epoch sends, counted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from dfwtrace.experiments.exhibits import NONE, Claim, Exhibit, Scale, Setting, Table
from dfwtrace.experiments.methods import ACCELERATED, PAPER, follow
from dfwtrace.experiments.problems import classification, last, multiclass
from dfwtrace.experiments.runs import Row, Run, by_setting

NAME = "table 1"
TITLE = "Table 1: communication of an epoch"
KEYS = ("method",)
ABOUT = (
    "Numbers and rounds of the oracle as the library counts them, summed over the run, beside the "
    "paper's formulas. N workers, W of d × m, K(t) power iterations."
)

_METHODS = (*PAPER, "DFW-linear", "DFW-1 from SVA", ACCELERATED)
#: Rows, d, m, workers, epochs.
_SIZES: dict[Scale, tuple[int, int, int, int, int]] = {
    "toy": (120, 9, 7, 3, 12),
    "small": (2000, 60, 40, 5, 30),
    "paper": (20_000, 600, 400, 24, 30),
}
_FORMULAS = {
    "Naive": "N·d·m in 1 round",
    "SVA": "N·(d+m) in 1 round",
    "DFW-1 from SVA": "2·N·K·(d+m) + N·(d+m) in 2K + 1 rounds",
    ACCELERATED: "O(N·r·(d+m)) for factors of r columns",
}
_POWER = "2·N·K·(d+m) in 2K rounds"


def runs(setting: Setting) -> list[Run]:
    """One run of every method."""
    n, d, m, shards, epochs = _SIZES[setting.scale]
    return [
        Run(
            NAME,
            {
                "method": method,
                "n": n,
                "d": d,
                "m": m,
                "shards": shards,
                "epochs": epochs,
                "engine": setting.where,
                "seed": 0,
            },
            partial(_measure, setting, method, n, d, m, shards, epochs),
        )
        for method in _METHODS
    ]


def _measure(
    setting: Setting, method: str, n: int, d: int, m: int, shards: int, epochs: int
) -> dict[str, Any]:
    problem = classification(last.of(multiclass, n, d, m, 10), 30.0)
    engine = setting.engine(shards)
    told = follow(problem, method, epochs=epochs, step="harmonic", engine=engine, every=epochs)
    if method == ACCELERATED:
        return told
    expected = [formula(method, d, m, shards, int(K)) for K in told["power_iterations"]]
    numbers, rounds = zip(*expected, strict=True)
    return {**told, "expected_numbers": list(numbers), "expected_rounds": list(rounds)}


def formula(method: str, d: int, m: int, workers: int, iterations: int) -> tuple[int, int]:
    """Numbers and rounds of an epoch.

    Examples
    --------
    >>> formula("DFW-2", d=3, m=2, workers=4, iterations=2)
    (80, 4)
    """
    if method == "Naive":
        return workers * d * m, 1
    pair = workers * (d + m)
    if method == "SVA":
        return pair, 1
    numbers, rounds = 2 * pair * iterations, 2 * iterations
    return (numbers + pair, rounds + 1) if method == "DFW-1 from SVA" else (numbers, rounds)


def exhibit(rows: Sequence[Row]) -> Exhibit:
    """Counted beside expected."""
    cells = []
    for row in rows:
        method, values = row["settings"]["method"], row["values"]
        counted = ("numbers_sent", "expected_numbers", "rounds", "expected_rounds")
        # What the accelerated solver sends is not what an oracle sends: a zero would be no count.
        told = [
            f"{sum(values[name]):,.0f}" if "expected_numbers" in values else NONE
            for name in counted
        ]
        cells.append([method, _FORMULAS.get(method, _POWER), str(len(values["epoch"])), *told])
    columns = ["method", "an epoch", "epochs", "numbers", "formula", "rounds", "formula"]
    settings = rows[0]["settings"]
    title = f"N = {settings['shards']}, d = {settings['d']}, m = {settings['m']}"
    note = (
        "The accelerated solver has no oracle whose messages would be counted here: what it sends "
        "is in the history's other_numbers and other_rounds."
    )
    return Exhibit(tables=[Table(title, columns, cells)], notes=[note])


def claims(rows: Sequence[Row]) -> list[Claim]:
    """The table itself, and who sends least."""
    judged = [row["values"] for row in rows if "expected_numbers" in row["values"]]
    agree = sum(
        values["numbers_sent"] == values["expected_numbers"]
        and values["rounds"] == values["expected_rounds"]
        for values in judged
    )
    found = by_setting(rows, "method")  # all of them: "7 of 7" is not to be said of five
    sent = {name: sum(found[name]["values"]["numbers_sent"]) for name in _METHODS}
    settings = rows[0]["settings"]
    d, m = settings["d"], settings["m"]
    return [
        Claim(
            "An epoch sends what Table 1 says.",
            f"Numbers and rounds of every epoch are the formula's for {agree} of {len(judged)} "
            "methods.",
            agree == len(judged),
            "The library's way of counting differs from the paper's.",
        ),
        Claim(
            "DFW sends far less than Naive: O(d + m) instead of O(d·m).",
            f"Numbers in the whole run at {d} × {m}: "
            f"{', '.join(f'{name} {sent[name]:,.0f}' for name in PAPER)}; of DFW-2, a third of "
            f"Naive's is asked.",
            sent["DFW-2"] <= sent["Naive"] / 3.0,
            "d and m are too small: 4(d + m) is not far below d·m.",
        ),
    ]
