"""A call to `solve`, checked and made ready: the task's form, the data, the workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dfwtrace._typing import Array, FloatArray, Matrix
from dfwtrace.engines import Engine, LocalEngine, LocalWorkers, Workers, is_frame
from dfwtrace.lowrank import LowRankMatrix
from dfwtrace.planning import Plan, Workload, choose, free_memory
from dfwtrace.rows import ArrayRows, Examined, Facts
from dfwtrace.solvers import Solver
from dfwtrace.tasks import (
    Centre,
    GramTask,
    Moments,
    ScoresTask,
    ShardProgram,
    join_weights,
    missing_methods,
)
from dfwtrace.validation import (
    as_floating,
    check_features,
    check_targets,
    check_weights,
    describe,
)


class Setup(NamedTuple):
    """A checked call: the task in its representation, the data, the solver, the engine."""

    task: Any
    rows: Any  # ArrayRows, or the engine's own
    solver: Solver
    engine: Engine
    plan: Plan
    intercept: bool = False
    smoothness: float = 1.0  # of the loss, where there is one

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of W."""
        facts: Facts = self.rows.facts
        return facts.shape


class Examiner:
    """A task's look at rows: all of them, or some at a time. Goes to where the rows are."""

    def __init__(self, task: Any) -> None:
        self.task = task

    def __call__(self, X: Matrix, y: Array | None) -> Examined:
        if isinstance(self.task, ScoresTask):
            X = as_floating(X)
        shape = _shape(self.task, X, y)
        if hasattr(self.task, "check"):
            X, y = self.task.check(X, y)
        return Examined(X, y, shape)


class Columns(NamedTuple):
    """The names of the columns that a DataFrame's features and targets are in, as given."""

    features: Any = None
    label: Any = None


class Workplace(NamedTuple):
    """Workers that are ready for a run, and the means for its intercept, if there is one.

    The mean of the targets is zero if b is learned along with W, and not told by the means.
    """

    workers: Workers
    centre: Centre | None = None
    digests: Sequence[FloatArray] = ()  # of the shards' rows, if they were asked for

    def close(self) -> None:
        self.workers.close()


def prepare(
    task: Any,
    X: Any,
    y: Any,
    columns: Columns,
    solver: Solver,
    representation: str,
    engine: Engine | None,
    epochs: int,
    intercept: bool = False,
    sample_weight: Any = None,
) -> Setup:
    if not isinstance(intercept, bool | np.bool_):
        raise TypeError(f"intercept must be True or False, got {describe(intercept)}.")
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
    if engine is None:
        engine = _spark_engine(X) if is_frame(X) else LocalEngine()
    if isinstance(engine, type) or not callable(getattr(engine, "start", None)):
        raise TypeError(f"engine must be an object such as LocalEngine(), got {describe(engine)}.")
    for name, wanted in (("intercept", intercept), ("sample_weight", sample_weight is not None)):
        if wanted and not isinstance(task, ScoresTask):
            raise TypeError(
                f"{name} needs a task made of a loss on scores, such as Multinomial(), "
                f"got {describe(task)}."
            )
    if sample_weight is not None:
        X, y, columns = _with_weights(X, y, columns, sample_weight)
        task = task.with_weights()
    rows = _look_through(task, X, y, columns, engine)
    if isinstance(task, ScoresTask):
        task.check_width(rows.facts.shape[1], rows.facts.n_rows)
    workload = _workload(rows.facts, solver, engine, epochs)
    if not isinstance(task, ScoresTask):
        if not isinstance(representation, str) or representation != "auto":
            raise ValueError(
                "representation must be auto for a task of one's own, "
                f"got {describe(representation)}."
            )
        return Setup(task, rows, solver, engine, Plan("own", "the task's own", {}, workload))
    if not isinstance(representation, str) or representation != "auto":
        task.represent(representation)  # refuses what the task does not have
    # Of a cluster's memory nothing is known here, and the driver's tells nothing about it.
    free = free_memory() if isinstance(engine, LocalEngine) else None
    names = task.representations
    if intercept and solver.local and "gram" in names:
        # Each shard's own moments would have to be about the mean of all rows.
        if representation == "gram":
            raise ValueError("representation must not be gram for lmo='sva' with an intercept.")
        names = tuple(name for name in names if name != "gram")
    chosen = choose(names, workload, representation, free)
    form = task.represent(chosen.representation)
    return Setup(form, rows, solver, engine, chosen, bool(intercept), task.loss.smoothness)


def _spark_engine(frame: Any) -> Engine:
    from dfwtrace.engines import SparkEngine

    return SparkEngine(frame.sparkSession)


