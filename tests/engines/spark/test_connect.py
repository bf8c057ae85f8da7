"""Spark Connect: a server in a process of its own, and a client that has no Spark but Connect's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clusters import PATIENCE, ending, kill_session, spark_environment, spark_home

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

CLIENT = """
import sys
import threading

import numpy as np
import pandas as pd
from pyspark.sql import SparkSession

import dfwtrace as dt

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
X, y, _ = dt.datasets.make_multiclass(n=101, d=11, m=6, rank=3, random_state=4)
options = {"radius": 10.0, "solver": "dfw", "max_iter": 4, "certify_every": 2}
here = dt.solve(dt.Multinomial(), X, y, engine=dt.LocalEngine(n_shards=4), **options)


def check(result):
    assert np.array_equal(result.W.U, here.W.U) and np.array_equal(result.W.V, here.W.V)
    assert (result.objective, result.gap) == (here.objective, here.gap)


def refused(kind, words, call):
    try:
        call()
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"no {kind.__name__}")


def solve(engine, *data, **columns):
    return dt.solve(dt.Multinomial(), *data, engine=engine, **columns, **options)


engine = dt.SparkEngine(spark, n_shards=4, n_workers=2)
check(solve(engine, X, y))
print("arrays")
frame = spark.createDataFrame(pd.DataFrame({"features": list(X), "label": y}))
check(solve(engine, frame, features="features", label="label"))
print("frame")
refused(ValueError, "n_workers must be given", lambda: solve(dt.SparkEngine(spark), X, y))
refused(TypeError, "Spark Connect", lambda: dt.SparkMapReduceEngine(spark))
# An address that leads nowhere, as from behind a firewall.
lost = dt.SparkEngine(spark, 4, 2, host="127.0.0.1", bind="127.0.0.2", start_timeout=20.0)
refused(ConnectionError, "no way from", lambda: solve(lost, X, y))
print("refusals")
assert not [thread for thread in threading.enumerate() if thread.name.startswith("dfwtrace")]
assert spark.range(10).count() == 10
spark.stop()
refused(RuntimeError, "stopped", lambda: solve(engine, X, y))
print("stopped")
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of a Connect server on ``local[2]``."""
    log = tmp_path / "connect.log"
    settings = {
        "spark.connect.grpc.binding.port": "0",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.ui.enabled": "false",
        # The server's own address, which is no address of the client.
        "spark.driver.host": "127.0.0.3",
        "spark.driver.bindAddress": "127.0.0.3",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    command = [
        str(spark_home(tmp_path) / "bin" / "spark-class"),
        "org.apache.spark.deploy.SparkSubmit",
        *("--master", "local[2]", "--driver-memory", "512m"),
        *(word for name, value in settings.items() for word in ("--conf", f"{name}={value}")),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"),
    ]
    environment = {**os.environ, **spark_environment(tmp_path)}
    with (
        log.open("wb") as out,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=environment,
            cwd=tmp_path,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield f"sc://127.0.0.1:{wait_for_port(log, process)}"
        finally:
            kill_session(process.pid)


def wait_for_port(log: Path, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + PATIENCE
    while (found := re.search(r"server started at: .*:(\d+)", log.read_text())) is None:
        assert process.poll() is None, ending(log)
        assert time.monotonic() < deadline, ending(log)
        time.sleep(0.1)
    return found[1]


def test_a_client_of_spark_connect_gets_the_same_bits(server: str, tmp_path: Path) -> None:
    script = tmp_path / "client.py"
    script.write_text(CLIENT)
    client = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", str(script), server],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert client.stdout.split() == ["arrays", "frame", "refusals", "stopped"], client.stderr
    assert client.returncode == 0, client.stderr
