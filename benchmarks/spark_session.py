"""The one Spark session that all Spark benchmarks of a run share."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from benchmarks.provenance import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[2]"
WORKERS = 2

_JAVA = ROOT / "tools" / "java.sh"
_SETTINGS = {
    "spark.driver.memory": "4g",  # the map-reduce engine's states live in the JVM
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
}
_started: list[SparkSession] = []


class NoSparkError(Exception):
    """Spark cannot run here; the text says what is missing."""


def session(master: str = MASTER) -> SparkSession:
    """The session that is running, or a new one, which `stop` ends."""
    for package in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(package) is None:
            raise NoSparkError(f"{package} is not installed (pip install 'dfwtrace[spark]')")
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    if subprocess.run([_JAVA, "check"]).returncode:
        raise NoSparkError("there is no Java 17 or later (tools/java.sh installs one)")
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName("dfwtrace benchmarks")
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    _started.append(spark)
    return spark


def send_by_value(module: str) -> None:
    """Send what a module defines to the workers whole: `benchmarks` is not installed there."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[module])


def stop() -> None:
    """Stop the session if it was started here."""
    while _started:
        _started.pop().stop()
