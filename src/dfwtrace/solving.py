"""One call from data to a certified low-rank matrix."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from dfwtrace.engines import Engine, single_threaded_blas
from dfwtrace.files.checkpoint import Checkpoint, resolve_checkpoint
from dfwtrace.lmo import LMO
from dfwtrace.lowrank import LowRankMatrix
from dfwtrace.planning import Plan
from dfwtrace.result import Result
from dfwtrace.running import Limits, run
from dfwtrace.setup import Columns, check_methods, check_start, prepare, start_workers
from dfwtrace.solvers import Callback, resolve
from dfwtrace.steps import Step
from dfwtrace.validation import check_count, check_positive, check_tolerance, describe

_log = logging.getLogger("dfwtrace")


def solve(
    task: Any,
    X: Any,
    y: Any = None,
    *,
    radius: float,
    features: str | Sequence[str] | None = None,
    label: str | Sequence[str] | None = None,
    sample_weight: Any = None,
    intercept: bool = False,
    solver: str = "dfw",
    lmo: str | LMO | None = None,
    step: str | float | Callable[[int], float] | Step | None = None,
    epochs: int | None = None,
    tol: float | None = None,
    max_time: float | None = None,
    certify_every: int | None = None,
    representation: str = "auto",
    engine: Engine | None = None,
    start: LowRankMatrix | None = None,
    seed: int = 0,
    callback: Callback | None = None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    progress: bool | None = None,
) -> Result:
    """Minimise F(W) over the matrices with ‖W‖_* ≤ radius.

    Parameters
    ----------
    task : LeastSquares, Multinomial, ScoresTask, or a task of one's own
        What F is; see `dfwtrace.Task` for the methods that a task has.
    X : array, memmap or sparse matrix of shape (n, d), or Spark DataFrame
        Features. float32 and float64 are kept as they come; sums are float64.
    y : array
        Targets: of shape (n, m) for `LeastSquares`, class labels from 0 for `Multinomial`.
    radius : float
        μ, the bound of the trace norm.
    features : str or list of str, optional
        Where X is a DataFrame: its column of features, an array of numbers or a vector of
        `pyspark.ml`, or the list of its numeric columns; "features" by default.
    label : str or list of str, optional
        Where X is a DataFrame: its column of labels or targets, or the list of target columns.
    sample_weight : array of shape (n,), or str, optional
        What each row counts; a weight of 2 is the same as the row twice. Where X is a DataFrame,
        the name of the column. For tasks that are made of a loss on scores.
    intercept : bool
        Add a free b ∈ Rᵐ to every row of scores, XW + 1bᵀ, which no constraint holds back. For
        tasks that are made of a loss on scores.
    solver : {"dfw", "accelerated"}
        DFW-Trace, the paper's; or quasi-Newton and projected gradient steps on the factors of W,
        which reach a small gap far sooner.
    lmo : str or object, optional
        For "dfw", the oracle: "power-1", "power-2", "power-log" (the default), "power-linear",
        "naive", "sva", "lanczos", or one made with `dfwtrace.lmo`, such as
        ``lmo.Power(lmo.Constant(3), start="previous")``.
    step : {"linesearch", "harmonic"}, float or callable, optional
        For "dfw", γ of an epoch: a line search (the default), 2/(t+2), a constant, or a function of
        t = 0, 1, ….
    epochs : int, optional
        Epochs at the most; 100 for "dfw", 1000 for "accelerated".
    tol : float, optional
        Stop when the certified gap is at most tol·|F(0)|; for "accelerated" 1e-4 by default.
    max_time : float, optional
        Stop after the epoch that ends so many seconds after the call.
    certify_every : int, optional
        Certify the gap every so many epochs. At the end it is certified in any case.
    representation : {"auto", "gram", "implicit", "dense", "factored"}
        What a shard keeps; see `dfwtrace.plan`.
    engine : Engine, optional
        Where the shards live; `LocalEngine()` by default, `SparkEngine` for a DataFrame.
    start : LowRankMatrix, optional
        W to start from, with ‖start‖_* ≤ radius; zero by default.
    seed : int
        The seed that all workers share.
    callback : callable, optional
        Called as ``callback(W, record)`` after every epoch. A mapping that it returns is added to
        the record; True ends the run with status "stopped".
    checkpoint : str, path or Checkpoint, optional
        A file that the run is written to every 30 seconds, or as `Checkpoint` says. If it exists,
        the run goes on from there, to the same bits as one that was never stopped. A checkpoint of
        other data, another radius or shard plan is refused.
    progress : bool, optional
        Show a progress bar; by default, if standard error is a terminal.

    Returns
    -------
    Result
        With ``W``, ``intercept``, ``objective``, ``gap``, ``status`` and ``history``. Ctrl-C
        returns the best iterate so far with status "interrupted"; before the first epoch it is
        raised as usual.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> X, Y, W_true = dt.datasets.make_multitask(n=500, d=20, m=15, rank=3, seed=0)
    >>> result = dt.solve(dt.LeastSquares(), X, Y, radius=1.0, epochs=500, tol=0.05)
    >>> result.status, result.gap <= 0.05 * result.objective_at_zero
    ('optimal', True)
    >>> result = dt.solve(dt.LeastSquares(), X, Y, radius=1.0, solver="accelerated", tol=1e-6)
    >>> result.status, result.relative_gap <= 1e-6
    ('optimal', True)
    """
    began = time.perf_counter()
    radius = check_positive("radius", radius)
    method = resolve(solver, lmo, step, getattr(task, "log_factor", 1.0))
    epochs = check_count("epochs", method.default_epochs if epochs is None else epochs, 0)
    tol = check_tolerance(method.default_tol if tol is None else tol)
    max_time = None if max_time is None else check_positive("max_time", max_time)
    if certify_every is not None:
        certify_every = check_count("certify_every", certify_every, 1)
    seed = check_count("seed", seed, 0)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable, got {describe(callback)}.")
    saving = resolve_checkpoint(checkpoint)
    columns = Columns(features, label)
    setup = prepare(
        task, X, y, columns, method, representation, engine, epochs, intercept, sample_weight
    )
    check_methods(setup, tol)
    _log.info("representation %s", setup.plan)
    limits = Limits(epochs, tol, max_time, certify_every, callback, progress, saving)
    # One thread here too, so that the bits depend neither on the engine nor on the machine.
    with single_threaded_blas():
        W = check_start(start, setup.shape, radius)
        with closing(start_workers(setup, digested=saving is not None)) as place:
            return run(setup, place, radius, W, seed, limits, began)


def plan(
    task: Any,
    X: Any,
    y: Any = None,
    *,
    features: str | Sequence[str] | None = None,
    label: str | Sequence[str] | None = None,
    solver: str = "dfw",
    lmo: str | LMO | None = None,
    epochs: int | None = None,
    representation: str = "auto",
    engine: Engine | None = None,
) -> Plan:
    """Which representation `solve` would take, with the estimated memory and time of all of them.

    Parameters
    ----------
    task, X, y, features, label, solver, lmo, epochs, representation, engine
        As for `solve`; the others have no influence.

    Returns
    -------
    Plan
        ``str(plan)`` is a table.

    Examples
    --------
    >>> import numpy as np, dfwtrace as dt
    >>> choice = dt.plan(dt.LeastSquares(), np.ones((10_000, 20)), np.ones((10_000, 5)))
    >>> choice.representation
    'gram'
    >>> print(choice)  # doctest: +ELLIPSIS
    gram: the least time over 100 epochs...
    """
    method = resolve(solver, lmo, None, getattr(task, "log_factor", 1.0))
    epochs = check_count("epochs", method.default_epochs if epochs is None else epochs, 0)
    columns = Columns(features, label)
    return prepare(task, X, y, columns, method, representation, engine, epochs).plan
