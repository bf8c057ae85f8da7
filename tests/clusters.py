"""Real Spark for the tests: one session at a time, a standalone cluster, and their processes."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from pyspark.sql import SparkSession

LOCAL = "local[2]"
LOCAL_CLUSTER = "local-cluster[2,1,1024]"

PATIENCE = 120.0  # seconds; only a machine that is broken or very busy needs more than ten of them

# These Java processes are short-lived: the second compiler would take more time than it gives.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"

SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    # A Python worker that hangs is killed so soon after its task; Spark's own value is 2 s.
    "spark.python.task.killTimeout": "200ms",
    # What an executor held that is gone is not asked for thrice, with 5 s between.
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "200ms",
    # Tests kill executors on purpose: the master must never give up on replacing them.
    "spark.deploy.maxExecutorRetries": "-1",
    # A barrier job that finds too few slots looks again after a second, not after 15, and as long
    # as executors may take to start on a busy machine.
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "300",
}

# On this machine, what workers import is imported once and not in each of them.
WARM_DAEMON = {
    "spark.python.daemon.module": "dfwtrace_daemon",
    "spark.executorEnv.PYTHONPATH": str(Path(__file__).parent / "daemons"),
}


class Sessions:
    """Hands out the session of a master, and stops the one before: a process may have only one.

    Parameters
    ----------
    scratch : Path
        Where Spark keeps its files, so that none lands in the checkout or in the pip package.
    """

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._current: SparkSession | None = None
        self._key: object = None

    def on(self, master: str, settings: Mapping[str, str] | None = None) -> SparkSession:
        """The session on this master with these settings, started only where it is not running."""
        from pyspark.sql import SparkSession

        own = dict(settings or {})
        key = (master, tuple(sorted(own.items())))
        if self._current is not None and (self._key != key or not alive(self._current)):
            self.stop()
        if self._current is None:
            self._launch_jvm()
            builder = SparkSession.builder.master(master).appName("dfwtrace tests")
            warm = WARM_DAEMON if re.fullmatch(r"local\[\d+\]", master) else {}
            for name, value in {**SETTINGS, **warm, **own}.items():
                builder = builder.config(name, value)
            self._current = builder.getOrCreate()
            self._current.sparkContext.setLogLevel("ERROR")
            self._key = key
        return self._current

    def stop(self) -> None:
        """Stop the running session, if there is one; its JVM stays for the next."""
        if self._current is not None:
            self._current.stop()
            self._current = None

    def close(self) -> None:
        """Stop the session and end the JVM with every process that it started."""
        from pyspark import SparkContext

        self.stop()
        gateway = SparkContext._gateway
        if gateway is None:
            return
        SparkContext._gateway = SparkContext._jvm = None
        gateway.shutdown()
        with gateway.proc as jvm:  # closes its standard input, at which the JVM ends by itself
            jvm.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                jvm.wait(timeout=20)
            kill_session(jvm.pid)

    def _launch_jvm(self) -> None:
        """Start the JVM in a process session of its own, by which its descendants are found."""
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway

        if SparkContext._gateway is not None:
            return
        os.environ.update(spark_environment(self._scratch))
        conf = SparkConf(loadDefaults=False)
        conf.set("spark.driver.memory", SETTINGS["spark.driver.memory"])
        conf.set("spark.driver.extraJavaOptions", JAVA_OPTIONS)
        conf.set("spark.sql.warehouse.dir", str(self._scratch / "warehouse"))
        with warnings.catch_warnings():
            # PySpark forks with a preexec_fn, which Python 3.12 deprecates beside other threads.
            warnings.filterwarnings("ignore", "This process .* is multi-threaded")
            gateway = launch_gateway(conf, {"start_new_session": True})
        SparkContext._ensure_initialized(gateway=gateway)


class StandaloneCluster:
    """A master and its workers, each a process of its own on loopback, from the pip package.

    Use it in a ``with`` statement: at its end no process is left, executors and Python workers
    included, and if the process that started it dies, the cluster ends as well.

    Parameters
    ----------
    scratch : Path
        Where logs and work directories go; they stay after the end.
    n_workers : int
        Workers, each with one core and one gigabyte.
    patience : float
        Seconds that each process may take to be ready.
    """

    def __init__(self, scratch: Path, n_workers: int = 2, patience: float = PATIENCE) -> None:
        self.scratch = scratch
        self.n_workers = n_workers
        self.patience = patience
        self.url = ""
        self._daemons: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> StandaloneCluster:
        try:
            # Port 0: the system picks a free one, and the log says which. No other can take it.
            log = self._start("master", "master.Master", "--port", "0")
            self.url = self._wait_for(log, r"Starting Spark master at (spark://\S+)")
            logs = [
                self._start(
                    f"worker-{k}",
                    "worker.Worker",
                    *("--cores", "1", "--memory", "1g"),
                    *("--work-dir", str(self.scratch / f"work-{k}")),
                    self.url,
                )
                for k in range(self.n_workers)
            ]
            for log in logs:
                self._wait_for(log, r"(Successfully registered with master)")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def pids(self) -> set[int]:
        """Every process of the cluster: daemons, executors and their Python workers."""
        return {pid for daemon in self._daemons for pid in session_pids(daemon.pid)}

    def stop(self) -> None:
        """Kill every process of the cluster, and wait until none is left."""
        for daemon in self._daemons:
            kill_session(daemon.pid)
            with daemon:  # closes its pipe and reaps it
                pass
        self._daemons.clear()

    def _start(self, name: str, daemon: str, *arguments: str) -> Path:
        """Start a daemon; its log is returned."""
        log = self.scratch / f"{name}.log"
        spark_class = spark_home(self.scratch) / "bin" / "spark-class"
        command = [str(spark_class), f"org.apache.spark.deploy.{daemon}", "--host", "127.0.0.1"]
        environment = {
            **os.environ,
            **spark_environment(self.scratch),
            "SPARK_DAEMON_MEMORY": "256m",
            # No REST server either: its port is fixed.
            "SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1"
            " -Dspark.master.rest.enabled=false",
        }
        # The shell reads from a pipe that only we hold open: should we die, the daemon ends too.
        guard = '"$@" </dev/null & daemon=$!; { read -r; kill $daemon; } <&0 & wait $daemon'
        with log.open("wb") as out:
            self._daemons.append(
                subprocess.Popen(
                    ["bash", "-c", guard, "guard", *command, "--webui-port", "0", *arguments],
                    stdin=subprocess.PIPE,
                    stdout=out,
                    stderr=out,
                    env=environment,
                    start_new_session=True,
                )
            )
        return log

    def _wait_for(self, log: Path, pattern: str) -> str:
        """Wait until the log has a line with this pattern; return its first group."""
        deadline = time.monotonic() + self.patience
        while (found := re.search(pattern, log.read_text(errors="replace"))) is None:
            if any(daemon.poll() is not None for daemon in self._daemons):
                raise RuntimeError(f"a process has ended; {log} ends with:\n{ending(log)}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"no {pattern!r} yet; {log} ends with:\n{ending(log)}")
            time.sleep(0.05)
        return found[1]


def ending(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]


def alive(session: SparkSession) -> bool:
    """Whether the session's context still runs: a test may have stopped it, or killed its JVM."""
    context = session.sparkContext._jsc
    try:
        return context is not None and not context.sc().isStopped()
    except Exception:  # py4j's many ways to say that the JVM is gone
        return False


