"""How an epoch's time grows when n, d or m doubles, beside what the paper's complexities say.

Measured by `dfwtrace.experiments.table2`, which also says what is predicted.
"""

from __future__ import annotations

from benchmarks.harness import Row, Scale
from dfwtrace.experiments.table2 import TASKS, growth

RATIO = "measured factor"
TIMED = True


def run(scale: Scale, repeat: int) -> list[Row]:
    return [
        row
        for name, task in TASKS.items()
        for representation in task().representations
        for row in _grow(name, representation, scale, repeat)
    ]


def _grow(task: str, representation: str, scale: Scale, repeat: int) -> list[Row]:
    grown = growth(task, representation, scale == "toy", repeat)
    return [
        Row(
            "growth",
            f"{task}, {representation}, {letter} → 2{letter}",
            dict(zip("ndm", grown.base, strict=True)),
            grown.measured[letter],
            None,
            {"base": grown.seconds},
            {"predicted": grown.predicted[letter]},
        )
        for letter in "ndm"
    ]
