"""The three masters of the tests: real processes, the same bits on each, and none stays behind."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.clusters import driver_pid, executor_pids, python_worker_pids
from tests.engines.spark.programs import D, M, assert_same_rounds

import dfwtrace as dt
from dfwtrace.data.shards import ArrayRows, Examined

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class WhoAmI:
    """Tells the processes that shards live in, and counts them."""

    def pid(self, shard: dt.Shard) -> Any:
        return np.array([float(os.getpid())])


# On local-cluster, executors are killed in between: see test_failures and test_mapreduce_losses.
@pytest.mark.parametrize("fixture", ["spark", "standalone"])
def test_every_master_gives_the_same_bits(fixture: str, request: pytest.FixtureRequest) -> None:
    session: SparkSession = request.getfixturevalue(fixture)
    X, y, _ = dt.datasets.make_multiclass(n=101, d=D, m=M, rank=3, random_state=4)
    options: dict[str, Any] = {"radius": 10.0, "solver": "dfw", "max_iter": 3, "certify_every": 2}
    here = dt.solve(dt.Multinomial(), X, y, engine=dt.LocalEngine(n_shards=4), **options)
    resident = dt.SparkEngine(session, n_shards=4)
    there = dt.solve(dt.Multinomial(), X, y, engine=resident, **options)
    np.testing.assert_array_equal(there.W.U, here.W.U)
    np.testing.assert_array_equal(there.W.s, here.W.s)
    assert (there.objective, there.gap) == (here.objective, here.gap)
    # One round of every kind and no run: each is a Spark job.
    map_reduce = dt.SparkMapReduceEngine(session, n_shards=3)
    assert_same_rounds(dt.Multinomial(), map_reduce, None, X, y)


@pytest.mark.parametrize("fixture", ["spark", "local_cluster", "standalone"])
def test_workers_are_processes_of_their_own(fixture: str, request: pytest.FixtureRequest) -> None:
    session: SparkSession = request.getfixturevalue(fixture)
    X = np.ones((4, 1))
    rows = ArrayRows.examined(X, None, lambda X, y: Examined(X, y, (1, 1)))
    workers = dt.SparkEngine(session, n_shards=4, n_workers=2).start(WhoAmI(), rows)
    try:
        executors = executor_pids(session)  # both are there: two workers were waited for
        assert len(executors) == (0 if fixture == "spark" else 2)
        assert driver_pid(session) not in executors
        pids = {int(reply[0]) for reply in workers.gather("pid")}
        assert len(pids) == 2
        assert pids <= set(python_worker_pids(session))
        assert os.getpid() not in pids
    finally:
        workers.close()
