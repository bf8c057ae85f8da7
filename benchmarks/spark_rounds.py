"""A round with resident workers against a Spark job that does the same.

A vector goes to two workers, and the sum of two vectors comes back. Nothing is computed, so this is
what a round costs by itself. Resident workers hold every slot of ``local[2]`` while they are there,
so the sides take turns: workers come, answer some hundred rounds and go, then the jobs run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np

import dfwtrace as dt
from benchmarks import spark_session
from benchmarks.harness import Row, Scale, in_turn
from dfwtrace.data.shards import ArrayRows, Examined
from dfwtrace.engines import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RATIO = "resident / job"
TIMED = True
TARGET = 0.01

# Numbers that go out, and that come back; the target is for the first.
_NUMBERS = {"toy": (10,), "full": (1000, 100_000)}
_ROUNDS = {"toy": 20, "full": 300}
_JOBS = {"toy": 2, "full": 15}

#: Makes a round with a vector and gives its sum.
Exchange = Callable[[np.ndarray], np.ndarray]


class Echo:
    """A program that computes nothing."""

    def echo(self, state: Any, numbers: np.ndarray) -> np.ndarray:
        return numbers


def run(scale: Scale, repeat: int) -> list[Row]:
    spark = spark_session.session()
    spark_session.send_by_value(__name__)
    vectors = [np.arange(float(size)) for size in _NUMBERS[scale]]

    def measure(exchange: Exchange, count: int) -> list[float]:
        return [_round_seconds(exchange, vector, count) for vector in vectors]

    def with_engine(engine: Engine, count: int) -> list[float]:
        with closing(engine.start(Echo(), tiny_rows())) as workers:
            return measure(lambda vector: workers.sum("echo", vector), count)

    workers = spark_session.WORKERS
    resident = dt.SparkEngine(spark, n_shards=workers, n_workers=workers)
    jobs = {
        "map-reduce engine": lambda: with_engine(
            dt.SparkMapReduceEngine(spark, n_shards=workers), _JOBS[scale]
        ),
        "map and collect": lambda: measure(_job_by_hand(spark), _JOBS[scale]),
    }
    seen = in_turn(repeat, {"resident": lambda: with_engine(resident, _ROUNDS[scale]), **jobs})
    return [
        Row(
            "spark_rounds",
            f"job: {job}",
            {"numbers": vector.size, "workers": workers},
            float(np.median(seen["resident"][i] / seen[job][i])),
            TARGET if i == 0 else None,
            {
                "resident": float(np.median(seen["resident"][i])),
                "job": float(np.median(seen[job][i])),
            },
            {"least / least": float(seen["resident"][i].min() / seen[job][i].min())},
        )
        for i, vector in enumerate(vectors)
        for job in jobs
    ]


def tiny_rows() -> ArrayRows:
    """A row for each worker: enough to start workers that shall do nothing."""
    X = np.zeros((spark_session.WORKERS, 1))
    return ArrayRows.examined(X, None, lambda X, y: Examined(X, y, (1, 1)))


def _job_by_hand(spark: SparkSession) -> Exchange:
    """The leanest job for a round: the vector travels with the task, both replies come back."""
    workers = spark_session.WORKERS
    pieces = spark.sparkContext.parallelize(range(workers), workers)

    def exchange(vector: np.ndarray) -> np.ndarray:
        total: np.ndarray = np.sum(pieces.map(lambda _: vector).collect(), axis=0)
        return total

    return exchange


def _round_seconds(exchange: Exchange, vector: np.ndarray, count: int) -> float:
    """The median of so many rounds, after a first one."""
    if not np.array_equal(exchange(vector), spark_session.WORKERS * vector):
        raise RuntimeError("a round did not give the sum of the workers' vectors.")
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        exchange(vector)
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds))
