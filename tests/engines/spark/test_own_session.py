"""A session of their own for tests of four workers, of slow reading, and of what stops it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.clusters import Sessions
from tests.engines.spark.programs import RowSums, plain, some_rows
from tests.engines.spark.runs import (
    N_SHARDS,
    OPTIONS,
    assert_same_bits,
    frame_of,
    marking,
    our_threads,
    solve_here,
    wait_until,
)

import dfwtrace as dt
from dfwtrace.engines.spark.session import BackgroundJob, Cluster


@pytest.fixture
def four(sessions: Sessions, by_value: None) -> Any:
    """A session that runs four tasks at once, and tells at once which ones run."""
    # Spark's own status may be as old as the last heartbeat of an executor, 10 s.
    return sessions.on("local[4]", {"spark.ui.liveUpdate.period": "0"})


@pytest.mark.parametrize("fan_in", [1, 2, 16])
def test_a_tree_of_four_workers_gives_the_same_bits(four: Any, classes: Any, fan_in: int) -> None:
    engine = dt.SparkEngine(four, N_SHARDS, 4, fan_in=fan_in)
    result = dt.solve(dt.Multinomial(), *classes, engine=engine, **OPTIONS)
    assert_same_bits(result, solve_here(dt.Multinomial(), *classes))


def test_a_job_prepares_as_long_as_its_tasks_run(four: Any, tmp_path: Path) -> None:
    begun, go_on = tmp_path / "begun", tmp_path / "go on"

    def wait(batches: Iterator[Any]) -> Iterator[Any]:
        begun.touch()
        while not go_on.exists():
            time.sleep(0.05)
        yield from batches

    waiting = four.range(0, 2, 1, 2).mapInArrow(wait, "id long")
    job = BackgroundJob(Cluster(four), "dfwtrace: a test", waiting.collect, prepares=True)
    assert not job.preparing()
    job.start()
    wait_until(begun.exists)
    wait_until(job.preparing)
    assert job.failure() is None
    go_on.touch()
    assert job.join(30.0)
    assert job.outcome.exception() is None
    wait_until(lambda: not job.preparing())
    assert "ended before its workers were ready" in str(job.failure())


def test_the_time_to_read_a_data_frame_does_not_count(four: Any, tmp_path: Path) -> None:
    slow = tmp_path / "slow"

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        if slow.exists():
            time.sleep(5.0)
        yield from batches

    engine = dt.SparkEngine(four, 4, 2, start_timeout=4.0)
    frame = four.range(0, 8, 1, 2).mapInArrow(read, "id long")
    rows = engine.survey(frame, "id", None, plain)
    slow.touch()
    workers = engine.start(RowSums(), rows)
    np.testing.assert_array_equal(workers.sum("rows"), [8.0])
    workers.close()


def test_a_session_that_is_stopped_ends_runs_and_begins_none(
    sessions: Sessions, four: Any, classes: Any, tmp_path: Path
) -> None:
    frame = marking(frame_of(four, *classes), tmp_path / "read")
    engine, map_reduce = dt.SparkEngine(four, N_SHARDS, 2), dt.SparkMapReduceEngine(four, 2)
    workers = map_reduce.start(RowSums(), some_rows())

    def stop(W: Any, record: dict[str, Any]) -> None:
        sessions.stop()

    with pytest.raises(RuntimeError, match="SparkContext has been stopped"):
        dt.solve(dt.Multinomial(), *classes, engine=engine, callback=stop, **OPTIONS)
    with pytest.raises(RuntimeError, match="SparkContext has been stopped"):
        workers.sum("rows")
    workers.close()
    wait_until(lambda: our_threads() == [])
    with pytest.raises(RuntimeError, match="SparkContext has been stopped"):
        map_reduce.start(RowSums(), some_rows())
    for other in (engine, map_reduce):
        with pytest.raises(RuntimeError, match="SparkContext has been stopped"):
            dt.solve(dt.Multinomial(), *classes, engine=other, **OPTIONS)
        with pytest.raises(RuntimeError, match="SparkContext has been stopped"):
            dt.solve(dt.Multinomial(), frame, label="label", engine=other, **OPTIONS)
    assert not (tmp_path / "read").exists()
