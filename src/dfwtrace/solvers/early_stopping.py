"""The end of a run whose score on rows left out no longer rises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dfwtrace.data.shards import Folds
from dfwtrace.linalg.lowrank import LowRankMatrix
from dfwtrace.result import Record
from dfwtrace.solvers.problem import Problem
from dfwtrace.solvers.solver import Callback
from dfwtrace.validation import check_count, check_positive, describe

HELD_OUT = 0  # the fold of the rows left out
SCORE = "validation_score"  # the column of the history


@dataclass(frozen=True)
class EarlyStopping:
    """A callback of `dfwtrace.solve` that makes the run leave out some rows, to be judged by them.

    The score is minus the mean loss of these rows. The run ends when it has had no better score for
    some epochs, and returns the iterate with the best one.
    """

    validation_fraction: float = 0.1
    n_iter_no_change: int = 10
    stratify: bool = False  # by the classes of the rows
    callback: Callback | None = None  # another one, which is called too

    def __post_init__(self) -> None:
        share = check_positive("validation_fraction", self.validation_fraction)
        if share >= 1.0:
            raise ValueError(
                f"validation_fraction must be below 1, got {describe(self.validation_fraction)}."
            )
        check_count("n_iter_no_change", self.n_iter_no_change, 1)

    def __call__(self, W: LowRankMatrix, record: Record) -> Mapping[str, object] | bool | None:
        return None if self.callback is None else self.callback(W, record)

    def folds(self, problem: Problem, n_folds: int, seed: int) -> Folds:
        """The rows left out as the first fold; with more than one, all other rows in the others."""
        n_classes = problem.shape[1] if self.stratify else 1
        return Folds(n_folds, seed, np.zeros(0), float(self.validation_fraction), n_classes)

    def is_over(self, history: Sequence[Record]) -> bool:
        """Whether the last epochs, of the number given, have all been no better than the best."""
        return len(history) - 1 - best_epoch(history) >= self.n_iter_no_change


def best_epoch(history: Sequence[Record]) -> int:
    """Place of the first record with the best score."""
    return int(np.argmax([record[SCORE] for record in history]))
