"""Ctrl-C and errors at any moment: no job, thread or slot outlives the call."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engines.spark.programs import plain
from tests.engines.spark.runs import N_SHARDS, active_jobs, ctrl_c, our_threads, wait_until

import dfwtrace as dt


def test_an_interrupt_returns_the_best_so_far_and_cleans_up(
    spark: Any, tidy: None, classes: Any
) -> None:
    def interrupt(W: Any, record: dict[str, Any]) -> None:
        if record["epoch"] == 3:
            timer.start()

    # It arrives in the middle of some later round, as Ctrl-C does.
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    engine = dt.SparkEngine(spark, N_SHARDS)
    result = dt.solve(
        dt.Multinomial(),
        *classes,
        radius=10.0,
        solver="dfw",
        max_iter=10**6,
        engine=engine,
        callback=interrupt,
    )
    assert result.status == "interrupted"
    assert len(result.history) >= 3


def test_an_error_in_the_callback_cleans_up(spark: Any, tidy: None, classes: Any) -> None:
    def fail(W: Any, record: dict[str, Any]) -> None:
        raise LookupError("no such test set")

    engine = dt.SparkEngine(spark, N_SHARDS)
    with pytest.raises(LookupError, match="no such test set"):
        dt.solve(
            dt.Multinomial(), *classes, radius=10.0, solver="dfw", engine=engine, callback=fail
        )


@pytest.mark.usefixtures("own_group")
def test_the_users_job_group_is_left_alone(spark: Any, classes: Any) -> None:
    dt.solve(
        dt.Multinomial(),
        *classes,
        engine=dt.SparkEngine(spark),
        radius=1.0,
        solver="dfw",
        max_iter=1,
    )


@pytest.mark.parametrize("delay", [0.0, 0.05])
def test_an_interrupt_at_the_launch_leaves_no_job(
    spark: Any, tidy: None, classes: Any, delay: float
) -> None:
    """The job's thread is there; Spark may know of the job by then, or not."""
    engine = dt.SparkEngine(spark, N_SHARDS)
    with ctrl_c(lambda: "dfwtrace-job" in our_threads(), delay), pytest.raises(KeyboardInterrupt):
        dt.solve(
            dt.Multinomial(), *classes, radius=10.0, solver="dfw", max_iter=10**6, engine=engine
        )


@pytest.mark.usefixtures("tidy", "own_group")
@pytest.mark.parametrize("engine", [dt.SparkEngine, dt.SparkMapReduceEngine])
def test_an_interrupt_of_the_first_look_leaves_no_job(
    spark: Any, engine: Any, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"

    def begin_and_sleep(batches: Iterator[Any]) -> Iterator[Any]:
        begun.touch()
        time.sleep(600)
        yield from batches

    frame = spark.range(0, 4, 1, 2).mapInArrow(begin_and_sleep, "id long")
    with ctrl_c(begun.exists), pytest.raises(KeyboardInterrupt):
        engine(spark, 2).survey(frame, "id", None, plain)
    wait_until(lambda: active_jobs(spark) == [])  # Spark tells a little late


def test_an_error_of_the_first_look_comes_as_it_is(spark: Any, tidy: None) -> None:
    from pyspark.errors import PythonException

    def broken(batches: Iterator[Any]) -> Iterator[Any]:
        raise LookupError("the user's own mistake")

    frame = spark.range(0, 4, 1, 2).mapInArrow(broken, "id long")
    with pytest.raises(PythonException, match="LookupError: the user's own mistake"):
        dt.SparkEngine(spark, 2).survey(frame, "id", None, plain)