def spark_environment(scratch: Path) -> dict[str, str]:
    """What every Spark process must find in its environment."""
    return {
        "SPARK_HOME": str(spark_home(scratch)),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(scratch / "local"),
        "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


def spark_home(scratch: Path) -> Path:
    """The pip package, which is a whole Spark, seen from a directory where Spark may write.

    The executors of ``local-cluster`` keep their logs in ``$SPARK_HOME/work``, wherever that is.
    """
    import pyspark

    home = scratch / "home"
    if not home.exists():
        home.mkdir()
        for entry in Path(pyspark.__path__[0]).iterdir():
            if entry.name != "work":
                (home / entry.name).symlink_to(entry)
    return home


def executor_pids(session: SparkSession) -> list[int]:
    """The JVMs of the session's executors; in ``local[n]`` there are none."""
    port = session.sparkContext.getConf().get("spark.driver.port")
    driver = f"spark://CoarseGrainedScheduler@127.0.0.1:{port}"
    return sorted(pid for pid in all_pids() if driver in arguments_of(pid))


def python_worker_pids(session: SparkSession) -> list[int]:
    """The session's Python workers: what the ``pyspark.daemon`` of each executor has forked.

    Spark keeps idle workers for the next task, so a worker that is there need not be busy.
    """
    jvms = {*executor_pids(session), driver_pid(session)}
    modules = {"pyspark.daemon", WARM_DAEMON["spark.python.daemon.module"]}
    daemons = {
        pid for pid in all_pids() if parent_of(pid) in jvms and modules & {*arguments_of(pid)}
    }
    return sorted(pid for pid in all_pids() if parent_of(pid) in daemons)


def driver_pid(session: SparkSession) -> int:
    """The JVM of the driver."""
    return int(session.sparkContext._gateway.proc.pid)


def kill(pid: int) -> None:
    """Kill this process, as a machine that fails would, and wait until it is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    wait_until_gone({pid})


def kill_session(leader: int) -> None:
    """Kill every process of the session that this one leads, and wait until they are gone."""
    deadline = time.monotonic() + PATIENCE
    while pids := session_pids(leader):  # again: one that was just forked may have been missed
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {sorted(pids)} are still there after SIGKILL")
        time.sleep(0.02)


def wait_until_gone(pids: set[int]) -> None:
    """Wait until none of these processes runs."""
    deadline = time.monotonic() + PATIENCE
    while left := pids & set(all_pids()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {sorted(left)} are still there")
        time.sleep(0.02)


def session_pids(leader: int) -> set[int]:
    """The processes of a session: all that its leader started, whoever is their parent now."""
    return {pid for pid in all_pids() if stat_of(pid)[3:4] == [str(leader)]}


def all_pids() -> Iterator[int]:
    """Every process that runs; one that has ended and waits to be reaped is not among them."""
    for entry in os.listdir("/proc"):
        if entry.isdigit() and stat_of(int(entry))[:1] not in ([], ["Z"], ["X"]):
            yield int(entry)


def parent_of(pid: int) -> int:
    """The parent's id, or -1 where the process is gone."""
    return int((stat_of(pid)[1:2] or ["-1"])[0])


def arguments_of(pid: int) -> list[str]:
    """The command line; empty where the process is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return []


def stat_of(pid: int) -> list[str]:
    """State, parent, group, session and more of /proc/pid/stat; empty where it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()  # the name before it may hold spaces and parentheses
