"""The arguments of `solve`, `plan` and `path`: checked, and put together to a problem."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from dfwtrace._typing import Data
from dfwtrace.data.shards import ArrayRows, Facts, Folds, Shard, copied_bytes, is_far
from dfwtrace.engines import Engine, LocalEngine, SparkEngine, is_frame
from dfwtrace.linalg.lowrank import LowRankMatrix
from dfwtrace.solvers.problem import Problem
from dfwtrace.solvers.solver import Solver
from dfwtrace.tasks.features.scores import Objective, ScoresTask
from dfwtrace.tasks.planning import Workload, free_memory
from dfwtrace.tasks.task import join_weights
from dfwtrace.validation import (
    check_count,
    check_features,
    check_positive,
    check_targets,
    check_weights,
    describe,
)

_log = logging.getLogger("dfwtrace")

_Names: TypeAlias = str | Sequence[str] | None
#: X, y, features, label and sample_weight, as a user gives them.
Given: TypeAlias = tuple[Data, Data, _Names, _Names, Data]


def check_max_iter(max_iter: int | None, solver: Solver) -> int:
    """The largest number of epochs, at least 1; the solver's own for None."""
    return solver.default_max_iter if max_iter is None else check_count("max_iter", max_iter, 1)


def make_problem(
    task: Objective,
    data: Given,
    solver: Solver,
    epochs: int,
    representation: str,
    engine: Engine | None,
    fit_intercept: bool = False,
    standardize: bool = False,
) -> Problem:
    """Check the data, choose the representation, and put the problem together."""
    X, sample_weight = data[0], data[-1]
    asked = {"fit_intercept": fit_intercept, "standardize": standardize}
    for name, value in asked.items():
        if not isinstance(value, bool | np.bool_):
            raise TypeError(f"{name} must be True or False, got {describe(value)}.")
    asked["sample_weight"] = sample_weight is not None
    if isinstance(task, ScoresTask):
        task = task if sample_weight is None else task.with_weights()
    elif needing := [name for name, value in asked.items() if value]:
        raise TypeError(
            f"{needing[0]} needs a task made of a loss on scores, such as Multinomial(), "
            f"got {describe(task)}."
        )
    if engine is None:
        engine = SparkEngine(X.sparkSession) if is_frame(X) else LocalEngine()
    if not isinstance(engine, Engine):
        raise TypeError(f"engine must be an object such as LocalEngine(), got {describe(engine)}.")
    rows = _frame_rows(task, engine, *data) if is_frame(X) else _array_rows(task, *data)
    facts: Facts = rows.facts
    if isinstance(task, ScoresTask):
        task.loss.check_width(facts.shape[1], facts.n_rows)
    sizes = facts.n_rows, *facts.shape, facts.stored, facts.sparse, int(facts.dtype.itemsize)
    effort = epochs, *solver.effort(epochs)
    workload = Workload(*sizes, *effort, engine.n_shards, engine.n_jobs, solver.columns)
    if isinstance(rows, ArrayRows):
        far = bool(fit_intercept) and is_far(rows.X)
        workload = replace(workload, copied=copied_bytes(rows, data[:2]), far=far)
    free = free_memory() if isinstance(engine, LocalEngine) else None  # a cluster's is not known
    form, plan = task.plan(workload, representation, free, bool(fit_intercept))
    _log.info("representation %s", plan)
    return Problem(
        form,
        rows,
        engine,
        plan,
        learns_intercept=bool(fit_intercept),
        standardize=bool(standardize),
    )


def _array_rows(
    task: Objective, X: Data, y: Data, features: _Names, label: _Names, sample_weight: Data
) -> ArrayRows:
    for name, given in (("features", features), ("label", label)):
        if given is not None:
            raise TypeError(f"{name} names columns of a Spark DataFrame, but X is {describe(X)}.")
    X = check_features(X)
    y = check_targets(y, X.shape[0])
    if sample_weight is not None:
        weights = check_weights(sample_weight, X.shape[0])
        y = None if y is None else join_weights(weights, y)
    return ArrayRows.examined(X, y, task.examine)


