"""What the benchmarks share: the rows they return, and timing of two or more things in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

import dfwtrace as dt

Scale = Literal["toy", "full"]


@dataclass(frozen=True)
class Row:
    """One measured ratio.

    Attributes
    ----------
    benchmark, case : str
        Which benchmark, and what of it.
    sizes : dict
        Sizes of the problem.
    ratio : float
        What was measured over what it is measured against; the benchmark's `RATIO` says of what.
    target : float or None
        The ratio should be at most this.
    seconds : dict
        Absolute times of this run, by name. For information: they hold for this machine, now.
    detail : dict
        Whatever else was measured, by name.
    messages : sequence of str
        Warnings that what was measured gave.
    """

    benchmark: str
    case: str
    sizes: Mapping[str, int]
    ratio: float
    target: float | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    detail: Mapping[str, float] = field(default_factory=dict)
    messages: Sequence[str] = ()

    @property
    def met(self) -> bool | None:
        """Whether the target is met, where there is one."""
        return None if self.target is None else bool(self.ratio <= self.target)


#: Measures something now: a number, or several numbers.
Measure = Callable[[], float | Sequence[float]]


# Threads of NumPy's BLAS wait for more work in a busy loop after a product, at the cost of whoever
# runs next: a solve of 70 ms took some 20 ms more here.
_REST = 0.2


def rest() -> None:
    """Wait until the threads of whatever ran before are asleep."""
    time.sleep(_REST)


def in_turn(
    repeat: int, measures: Mapping[str, Measure], *, warm_up: bool = True
) -> dict[str, np.ndarray]:
    """Take every measure once as a warm-up, then `repeat` times, one after the other in each round.

    Without `warm_up` for what has been warmed up otherwise.

    Whatever else the machine does meanwhile then slows all of them alike, so that ratios within a
    round stand where times do not. The warm-up compiles, fills caches and touches memory pages; its
    values are dropped. The last axis of what is returned is that of the rounds.
    """
    if warm_up:
        for measure in measures.values():
            measure()
    rounds = [[measure() for measure in measures.values()] for _ in range(repeat)]
    values = (np.moveaxis(np.array(taken), 0, -1) for taken in zip(*rounds, strict=True))
    return dict(zip(measures, values, strict=True))


def stopwatch(work: Callable[[], object]) -> Callable[[], float]:
    """The measure that runs `work` and tells the seconds it took."""

    def seconds() -> float:
        rest()
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    return seconds


def epoch_seconds(result: dt.Result, skip: int = 1) -> np.ndarray:
    """Seconds of every epoch but the first, whose start is not known, and `skip` more."""
    return np.diff(result.history.column("seconds"))[skip:]
