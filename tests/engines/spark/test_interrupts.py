"""Ctrl-C and errors at any moment: no job, thread or slot outlives the call."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.engines.spark.programs import plain
from tests.engines.spark.runs import N_SHARDS, active_jobs, ctrl_c, our_threads, wait_until

import dfwtrace as dt
from dfwtrace.engines.spark.dataframe import task_context
from dfwtrace.engines.spark.session import BackgroundJob


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


class Unready(dt.Multinomial):
    """Keeps the second worker from joining, so that only Ctrl-C can end the launch."""

    def represent(self, name: str) -> Any:
        form = super().represent(name)
        form.latch = Latch()
        return form


class Latch:
    def __reduce__(self) -> Any:
        return sleep_in_the_second_worker, ()


def sleep_in_the_second_worker() -> None:
    if task_context().partitionId() == 1:
        time.sleep(600)


def the_job_has_a_thread(spark: Any) -> bool:
    """Spark may know of the job by then, or not."""
    return "dfwtrace-job" in our_threads()


def spark_knows_the_job(spark: Any) -> bool:
    return active_jobs(spark) != []


def a_worker_has_joined(spark: Any) -> bool:
    """It is sent its rows, and waits for the other one."""
    return any(name.startswith("dfwtrace-rows") for name in our_threads())


@pytest.mark.parametrize("moment", [the_job_has_a_thread, spark_knows_the_job, a_worker_has_joined])
def test_an_interrupt_at_the_launch_leaves_no_job(
    spark: Any, tidy: None, classes: Any, moment: Callable[[Any], bool]
) -> None:
    wait_until(lambda: active_jobs(spark) == [])  # of those before, Spark tells a little late
    engine = dt.SparkEngine(spark, N_SHARDS, 2)
    with ctrl_c(lambda: moment(spark)), pytest.raises(KeyboardInterrupt):
        dt.solve(Unready(), *classes, radius=10.0, solver="dfw", max_iter=1, engine=engine)


@contextlib.contextmanager
def ctrl_c_with_a_lock(within: Callable[..., Any]) -> Iterator[None]:
    """Press Ctrl-C once, when this thread has just taken a lock in a call from this function."""

    def watch(frame: FrameType | None, event: str, called: Any) -> None:
        if event == "c_return" and called.__name__ == "__enter__":
            while frame is not None and frame.f_code is not within.__code__:
                frame = frame.f_back
            if frame is not None:
                sys.setprofile(None)
                signal.raise_signal(signal.SIGINT)

    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("within", [BackgroundJob.start, BackgroundJob.failure])
def test_an_interrupt_leaves_no_lock_that_the_job_waits_for(
    spark: Any, tidy: None, classes: Any, within: Callable[..., Any]
) -> None:
    engine = dt.SparkEngine(spark, N_SHARDS, 2)
    with pytest.raises(KeyboardInterrupt), ctrl_c_with_a_lock(within):
        dt.solve(Unready(), *classes, radius=10.0, solver="dfw", max_iter=1, engine=engine)


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
