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


class BackgroundJob:
    """Runs `action` at once; see `dfwtrace.engines.resident.crew.Job`."""

    def __init__(self, cluster: Cluster, description: str, action: Callable[[], Any]) -> None:
        self._cluster = cluster
        self._group = f"dfwtrace-{uuid.uuid4().hex}"
        self._description, self._action = description, action
        self._error: BaseException | None = None
        self._cancelled = False
        self._thread = _thread(cluster, self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._cluster.start_group(self._group, self._description)
            self._action()
        except BaseException as error:
            self._error = error

    def failure(self) -> Exception | None:
        if self._thread.is_alive():
            return None
        told = "" if self._error is None else str(self._error)
        self._cluster.check_alive()
        return CrewLostError(
            f"the Spark job ended before its workers were ready ({_first_line(told)})",
            python_traceback(told) or told or None,
        )

    def cancel(self) -> None:
        if self._thread.is_alive():
            with suppress(Exception):  # a context that has been stopped has no jobs
                self._cluster.cancel_group(self._group)

    def join(self, timeout: float) -> bool:
        self._thread.join(timeout)
        return not self._thread.is_alive()


def _thread(cluster: Cluster, run: Callable[[], None]) -> threading.Thread:
    """A thread whose jobs have the local properties of this one's, such as a scheduler pool."""
    if cluster.connect:
        return threading.Thread(target=run, name="dfwtrace-job", daemon=True)
    from pyspark import InheritableThread

    thread: threading.Thread = InheritableThread(target=run, name="dfwtrace-job", daemon=True)
    return thread


def python_traceback(told: str) -> str | None:
    """The Python traceback within what Spark tells of a failed task."""
    found = re.search(r"Traceback \(most recent call last\):.*?(?=\n\s*\n|\n\tat |\Z)", told, re.S)
    return found.group(0) if found else None


def _first_line(told: str) -> str:
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    return lines[0][:300] if lines else "it came to its end"
