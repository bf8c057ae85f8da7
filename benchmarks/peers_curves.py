"""Curves over the time of a run, and those of ours and of scikit-learn.

A curve's clock stands still while a value is taken, so that looking costs the run nothing.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

import dfwtrace as dt
from benchmarks.peers_problems import Problem

# Of the paper's solver, which goes on until it is stopped.
_MOST_EPOCHS = 100_000
# Of L-BFGS, which ends by itself long before.
_MOST_ITERATIONS = 1000


class Curve:
    """Values that should fall, and the seconds at which they were reached.

    Parameters
    ----------
    wanted : float
        The run may end at this value.
    cap : float
        It must end after so many seconds.

    Attributes
    ----------
    stopped : bool
        Whether the cap has ended it, and not what it wanted or the run itself.
    """

    def __init__(self, wanted: float = -np.inf, cap: float = np.inf) -> None:
        self.wanted, self.cap = wanted, cap
        self.stopped = False
        self.seconds: list[float] = []
        self.values: list[float] = []
        self.start()

    def start(self) -> None:
        """Let the clock begin now."""
        self._began = time.perf_counter()
        self._paused = 0.0

    def note(self, value: Callable[[], float]) -> bool:
        """Take a value while the clock stands still; whether the run should end."""
        now = time.perf_counter()
        over = self.add(now - self._began - self._paused, value())
        self._paused += time.perf_counter() - now
        return over

    def add(self, seconds: float, value: float) -> bool:
        """A value of a run that took so long; whether this was enough."""
        self.seconds.append(seconds)
        self.values.append(value)
        self.stopped = value > self.wanted and seconds >= self.cap
        return value <= self.wanted or self.stopped

    @property
    def best(self) -> float:
        return min(self.values)

    def at(self, wanted: float) -> float:
        """The first value that is as low as wanted, or the least one."""
        return next((value for value in self.values if value <= wanted), self.best)

    def time_to(self, value: float) -> float | None:
        """Seconds until the value was reached; None if it never was."""
        taken = [s for s, v in zip(self.seconds, self.values, strict=True) if v <= value]
        return min(taken, default=None)


class Look(NamedTuple):
    """Where a run of ours stood when a value was taken."""

    epoch: int
    rank: int


class Run(NamedTuple):
    """A run of ours: where it stood at each value of its curve, and what came before it.

    Attributes
    ----------
    looks : list of Look
    setup : float
        Seconds until the data were where they are worked on, which the curve's clock counts.
    """

    looks: list[Look]
    setup: float


#: Runs one of our solvers, and notes its curve.
Ours = Callable[[Curve], Run]
#: Runs a peer, notes its curve, and tells what else is known of it.
Runner = Callable[[Problem, Curve], Mapping[str, float]]


def ours(
    problem: Problem,
    curve: Curve,
    kind: Literal["error", "objective"],
    solver: str = "accelerated",
    tol: float | None = None,
    rows: Mapping[str, Any] | None = None,
) -> Run:
    """Run one of our solvers, on arrays in this process unless `rows` says otherwise.

    Test errors are taken after every epoch up to the twentieth, and then ever more rarely, by the
    number of the epoch: each costs a product with all rows, and Frank-Wolfe has thousands of them.
    """
    looks: list[Look] = []
    following = 0

    def look(W: dt.LowRankMatrix, record: Mapping[str, float]) -> bool:
        nonlocal following
        epoch = int(record["epoch"])
        if kind == "error" and epoch < following:
            return False
        following = epoch + 1 + epoch // 20
        # The paper's solver keeps a factor for each epoch: W may have more of them than columns.
        rank = min(W.rank, *problem.shape)
        looks.append(Look(epoch, rank))
        if kind == "objective":
            return curve.note(lambda: record["objective"])
        return curve.note(lambda: problem.error(W if W.rank == rank else W.to_dense()))

    curve.start()
    result = dt.solve(
        problem.task,
        **({"X": problem.X, "y": problem.y} if rows is None else rows),
        radius=problem.radius,
        solver=solver,
        max_iter=_MOST_EPOCHS if solver == "dfw" else None,
        tol=tol,
        callback=look,
        verbose=False,
    )
    return Run(looks, result.setup_seconds)


def dfw(kind: Literal["error", "objective"]) -> Runner:
    """The paper's solver, with its defaults."""

    def run(problem: Problem, curve: Curve) -> dict[str, float]:
        last = ours(problem, curve, kind, "dfw").looks[-1]
        return {
            "their numbers": float(last.rank * (sum(problem.shape) + 1)),
            "their steps": float(last.epoch),
        }

    return run


class _Enough(Exception):  # noqa: N818  # not an error: the curve has what it needs
    pass


class _Follower:
    """A callback of scikit-learn that notes the test error after every iteration of L-BFGS."""

    def __init__(self, problem: Problem, curve: Curve) -> None:
        self._problem, self._curve = problem, curve

    def setup(self, estimator: Any, context: Any) -> None: ...

    def teardown(self, estimator: Any, context: Any) -> None: ...

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None: ...

    def on_fit_task_end(self, estimator: Any, context: Any, *, fitted_estimator: Any) -> None:
        if context.task_name != "lbfgs-iter" or fitted_estimator is None:
            return
        coef = fitted_estimator.coef_
        # Its request to stop is not honoured for L-BFGS, so the fit is left.
        if self._curve.note(lambda: class_error(self._problem, estimator.classes_, coef)):
            raise _Enough


def logistic_regression(problem: Problem, curve: Curve) -> dict[str, float]:
    """scikit-learn's: one fit, looked at after every iteration."""
    from sklearn.linear_model import LogisticRegression

    # Its own tolerance would end the curve while the test error still falls.
    settings = {"max_iter": _MOST_ITERATIONS, "tol": 1e-10, "fit_intercept": False}
    model = LogisticRegression(C=problem.penalty, **settings)
    model.set_callbacks(_Follower(problem, curve))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it has not converged
        curve.start()
        with contextlib.suppress(_Enough):
            model.fit(problem.X, problem.y)
    return {"their numbers": float(np.prod(problem.shape)), "their steps": float(len(curve.values))}


def ridge(problem: Problem, curve: Curve) -> dict[str, float]:
    """scikit-learn's: a closed form, and so a curve of one point."""
    from sklearn.linear_model import Ridge

    model = Ridge(alpha=problem.penalty, fit_intercept=False)
    curve.start()
    model.fit(problem.X, problem.y)
    curve.note(lambda: problem.error(model.coef_.T))
    return {"their numbers": float(model.coef_.size), "their steps": 1.0}


def class_error(problem: Problem, classes: np.ndarray, coef: np.ndarray) -> float:
    """The test error of coefficients whose rows are classes; those never seen have none."""
    W = np.full(problem.shape, 0.0, problem.X.dtype)
    W[:, classes.astype(np.intp)] = coef.T
    return problem.error(W)
