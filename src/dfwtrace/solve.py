"""One call from data to a certified low-rank matrix."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dfwtrace import lmo as oracles
from dfwtrace import steps
from dfwtrace._typing import Array, Matrix
from dfwtrace.engines import Engine, Ledger, LocalEngine, LocalWorkers
from dfwtrace.lmo import LMO
from dfwtrace.lowrank import LowRankMatrix
from dfwtrace.planning import Plan, Workload, choose, free_memory
from dfwtrace.progress import display
from dfwtrace.result import Result
from dfwtrace.solvers import Callback, Problem, Rules, Watch, frank_wolfe
from dfwtrace.steps import Step
from dfwtrace.tasks import GramTask, Moments, ScoresTask, ShardProgram, missing_methods
from dfwtrace.validation import (
    as_floating,
    check_count,
    check_features,
    check_positive,
    check_targets,
    check_tolerance,
    describe,
)

_log = logging.getLogger("dfwtrace")


def solve(
    task: Any,
    X: Any,
    y: Any = None,
    *,
    radius: float,
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
    X : array, memmap or sparse matrix of shape (n, d)
        Features. float32 and float64 are kept as they come; sums are float64.
    y : array
        Targets: of shape (n, m) for `LeastSquares`, class labels from 0 for `Multinomial`.
    radius : float
        μ, the bound of the trace norm.
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
        Where the shards live; `LocalEngine()` by default.
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
    setup = _prepare(task, X, y, lmo, representation, engine, epochs)
    needed = {*setup.lmo.needs, *rule.needs, *(("loss",) if tol is not None else ())}
    missing = missing_methods(setup.task, sorted(needed))
    if missing:
        raise TypeError(f"task lacks the method {missing[0]!r}, which this run needs.")
    W = _check_start(start, setup.shape, radius)
    _log.info("representation %s", setup.plan)

    workers = _start_workers(setup)
    try:
        problem = Problem(
            workers,
            setup.shape,
            radius,
            quadratic=bool(getattr(setup.task, "quadratic", False)),
            tells_objective=not missing_methods(setup.task, ["loss"]),
            seed=seed,
            precision=_precision(setup),
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
    finally:
        workers.close()
    return Result(
        outcome.W,
        outcome.objective,
        outcome.gap,
        outcome.status,
        outcome.history,
        at_zero,
        outcome.certificate,
        setup.plan,
    )


def plan(
    task: Any,
    X: Any,
    y: Any = None,
    *,
    lmo: str | LMO = "power-log",
    epochs: int = 100,
    representation: str = "auto",
    engine: Engine | None = None,
) -> Plan:
    """Which representation `solve` would take, with the estimated memory and time of all of them.

    Parameters
    ----------
    task, X, y, lmo, epochs, representation, engine
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
    return _prepare(task, X, y, lmo, representation, engine, epochs).plan


class _Setup(NamedTuple):
    """A checked call: the task in its representation, the data, the oracle, the engine."""

    task: Any
    X: Matrix
    y: Array | None
    shape: tuple[int, int]
    lmo: LMO
    engine: Engine
    plan: Plan


