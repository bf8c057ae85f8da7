"""What a method is given and what it is judged by, and our solver as one of the methods.

A *pass* is one round in which the rows are worked through, which reads X or the scores: an
evaluation of F at a new W or b with its gradient along W's factors, a product with the gradient, a
step of a line search, or a sum over the rows. In gram form a round works on the moments instead,
and counts as well. A peer's evaluation of F with its dense gradient is a pass, too.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

import dfwtrace as dt
from benchmarks.corpus.problems import Problem

#: Passes after which a peer gives up.
MAX_PASSES = 5000
# What rounding may do to F, over F(0).
_ROUNDING = 1e-6
# Rounds that ask a state for what belongs to the pass that made it, or that read no numbers.
_FREE = {"tangent", "report", "balance", "digest"}


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes
    ----------
    passes : int
    seconds, wall : float
        Processor time of all threads, and wall time; of peers without the looks at their gaps.
    objective : float
        F(W, b).
    gap : float
        The certified gap over F(0); that of a peer is the checked one.
    checked : float
        That of the last point, by `Objective.gap`. Ours may be smaller: it keeps the best lower
        bound of F* that a run has seen.
    status : str
        "optimal" if the gap is at most the tolerance, "wrong" if a point is known that is lower
        than the gap allows, else what ended the run.
    rank : int
    detail : dict of float
        What else is known: epochs and rounds of ours.
    """

    passes: int
    seconds: float
    wall: float
    objective: float
    gap: float
    checked: float
    status: str
    rank: int
    detail: dict[str, float]


#: Runs on a problem, to a tolerance, for so many seconds and passes at the most.
Method = Callable[[Problem, float, float, int], Outcome]


class Clock:
    """Processor and wall time between starts and stops."""

    def __init__(self) -> None:
        self.seconds = self.wall = 0.0

    def start(self) -> None:
        self._began = time.process_time(), time.perf_counter()

    def stop(self) -> None:
        self.seconds += time.process_time() - self._began[0]
        self.wall += time.perf_counter() - self._began[1]


def ours(problem: Problem, tol: float, max_seconds: float, max_passes: int) -> Outcome:
    """The default solver, with its default limit of epochs in the place of that of passes."""
    clock = Clock()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clock.start()
        result = dt.solve(
            problem.task,
            problem.X,
            problem.y,
            radius=problem.radius,
            sample_weight=problem.weights,
            fit_intercept=problem.intercept,
            representation=problem.representation,
            tol=tol,
            max_time=max_seconds,
            verbose=False,
        )
        clock.stop()
    scores = np.asarray(problem.objective.X @ result.W)
    found = problem.objective.gap(scores, result.intercept, problem.radius)
    lowest = min(found.settled, problem.at_zero) + _ROUNDING * problem.at_zero
    wrong = result.status == "optimal" and found.objective - result.gap > lowest
    methods = [record["method"] for record in result.rounds]
    return Outcome(
        passes=sum(method not in _FREE for method in methods),
        seconds=clock.seconds,
        wall=clock.wall,
        objective=result.objective,
        gap=result.relative_gap,
        checked=found.total / problem.at_zero,
        status="wrong" if wrong else result.status,
        rank=result.W.rank,
        detail={"epochs": float(len(result.history)), "rounds": float(len(methods))},
    )


def warm_up() -> None:
    """Compile what the runs use, for all types of data."""
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        X = rng.standard_normal((20, 4)).astype(dtype)
        for task, y in ((dt.LeastSquares(), X[:, :3]), (dt.Multinomial(), np.arange(20) % 3)):
            for rows in (X, sp.csr_array(X)):
                for intercept in (False, True):
                    dt.solve(
                        task, rows, y, radius=1.0, max_iter=3, fit_intercept=intercept,
                        verbose=False,
                    )  # fmt: skip
