"""What the engines need of a Spark session, classic or Connect, said in their own words."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import time
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

# Executors of a cluster that has just started, or lost one, register one after another.
_REGISTRATION_SECONDS = 10.0


def is_frame(X: Any) -> bool:
    """Whether X is a Spark DataFrame; told without importing pyspark."""
    kind = type(X)
    return kind.__module__.startswith("pyspark.sql.") and hasattr(X, "mapInArrow")


def find_session(spark: Any) -> Any:
    """The session given, or the active one, or a new one; says what to do where there is none."""
    for package in ("pyspark", "pyarrow", "pandas"):
        if importlib.util.find_spec(package) is None:
            raise ImportError(f"Spark needs {package}: pip install 'dfwtrace[spark]'.")
    from pyspark.sql import SparkSession

    if spark is None:
        spark = SparkSession.getActiveSession()
    if spark is None:
        remote = bool(os.environ.get("SPARK_REMOTE"))  # Connect: the Java is the server's
        if not (remote or os.environ.get("JAVA_HOME") or shutil.which("java")):
            raise RuntimeError(
                "Spark needs Java 17 or later: install one (on Debian: apt-get install "
                "openjdk-17-jre-headless) or set JAVA_HOME to where it is."
            )
        spark = SparkSession.builder.getOrCreate()  # that of another thread keeps its name
    if not hasattr(spark, "range") or not hasattr(spark, "createDataFrame"):
        raise TypeError(f"spark must be a SparkSession, got an object of {type(spark).__name__}.")
    return spark


class Cluster:
    """One Spark session. Of its methods only those that start jobs change anything in it."""

    def __init__(self, spark: Any) -> None:
        self.spark = find_session(spark)
        self.connect = type(self.spark).__module__.startswith("pyspark.sql.connect")

    def check_alive(self) -> None:
        """Refuse a session whose context has been stopped."""
        if self.connect:
            stopped = bool(getattr(self.spark, "is_stopped", False))
        else:
            context = self.spark.sparkContext
            try:
                stopped = context._jsc is None or bool(context._jsc.sc().isStopped())
            except Exception:  # the JVM itself is gone
                stopped = True
        if stopped:
            raise RuntimeError("spark: its SparkContext has been stopped; start a new session.")

    def check_barrier(self) -> None:
        """Refuse what barrier jobs cannot live with."""
        if self.setting("spark.dynamicAllocation.enabled", "false").lower() == "true":
            raise RuntimeError(
                "spark.dynamicAllocation.enabled must be false for resident workers (Spark's "
                "barrier jobs do not go with it); or take SparkMapReduceEngine."
            )

    def setting(self, name: str, default: str) -> str:
        """A setting of the cluster or of the session."""
        if not self.connect:
            return str(self.spark.sparkContext.getConf().get(name, default))
        try:
            return str(self.spark.conf.get(name, default))
        except Exception:  # Connect refuses to tell some
            return default

    @property
    def task_cpus(self) -> int:
        return int(self.setting("spark.task.cpus", "1"))

    def slots(self) -> int:
        """Tasks that the executors which have registered can run at once."""
        scala = self.spark.sparkContext._jsc.sc()
        profile = scala.resourceProfileManager().defaultResourceProfile()
        return int(scala.maxNumConcurrentTasks(profile))

    def processors(self, n_tasks: int) -> int:
        """That so many tasks have at the most, as far as can be told now."""
        if not self.connect:
            with suppress(Exception):  # a context that has been stopped, which is refused elsewhere
                n_tasks = min(n_tasks, max(1, self.slots()))
        return self.task_cpus * n_tasks

    def has_running_tasks(self, group: str) -> bool:
        """Whether a task of the group runs now; Connect does not tell."""
        if self.connect:
            return True
        tracker = self.spark.sparkContext.statusTracker()
        jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(group)]
        stages = [tracker.getStageInfo(number) for job in jobs if job for number in job.stageIds]
        return any(stage is not None and stage.numActiveTasks > 0 for stage in stages)

    def wait_for_slots(self, wanted: int, patience: float) -> int:
        """Slots, as soon as there are as many as wanted, or once no more executors come.

        Parameters
        ----------
        wanted : int
        patience : float
            Seconds to wait for the first executor; after it, more are waited for a little only.
        """
        here = re.fullmatch(r"local(\[.*\])?", self.setting("spark.master", "")) is not None
        known, give_up = 0, time.monotonic() + patience
        while True:
            self.check_alive()
            slots = self.slots()
            if slots != known:
                known, give_up = slots, time.monotonic() + _REGISTRATION_SECONDS
            if slots >= wanted or here or time.monotonic() > give_up:
                return slots
            time.sleep(0.1)

    def _expected_slots(self) -> int:
        """Those that there will be once all executors have registered, as far as settings tell."""
        instances = int(self.setting("spark.executor.instances", "0"))
        if instances:
            cores = int(self.setting("spark.executor.cores", "1"))
            return instances * max(1, cores // self.task_cpus)
        most = int(self.setting("spark.cores.max", "0")) // self.task_cpus
        return most or max(1, self.slots())

    def choose_workers(self, n_workers: int | None, n_shards: int, patience: float) -> int:
        """How many workers to start: as many as asked for, or as shards and slots allow."""
        if self.connect:
            if n_workers is None:
                raise ValueError(
                    "n_workers must be given with Spark Connect, which does not tell how many "
                    "tasks can run at once."
                )
            return n_workers
        wanted = min(n_shards, self._expected_slots()) if n_workers is None else n_workers
        slots = self.wait_for_slots(wanted, patience)
        if slots == 0:
            raise RuntimeError(
                f"spark: no executor has registered within {patience:g} s (start_timeout), so no "
                "worker can be started."
            )
        if n_workers is not None and n_workers > slots:
            raise ValueError(
                f"n_workers is {n_workers}, but the cluster can run only {slots} tasks at once "
                f"(spark.task.cpus is {self.task_cpus})."
            )
        return min(n_shards, slots) if n_workers is None else n_workers

    def driver_host(self) -> str:
        """This process's address, as executors know it."""
        if not self.connect:
            return self.setting("spark.driver.host", "127.0.0.1")
        remote = urlsplit(str(getattr(self.spark.client, "host", "") or "localhost"))
        host = remote.hostname or remote.path or "localhost"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((host, 9))  # sends nothing: asks which interface leads there
            except OSError:
                return "127.0.0.1"
            return str(probe.getsockname()[0])

    def start_group(self, group: str, description: str) -> None:
        """Put this thread's jobs into a group."""
        if self.connect:
            self.spark.addTag(group)
        else:
            self.spark.sparkContext.setJobGroup(group, description, interruptOnCancel=True)

    def cancel_group(self, group: str) -> None:
        """End all jobs of a group, from any thread."""
        if self.connect:
            self.spark.interruptTag(group)
        else:
            self.spark.sparkContext.cancelJobGroup(group)