def _prepare(
    task: Any,
    X: Any,
    y: Any,
    lmo: str | LMO,
    representation: str,
    engine: Engine | None,
    epochs: int,
) -> _Setup:
    if isinstance(task, type) or (
        missing_methods(task, ["stats", "update"]) and not isinstance(task, ScoresTask)
    ):
        raise TypeError(
            f"task must be an object such as LeastSquares(), or have the methods stats and update, "
            f"got {describe(task)}."
        )
    if hasattr(task, "matvec") != hasattr(task, "rmatvec"):
        lacking = "rmatvec" if hasattr(task, "matvec") else "matvec"
        raise TypeError(f"task lacks the method {lacking!r}: products are needed on both sides.")
    engine = LocalEngine() if engine is None else engine
    if isinstance(engine, type) or not callable(getattr(engine, "start", None)):
        raise TypeError(f"engine must be an object such as LocalEngine(), got {describe(engine)}.")
    oracle = oracles.resolve(lmo, getattr(task, "log_factor", 1.0))
    X = check_features(X)
    y = check_targets(y, X.shape[0])
    if isinstance(task, ScoresTask):
        X = as_floating(X)
    shape = _shape(task, X, y)
    if hasattr(task, "check"):
        X, y = task.check(X, y)
    workload = _workload(X, shape, oracle, engine, epochs)
    if not isinstance(task, ScoresTask):
        if not isinstance(representation, str) or representation != "auto":
            raise ValueError(
                "representation must be auto for a task of one's own, "
                f"got {describe(representation)}."
            )
        return _Setup(
            task, X, y, shape, oracle, engine, Plan("own", "the task's own", {}, workload)
        )
    if not isinstance(representation, str) or representation != "auto":
        task.represent(representation)  # refuses what the task does not have
    chosen = choose(task.representations, workload, representation, free_memory())
    form = task.represent(chosen.representation)
    return _Setup(form, X, y, shape, oracle, engine, chosen)


def _shape(task: Any, X: Matrix, y: Array | None) -> tuple[int, int]:
    """The shape of W: the task's word, or (columns of X, columns of y)."""
    if hasattr(task, "shape"):
        d, m = task.shape(X, y)
        return int(d), int(m)
    if y is None:
        raise TypeError("task lacks the method 'shape', which it needs to go without y.")
    return int(X.shape[1]), 1 if y.ndim == 1 else int(y.shape[1])


def _workload(X: Matrix, shape: tuple[int, int], lmo: LMO, engine: Engine, epochs: int) -> Workload:
    return Workload(
        n=int(X.shape[0]),
        d=shape[0],
        m=shape[1],
        stored=int(X.nnz) if sp.issparse(X) else int(X.size),
        sparse=sp.issparse(X),
        itemsize=int(X.dtype.itemsize),
        epochs=epochs,
        products=lmo.mean_products(epochs),
        gathers=lmo.gathers,
        local=lmo.local,
        n_shards=engine.n_shards,
        n_jobs=int(getattr(engine, "n_jobs", 1)),
    )


def _check_start(
    start: LowRankMatrix | None, shape: tuple[int, int], radius: float
) -> LowRankMatrix:
    if start is None:
        return LowRankMatrix.zeros(shape)
    if not isinstance(start, LowRankMatrix):
        raise TypeError(f"start must be a LowRankMatrix, got {type(start).__name__}.")
    if start.shape != shape:
        raise ValueError(f"start must have shape {shape}, got {start.shape}.")
    if not all(np.isfinite(factor).all() for factor in (start.U, start.s, start.V)):
        raise ValueError("start must be finite, but holds NaN or infinity.")
    if not start.trace_norm <= radius * (1.0 + 1e-9):
        raise ValueError(
            f"start must have a trace norm of at most radius = {radius}, got {start.trace_norm}."
        )
    return start.compress()


def _start_workers(setup: _Setup) -> Ledger:
    """Workers for the run. Second moments are summed once; the rest then happens on the master."""
    program = ShardProgram(setup.task, setup.shape)
    workers = setup.engine.start(program, setup.X, setup.y)
    rows = workers.shard_rows
    if not isinstance(setup.task, GramTask) or setup.lmo.local:
        return Ledger(workers, rows)
    try:
        moments = Moments(workers.sum("moments"), setup.shape)
    finally:
        workers.close()
    return Ledger(LocalWorkers(program, [moments]), rows)


def _precision(setup: _Setup) -> float:
    """Relative rounding error of the shards' arithmetic: X's precision, but moments are float64."""
    single = setup.X.dtype == np.float32 and not isinstance(setup.task, GramTask)
    return 8.0 * float(np.finfo(np.float32 if single else np.float64).eps)
