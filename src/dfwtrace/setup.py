"""A call to `solve`, checked and made ready: the task's form, the data, the oracle, the workers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dfwtrace import lmo as oracles
from dfwtrace._typing import Array, Matrix
from dfwtrace.engines import Engine, Ledger, LocalEngine, LocalWorkers
from dfwtrace.lmo import LMO
from dfwtrace.lowrank import LowRankMatrix
from dfwtrace.planning import Plan, Workload, choose, free_memory
from dfwtrace.tasks import GramTask, Moments, ScoresTask, ShardProgram, missing_methods
from dfwtrace.validation import as_floating, check_features, check_targets, describe


class Setup(NamedTuple):
    """A checked call: the task in its representation, the data, the oracle, the engine."""

    task: Any
    X: Matrix
    y: Array | None
    shape: tuple[int, int]
    lmo: LMO
    engine: Engine
    plan: Plan


def prepare(
    task: Any,
    X: Any,
    y: Any,
    lmo: str | LMO,
    representation: str,
    engine: Engine | None,
    epochs: int,
) -> Setup:
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
        return Setup(task, X, y, shape, oracle, engine, Plan("own", "the task's own", {}, workload))
    if not isinstance(representation, str) or representation != "auto":
        task.represent(representation)  # refuses what the task does not have
    chosen = choose(task.representations, workload, representation, free_memory())
    form = task.represent(chosen.representation)
    return Setup(form, X, y, shape, oracle, engine, chosen)


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


def check_start(
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


def start_workers(setup: Setup) -> Ledger:
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


def precision(setup: Setup) -> float:
    """Relative rounding error of the shards' arithmetic: X's precision, but moments are float64."""
    single = setup.X.dtype == np.float32 and not isinstance(setup.task, GramTask)
    return 8.0 * float(np.finfo(np.float32 if single else np.float64).eps)
