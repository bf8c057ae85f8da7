"""`solve`, `plan` and `path`: the order of the steps, from arguments to a result."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from dfwtrace._typing import Data, FloatArray
from dfwtrace.data.shards import ArrayRows, Facts, Folds, copied_bytes, is_far
from dfwtrace.engines import Engine, LocalEngine, SparkEngine, is_frame, single_threaded_blas
from dfwtrace.files.checkpoint import Checkpoint, resolve_checkpoint
from dfwtrace.linalg.lowrank import LowRankMatrix
from dfwtrace.lmo import LMO
from dfwtrace.result import Path, Result
from dfwtrace.solvers.problem import Problem
from dfwtrace.solvers.runner import Callback, Runner
from dfwtrace.solvers.search import Grid, Interrupted, Score, Search
from dfwtrace.solvers.solver import Solver, StoppingCriteria, resolve
from dfwtrace.solvers.steps import Step
from dfwtrace.tasks.features.scores import Objective, ScoresTask, as_task
from dfwtrace.tasks.planning import Plan, Workload, free_memory
from dfwtrace.tasks.task import join_weights
from dfwtrace.validation import (
    check_count,
    check_features,
    check_positive,
    check_seed,
    check_targets,
    check_weights,
    describe,
    renamed,
)

_log = logging.getLogger("dfwtrace")

_Names: TypeAlias = str | Sequence[str] | None
_Given: TypeAlias = tuple[Data, Data, _Names, _Names, Data]  # X, y, features, label, sample_weight


# Of radius="auto": the epochs and tolerance of a fit, the ratio of neighbours, how many radii that
# do worse end the search, and up to how many rows each fold is left out in turn.
_EPOCHS, _TOL, _RATIO, _PATIENCE, _FEW_ROWS = 10, 1e-3, 3.0, 2, 1000

_FORMER = {"epochs": "max_iter", "seed": "random_state"}
_FORMER |= {"intercept": "fit_intercept", "progress": "verbose"}


@renamed(**_FORMER)
def solve(
    task: object,
    X: Data,
    y: Data = None,
    *,
    radius: float | str,
    features: str | Sequence[str] | None = None,
    label: str | Sequence[str] | None = None,
    sample_weight: Data = None,
    fit_intercept: bool = False,
    standardize: bool = False,
    solver: str = "accelerated",
    lmo: str | LMO | None = None,
    step: str | float | Callable[[int], float] | Step | None = None,
    max_iter: int | None = None,
    tol: float | None = None,
    max_time: float | None = None,
    certify_every: int | None = None,
    representation: str = "auto",
    engine: Engine | None = None,
    start: LowRankMatrix | None = None,
    random_state: int | np.random.RandomState | None = None,
    callback: Callback | None = None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    verbose: bool | int | None = None,
) -> Result:
    """Minimise F(W) over the matrices with ‖W‖_* ≤ radius.

    Parameters
    ----------
    task : LeastSquares, Multinomial, ScoresTask, or a custom task
        What F is; see `dfwtrace.Task` for the methods that a task has.
    X : array, memmap or sparse matrix of shape (n, d), or Spark DataFrame
        Features. float32 and float64 are kept as they come; sums are float64.
    y : array, optional
        Targets: of shape (n, m) for `LeastSquares`, class labels from 0 for `Multinomial`.
    radius : float or "auto"
        μ, the bound of the trace norm. "auto" tries radii from F(0)/σ₁(∇F(0)) on, each three times
        the one before, with ten epochs each, and takes the one with the least loss on rows left
        out: a fifth of them, or each fifth in turn up to 1000 rows. ``result.search`` has them.
    features : str or list of str, optional
        Where X is a DataFrame: its column of features, an array of numbers or a vector of
        `pyspark.ml`, or the list of its numeric columns; "features" by default.
    label : str or list of str, optional
        Where X is a DataFrame: its column of labels or targets, or the list of target columns.
    sample_weight : array of shape (n,), or str, optional
        What each row counts; a weight of 2 is the same as the row twice. Where X is a DataFrame,
        the name of the column. For tasks made of a loss on scores.
    fit_intercept : bool, default=False
        Add an unconstrained b ∈ Rᵐ to every row of scores, XW + 1bᵀ, of a loss on scores.
    standardize : bool, default=False
        Divide every feature by its standard deviation σ_j, and bound ‖diag(σ) W‖_*: the radius no
        longer depends on the features' units. W, and `start`, are for X as given, which is neither
        copied nor centred. For tasks made of a loss on scores.
    solver : {"accelerated", "dfw"}, default="accelerated"
        Quasi-Newton and projected gradient steps on the factors of W, which reach a small gap soon;
        or DFW-Trace, the paper's, for tasks that lack a loss too.
    lmo : str or object, optional
        For "dfw", the oracle: "power-1", "power-2", "power-log" (the default), "power-linear",
        "naive", "sva", "lanczos", or one made with `dfwtrace.lmo`, such as
        ``lmo.Power(lmo.Constant(3), start="previous")``.
    step : {"linesearch", "harmonic"}, float or callable, optional
        For "dfw", γ of epoch t: line search (the default), 2/(t+2), a constant, or a function of t.
    max_iter : int, optional
        Largest number of epochs; 1000 for "accelerated", 100 for "dfw".
    tol : float, optional
        Stop when the certified gap is at most tol·|F(0)|; for "accelerated" 1e-4 by default.
    max_time : float, optional
        Wall-clock limit in seconds, checked after each epoch.
    certify_every : int, optional
        Certify the gap every `certify_every` epochs, and at the end in any case.
    representation : {"auto", "gram", "implicit", "dense", "factored"}, default="auto"
        What a shard keeps; see `dfwtrace.plan`.
    engine : Engine, optional
        Where the shards live; `LocalEngine()` by default, `SparkEngine` for a DataFrame.
    start : LowRankMatrix, optional
        W to start from, with ‖start‖_* ≤ radius; zero by default. If the features are
        standardised, one outside the ball is shrunk to it.
    random_state : int, RandomState or None, default=None
        The seed that all workers share. If None, the same in every run.
    callback : callable, optional
        Called as ``callback(W, record)`` after every epoch. A mapping that it returns is added to
        the record; True ends the run with status "stopped".
    checkpoint : str, path or Checkpoint, optional
        A file that the run is written to every 30 seconds, or as `Checkpoint` says. If it exists,
        the run continues from there, to the same bits as one that was never stopped. A checkpoint
        of other data, another radius or shard plan is refused.
    verbose : bool, int or None, default=None
        Show a progress bar; if None, where standard error is a terminal.

    Returns
    -------
    Result
        With ``W``, ``intercept``, ``objective``, ``gap``, ``status`` and ``history``. After the
        first epoch, Ctrl-C returns the best iterate so far with status "interrupted".

    Examples
    --------
    >>> import dfwtrace as dt
    >>> X, Y, W_true = dt.datasets.make_multitask(n=500, d=20, m=15, rank=3, random_state=0)
    >>> result = dt.solve(dt.LeastSquares(), X, Y, radius=1.0, tol=1e-6)
    >>> result.status, result.relative_gap <= 1e-6
    ('optimal', True)
    """
    began = time.perf_counter()
    automatic = isinstance(radius, str) and radius == "auto"
    bound = math.nan if automatic else check_positive("radius", radius)
    seed, task = check_seed(random_state), as_task(task)
    method = resolve(solver, lmo, step, task.log_factor)
    _check_curvature(task, method)
    max_iter = _check_max_iter(max_iter, method)
    tol = method.default_tol if tol is None else tol
    criteria = StoppingCriteria(max_iter, tol, max_time, certify_every)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable, got {describe(callback)}.")
    saving = resolve_checkpoint(checkpoint)
    data = X, y, features, label, sample_weight
    problem = _problem(
        task, data, method, max_iter, representation, engine, fit_intercept, standardize
    )
    _check_methods(problem, method, criteria.tol, "; solver='dfw' without tol does not")
    folds = None
    if automatic:
        _check_methods(problem, resolve("accelerated"), None, "; a radius that is given does not")
        folds = Folds(min(5, max(2, problem.rows.facts.n_rows)), seed, np.zeros(0))
    W, search = _check_start(start, problem, bound), None
    # One thread here too, so that the bits depend neither on the engine nor on the machine.
    with (
        single_threaded_blas(),
        closing(problem.start(digest=saving is not None, folds=folds)),
    ):
        if automatic:
            try:
                bound, near, search = _find_radius(problem, max_time, verbose, began, seed)
            except Interrupted as ended:
                return ended.result
            if W.rank == 0:
                W = near
            elif not standardize:  # else the run shrinks it
                W = W * min(1.0, bound / W.trace_norm)
        runner = Runner(
            problem,
            method,
            criteria,
            callback=callback,
            verbose=verbose,
            checkpoint=saving,
            began=began,
        )
        return replace(runner.run(bound, W, seed), search=search)


def _find_radius(
    problem: Problem, max_time: float | None, verbose: bool | int | None, began: float, seed: int
) -> tuple[float, LowRankMatrix, Path]:
    """The radius with the least loss on rows left out, a W near its solution, and what was tried.

    Fits of ten epochs are enough to tell the radii apart; shorter ones are not, since a W on its
    way to a radius that is too large passes by good ones.
    """
    method, criteria = resolve("accelerated"), StoppingCriteria(_EPOCHS, _TOL, max_time)

    def run(problem: Problem, radius: float, W: LowRankMatrix, title: str) -> Result:
        bar = {"verbose": verbose, "title": title}
        return Runner(problem, method, criteria, began=began, **bar).run(radius, W, seed)  # type: ignore[arg-type]

    n_rows, scale = problem.rows.facts.n_rows, problem.radius_scale()
    folds = range(0 if n_rows < 2 else min(5, n_rows) if n_rows <= _FEW_ROWS else 1)
    grid = Grid([scale], _RATIO, _PATIENCE) if 0.0 < scale < math.inf else Grid([1.0])
    search = Search(problem, folds, run).over(grid)
    problem.without(None)
    found = search.path([])
    if not found.fold_results:  # one row teaches nothing of the radius
        return search.trials[0].radius, LowRankMatrix.zeros(problem.shape), found
    return float(found.radii[found.best]), found.fold_results[0][found.best].W, found


@renamed(epochs="max_iter")
def plan(
    task: object,
    X: Data,
    y: Data = None,
    *,
    features: str | Sequence[str] | None = None,
    label: str | Sequence[str] | None = None,
    sample_weight: Data = None,
    fit_intercept: bool = False,
    solver: str = "accelerated",
    lmo: str | LMO | None = None,
    max_iter: int | None = None,
    representation: str = "auto",
    engine: Engine | None = None,
) -> Plan:
    """Choose the representation that `solve` would, and estimate memory and time of all of them.

    The time is that of a run that makes all `max_iter` epochs; most end sooner. The memory is what
    the run adds at its peak to the data as they are given, with what it has to copy of them.

    Parameters
    ----------
    task : Task
        What F is. This and all other parameters are as for `solve`.
    X, y : array, sparse matrix or Spark DataFrame, and array, optional
        Features and targets.
    features, label : str or list of str, optional
        Columns of a DataFrame.
    sample_weight : array of shape (n,), or str, optional
        What each row counts.
    fit_intercept : bool, default=False
        Add an unconstrained b ∈ Rᵐ to every row of scores.
    solver : {"accelerated", "dfw"}, default="accelerated"
        The solver, whose cost is estimated.
    lmo : str or object, optional
        For "dfw", the oracle.
    max_iter : int, optional
        Largest number of epochs.
    representation : str, default="auto"
        The one to take, or "auto" for the fastest that fits in memory.
    engine : Engine, optional
        Where the shards live.

    Returns
    -------
    Plan
        ``str(plan)`` is a table.

    Examples
    --------
    >>> import numpy as np, dfwtrace as dt
    >>> choice = dt.plan(dt.LeastSquares(), np.ones((10_000, 20)), np.ones((10_000, 5)))
    >>> print(choice)  # doctest: +ELLIPSIS
    gram: the least time over 1000 epochs...
    """
    task = as_task(task)
    method = resolve(solver, lmo, None, task.log_factor)
    data = X, y, features, label, sample_weight
    max_iter = _check_max_iter(max_iter, method)
    return _problem(task, data, method, max_iter, representation, engine, fit_intercept).plan


@renamed(**_FORMER, folds="cv")
def path(
    task: object,
    X: Data,
    y: Data = None,
    *,
    radii: int | Sequence[float] | FloatArray = 10,
    cv: int | Sequence[int] | None = None,
    scoring: Score | None = None,
    features: str | Sequence[str] | None = None,
    label: str | Sequence[str] | None = None,
    sample_weight: Data = None,
    fit_intercept: bool = False,
    standardize: bool = False,
    tol: float | None = 1e-4,
    max_iter: int | None = None,
    max_time: float | None = None,
    representation: str = "auto",
    engine: Engine | None = None,
    random_state: int | np.random.RandomState | None = None,
    verbose: bool | int | None = None,
) -> Path:
    """Solve for many radii, from the smallest to the largest, each from the one before.

    The solver is "accelerated". In gram form, all folds and all radii together take one pass over
    the data, which sums the second moments of each fold.

    Parameters
    ----------
    task : Task
        What F is.
    X, y : array, sparse matrix or Spark DataFrame, and array, optional
        Features and targets, as for `solve`.
    radii : int or sequence of float, default=10
        Bounds of the trace norm, in any order; or the number of radii on a grid in units of the
        data. With `cv` such a grid grows while its best radius is at an end, and is left early once
        larger radii only do worse.
    cv : int or array of shape (n,), optional
        Also validate each radius on this number of random folds of the rows, or on given ones: the
        number of each row's fold, from 0; all runs learn from rows with a negative number.
    scoring : callable, optional
        Called as ``scoring(fold, result)`` with a fit without that fold's rows; a score, of which
        the highest is best. Minus the validation loss by default.
    features, label, sample_weight : str, list of str or array, optional
        Columns of a DataFrame, or an array of weights, as for `solve`.
    fit_intercept : bool, default=False
        Add an unconstrained b ∈ Rᵐ to every row of scores.
    standardize : bool, default=False
        Divide every feature by its standard deviation over all rows, once for all folds, as for
        `solve`.
    tol : float, default=1e-4
        Relative gap that each run is certified to.
    max_iter : int, optional
        Largest number of epochs of each run; 1000 by default.
    max_time : float, optional
        Wall-clock limit of each run in seconds.
    representation, engine : str and Engine, optional
        What a shard keeps, and where the shards live, as for `solve`.
    random_state : int, RandomState or None, default=None
        The seed that all workers share, and that of random folds. If None, the same in every run.
    verbose : bool, int or None, default=None
        Show a progress bar; if None, where standard error is a terminal.

    Returns
    -------
    Path
        With ``results`` in the order of `radii`, and ``validation``.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> X, Y, W = dt.datasets.make_multitask(n=300, d=15, m=10, rank=2, noise=0.3, random_state=0)
    >>> path = dt.path(dt.LeastSquares(), X, Y, radii=[0.1, 0.3, 1.0, 3.0], cv=5)
    >>> [result.status for result in path.results]
    ['optimal', 'optimal', 'optimal', 'optimal']
    >>> path.radii[path.best]
    np.float64(1.0)
    """
    seed, task, method = check_seed(random_state), as_task(task), resolve("accelerated")
    given = _check_radii(radii)
    max_iter = _check_max_iter(max_iter, method)
    criteria = StoppingCriteria(max_iter, tol, max_time)
    if scoring is not None and (cv is None or not callable(scoring)):
        raise TypeError(f"scoring must be callable, and needs cv, got {describe(scoring)}.")
    data = X, y, features, label, sample_weight
    problem = _problem(
        task, data, method, max_iter, representation, engine, fit_intercept, standardize
    )
    _check_methods(problem, method, criteria.tol)
    folds = None if cv is None else _check_folds(cv, seed, problem)

    def run(problem: Problem, radius: float, W: LowRankMatrix, title: str) -> Result:
        return Runner(problem, method, criteria, verbose=verbose, title=title).run(radius, W, seed)

    with single_threaded_blas(), closing(problem.start(folds=folds)):
        if isinstance(given, list):
            grid = Grid(given)
        else:
            grid = Grid.around(problem.radius_scale(), given, grows=folds is not None)
        search = Search(problem, range(folds.n_folds if folds else 0), run, scoring).over(grid)
        found = search.path(search.refit())
    return _in_order(found, given) if isinstance(given, list) else found


def _check_max_iter(max_iter: int | None, solver: Solver) -> int:
    return solver.default_max_iter if max_iter is None else check_count("max_iter", max_iter, 1)


def _problem(
    task: Objective,
    data: _Given,
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


def _check_curvature(task: Objective, solver: Solver) -> None:
    if isinstance(task, ScoresTask) and "linesearch" in solver.needs and not task.loss.searchable:
        raise TypeError(
            f"{type(task.loss).__name__}.curvature is missing: solver='dfw' with a line search "
            "needs it; add it, or take step='harmonic' or solver='accelerated'."
        )


def _check_methods(
    problem: Problem, solver: Solver, tol: float | None, otherwise: str = ""
) -> None:
    for name in sorted({*solver.needs, *(("loss",) if tol is not None else ())}):
        if not problem.task.supports(name):
            otherwise = otherwise if name == "loss" and name in solver.needs else ""
            raise TypeError(f"task lacks the method {name!r}, which this run needs{otherwise}.")


def _check_start(start: object, problem: Problem, radius: float) -> LowRankMatrix:
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


def _check_radii(radii: object) -> int | list[float]:
    """The number of radii to find, or the radii as given."""
    if isinstance(radii, int | np.integer):
        return check_count("radii", radii, 1)
    several = np.iterable(radii) and not isinstance(radii, str | bytes)
    checked = [check_positive("radii", radius) for radius in radii] if several else []  # type: ignore[attr-defined]
    if not checked:
        raise ValueError(
            f"radii must be a list of positive numbers, or how many to try, got {describe(radii)}."
        )
    return checked


def _in_order(found: Path, given: list[float]) -> Path:
    """The path in the order in which the radii were given."""
    order = np.argsort(np.argsort(given, kind="stable"), kind="stable")
    losses, scores = found.validation, found.scores
    return Path(
        found.radii[order],
        [found.results[k] for k in order],
        None if losses is None else losses[order],
        [[results[k] for k in order] for results in found.fold_results],
        None if scores is None else scores[order],
    )


def _check_folds(cv: Data, seed: int, problem: Problem) -> Folds:
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
            weights = problem.rows.y[:, 0]  # type: ignore[index]  # they came with y
            if not all(weights[given != fold].any() for fold in range(n_folds)):
                raise ValueError("sample_weight must not be zero for all rows outside a fold.")
    return Folds(n_folds, seed, given.astype(np.float64))
