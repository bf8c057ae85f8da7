"""Spark jobs one after the other, in a thread and a job group of their own."""

from __future__ import annotations

import threading
import uuid
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

from dfwtrace.engines.spark.session import Cluster

Outcome = TypeVar("Outcome")

# Seconds between two attempts to cancel a job that may just be about to begin.
_CANCEL_EVERY = 0.2


class JobThread:
    """Runs one action at a time, each of which may start Spark jobs.

    The caller's thread keeps its own job group and description, and Ctrl-C reaches it while it
    waits: a thread that is within a call to the JVM cannot make another one to cancel the job.

    Parameters
    ----------
    cluster : Cluster
    description : str
        What Spark's user interface says of the jobs.
    """

    def __init__(self, cluster: Cluster, description: str) -> None:
        from pyspark import InheritableThread

        self._cluster = cluster
        self._group = f"dfwtrace-{uuid.uuid4().hex}"
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._ended = threading.Event()  # see `BackgroundJob`
        # It knows nothing of this object, so that it ends also if nobody calls `close`.
        self._thread: threading.Thread = InheritableThread(
            target=_work,
            args=(self._queue, self._ended, cluster, self._group, description),
            daemon=True,
        )
        self._thread.name = "dfwtrace-rounds"
        self._thread.start()
        self._stop = weakref.finalize(self, self._queue.put, None)

    def run(self, action: Callable[[], Outcome]) -> Outcome:
        """The outcome of the action. If the wait for it is broken off, its jobs are cancelled."""
        future: Future[Outcome] = Future()
        self._queue.put((action, future))
        try:
            return future.result()
        finally:
            while not future.done():
                self._cancel()
                with suppress(TimeoutError):
                    future.exception(_CANCEL_EVERY)

    def close(self) -> None:
        """End the thread, and whatever it may still be at after a second Ctrl-C."""
        self._stop()
        while not self._ended.wait(_CANCEL_EVERY):
            self._cancel()

    def _cancel(self) -> None:
        with suppress(Exception):  # a context that has been stopped has no jobs
            self._cluster.cancel_group(self._group)


def _work(
    queue: SimpleQueue[Any],
    ended: threading.Event,
    cluster: Cluster,
    group: str,
    description: str,
) -> None:
    while (order := queue.get()) is not None:
        action, future = order
        try:
            cluster.start_group(group, description)
            future.set_result(action())
        except BaseException as error:
            future.set_exception(error)
        del order, action, future  # and with them what they hold, while this thread waits
    ended.set()
