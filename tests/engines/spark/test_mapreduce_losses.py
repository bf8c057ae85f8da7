"""A job a round, and what goes wrong in it: errors, lost states, changed rows, interrupts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.clusters import executor_pids, kill
from tests.engines.spark.programs import (
    D,
    FailsWhile,
    M,
    RowSums,
    Sleeper,
    labelled,
    labelled_frame,
    plain,
    rounds,
    some_rows,
)
from tests.engines.spark.runs import active_jobs, ctrl_c, persisted, wait_until

import dfwtrace as dt
from dfwtrace.data.shards import ArrayRows
from dfwtrace.tasks.program import ShardProgram

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.usefixtures("nothing_left")
def test_the_users_own_error_comes_with_its_traceback(spark: SparkSession, tmp_path: Path) -> None:
    flag = tmp_path / "fail"
    flag.touch()
    workers = dt.SparkMapReduceEngine(spark, 2).start(FailsWhile(flag, once=False), some_rows())
    workers.build("build", 0.0)
    with pytest.raises(dt.WorkerError, match=r"(?s)add failed.*, in add.*own mistake"):
        workers.apply("add", 1.0)
    assert persisted(spark) == 1  # the shards
    workers.close()


@pytest.mark.usefixtures("nothing_left")
def test_a_task_that_fails_once_changes_no_bit(spark: SparkSession, tmp_path: Path) -> None:
    flag = tmp_path / "fail"
    rows = some_rows()
    here = dt.LocalEngine(2).start(RowSums(), rows)
    there = dt.SparkMapReduceEngine(spark, 2).start(FailsWhile(flag, once=True), rows)
    for workers in (here, there):
        workers.build("build", 0.5)
        workers.apply("add", 1.0)
        flag.touch()
        workers.apply("add", 2.0)
    np.testing.assert_array_equal(there.sum("tell"), here.sum("tell"))
    assert 1 <= there.restarts <= 2  # two tasks run at once, and both may have seen the file
    for workers in (here, there):
        workers.close()


@pytest.mark.usefixtures("nothing_left")
def test_lost_states_are_made_again(spark: SparkSession) -> None:
    rows = some_rows()
    here = dt.LocalEngine(2).start(RowSums(), rows)
    there = dt.SparkMapReduceEngine(spark, 2, max_restarts=1).start(RowSums(), rows)
    for workers in (here, there):
        workers.build("build", 0.5)
        workers.apply("add", 1.0)
        workers.apply("add", 3.0)
    lose_blocks(spark)
    np.testing.assert_array_equal(there.sum("tell"), here.sum("tell"))
    assert there.restarts == 1
    lose_blocks(spark)
    with pytest.raises(dt.WorkerError, match="after 1 restarts"):
        there.sum("tell")
    for workers in (here, there):
        workers.close()


def test_killed_executors_change_no_bit(local_cluster: SparkSession) -> None:
    X, y = labelled(30)
    task = dt.Multinomial()
    engine = dt.SparkMapReduceEngine(local_cluster, n_shards=3)
    here = ArrayRows.examined(X, y, task.examine)
    there = engine.survey(labelled_frame(local_cluster, X, y), "features", "label", task.examine)
    program = ShardProgram(task.represent("implicit"), (D, M))
    expected = rounds(dt.LocalEngine(3).start(program, here))
    workers = engine.start(program, there)

    def kill_both() -> None:  # one of them may hold no state at all
        for pid in executor_pids(local_cluster):
            kill(pid)

    for one, other in zip(rounds(workers, kill_both), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert workers.restarts == 1
    assert persisted(local_cluster) == 0


def lose_blocks(spark: SparkSession) -> None:
    """Take every persisted block away from Spark, as if its executors were gone."""
    for rdd in list(spark.sparkContext._jsc.getPersistentRDDs().values()):
        rdd.unpersist(True)


@pytest.mark.usefixtures("nothing_left")
def test_rows_that_change_are_noticed(spark: SparkSession, tmp_path: Path) -> None:
    flag = tmp_path / "other"

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            values = batch.column("id").to_numpy() + (0.5 if flag.exists() else 0.0)
            yield pa.RecordBatch.from_pydict({"value": values})

    frame = spark.range(0, 20, 1, 2).mapInArrow(read, "value double")
    engine = dt.SparkMapReduceEngine(spark, n_shards=3)
    rows = engine.survey(frame, ["value"], None, plain)
    workers = engine.start(RowSums(), rows)
    workers.build("build", 0.0)
    flag.touch()
    lose_blocks(spark)
    for shuffled in Path(os.environ["SPARK_LOCAL_DIRS"]).rglob("shuffle_*"):
        shuffled.unlink()
    with pytest.raises(dt.RowsChangedError, match=r"rows of shard \d .*persist the DataFrame"):
        workers.sum("tell")
    workers.close()


@pytest.mark.usefixtures("nothing_left")
def test_an_interrupt_cancels_the_jobs(spark: SparkSession, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    workers = dt.SparkMapReduceEngine(spark, 2).start(Sleeper(begun), some_rows())
    workers.build("build", 1.0)
    with ctrl_c(begun.exists), pytest.raises(KeyboardInterrupt):
        workers.sum("tell")
    wait_until(lambda: active_jobs(spark) == [])  # Spark tells a little late
    workers.apply("add", 1.0)  # the workers can be used all the same
    workers.close()
    assert spark.range(3).count() == 3
