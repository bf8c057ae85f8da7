"""What is known of a session: how much runs at once; and what is said where one is missing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import venv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.clusters import JAVA_OPTIONS
from tests.engines.spark.runs import with_settings

import dfwtrace as dt
from dfwtrace.engines import is_frame
from dfwtrace.engines.spark.session import Cluster, check_python


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

X, y, _ = dt.datasets.make_multiclass(n=20, d=3, m=2, rank=1, random_state=0)
dt.solve(dt.Multinomial(), X, y, radius=1.0, solver="dfw", max_iter=1)
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


OTHER_PYTHON = """
import os
import sys

import numpy as np
from pyspark.sql import SparkSession

import dfwtrace as dt
from dfwtrace.data.shards import ArrayRows, Examined


class Rows:
    def count(self, shard):
        return np.array([float(shard.n_rows)])


builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.log.level", "OFF").getOrCreate()
rows = ArrayRows.examined(np.ones((3, 2)), None, lambda X, y: Examined(X, y, (2, 1)))
workers = dt.SparkEngine(spark, 1).start(Rows(), rows)
print(workers.sum("count"))
workers.close()
os.environ["PYSPARK_PYTHON"] = spark.sparkContext.pythonExec = sys.argv[1]
for engine in (dt.SparkEngine, dt.SparkMapReduceEngine):
    try:
        engine(spark, 1).start(Rows(), rows)
    except dt.WorkerError as error:
        print(error)
"""


@pytest.mark.spark
def test_workers_have_the_python_of_this_process_or_one_that_is_named(tmp_path: Path) -> None:
    """On a local master, from an environment that is not activated; another must have it all."""
    venv.create(tmp_path / "bare", symlinks=True)
    bare = tmp_path / "bare" / "bin" / "python3"
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")},
        "PATH": f"{bare.parent}:{os.environ['PATH']}",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(tmp_path),
        "PYSPARK_SUBMIT_ARGS": f"--driver-java-options '{JAVA_OPTIONS}' pyspark-shell",
    }
    done = subprocess.run(
        [sys.executable, "-c", OTHER_PYTHON, bare],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    works, *refused = done.stdout.splitlines()
    assert works == "[3.]"
    assert len(refused) == 2, done.stdout
    for said in refused:
        assert said.startswith("the Python of Spark's workers cannot be used (No ")
        assert "set PYSPARK_PYTHON, or spark.pyspark.python, to one that has dfwtrace" in said
    assert "starting the workers again" not in done.stderr


def test_the_settings_name_the_python_of_the_workers(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = spark.sparkContext
    monkeypatch.setattr(context, "pythonExec", "python3")
    Cluster(spark)
    assert context.pythonExec == "python3"  # PYSPARK_PYTHON is set for the tests
    monkeypatch.delenv("PYSPARK_PYTHON")
    with with_settings(spark, {"spark.pyspark.python": "/opt/python"}):
        Cluster(spark)
    assert context.pythonExec == "/opt/python"
    Cluster(spark)
    assert context.pythonExec == sys.executable


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ("ModuleNotFoundError: No module named 'dfwtrace'", "No module named 'dfwtrace"),
        ("ModuleNotFoundError: No module named 'dfwtrace.engines.base'", "dfwtrace.engines.base"),
        ("ModuleNotFoundError: No module named 'pyarrow'", "No module named 'pyarrow"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version", "VERSION_MISMATCH"),
        ('Cannot run program "/opt/python3": error=2', 'Cannot run program "/opt/python3"'),
    ],
)
def test_a_python_that_will_not_do_is_refused(message: str, fault: str) -> None:
    with pytest.raises(dt.WorkerError, match=f"the Python of Spark's workers .*{fault}"):
        check_python(f"Job aborted.\n{message}\n\tat org.apache.spark")


@pytest.mark.parametrize("message", ["", "No module named 'my_features'", "numpy is fine"])
def test_other_failures_are_not_the_pythons(message: str) -> None:
    check_python(message)


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
    with with_settings(spark, {"spark.task.cpus": "3"}):
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
    with with_settings(spark, settings):
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
