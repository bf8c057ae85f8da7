"""MLlib's LogisticRegression and our solver on one Spark: from the same cached DataFrame."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import dfwtrace as dt
from benchmarks import peers_curves, spark_session
from benchmarks.peers_curves import Curve, Ours, Runner
from benchmarks.peers_problems import Problem

# Of ours. As many as there are by default in one process.
_SHARDS = 8
# Iterations of the first of MLlib's fits; each next one has half as many again.
_FEWEST = 4
# Seconds of all the fits of one curve.
_FITS_TIME = 60.0


class OnSpark(NamedTuple):
    """Both sides. The clock of either runs from the DataFrame to what it has learnt.

    `forget` gives the memory of the rows back.
    """

    mllib: Runner
    ours: Ours
    forget: Callable[[], object]


def on_spark(problem: Problem) -> OnSpark:
    """Both sides on the session of the benchmarks; raises NoSparkError where there is none.

    The rows lie cached in Spark's memory before a clock runs, and a first fit has warmed the JVM.
    """
    spark = spark_session.session()
    frame = _cached(spark, problem)
    engine = dt.SparkEngine(spark, n_shards=_SHARDS, n_workers=spark_session.WORKERS)
    rows = {"X": frame, "features": "features", "label": "label", "engine": engine}
    fit = mllib_fit(frame, problem)
    fit(1)
    ours = partial(peers_curves.ours, problem, kind="error", rows=rows)
    return OnSpark(Fits(fit), ours, frame.unpersist)


def _cached(spark: Any, problem: Problem) -> Any:
    """The rows as vectors, which MLlib asks for and we can read: one partition for each core."""
    import pyarrow as pa
    from pyspark.ml.functions import array_to_vector

    arrays = pa.array(list(problem.X.astype(np.float64)))
    table = pa.table({"x": arrays, "label": problem.y.astype(np.float64)})
    frame = spark.createDataFrame(table).repartition(spark_session.WORKERS)
    frame = frame.select(array_to_vector("x").alias("features"), "label").cache()
    frame.count()
    return frame


class Fit(NamedTuple):
    """Coefficients, a row for each class, and the seconds and iterations that they took."""

    coef: np.ndarray
    seconds: float
    iterations: int


def mllib_fit(frame: Any, problem: Problem) -> Callable[[int], Fit]:
    """A fit with at most so many iterations, of the model that scikit-learn's C stands for."""
    from pyspark.ml.classification import LogisticRegression

    estimator = LogisticRegression(
        family="multinomial",
        standardization=False,
        fitIntercept=False,
        regParam=1.0 / (problem.penalty * problem.X.shape[0]),
        tol=0.0,  # its own tolerance would end the curve while the test error still falls
    )

    def fit(most_iterations: int) -> Fit:
        began = time.perf_counter()
        model = estimator.copy({estimator.maxIter: most_iterations}).fit(frame)
        seconds = time.perf_counter() - began
        iterations = int(model.summary.totalIterations)
        return Fit(model.coefficientMatrix.toArray(), seconds, iterations)

    return fit


class Fits:
    """The curve of a model that cannot be looked at: whole fits, each half as long again.

    A value is that of one fit from the start, and its time is the time of that fit alone: so the
    curve's cap holds for each of them. All of them together have `_FITS_TIME`. What is known from
    an earlier curve is not looked for again: the next one begins at the first fit that was as good
    as wanted.
    """

    def __init__(self, fit: Callable[[int], Fit]) -> None:
        self._fit = fit
        self._errors: dict[int, float] = {}  # by the limit of iterations

    def __call__(self, problem: Problem, curve: Curve) -> dict[str, float]:
        good = [limit for limit, error in self._errors.items() if error <= curve.wanted]
        limit = min(good, default=_FEWEST)
        while True:
            coef, seconds, iterations = self._fit(limit)
            error = peers_curves.class_error(problem, np.arange(len(coef)), coef)
            self._errors[limit] = error
            if curve.add(seconds, error) or iterations < limit:  # more would change nothing
                break
            longer = limit + limit // 2
            if sum(curve.seconds) + seconds * longer / limit > _FITS_TIME:
                curve.stopped = True
                break
            limit = longer
        return {"their numbers": float(np.prod(problem.shape)), "their steps": float(iterations)}
