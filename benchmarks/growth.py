"""How an epoch's time grows when n, d or m doubles, beside what the paper's complexities say.

The prediction takes every constant that the O(·) hides as one, so it is a yardstick and no target:
it shows which of the three sizes a representation feels, and about how much.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import dfwtrace as dt
from benchmarks.harness import Row, Scale, epoch_seconds, in_turn

RATIO = "measured factor"
TIMED = True

_ITERATIONS = 2
_EPOCHS = 12
#: Products with G or Gᵀ in an epoch.
_PRODUCTS = 2 * _ITERATIONS
#: Rank of W in the middle of a run, where the median epoch is.
_RANK = _EPOCHS // 2


@dataclass(frozen=True)
class Form:
    """A representation: the operations of one epoch, and sizes at which they outweigh the rest."""

    operations: Callable[[int, int, int], float]
    sizes: tuple[int, int, int]


def _implicit(n: int, d: int, m: int) -> float:
    """A product is Xᵀ(R v), an update touches every score."""
    return _PRODUCTS * n * (d + m) + n * m


def _dense(n: int, d: int, m: int) -> float:
    """An update forms XᵀR; a product then costs d·m."""
    return _PRODUCTS * d * m + n * d * m


def _factored(n: int, d: int, m: int) -> float:
    """As implicit, but every score is rebuilt from r factors each time it is needed."""
    return _PRODUCTS * n * (d + _RANK * m) + n * _RANK * m


def _gram(n: int, d: int, m: int) -> float:
    """The data are gone; an update multiplies by XᵀX once."""
    return _PRODUCTS * d * m + d * d + d * m


FORMS = {
    "implicit": Form(_implicit, (6000, 500, 500)),
    "dense": Form(_dense, (4000, 400, 400)),
    "factored": Form(_factored, (4000, 500, 500)),
    # Twice its sizes still fit into a cache of 32 MB: crossing it would add a factor of its own.
    "gram": Form(_gram, (2000, 500, 500)),
}
_TOY = (60, 20, 16)


def run(scale: Scale, repeat: int) -> list[Row]:
    tasks = {"least squares": dt.LeastSquares, "multinomial": dt.Multinomial}
    return [
        row
        for name, task in tasks.items()
        for representation in task().representations
        for row in _grow(name, representation, scale, repeat)
    ]


def _grow(task: str, representation: str, scale: Scale, repeat: int) -> list[Row]:
    form = FORMS[representation]
    base = form.sizes if scale == "full" else _TOY
    doubled = {
        letter: tuple(size * (2 if i == j else 1) for j, size in enumerate(base))
        for i, letter in enumerate("ndm")
    }
    measures = {
        name: partial(_epoch, *_problem(task, sizes), representation)
        for name, sizes in {"base": base, **doubled}.items()
    }
    times = in_turn(repeat, measures)
    return [
        Row(
            "growth",
            f"{task}, {representation}, {letter} → 2{letter}",
            dict(zip("ndm", base, strict=True)),
            float(np.median(times[letter] / times["base"])),
            None,
            {"base": float(np.median(times["base"])), "doubled": float(np.median(times[letter]))},
            {"predicted": form.operations(*sizes) / form.operations(*base)},
        )
        for letter, sizes in doubled.items()
    ]


def _problem(task: str, sizes: tuple[int, ...]) -> tuple[Any, np.ndarray, np.ndarray]:
    n, d, m = sizes
    if task == "multinomial":
        X, y, _ = dt.datasets.make_multiclass(n, d, m, rank=10, seed=0)
        return dt.Multinomial(n_classes=m), X, y
    X, Y, _ = dt.datasets.make_multitask(n, d, m, rank=10, noise=0.1, seed=0)
    return dt.LeastSquares(), X, Y


def _epoch(task: Any, X: np.ndarray, y: np.ndarray, representation: str) -> float:
    result = dt.solve(
        task,
        X,
        y,
        radius=10.0,
        lmo=f"power-{_ITERATIONS}",
        step="harmonic",
        epochs=_EPOCHS,
        representation=representation,
        progress=False,
    )
    return float(np.median(epoch_seconds(result)))
