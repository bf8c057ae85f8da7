"""One call from data to a certified low-rank matrix."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from dfwtrace import steps
from dfwtrace.engines import Engine, Ledger, single_threaded_blas
from dfwtrace.history import History
from dfwtrace.lmo import LMO
from dfwtrace.lowrank import LowRankMatrix
from dfwtrace.planning import Plan
from dfwtrace.progress import display
from dfwtrace.result import Result
from dfwtrace.setup import Columns, check_start, precision, prepare, start_workers
from dfwtrace.solvers import Callback, Problem, Rules, Watch, frank_wolfe
from dfwtrace.steps import Step
from dfwtrace.tasks import missing_methods
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
    lmo: str | LMO = "power-log",
    step: str | float | Callable[[int], float] | Step = "linesearch",
    epochs: int = 100,
    tol: float | None = None,
    max_time: float | None = None,
    certify_every: int | None = None,
    representation: str = "auto",
    engine: Engine | None = None,
    start: LowRankMatrix | None = None,
    seed: int = 0,
    callback: Callback | None = None,
    progress: bool | None = None,
) -> Result:
    """Minimise F(W) over the matrices with ‖W‖_* ≤ radius by DFW-Trace.

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
    lmo : str or object
        The oracle: "power-1", "power-2", "power-log", "power-linear", "naive", "sva", "lanczos",
        or one made with `dfwtrace.lmo`, such as ``lmo.Power(lmo.Constant(3), start="previous")``.
    step : {"linesearch", "harmonic"}, float or callable
        γ of an epoch: a line search, 2/(t+2), a constant, or a function of t = 0, 1, ….
    epochs : int
        Epochs at the most.
    tol : float, optional
        Stop when the certified gap is at most tol·|F(0)|.
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
    progress : bool, optional
        Show a progress bar; by default, if standard error is a terminal.

    Returns
    -------
    Result
        With ``W``, ``objective``, ``gap``, ``status`` and ``history``. Ctrl-C returns the best
        iterate so far with status "interrupted"; before the first epoch it is raised as usual.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> X, Y, W_true = dt.datasets.make_multitask(n=500, d=20, m=15, rank=3, seed=0)
    >>> result = dt.solve(dt.LeastSquares(), X, Y, radius=1.0, epochs=500, tol=0.05)
    >>> result.status, result.gap <= 0.05 * result.objective_at_zero
    ('optimal', True)
    """
    began = time.perf_counter()
    radius = check_positive("radius", radius)
    epochs = check_count("epochs", epochs, 0)
    tol = check_tolerance(tol)
    max_time = None if max_time is None else check_positive("max_time", max_time)
    if certify_every is not None:
        certify_every = check_count("certify_every", certify_every, 1)
    seed = check_count("seed", seed, 0)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable, got {describe(callback)}.")
    rule = steps.resolve(step)
    setup = prepare(task, X, y, Columns(features, label), lmo, representation, engine, epochs)
    needed = {*setup.lmo.needs, *rule.needs, *(("loss",) if tol is not None else ())}
    missing = missing_methods(setup.task, sorted(needed))
    if missing:
        raise TypeError(f"task lacks the method {missing[0]!r}, which this run needs.")
    _log.info("representation %s", setup.plan)

    # One thread here too, so that the bits depend neither on the engine nor on the machine.
    with single_threaded_blas():
        W = check_start(start, setup.shape, radius)
    with single_threaded_blas(), closing(start_workers(setup)) as workers:
        problem = Problem(
            workers,
            setup.shape,
            radius,
            quadratic=bool(getattr(setup.task, "quadratic", False)),
            tells_objective=not missing_methods(setup.task, ["loss"]),
            seed=seed,
            precision=precision(setup),
        )
        value = problem.begin(W)
        oracle = setup.lmo.begin(problem.setting())
        workers.take()  # what it took to set up is no epoch's
        at_zero = problem.objective_at_zero
        stop_at = None if tol is None else tol * abs(at_zero)
        rules = Rules(stop_at, max_time, certify_every, callback)
        with display(epochs, progress) as shown:
            watch = Watch(problem, W, value, rules, shown, began)
            outcome = watch.follow(frank_wolfe(problem, W, value, oracle, rule, epochs))
    return Result(
        outcome.W,
        outcome.objective,
        outcome.gap,
        outcome.status,
        outcome.history,
        at_zero,
        outcome.certificate,
        setup.plan,
        _rounds(workers, len(outcome.history)),
    )


def _rounds(workers: Ledger, epochs: int) -> History:
    """A record for each round. Those after the last epoch were for the certificate of its W."""
    rounds = History()
    for made in workers.rounds:
        rounds.append(
            {
                "epoch": min(made.epoch, epochs),
                "oracle": made.oracle,
                "method": made.method,
                "numbers_sent": made.numbers,
                "bytes_on_wire": made.cost.bytes,
                "compute_seconds": made.cost.compute,
                "wait_seconds": made.cost.wait,
                "reduce_seconds": made.cost.reduce,
            }
        )
    return rounds


def plan(
    task: Any,
    X: Any,
    y: Any = None,
    *,
    features: str | Sequence[str] | None = None,
    label: str | Sequence[str] | None = None,
    lmo: str | LMO = "power-log",
    epochs: int = 100,
    representation: str = "auto",
    engine: Engine | None = None,
) -> Plan:
    """Which representation `solve` would take, with the estimated memory and time of all of them.

    Parameters
    ----------
    task, X, y, features, label, lmo, epochs, representation, engine
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
    epochs = check_count("epochs", epochs, 0)
    columns = Columns(features, label)
    return prepare(task, X, y, columns, lmo, representation, engine, epochs).plan
