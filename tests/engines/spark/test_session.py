"""What is known of a session: how much runs at once; and what is said where one is missing."""

from __future__ import annotations

import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest
from tests.engines.spark.runs import told

import dfwtrace as dt
from dfwtrace.engines import is_frame
from dfwtrace.engines.spark.session import Cluster


def run(code: str, **environment: str) -> str:
    """What a new process prints that runs this code with this environment and no other."""
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_base_install_never_imports_spark() -> None:
    code = """
import sys

import dfwtrace as dt

X, y, _ = dt.datasets.make_multiclass(n=20, d=3, m=2, rank=1, seed=0)
dt.solve(dt.Multinomial(), X, y, radius=1.0, epochs=1)
print(sorted({"pyspark", "pyarrow", "py4j", "pandas"} & set(sys.modules)))
"""
    assert run(code) == "[]"


@pytest.mark.parametrize("package", ["pyspark", "pyarrow", "pandas"])
@pytest.mark.parametrize("engine", [dt.SparkEngine, dt.SparkMapReduceEngine])
def test_a_missing_package_is_named(
    package: str, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"needs {package}: pip install 'dfwtrace\[spark\]'\."):
        engine()


def test_a_missing_java_is_named() -> None:
    pytest.importorskip("pyspark")
    code = """
import dfwtrace as dt

try:
    dt.SparkEngine()
except RuntimeError as error:
    print(error)
"""
    said = run(code, PATH="/nowhere")
    assert said.startswith("Spark needs Java 17 or later: install one")
    assert "JAVA_HOME" in said


def test_spark_connect_needs_no_java_here() -> None:
    pytest.importorskip("pyspark")
    code = """
import os

import dfwtrace as dt

print(dt.SparkEngine(n_workers=1).cluster.connect, flush=True)
os._exit(0)  # a client would first say goodbye to a server, and there is none
"""
    assert run(code, PATH="/nowhere", SPARK_REMOTE="sc://127.0.0.1:1") == "True"


def test_without_a_session_the_active_one_is_taken(spark: Any) -> None:
    assert dt.SparkEngine().cluster.spark is spark


def test_a_data_frame_is_told_from_other_things(spark: Any) -> None:
    assert is_frame(spark.range(1))
    assert not is_frame([[1.0]])
    assert not is_frame(spark)


def test_processors_are_those_of_the_tasks_that_run_at_once(spark: Any) -> None:
    for engine in (dt.SparkEngine, dt.SparkMapReduceEngine):
        assert [engine(spark, n_shards).n_jobs for n_shards in (1, 2, 8)] == [1, 2, 2]
    assert dt.SparkEngine(spark, 8, n_workers=1).n_jobs == 1
    with told(spark, {"spark.task.cpus": "3"}):
        assert dt.SparkEngine(spark, 8).n_jobs == 6


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, 2),  # the slots that are there
        ({"spark.executor.instances": "3"}, 3),
        ({"spark.executor.instances": "3", "spark.executor.cores": "4"}, 12),
        (
            {
                "spark.executor.instances": "3",
                "spark.executor.cores": "5",
                "spark.task.cpus": "2",
            },
            6,
        ),
        ({"spark.cores.max": "7", "spark.task.cpus": "2"}, 3),
    ],
)
def test_executors_are_waited_for_that_the_settings_promise(
    spark: Any, settings: dict[str, str], wanted: int
) -> None:
    with told(spark, settings):
        assert Cluster(spark)._expected_slots() == wanted


def test_once_all_executors_are_there_nobody_waits(
    local_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(seconds: float) -> None:
        raise AssertionError("it waited")

    cluster = Cluster(local_cluster)
    assert cluster.wait_for_slots(2, 60.0) == 2
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=refuse)
    monkeypatch.setattr("dfwtrace.engines.spark.session.time", clock)
    assert cluster.choose_workers(None, n_shards=8, patience=60.0) == 2
    assert cluster.choose_workers(1, n_shards=8, patience=60.0) == 1
