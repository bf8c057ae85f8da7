"""How an epoch's time grows when n, d or m doubles, beside what the paper's complexities say.

The paper's complexities are O(·): a doubled size multiplies the time by what the largest terms say,
with every hidden constant taken as one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import dfwtrace as dt
from benchmarks.harness import Row, Scale

RATIO = "measured factor"
TIMED = True
TASKS = {"least squares": dt.LeastSquares, "multinomial": dt.Multinomial}

_ITERATIONS = 2
_EPOCHS = 12
#: Products with G or Gᵀ in an epoch.
_PRODUCTS = 2 * _ITERATIONS
#: Rank of W in the middle of a run, where the median epoch is.
_RANK = _EPOCHS // 2
_TOY = (60, 20, 16)


class Form(NamedTuple):
    """A representation: the operations of one epoch, and sizes at which they outweigh the rest."""

    operations: Callable[[int, int, int], float]
    sizes: tuple[int, int, int]


def _implicit(n: int, d: int, m: int) -> float:
    """A product is Xᵀ(R v); an update is X u, and touches every score."""
    return _PRODUCTS * n * (d + m) + n * d + n * m


def _dense(n: int, d: int, m: int) -> float:
    """An update forms XᵀR; a product then costs d·m."""
    return _PRODUCTS * d * m + n * d * m


def _factored(n: int, d: int, m: int) -> float:
    """As implicit, but every score is rebuilt from r factors each time it is needed."""
    return _PRODUCTS * n * (d + _RANK * m) + n * d + n * _RANK * m


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


class Growth(NamedTuple):
    """Times with one size doubled over times without, and what was predicted."""

    base: tuple[int, int, int]
    seconds: float
    measured: dict[str, float]
    predicted: dict[str, float]


def growth(task: str, representation: str, toy: bool, turns: int) -> Growth:
    """Double n, d and m in turn, so that whatever else the machine does slows all of them alike."""
    form = FORMS[representation]
    base = _TOY if toy else form.sizes
    sizes = {"": base}
    for place, letter in enumerate("ndm"):
        n, d, m = (size * (2 if place == j else 1) for j, size in enumerate(base))
        sizes[letter] = (n, d, m)
    problems = {letter: _problem(task, *size) for letter, size in sizes.items()}
    rounds = [
        [_epoch(*problem, representation) for problem in problems.values()]
        for _ in range(turns + 1)
    ]
    times = dict(zip(sizes, np.array(rounds)[1:].T, strict=True))  # the first one warms up
    return Growth(
        base,
        float(times[""].min()),
        # The least: whatever else the machine does only adds to it.
        {letter: float(times[letter].min() / times[""].min()) for letter in "ndm"},
        {letter: form.operations(*sizes[letter]) / form.operations(*base) for letter in "ndm"},
    )


def _problem(task: str, n: int, d: int, m: int) -> tuple[Any, Any, Any]:
    if task == "multinomial":
        X, y, _ = dt.datasets.make_multiclass(n, d, m, rank=10, random_state=0)
        return dt.Multinomial(n_classes=m), X, y
    X, Y, _ = dt.datasets.make_multitask(n, d, m, rank=10, noise=0.1, random_state=0)
    return dt.LeastSquares(), X, Y


def _epoch(task: Any, X: Any, y: Any, representation: str) -> float:
    result = dt.solve(
        task,
        X,
        y,
        radius=10.0,
        solver="dfw",
        lmo=f"power-{_ITERATIONS}",
        step="harmonic",
        max_iter=_EPOCHS,
        representation=representation,
        engine=dt.LocalEngine(n_shards=1, n_jobs=1),
        verbose=False,
    )
    if result.status == "interrupted":
        raise KeyboardInterrupt
    # The first one's start is not known, and the second one still touches new memory.
    return float(np.median(np.diff(result.history.column("seconds"))[1:]))


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
