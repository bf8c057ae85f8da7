"""Small programs for the rounds of map-reduce, and one of every kind of round."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import dfwtrace as dt
from dfwtrace.data.shards import ArrayRows, Examined, Shard
from dfwtrace.engines import Engine, Workers
from dfwtrace.tasks.program import ShardProgram

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

D, M = 9, 4


class RowSums:
    """A program on sums of rows, small enough that a round costs what Spark costs."""

    def build(self, shard: Shard, start: float) -> Any:
        return np.full(2, start + float(shard.X.sum()))

    def add(self, state: Any, more: float) -> Any:
        return state * 1.1 + more

    def tell(self, state: Any) -> Any:
        return state

    def rows(self, shard: Shard) -> Any:
        return np.array([float(shard.n_rows)])


class FailsWhile(RowSums):
    """Fails as long as a file is there; with `once`, it takes the file away."""

    def __init__(self, flag: Path, once: bool) -> None:
        self.flag, self.once = flag, once

    def add(self, state: Any, more: float) -> Any:
        if self.flag.exists():
            if self.once:
                self.flag.unlink(missing_ok=True)
            raise ZeroDivisionError("the user's own mistake")
        return super().add(state, more)


class Sleeper(RowSums):
    """Says that it has begun, and does not end."""

    def __init__(self, begun: Path) -> None:
        self.begun = begun

    def tell(self, state: Any) -> Any:
        self.begun.touch()
        time.sleep(600)
        return state


def plain(X: Any, y: Any) -> Examined:
    return Examined(X, y, (X.shape[1], 1))


def some_rows(n: int = 12) -> ArrayRows:
    X = np.random.default_rng(3).standard_normal((n, 3))
    return ArrayRows.examined(X, None, plain)


def labelled(n: int, dtype: Any = np.float64) -> tuple[Any, Any]:
    rng = np.random.default_rng(n)
    return rng.standard_normal((n, D)).astype(dtype), np.arange(n) % M


def labelled_frame(spark: SparkSession, X: Any, y: Any) -> DataFrame:
    kind = "float" if X.dtype == np.float32 else "double"
    rows = [(row.tolist(), int(label)) for row, label in zip(X, y, strict=True)]
    return spark.createDataFrame(rows, f"features array<{kind}>, label int")


def rounds(workers: Workers, after_update: Callable[[], None] = lambda: None) -> list[Any]:
    """One of every kind of round that a run makes, with all its replies."""
    rng = np.random.default_rng(0)
    U, V = np.linalg.qr(rng.standard_normal((D, 2)))[0], np.linalg.qr(rng.random((M, 2)))[0]
    u, v = rng.standard_normal(D), rng.standard_normal(M)
    try:
        workers.build("stats", np.asfortranarray(U), np.array([2.0, 1.0]), V)
        replies = [workers.sum("matvec", v)]
        workers.apply("update", 1.5, u, v, 0.25, 7, 1)
        after_update()
        replies += [workers.sum("rmatvec", u), workers.sum("gradient")]
        return [*replies, *workers.gather("report"), np.array(workers.shard_rows)]
    finally:
        workers.close()


def assert_same_rounds(task: Any, engine: Engine, rows: Any, X: Any, y: Any) -> None:
    form = task.represent("implicit") if isinstance(task, dt.ScoresTask) else task
    program = ShardProgram(form, (D, M))
    here = ArrayRows.examined(X, y, task.examine)
    expected = rounds(dt.LocalEngine(engine.n_shards).start(program, here))
    found = rounds(engine.start(program, here if rows is None else rows))
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