def _with_weights(X: Any, y: Any, columns: Columns, sample_weight: Any) -> tuple[Any, Any, Columns]:
    """The weights of the rows as the first column of y, where every engine takes them along."""
    if is_frame(X):
        if not isinstance(sample_weight, str):
            raise TypeError(
                "sample_weight must be the name of a column where X is a DataFrame, "
                f"got {describe(sample_weight)}."
            )
        label = [columns.label] if isinstance(columns.label, str) else list(columns.label or ())
        return X, y, columns._replace(label=[sample_weight, *label])
    X = check_features(X)
    y, weights = check_targets(y, X.shape[0]), check_weights(sample_weight, X.shape[0])
    return X, None if y is None else join_weights(weights, y), columns


def _look_through(task: Any, X: Any, y: Any, columns: Columns, engine: Engine) -> Any:
    """The rows, checked and measured, where they are: here, or on the cluster."""
    if not is_frame(X):
        for name, given in zip(columns._fields, columns, strict=True):
            if given is not None:
                raise TypeError(
                    f"{name} names columns of a Spark DataFrame, but X is {describe(X)}."
                )
        X = check_features(X)
        return ArrayRows.examined(X, check_targets(y, X.shape[0]), Examiner(task))
    survey = getattr(engine, "survey", None)
    if not callable(survey):
        raise TypeError(
            f"engine must be one for Spark, such as SparkEngine(spark), where X is a DataFrame, "
            f"got {describe(engine)}."
        )
    if y is not None:
        raise TypeError("y must be None where X is a DataFrame: label names the column.")
    if columns.label is None and isinstance(task, ScoresTask):
        raise TypeError("label is missing: it names the column, or the columns, of the targets.")
    return survey(X, columns.features, columns.label, Examiner(task))


def _shape(task: Any, X: Matrix, y: Array | None) -> tuple[int, int]:
    """The shape of W: the task's word, or (columns of X, columns of y)."""
    if hasattr(task, "shape"):
        d, m = task.shape(X, y)
        return int(d), int(m)
    if y is None:
        raise TypeError("task lacks the method 'shape', which it needs to go without y.")
    return int(X.shape[1]), 1 if y.ndim == 1 else int(y.shape[1])


def _workload(facts: Facts, solver: Solver, engine: Engine, epochs: int) -> Workload:
    return Workload(
        n=facts.n_rows,
        d=facts.shape[0],
        m=facts.shape[1],
        stored=facts.stored,
        sparse=facts.sparse,
        itemsize=int(facts.dtype.itemsize),
        epochs=epochs,
        products=solver.mean_products(epochs),
        columns=solver.columns,
        gathers=solver.gathers,
        local=solver.local,
        n_shards=engine.n_shards,
        n_jobs=int(getattr(engine, "n_jobs", 1)),
    )


def check_methods(setup: Setup, tol: float | None) -> None:
    """Refuse a task that lacks what the solver or the tolerance needs."""
    needed = {*setup.solver.needs, *(("loss",) if tol is not None else ())}
    missing = missing_methods(setup.task, sorted(needed))
    if missing:
        raise TypeError(f"task lacks the method {missing[0]!r}, which this run needs.")


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


def start_workers(setup: Setup, digested: bool = False) -> Workplace:
    """Workers for the run. Second moments are summed once; the rest then happens on the master."""
    program = ShardProgram(setup.task, setup.shape)
    workers = setup.engine.start(program, setup.rows)
    d, m = setup.shape
    try:
        digests = workers.gather("digest") if digested else ()
        if not isinstance(setup.task, GramTask) or setup.solver.local:
            centre = Centre(_means(workers), np.zeros(m)) if setup.intercept else None
            return Workplace(workers, centre, digests)
        if setup.intercept:
            near = centre_near_means(setup, workers)
            moments, means = Moments(workers.sum("moments", near), (d + 1, m)).about_means()
            centre = Centre(near[:d] + means.x, near[d:] + means.y)
        else:
            moments, centre = Moments(workers.sum("moments"), setup.shape), None
        workers = LocalWorkers(program, [moments], shard_rows=workers.shard_rows).continue_from(
            workers
        )
    except BaseException:
        workers.close()
        raise
    return Workplace(workers, centre, digests)


def centre_near_means(setup: Setup, workers: Workers) -> FloatArray:
    """The means of features and targets, for moments about them. A sparse X stays where it is."""
    means = _means(workers)
    if setup.rows.facts.sparse:
        means[: setup.shape[0]] = 0.0
    return means


def _means(workers: Workers) -> FloatArray:
    sums = workers.sum("first_moments")
    if not sums[-1] > 0.0:
        raise ValueError("sample_weight must not be zero for all rows.")
    means: FloatArray = sums[:-1] / sums[-1]
    return means


def precision(setup: Setup) -> float:
    """Relative rounding error of the shards' arithmetic: X's precision, but moments are float64."""
    single = setup.rows.facts.dtype == np.float32 and not isinstance(setup.task, GramTask)
    return 8.0 * float(np.finfo(np.float32 if single else np.float64).eps)
