"""One Spark job in a thread of its own, in a group of its own, so that it can be cancelled."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from dfwtrace.engines.failures import CrewLostError
from dfwtrace.engines.spark.session import Cluster

# Seconds between two attempts to cancel a job that may just be about to begin.
_CANCEL_EVERY = 0.2


class BackgroundJob:
    """Runs `action`, which starts Spark jobs; see `dfwtrace.engines.resident.assembly.Job`.

    Parameters
    ----------
    cluster : Cluster
    description : str
        What Spark's user interface says of it.
    action : callable
    prepares : bool
        Whether its tasks may run for long before the workers call, such as to read a DataFrame.
    """

    def __init__(
        self,
        cluster: Cluster,
        description: str,
        action: Callable[[], Any],
        prepares: bool = False,
    ) -> None:
        self._cluster, self._prepares = cluster, prepares
        self._group = f"dfwtrace-{uuid.uuid4().hex}"
        self._description, self._action = description, action
        self.outcome: Any = None
        self.error: BaseException | None = None
        self._cancelled = False
        # An event, and not the thread's own end: after Ctrl-C within `join`, Python 3.11 believes
        # that a thread which still runs has ended.
        self._ended = threading.Event()
        self._begun = False
        self._thread = _thread(cluster, self._run)

    def start(self) -> None:
        self._begun = True
        self._thread.start()

    def _run(self) -> None:
        try:
            self._cluster.start_group(self._group, self._description)
            if not self._cancelled:
                self.outcome = self._action()
        except BaseException as error:
            self.error = error
        finally:
            self._ended.set()

    def failure(self) -> Exception | None:
        if not self._ended.is_set():
            return None
        told = "" if self.error is None else str(self.error)
        self._cluster.check_alive()
        return CrewLostError(
            f"the Spark job ended before its workers were ready ({_first_line(told)})",
            python_traceback(told) or told or None,
        )

    def preparing(self) -> bool:
        return self._prepares and self._cluster.has_running_tasks(self._group)

    def cancel(self) -> None:
        self._cancelled = True
        if self._begun and not self._ended.is_set():
            with suppress(Exception):  # a context that has been stopped has no jobs
                self._cluster.cancel_group(self._group)

    def join(self, timeout: float) -> bool:
        return not self._begun or self._ended.wait(timeout)


def run_job(cluster: Cluster, description: str, action: Callable[[], Any]) -> Any:
    """What the action gives. Ctrl-C ends its jobs; the caller's own job group stays as it is."""
    job = BackgroundJob(cluster, description, action)
    try:
        job.start()
        while not job.join(1.0):
            pass
    finally:
        while not job.join(0.0):
            job.cancel()
            job.join(_CANCEL_EVERY)
    if job.error is not None:
        raise job.error
    return job.outcome


def _thread(cluster: Cluster, run: Callable[[], None]) -> threading.Thread:
    """A thread whose jobs have the local properties of this one's, such as a scheduler pool."""
    if cluster.connect:
        return threading.Thread(target=run, name="dfwtrace-job", daemon=True)
    from pyspark import InheritableThread

    thread: threading.Thread = InheritableThread(target=run, name="dfwtrace-job", daemon=True)
    return thread


def python_traceback(told: str) -> str | None:
    """The Python traceback within what Spark tells of a failed task, with those it came from."""
    # A blank line ends it, unless the next paragraph links it to another one.
    found = re.search(
        r"Traceback \(most recent call last\):"
        r".*?(?=\n\s*\n(?!During handling|The above exception|Traceback)|\n\tat |\Z)",
        told,
        re.S,
    )
    return found.group(0) if found else None


def _first_line(told: str) -> str:
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    return lines[0][:300] if lines else "it came to its end"
