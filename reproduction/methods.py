"""The methods that the paper compares, by the names that it gives them, and ours."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

import dfwtrace as dt
from dfwtrace.lmo import LMO, SVA, Constant, Linear, Power
from reproduction.data import INTENTS, Problem
from reproduction.rows import Settings

Scale = Literal["toy", "small", "paper"]

#: The oracle of each method; "power-log" takes the task's own K(t). "SVA" resolves the signs of
#: the workers' pairs as the paper does, "SVA (agreement)" takes those that agree best.
ORACLES: dict[str, str | LMO] = {
    "Naive": "naive",
    "SVA": SVA(),
    "SVA (agreement)": SVA(signs="agreement"),
    "SVA (many workers)": SVA(),
    "SVA (agreement, many workers)": SVA(signs="agreement"),
    "DFW-1": "power-1",
    "DFW-2": "power-2",
    "DFW-2 (dense)": "power-2",
    "DFW-log": "power-log",
    "DFW-linear": Power(Linear()),
    "DFW-1 from SVA": Power(Constant(1), start="sva"),
    "DFW-1 from the last epoch": Power(Constant(1), start="previous"),
}
VARIANTS = ("DFW-1", "DFW-2", "DFW-log")
#: What the paper compares, all that its figures show here, and what the library has beyond them.
PAPER = ("Naive", "SVA", *VARIANTS)
SHOWN = (*PAPER, "SVA (agreement)")
ACCELERATED = "accelerated"
COMPARED = (*SHOWN, ACCELERATED)

#: Certified relative gap that "accelerated" ends with.
_TOLERANCE = 1e-4
_MOST_EPOCHS = 500
_ROWS_TO_WARM_UP = 100


class Options(NamedTuple):
    """The scale, and where real data are."""

    scale: Scale
    intents: Path | None = INTENTS if INTENTS.is_dir() else None
    imagenet: Path | None = None


def runs_of(methods: Sequence[str], **settings: Any) -> list[Settings]:
    """Return the settings of a run for each method."""
    return [{"method": method, **settings, "engine": "local", "seed": 0} for method in methods]


def follow(
    problem: Problem,
    run: Settings,
    *,
    step: str,
    every: int = 1,
    representation: str = "auto",
    engine: Any = None,
) -> dict[str, Any]:
    """Solve a problem and return what there is to know about every epoch, in JSON's types.

    `run` has the method (of `ORACLES`, or "accelerated", which has its own steps and number of
    epochs), the number of epochs, the number of shards (workers), and perhaps a limit of seconds
    after which no epoch begins. Errors are computed in the first ten epochs and in every `every`-th
    later one; their time does not count, nor does that of the set-up.
    """
    options: dict[str, Any] = {"solver": "dfw", "lmo": ORACLES.get(run["method"]), "step": step}
    options["max_iter"] = run["epochs"]
    if run["method"] == ACCELERATED:
        options = {"solver": "accelerated", "tol": _TOLERANCE, "max_iter": _MOST_EPOCHS}
    options |= {"radius": problem.radius, "verbose": False}
    engine = dt.LocalEngine(run["shards"]) if engine is None else engine
    if isinstance(engine, dt.LocalEngine):
        # Libraries are loaded and loops compiled on first use, which is no method's own time.
        representation = _warm_up(problem, options, engine, representation)
    clock = _Clock(problem, every, run.get("seconds"))
    result = solve(
        *problem[:3], engine=engine, representation=representation, callback=clock, **options
    )
    if not len(result.history):
        raise RuntimeError(f"{run['method']} ended before its first epoch: {result.message}")
    clock.add_errors(result.W, len(result.history))
    columns = ("epoch", "objective", "rank", "power_iterations", "rounds", "numbers_sent")
    table = np.array([result.history.column(name) for name in columns], dtype=np.float64)
    if not np.isfinite(table).all():
        raise RuntimeError(f"the history of {run['method']} is not finite.")
    table[1] /= abs(result.objective_at_zero) or 1.0
    return {
        **dict(zip(columns, table.tolist(), strict=True)),
        "seconds": [second - result.setup_seconds for second in clock.seconds],
        "errors": clock.errors,
        "setup_seconds": result.setup_seconds,
        "objective_at_zero": result.objective_at_zero,
        "relative_gap": result.relative_gap,
        "status": result.status,
        "representation": result.plan.representation,
    }


def solve(*data: Any, **options: Any) -> dt.Result:
    """`dt.solve`, where Ctrl-C ends the whole program."""
    result = dt.solve(*data, **options)
    if result.status == "interrupted":
        raise KeyboardInterrupt
    return result


def _warm_up(problem: Problem, options: dict[str, Any], engine: Any, representation: str) -> str:
    """Two epochs on few rows in the representation that all rows will have, which is returned."""
    chosen = {name: options[name] for name in ("solver", "lmo", "max_iter") if name in options}
    form = dt.plan(*problem[:3], representation=representation, engine=engine, **chosen)
    short = {**options, "max_iter": 2, "representation": form.representation}
    some = slice(0, _ROWS_TO_WARM_UP)
    solve(problem.task, problem.X[some], problem.y[some], engine=engine, **short)
    return form.representation


class _Clock:
    """Seconds of every epoch, without those that it spends on errors itself."""

    def __init__(self, problem: Problem, every: int, limit: float | None) -> None:
        self.seconds: list[float] = []
        self.errors: dict[str, dict[str, list[float]]] = {}
        self._problem, self._every, self._limit = problem, every, limit
        self._began = time.perf_counter()

    def __call__(self, W: dt.LowRankMatrix, record: Mapping[str, float]) -> bool:
        """Note an epoch; True if the time is up."""
        now = time.perf_counter()
        self.seconds.append(now - self._began)
        epoch = int(record["epoch"])
        if epoch <= 10 or epoch % self._every == 0:
            self.add_errors(W, epoch)
        self._began += time.perf_counter() - now  # as if no time had passed
        return self._limit is not None and self.seconds[-1] >= self._limit

    def add_errors(self, W: dt.LowRankMatrix, epoch: int) -> None:
        """Note the errors, unless they are known."""
        for name, error in self._problem.errors(W).items():
            column = self.errors.setdefault(name, {"epoch": [], "error": []})
            if epoch not in column["epoch"]:
                column["epoch"].append(epoch)
                column["error"].append(float(error))
