"""Problems with workers, as solvers see them: the one place where tests put them together."""

from __future__ import annotations

from typing import Any

import numpy as np

import dfwtrace as dt
from dfwtrace.data.shards import ArrayRows
from dfwtrace.engines import LocalEngine, LocalWorkers
from dfwtrace.linalg.gradient import GradientOperator
from dfwtrace.solvers.problem import Problem, Start
from dfwtrace.solvers.solver import FrankWolfe, resolve
from dfwtrace.tasks.features.scores import as_task

TASKS: dict[str, dt.ScoresTask] = {
    "least squares": dt.LeastSquares(),
    "multinomial": dt.Multinomial(),
}
FORMS = [(name, form) for name, task in TASKS.items() for form in task.representations]
LMOS = ["power-1", "power-2", "power-log", "power-linear", "lanczos", "naive", "sva"]
ENGINE = dt.LocalEngine(n_shards=3, n_jobs=1)


def solve(task: Any, X: Any, y: Any = None, **options: Any) -> dt.Result:
    """DFW-Trace on three shards, for a task or its name."""
    call = {"radius": 1.0, "solver": "dfw", "engine": ENGINE, **options}
    return dt.solve(TASKS[task] if isinstance(task, str) else task, X, y, **call)


def make_problem(
    task: Any,
    X: Any,
    y: Any,
    *,
    radius: float = 1.0,
    representation: str = "implicit",
    engine: Any = ENGINE,
    intercept: bool = False,
    local: bool = False,
    seed: int = 0,
) -> Problem:
    """A problem with workers and a radius, ready for `begin`; whoever asks for it closes it."""
    task = as_task(TASKS[task] if isinstance(task, str) else task)
    rows = ArrayRows.examined(X, y, task.examine)
    form = representation if isinstance(task, dt.ScoresTask) else "auto"
    plan = dt.plan(task, X, y, representation=form, solver="dfw", lmo="sva" if local else None)
    held = task.represent(form) if isinstance(task, dt.ScoresTask) else task
    problem = Problem(held, rows, engine, plan, learns_intercept=intercept)
    problem.start()
    problem.prepare_run(radius, seed)
    return problem


class GivenShards:
    """An engine whose shards are cut already, in any way."""

    def __init__(self, shards: list[dt.Shard]) -> None:
        self.shards, self.n_shards = shards, len(shards)

    def start(self, program: Any, rows: Any) -> LocalWorkers:
        return LocalWorkers(program, self.shards)


def problem_with_gradients(*parts: Any, rows: list[int] | None = None) -> Problem:
    """Least squares whose shards have any given gradients at W = 0: X_j = I, Y_j = -G_j.

    None is a shard without rows; rows of zeros make a shard longer, and change no gradient.
    """
    d, m = next(part.shape for part in parts if part is not None)
    shards = []
    for j, part in enumerate(parts):
        used = 0 if part is None else d
        n = rows[j] if rows else used
        X, Y = np.zeros((n, d)), np.zeros((n, m))
        if part is not None:
            X[:used], Y[:used] = np.eye(d), -part
        shards.append(dt.Shard(j, X, Y))
    X, Y = (np.vstack([getattr(shard, name) for shard in shards]) for name in "Xy")
    problem = make_problem("least squares", X, Y, engine=GivenShards(shards))
    problem.restart(dt.LowRankMatrix.zeros((d, m)))
    problem.workers.take()
    return problem


def gradient_of_pairs(pairs: list[tuple[Any, Any]]) -> GradientOperator:
    """A gradient on shards of one row each whose local pairs are these, whatever their signs."""

    class Pairs:
        def local_pair(self, shard: dt.Shard, seed: int) -> Any:
            return np.asarray(shard.X[0])

    shards = [dt.Shard(j, np.concatenate(pair)[None], None) for j, pair in enumerate(pairs)]
    shape = pairs[0][0].size, pairs[0][1].size
    return GradientOperator(shape, LocalWorkers(Pairs(), shards))


def frank_wolfe_iterates(
    problem: Problem, lmo: Any, step: Any, epochs: int, W: dt.LowRankMatrix | None = None
) -> list[Any]:
    """All iterates from W, where the shards' states are put first."""
    W = dt.LowRankMatrix.zeros(problem.shape) if W is None else W
    solver = resolve("dfw", lmo, step)
    assert isinstance(solver, FrankWolfe)
    return list(solver.iterates(problem, Start(W, problem.begin(W), epochs)))


def random_matrix(
    seed: int, shape: tuple[int, int], rank: int, trace_norm: float
) -> dt.LowRankMatrix:
    """A random matrix of that rank and trace norm, with orthonormal factors."""
    rng = np.random.default_rng(seed)
    U, V = (rng.standard_normal((size, rank)) for size in shape)
    W = dt.LowRankMatrix(U, np.ones(rank), V).compress()
    return W * (trace_norm / W.trace_norm)


class Untouched(LocalEngine):
    """A real engine that must never be started."""

    def start(self, program: Any, rows: Any) -> Any:
        raise AssertionError("work has begun")
