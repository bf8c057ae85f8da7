"""A Spark session, classic or Connect: what it can run, and jobs that can be cancelled."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

from dfwtrace.engines.base import WorkerError, WorkersLostError
from dfwtrace.threads import DeferredInterrupt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

Outcome = TypeVar("Outcome")

# Executors of a cluster that has just started, or lost one, register one after another.
_REGISTRATION_SECONDS = 10.0
# Seconds between two attempts to cancel a job that may just be about to begin.
_CANCEL_EVERY = 0.2
# What a worker cannot do without.
_PACKAGES = "dfwtrace|numba|numpy|pandas|pyarrow|scipy|sklearn|threadpoolctl"


def find_session(spark: SparkSession | None) -> SparkSession:
    """The session given, or the active one, or a new one."""
    for package in ("pyspark", "pyarrow", "pandas"):
        if importlib.util.find_spec(package) is None:
            raise ImportError(f"Spark needs {package}: pip install 'dfwtrace[spark]'.")
    from pyspark.sql import SparkSession

    if spark is None:
        spark = SparkSession.getActiveSession()
    if spark is None:
        java = os.environ.get("JAVA_HOME") or shutil.which("java")
        if not (java or os.environ.get("SPARK_REMOTE")):  # with Connect it is the server's
            raise RuntimeError(
                "Spark needs Java 17 or later: install one (on Debian: apt-get install "
                "openjdk-17-jre-headless) or set JAVA_HOME to where it is."
            )
        spark = SparkSession.builder.getOrCreate()  # that of another thread keeps its name
    if not hasattr(spark, "range") or not hasattr(spark, "createDataFrame"):
        raise TypeError(f"spark must be a SparkSession, got an object of {type(spark).__name__}.")
    return spark


class Cluster:
    """One Spark session, and what it can run."""

    def __init__(self, spark: SparkSession | None) -> None:
        self.spark = find_session(spark)
        self.connect = type(self.spark).__module__.startswith("pyspark.sql.connect")
        if self.connect or os.environ.get("PYSPARK_PYTHON"):
            return
        # PySpark reads only PYSPARK_PYTHON, and else takes the first `python3` on the PATH, which
        # is another one in a virtual environment that is not activated.
        here = re.match(r"local\b", self.setting("spark.master", ""))
        chosen = self.setting("spark.pyspark.python", "") or (sys.executable if here else "")
        if chosen:
            self.spark.sparkContext.pythonExec = chosen

    def check_alive(self) -> None:
        stopped = True
        with suppress(Exception):  # the JVM itself is gone
            if self.connect:
                stopped = bool(self.spark.is_stopped)
            else:
                stopped = bool(self.spark.sparkContext._jsc.sc().isStopped())
        if stopped:
            raise RuntimeError("spark: its SparkContext has been stopped; start a new session.")

    def setting(self, name: str, default: str) -> str:
        if not self.connect:
            return str(self.spark.sparkContext.getConf().get(name, default))
        with suppress(Exception):  # Connect does not show all
            return str(self.spark.conf.get(name, default))
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
        """Processors that `n_tasks` tasks have at the most, as far as is known now."""
        if not self.connect:
            with suppress(Exception):  # a context that has been stopped, which is refused elsewhere
                n_tasks = min(n_tasks, max(1, self.slots()))
        return self.task_cpus * n_tasks

    def wait_for_slots(self, wanted: int, patience: float) -> int:
        """Slots: wait for the first executor with patience, and for more of them a little."""
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
        """Slots once all executors have registered, as far as settings say."""
        executor_slots = int(self.setting("spark.executor.cores", "1")) // self.task_cpus
        promised = int(self.setting("spark.executor.instances", "0")) * max(1, executor_slots)
        most = int(self.setting("spark.cores.max", "0")) // self.task_cpus
        return promised or most or max(1, self.slots())

    def choose_workers(self, n_workers: int | None, n_shards: int, patience: float) -> int:
        """How many workers to start: as many as given, or as shards and slots allow."""
        if self.connect:
            if n_workers is None:
                raise ValueError("n_workers must be given with Spark Connect.")
            return n_workers
        slots = self.wait_for_slots(n_workers or min(n_shards, self._expected_slots()), patience)
        if slots == 0:
            raise RuntimeError(
                f"spark: no executor has registered within {patience:g} s (start_timeout), so no "
                "worker can be started."
            )
        if (n_workers or 0) > slots:
            raise ValueError(
                f"n_workers is {n_workers}, but the cluster can run only {slots} tasks at once "
                f"(spark.task.cpus is {self.task_cpus})."
            )
        return n_workers or min(n_shards, slots)

    def driver_host(self) -> str:
        if not self.connect:
            return self.setting("spark.driver.host", "127.0.0.1")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
            # Sends nothing: asks which interface leads there.
            probe.connect((self.spark.client.host, 9))
            return str(probe.getsockname()[0])
        return "127.0.0.1"

    def collect(self, frame: DataFrame) -> list[Row]:
        """The rows of a DataFrame, from a job that Ctrl-C ends."""
        return run_job(self, "dfwtrace: first pass over the rows", frame.collect)


class BackgroundJob(Generic[Outcome]):
    """Runs `action`, which starts Spark jobs, in a thread and a job group of its own.

    The caller's thread keeps its own job group, and Ctrl-C reaches it while it waits: a thread that
    is within a call to the JVM cannot make another one to cancel the job. If it `prepares`, its
    tasks may run for long before the workers call, such as to read a DataFrame.
    """

    def __init__(
        self,
        cluster: Cluster,
        description: str,
        action: Callable[[], Outcome],
        prepares: bool = False,
    ) -> None:
        self._cluster, self._prepares = cluster, prepares
        self._group = f"dfwtrace-{uuid.uuid4().hex}"
        self._description, self._action = description, action
        self.outcome: Future[Outcome] = Future()
        kind = threading.Thread
        if not cluster.connect:
            from pyspark import InheritableThread

            kind = InheritableThread  # its jobs have the local properties of this thread's
        self._thread = kind(target=self._run, name="dfwtrace-job", daemon=True)

    def start(self) -> None:
        with DeferredInterrupt():  # else the thread may never get to run, and never end
            self._thread.start()

    def _run(self) -> None:
        if not self.outcome.set_running_or_notify_cancel():
            return
        spark = self._cluster.spark
        try:
            if self._cluster.connect:
                spark.addTag(self._group)
            else:
                spark.sparkContext.setJobGroup(self._group, self._description, True)
            self.outcome.set_result(self._action())
        except BaseException as error:
            self.outcome.set_exception(error)

    def failure(self) -> Exception | None:
        if not self.outcome.done():
            return None
        self._cluster.check_alive()
        message = str(self.outcome.exception() or "")
        check_python(message)
        return WorkersLostError(
            f"the Spark job ended before its workers were ready ({reason(message)})",
            python_traceback(message) or message or None,
        )

    def preparing(self) -> bool:
        """Whether a task of its runs now; with Connect this is not known."""
        if not self._prepares or self._cluster.connect:
            return self._prepares
        tracker = self._cluster.spark.sparkContext.statusTracker()
        jobs = map(tracker.getJobInfo, tracker.getJobIdsForGroup(self._group))
        stages = [tracker.getStageInfo(number) for job in jobs if job for number in job.stageIds]
        return any(stage is not None and stage.numActiveTasks > 0 for stage in stages)

    def cancel(self) -> None:
        if not self.outcome.cancel() and self.outcome.running():
            spark = self._cluster.spark
            with suppress(Exception):  # a context that has been stopped has no jobs
                if self._cluster.connect:
                    spark.interruptTag(self._group)
                else:
                    spark.sparkContext.cancelJobGroup(self._group)

    def join(self, timeout: float) -> bool:
        return self.outcome.cancelled() or not wait([self.outcome], timeout).not_done


def run_job(cluster: Cluster, description: str, action: Callable[[], Outcome]) -> Outcome:
    """Return what the action returns. Ctrl-C ends its jobs."""
    job = BackgroundJob(cluster, description, action)
    try:
        job.start()
        while not job.join(1.0):
            pass
    finally:
        while not job.join(0.0):
            job.cancel()
            job.join(_CANCEL_EVERY)
    check_python(str(job.outcome.exception()))
    return job.outcome.result()


def reason(message: str) -> str:
    """The line of Spark's account of a failure that says most."""
    lines = [line.strip(" :") for line in message.splitlines() if line.strip()]
    errors = [line for line in lines if "Exception: " in line or "Error: " in line]
    return (errors or lines or ["no reason was given"])[0][:300]


def check_python(message: str) -> None:
    """Say what to do if the workers' Python lacks packages or is of another version."""
    fault = re.search(
        rf"No (module named|package metadata was found for) '?({_PACKAGES})\b[\w.]*|"
        'PYTHON_VERSION_MISMATCH|Cannot run program "[^"]+"',
        message,
    )
    if fault is not None:
        raise WorkerError(
            f"the Python of Spark's workers cannot be used ({fault[0]}): set PYSPARK_PYTHON, or "
            "spark.pyspark.python, to one that has dfwtrace[spark] on every machine, and the "
            f"version of the driver's ({sys.executable})."
        )


def python_traceback(message: str) -> str | None:
    """The Python traceback within Spark's account of a failed task, with those it came from."""
    # A blank line ends it, unless the next paragraph links it to another one.
    end = r"(?=\n\s*\n(?!During handling|The above exception|Traceback)|\n\tat |\Z)"
    found = re.search(r"Traceback \(most recent call last\):.*?" + end, message, re.S)
    return found.group(0) if found else None
