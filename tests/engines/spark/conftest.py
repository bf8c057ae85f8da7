"""Data for several modules, and what every run is held to: nothing of it is left behind."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from tests.engines.spark import programs, runs
from tests.engines.spark.runs import (
    active_jobs,
    broadcast_files,
    our_sockets,
    our_threads,
    persisted,
    wait_until,
)

import dfwtrace as dt


@pytest.fixture
def by_value(by_value: None) -> None:
    """Workers cannot import the modules that tests share either."""
    from pyspark import cloudpickle

    for module in (runs, programs):
        cloudpickle.register_pickle_by_value(module)


@pytest.fixture(scope="session")
def classes() -> tuple[Any, Any]:
    X, y, _ = dt.datasets.make_multiclass(n=211, d=17, m=9, rank=3, random_state=3)
    return X, y


@pytest.fixture(scope="session")
def targets() -> tuple[Any, Any]:
    X, Y, _ = dt.datasets.make_multitask(n=211, d=17, m=9, rank=3, noise=0.2, random_state=3)
    return X, Y


def no_more_than(sockets: set[tuple[str, str]]) -> bool:
    gc.collect()  # PySpark leaves some of its own to it
    return our_sockets() <= sockets


@pytest.fixture
def tidy(spark: Any) -> Iterator[None]:
    """A run leaves no thread, socket, job or stored data, and the session and its settings."""
    settings = settings_of(spark)
    spark.range(1).count()
    gc.collect()
    sockets, files = our_sockets(), broadcast_files(spark)
    yield
    wait_until(lambda: our_threads() == [])
    wait_until(lambda: no_more_than(sockets))
    wait_until(lambda: active_jobs(spark) == [])
    wait_until(lambda: list(spark.sparkContext.statusTracker().getActiveStageIds()) == [])
    assert persisted(spark) == 0
    assert broadcast_files(spark) - files == set()
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None
    assert settings_of(spark) == settings
    assert spark.range(10).count() == 10


@pytest.fixture
def own_group(spark: Any) -> Iterator[None]:
    """The caller has a job group, and has it still after the test."""
    spark.sparkContext.setJobGroup("mine", "my own work")
    yield
    group = spark.sparkContext.getLocalProperty("spark.jobGroup.id")
    spark.sparkContext._jsc.clearJobGroup()
    assert group == "mine"


@pytest.fixture
def nothing_left(spark: Any, own_group: None) -> Iterator[None]:
    """After a test of map-reduce Spark's storage and our threads are as before."""
    files, rdds = broadcast_files(spark), persisted(spark)
    yield
    assert persisted(spark) == rdds
    assert broadcast_files(spark) - files == set()
    wait_until(lambda: our_threads() == [])


def settings_of(spark: Any) -> list[str]:
    """A line for each; asked for at once, for each question to the JVM takes a while."""
    lines = spark.sparkContext._conf._jconf.toDebugString().split("\n")
    # Spark itself spells this one out at its first query.
    return [line for line in lines if not line.startswith("spark.sql.warehouse.dir=")]
