"""Table 2: how an epoch's time grows with the rows of a worker, the features and the columns of W.

The paper's complexities are O(·): a doubled size multiplies the time by what the largest terms say,
with every hidden constant taken as one. As an upper bound it must not be exceeded; where the
constants differ much, as an exponential's does from a product's, a size may be felt less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dfwtrace.api import solve
from dfwtrace.datasets import make_multiclass, make_multitask
from dfwtrace.engines import LocalEngine
from dfwtrace.experiments.exhibits import Claim, Exhibit, Kind, Scale, Setting, Table
from dfwtrace.experiments.runs import MissingRowsError, Row, Run
from dfwtrace.report.numbers import duration
from dfwtrace.tasks import LeastSquares, Multinomial

NAME = "table 2"
TITLE = "Table 2: complexity of an epoch"
KEYS = ("task", "representation")
ABOUT = (
    "Time of an epoch of DFW-2 on one worker with one thread (the median of a run, the least of "
    "several runs), with one of the sizes doubled, over the time without: what the paper's "
    "complexities predict, and what was measured. The forms dense and gram are the paper's dense "
    "representations, implicit is its low-rank one; factored goes beyond it."
)

TASKS = {"least squares": LeastSquares, "multinomial": Multinomial}
_ITERATIONS = 2
_EPOCHS = 12
#: Products with G or Gᵀ in an epoch.
_PRODUCTS = 2 * _ITERATIONS
#: Rank of W in the middle of a run, where the median epoch is.
_RANK = _EPOCHS // 2
_TURNS: dict[Scale, int] = {"toy": 1, "small": 3, "paper": 7}
# An epoch in this form takes less than a millisecond: it takes more turns to see the least of it.
_SHORT, _TURNS_OF_SHORT = "gram", 4
_TOY = (60, 20, 16)
# O(·) is an upper bound: so much more than what it predicts is put down to how times vary.
_MARGIN = 1.2
#: The form that the paper does not have.
_BEYOND = "factored"


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
        X, y, _ = make_multiclass(n, d, m, rank=10, seed=0)
        return Multinomial(n_classes=m), X, y
    X, Y, _ = make_multitask(n, d, m, rank=10, noise=0.1, seed=0)
    return LeastSquares(), X, Y


def _epoch(task: Any, X: Any, y: Any, representation: str) -> float:
    result = solve(
        task,
        X,
        y,
        radius=10.0,
        lmo=f"power-{_ITERATIONS}",
        step="harmonic",
        epochs=_EPOCHS,
        representation=representation,
        engine=LocalEngine(n_shards=1, n_jobs=1),
        progress=False,
    )
    if result.status == "interrupted":
        raise KeyboardInterrupt
    # The first one's start is not known, and the second one still touches new memory.
    return float(np.median(np.diff(result.history.column("seconds"))[1:]))


def runs(setting: Setting) -> list[Run]:
    """Every form of both tasks; always in this process, as a worker's own work is what is asked."""
    return [
        Run(
            NAME,
            {
                "task": task,
                "representation": representation,
                "scale": setting.scale,
                "seed": 0,
            },
            partial(_measure, task, representation, setting.scale),
        )
        for task, representation in _cases()
    ]


def _cases() -> list[tuple[str, str]]:
    """Tasks with their forms."""
    return [(name, form) for name, task in TASKS.items() for form in task().representations]


def _measure(task: str, representation: str, scale: Scale) -> dict[str, Any]:
    turns = _TURNS[scale] * (_TURNS_OF_SHORT if representation == _SHORT else 1)
    return growth(task, representation, scale == "toy", turns)._asdict()


def exhibit(rows: Sequence[Row]) -> Exhibit:
    """Measured beside predicted."""
    cells = []
    for row in rows:
        values = row["values"]
        n, d, m = values["base"]
        factors = [
            f"× {values['measured'][letter]:.2f} ({values['predicted'][letter]:.2f})"
            for letter in "ndm"
        ]
        settings = row["settings"]
        cells.append(
            [
                settings["task"],
                settings["representation"],
                f"{n} × {d} × {m}",
                duration(values["seconds"]),
                *factors,
            ]
        )
    columns = ["task", "form", "n × d × m", "an epoch", "n → 2n", "d → 2d", "m → 2m"]
    title = "Measured growth, and what was predicted in parentheses"
    return Exhibit(tables=[Table(title, columns, cells, names=2)])


def claims(rows: Sequence[Row]) -> list[Claim]:
    """A complexity is an upper bound on how an epoch's time grows."""
    found = {(row["settings"]["task"], row["settings"]["representation"]): row for row in rows}
    for case in _cases():
        if case not in found:
            raise MissingRowsError(f"there is no row for {', '.join(case)}.")
    papers = [row for (_, form), row in found.items() if form != _BEYOND]
    return [
        _claim("An epoch's time grows with n, d and m no faster than Table 2 says.", papers),
        _claim(
            f"Beyond the paper: that of the form {_BEYOND} grows no faster than its operations.",
            [row for (_, form), row in found.items() if form == _BEYOND],
            "beyond",
        ),
    ]


def _claim(text: str, rows: Sequence[Row], kind: Kind = "paper") -> Claim:
    """Nothing grows faster than its operations; what grows more slowly is told, too."""
    faster: list[str] = []
    slower: list[str] = []
    shares = []
    for row in rows:
        values, settings = row["values"], row["settings"]
        for letter in "ndm":
            measured, predicted = values["measured"][letter], values["predicted"][letter]
            shares.append(measured / predicted)
            told = (
                f"{settings['task']}, {settings['representation']}, 2{letter} × {measured:.2f} "
                f"where × {predicted:.2f} was predicted"
            )
            if measured > _MARGIN * predicted:
                faster.append(told)
            elif predicted > _MARGIN * measured:
                slower.append(told)
    said = (
        f"A doubled size makes an epoch at most {max(shares):.2f} times as long as predicted "
        f"({_MARGIN} is allowed), in {len(shares)} cases."
    )
    for cases, words in ((faster, "More than that"), (slower, "Clearly less than predicted")):
        if cases:
            said += f" {words}: {'; '.join(cases)}."
    return Claim(
        text,
        said,
        not faster,
        "Caches and the fixed cost of a round may weigh in at these sizes: that was not measured.",
        kind,
    )
