"""A Spark job in a thread of its own: cancelled at any time, waited for, and what it tells."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.engines.spark.runs import active_jobs, wait_until

from dfwtrace.engines.spark.session import BackgroundJob, Cluster, python_traceback, run_job


def test_a_job_that_was_cancelled_before_it_began_never_begins(spark: Any) -> None:
    ran: list[str] = []
    job = BackgroundJob(Cluster(spark), "dfwtrace: a test", lambda: ran.append("it ran"))
    job.cancel()
    assert job.join(0.0)
    job.start()
    assert job.join(30.0)
    assert ran == []


def test_a_job_that_just_begins_is_cancelled_in_the_end(spark: Any) -> None:
    """Spark forgets a cancellation of what it does not know yet: it has to be told again."""
    begun, may_go_on = threading.Event(), threading.Event()

    def action() -> Any:
        begun.set()
        may_go_on.wait(30.0)
        return spark.range(0, 2, 1, 2).mapInArrow(sleep, "id long").collect()

    job = BackgroundJob(Cluster(spark), "dfwtrace: a test", action)
    job.start()
    assert begun.wait(30.0)
    job.cancel()
    may_go_on.set()
    wait_until(lambda: cancelled_again(job))
    assert "cancel" in str(job.outcome.exception()).lower()
    wait_until(lambda: active_jobs(spark) == [])


def cancelled_again(job: BackgroundJob[Any]) -> bool:
    job.cancel()
    return job.join(0.1)


def sleep(batches: Iterator[Any]) -> Iterator[Any]:
    time.sleep(600)
    yield from batches


@pytest.mark.usefixtures("own_group")
def test_what_a_job_gives_or_raises_comes_back(spark: Any) -> None:
    cluster = Cluster(spark)
    assert run_job(cluster, "dfwtrace: a test", spark.range(7).count) == 7
    with pytest.raises(ZeroDivisionError):
        run_job(cluster, "dfwtrace: a test", lambda: 1 // 0)


def test_a_job_has_the_properties_of_the_thread_that_starts_it(spark: Any) -> None:
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", "mine")
    try:
        pool = run_job(
            Cluster(spark),
            "dfwtrace: a test",
            lambda: spark.sparkContext.getLocalProperty("spark.scheduler.pool"),
        )
    finally:
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", None)
    assert pool == "mine"


STORY = """An exception was thrown from the Python worker:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "reader.py", line 3, in read
    return rows[key]
           ~~~~^^^^^
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "reader.py", line 5, in read
    raise OSError("no such file") from None
OSError: no such file

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "task.py", line 9, in run
    read()
RuntimeError: reading failed
"""


@pytest.mark.parametrize(
    "rest",
    [
        "",
        "\n\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:581)",
        "\n\nDriver stacktrace:\n",
        "\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:581)",
    ],
)
def test_a_workers_traceback_is_told_with_those_it_came_from(rest: str) -> None:
    found = python_traceback(STORY + rest)
    assert found is not None
    assert found.startswith("Traceback (most recent call last):")
    assert found.rstrip().endswith("RuntimeError: reading failed")
    assert [line for line in found.splitlines() if line.startswith(("KeyE", "OSE", "Runt"))] == [
        "KeyError: 'x'",
        "OSError: no such file",
        "RuntimeError: reading failed",
    ]


def test_where_there_is_no_traceback_none_is_told() -> None:
    assert python_traceback("Job 3 was cancelled as part of a group") is None
