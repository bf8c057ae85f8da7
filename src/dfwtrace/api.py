"""`solve`, `plan` and `path`: the order of the steps, from arguments to a result."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Literal

import numpy as np

from dfwtrace._typing import Data, FloatArray
from dfwtrace.arguments import (
    Given,
    check_curvature,
    check_folds,
    check_max_iter,
    check_methods,
    check_radii,
    check_start,
    make_problem,
)
from dfwtrace.data.shards import Folds
from dfwtrace.engines import Engine, single_threaded_blas
from dfwtrace.files.checkpoint import Checkpoint, resolve_checkpoint, saved_representation
from dfwtrace.linalg.lowrank import LowRankMatrix
from dfwtrace.lmo import LMO
from dfwtrace.result import Path, Result
from dfwtrace.solvers.early_stopping import HELD_OUT, EarlyStopping
from dfwtrace.solvers.problem import Problem
from dfwtrace.solvers.runner import DigitsLostError, Runner
from dfwtrace.solvers.search import Grid, Interrupted, Score, Search, find_radius, in_order
from dfwtrace.solvers.solver import Callback, StoppingCriteria, resolve
from dfwtrace.solvers.steps import Step
from dfwtrace.tasks.features.scores import as_task
from dfwtrace.tasks.planning import Plan
from dfwtrace.threads import use_threads
from dfwtrace.validation import check_positive, check_seed, describe, renamed

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
        What a shard keeps; see `dfwtrace.plan`. "auto" goes from "gram" to "implicit" where the
        rounding of XᵀX may hide a gap of `tol`, as with features that are almost collinear.
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
    if isinstance(radius, str) and not automatic:
        raise TypeError(f"radius must be a number or 'auto', got {describe(radius)}.")
    bound = math.nan if automatic else check_positive("radius", radius)
    seed, task = check_seed(random_state), as_task(task)
    method = resolve(solver, lmo, step, task.log_factor)
    check_curvature(task, method)
    max_iter = check_max_iter(max_iter, method)
    tol = method.default_tol if tol is None else tol
    criteria = StoppingCriteria(max_iter, tol, max_time, certify_every)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable, got {describe(callback)}.")
    saving = resolve_checkpoint(checkpoint)
    data = X, y, features, label, sample_weight
    form = representation, engine, fit_intercept, standardize
    problem = make_problem(task, data, method, max_iter, *form)
    check_methods(problem, method, criteria.tol, "; solver='dfw' without tol does not")
    folds = None
    if automatic:
        check_methods(problem, resolve("accelerated"), None, "; a radius that is given does not")
        folds = Folds(min(5, max(2, problem.rows.facts.n_rows)), seed, np.zeros(0))
    early = callback if isinstance(callback, EarlyStopping) else None
    if early is not None:
        folds = early.folds(problem, 5 if automatic else 1, seed)
    W, search = check_start(start, problem, bound), None
    # One thread here too, so that the bits depend neither on the engine nor on the machine.
    with single_threaded_blas(), use_threads(problem.engine.n_threads), ExitStack() as workers:
        workers.enter_context(closing(problem.start(digest=saving is not None, folds=folds)))
        if automatic:
            try:
                bound, near, search = find_radius(problem, max_time, verbose, began, seed)
            except Interrupted as ended:
                return ended.result
            if W.rank == 0:
                W = near
            elif not standardize:  # else the run shrinks it
                W = W * min(1.0, bound / W.trace_norm)

        def run(problem: Problem, attempt: Literal["only", "moments", "rows"]) -> Result:
            return Runner(
                problem if early is None else problem.without(HELD_OUT),
                method,
                criteria,
                callback=callback,
                early_stopping=early,
                verbose=verbose,
                checkpoint=saving,
                attempt=attempt,
                began=began,
            ).run(bound, W, seed)

        try:
            free = representation == "auto" and problem.plan.representation == "gram"
            try:
                if free and saving is not None and saved_representation(saving) == "implicit":
                    raise DigitsLostError
                result = run(problem, "moments" if free else "only")
            except DigitsLostError:  # in sums over the rows, so the rows themselves are needed
                problem = make_problem(task, data, method, max_iter, "implicit", *form[1:])
                started = problem.start(digest=saving is not None, folds=folds)
                workers.enter_context(closing(started))
                result = run(problem, "rows")
        except KeyboardInterrupt:  # before the first epoch
            if search is None or not search.fold_results:
                raise
            result = replace(search.fold_results[0][search.best], status="interrupted")
        return replace(result, search=search)


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
    max_iter = check_max_iter(max_iter, method)
    return make_problem(task, data, method, max_iter, representation, engine, fit_intercept).plan


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
    data = X, y, features, label, sample_weight
    form = representation, engine, fit_intercept, standardize
    limits = max_iter, tol, max_time
    return search_radii(task, data, form, limits, radii, cv, scoring, random_state, verbose)[0]


def search_radii(
    task: object,
    data: Given,
    form: tuple[str, Engine | None, bool, bool],
    limits: tuple[int | None, float | None, float | None],
    radii: int | Sequence[float] | FloatArray,
    cv: Data,
    scoring: Score | None,
    random_state: int | np.random.RandomState | None,
    verbose: bool | int | None,
    coarse: bool = False,
) -> tuple[Path, Result | None]:
    """The path; where it is `coarse`, without results on all rows, and that of the best radius."""
    seed, task, method = check_seed(random_state), as_task(task), resolve("accelerated")
    given, (max_iter, tol, max_time) = check_radii(radii), limits
    criteria = StoppingCriteria(check_max_iter(max_iter, method), tol, max_time)
    if scoring is not None and (cv is None or not callable(scoring)):
        raise TypeError(f"scoring must be callable, and needs cv, got {describe(scoring)}.")
    problem = make_problem(task, data, method, criteria.max_iter, *form)
    check_methods(problem, method, criteria.tol)
    folds = None if cv is None else check_folds(cv, seed, problem)

    def run(
        criteria: StoppingCriteria, problem: Problem, radius: float, W: LowRankMatrix, title: str
    ) -> Result:
        return Runner(problem, method, criteria, verbose=verbose, title=title).run(radius, W, seed)

    with (
        single_threaded_blas(),
        use_threads(problem.engine.n_threads),
        closing(problem.start(folds=folds)),
    ):
        if isinstance(given, list):
            grid = Grid(given)
        else:
            grid = Grid.around(problem.radius_scale(), given, grows=folds is not None)
        n_folds = folds.n_folds if folds else 0
        search = Search(problem, range(n_folds), criteria, run, scoring, coarse).over(grid)
        best = search.refit_best() if coarse else None
        found = search.path([] if coarse else search.refit())
    return (in_order(found, given) if isinstance(given, list) else found), best
