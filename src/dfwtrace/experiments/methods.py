"""The methods that the paper compares, by the names that it gives them, and ours."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from dfwtrace.api import plan, solve
from dfwtrace.engines import Engine, LocalEngine
from dfwtrace.linalg.lowrank import LowRankMatrix
from dfwtrace.lmo import LMO, Constant, Linear, Power
from dfwtrace.result import Record, Result

#: The oracle of each method; "power-log" takes the task's own K(t).
ORACLES: dict[str, str | LMO] = {
    "Naive": "naive",
    "SVA": "sva",
    "SVA (many workers)": "sva",
    "DFW-1": "power-1",
    "DFW-2": "power-2",
    "DFW-2 (dense)": "power-2",
    "DFW-log": "power-log",
    "DFW-linear": Power(Linear()),
    "DFW-1 from SVA": Power(Constant(1), start="sva"),
    "DFW-1 from the last epoch": Power(Constant(1), start="previous"),
}
#: What the paper's figures compare, and what the library has beyond them.
PAPER = ("Naive", "SVA", "DFW-1", "DFW-2", "DFW-log")
ACCELERATED = "accelerated"
COMPARED = (*PAPER, ACCELERATED)

#: Certified relative gap that "accelerated" ends with.
TOLERANCE = 1e-4
_MOST_EPOCHS = 500
_ROWS_TO_WARM_UP = 100

#: Errors of W by name, such as that on a test set.
Look = Callable[[LowRankMatrix], Mapping[str, float]]


class Problem(NamedTuple):
    """What is to be minimised.

    Attributes
    ----------
    task : object
    X, y : array
    radius : float
    look : callable
        Errors of a W by name.
    """

    task: Any
    X: Any
    y: Any
    radius: float
    look: Look


def follow(
    problem: Problem,
    method: str,
    *,
    epochs: int,
    step: str,
    engine: Engine,
    seed: int = 0,
    every: int = 1,
    representation: str = "auto",
    seconds: float | None = None,
) -> dict[str, Any]:
    """Solve a problem, and tell what there is to tell of every epoch.

    Parameters
    ----------
    problem : Problem
    method : str
        Of `ORACLES`, or "accelerated".
    epochs : int
        Of a Frank-Wolfe method.
    step : str
        Of a Frank-Wolfe method.
    engine : Engine
    seed : int
    every : int
        Errors are looked at in the first ten epochs and in every so many later ones.
    representation : str
    seconds : float, optional
        After so many, without the time for errors, no new epoch is begun.

    Returns
    -------
    dict
        Columns by name, with an entry for each epoch: epoch, objective (relative to F(0)), seconds
        (from the end of the set-up, without the time for errors), rank, the oracle's iterations,
        rounds and numbers; and a dict for each error, of the epochs and the values that were
        looked at.
    """
    ways: dict[str, Any] = {"lmo": ORACLES.get(method), "step": step, "epochs": epochs}
    if method == ACCELERATED:
        ways = {"solver": "accelerated", "tol": TOLERANCE, "epochs": _MOST_EPOCHS}
    if isinstance(engine, LocalEngine):
        # Libraries are loaded and loops compiled on first use, which is no method's own time.
        representation = _warm_up(problem, ways, engine, representation)
    clock = _Clock(problem.look, every, seconds)
    result = solve(
        problem.task,
        problem.X,
        problem.y,
        radius=problem.radius,
        engine=engine,
        seed=seed,
        callback=clock,
        representation=representation,
        progress=False,
        **ways,
    )
    if result.status == "interrupted":
        raise KeyboardInterrupt
    if not len(result.history):
        raise RuntimeError(f"{method} ended before its first epoch: {result.message}")
    clock.look_at(result.W, len(result.history))
    return _told(result, clock)


def _warm_up(problem: Problem, ways: Mapping[str, Any], engine: Engine, representation: str) -> str:
    """Two epochs on few rows, in the representation that all rows will have; which one that is."""
    chosen = {name: ways[name] for name in ("solver", "lmo", "epochs") if name in ways}
    form = plan(
        problem.task, problem.X, problem.y, representation=representation, engine=engine, **chosen
    ).representation
    short = {**ways, "epochs": 2, "engine": engine, "representation": form, "progress": False}
    some = slice(0, _ROWS_TO_WARM_UP)
    done = solve(problem.task, problem.X[some], problem.y[some], radius=problem.radius, **short)
    if done.status == "interrupted":
        raise KeyboardInterrupt
    return form


class _Clock:
    """Seconds of every epoch without those that it spends on errors itself."""

    def __init__(self, look: Look, every: int, limit: float | None) -> None:
        self.seconds: list[float] = []
        self.errors: dict[str, dict[str, list[float]]] = {}
        self._look, self._every, self._limit = look, every, limit
        self._began = time.perf_counter()

    def __call__(self, W: LowRankMatrix, record: Record) -> bool:
        """Note an epoch; True if the time is up."""
        now = time.perf_counter()
        self.seconds.append(now - self._began)
        epoch = int(record["epoch"])
        if epoch <= 10 or epoch % self._every == 0:
            self.look_at(W, epoch)
        self._began += time.perf_counter() - now  # as if no time had passed
        return self._limit is not None and self.seconds[-1] >= self._limit

    def look_at(self, W: LowRankMatrix, epoch: int) -> None:
        """Note the errors, unless they are known."""
        for name, error in self._look(W).items():
            told = self.errors.setdefault(name, {"epoch": [], "error": []})
            if epoch not in told["epoch"]:
                told["epoch"].append(epoch)
                told["error"].append(float(error))


def _told(result: Result, clock: _Clock) -> dict[str, Any]:
    history = result.history
    scale = abs(result.objective_at_zero) or 1.0
    return {
        "epoch": _numbers(history.column("epoch")),
        "objective": _numbers(history.column("objective") / scale),
        "seconds": [second - result.setup_seconds for second in clock.seconds],
        "rank": _numbers(history.column("rank")),
        "power_iterations": _numbers(history.column("power_iterations")),
        "rounds": _numbers(history.column("rounds")),
        "numbers_sent": _numbers(history.column("numbers_sent")),
        "errors": clock.errors,
        "setup_seconds": result.setup_seconds,
        "objective_at_zero": result.objective_at_zero,
        "relative_gap": result.relative_gap,
        "status": result.status,
        "representation": result.plan.representation,
    }


def _numbers(column: Any) -> list[float]:
    """A column for JSON, which knows no NaN."""
    values = np.asarray(column, dtype=np.float64)
    if not np.isfinite(values).all():
        raise RuntimeError("a run told something that is not finite.")
    plain: list[float] = values.tolist()
    return plain