def _frame_rows(
    task: Objective, engine: Engine, X: Data, y: Data, features: _Names, label: _Names, weight: Data
) -> Data:
    if y is not None:
        raise TypeError("y must be None where X is a DataFrame: label names the column.")
    if label is None and isinstance(task, ScoresTask):
        raise TypeError("label is missing: it names the column, or the columns, of the targets.")
    if weight is not None:
        if not isinstance(weight, str):
            raise TypeError(
                "sample_weight must be the name of a column where X is a DataFrame, "
                f"got {describe(weight)}."
            )
        # Weights travel as the first column of the targets.
        label = [weight, *([label] if isinstance(label, str) else label or ())]
    return engine.survey(X, features, label, task.examine)


def check_curvature(task: Objective, solver: Solver) -> None:
    """Refuse a loss without curvature where the line search needs it."""
    if isinstance(task, ScoresTask) and "linesearch" in solver.needs and not task.loss.searchable:
        raise TypeError(
            f"{type(task.loss).__name__}.curvature is missing: solver='dfw' with a line search "
            "needs it; add it, or take step='harmonic' or solver='accelerated'."
        )


def check_methods(problem: Problem, solver: Solver, tol: float | None, otherwise: str = "") -> None:
    """Refuse a task that lacks what the run needs."""
    for name in sorted({*solver.needs, *(("loss",) if tol is not None else ())}):
        if not problem.task.supports(name):
            otherwise = otherwise if name == "loss" and name in solver.needs else ""
            raise TypeError(f"task lacks the method {name!r}, which this run needs{otherwise}.")


def check_start(start: object, problem: Problem, radius: float) -> LowRankMatrix:
    """The W to start from, in the ball if its radius is known."""
    shape = problem.shape
    if start is None:
        return LowRankMatrix.zeros(shape)
    if not isinstance(start, LowRankMatrix):
        raise TypeError(f"start must be a LowRankMatrix, got {describe(start)}.")
    finite = all(np.isfinite(factor).all() for factor in (start.U, start.s, start.V))
    if start.shape != shape or not finite:
        raise ValueError(f"start must be finite and of shape {shape}, got {describe(start)}.")
    if problem.standardize:  # the norm that is bounded is known only with the scale
        return start
    if start.trace_norm > radius * (1.0 + 1e-9):  # never, where it is to be found
        raise ValueError(f"start must have a trace norm of at most radius, got {start.trace_norm}.")
    return start.compress()


def check_radii(radii: Data) -> int | list[float]:
    """The number of radii to find, or the radii as given."""
    if isinstance(radii, int | np.integer):
        return check_count("radii", radii, 1)
    several = np.iterable(radii) and not isinstance(radii, str | bytes)
    checked = [check_positive("radii", radius) for radius in radii] if several else []
    if not checked:
        raise ValueError(
            f"radii must be a list of positive numbers, or how many to try, got {describe(radii)}."
        )
    return checked


def check_folds(cv: Data, seed: int, problem: Problem) -> Folds:
    """How the rows are cut: at random into a number of folds, or as given."""
    n_rows, given = problem.rows.facts.n_rows, np.asarray(cv)
    if given.ndim == 0:
        n_folds, given = check_count("cv", cv, 2), np.zeros(0)
        if n_folds > n_rows:
            raise ValueError(f"cv must be at most the {n_rows} rows, got {cv}.")
    else:
        whole = given.dtype.kind in "iu" and given.shape == (n_rows,)
        sizes = np.bincount(given[given >= 0]) if whole else np.zeros(0)
        n_folds = sizes.size
        if n_folds == 0 or sizes.min() == 0 or sizes.max() == n_rows:
            raise ValueError(
                f"cv must be the number of each of the {n_rows} rows' fold, from 0 without "
                f"gaps, got {describe(cv)} of shape {given.shape}."
            )
        if problem.task.weighted and isinstance(problem.rows, ArrayRows):
            weights = Shard(0, problem.rows.X, problem.rows.y).targets[:, 0]
            if not all(weights[given != fold].any() for fold in range(n_folds)):
                raise ValueError("sample_weight must not be zero for all rows outside a fold.")
    return Folds(n_folds, seed, given.astype(np.float64))
