"""A worker's sign of life, with the time for which it has been at work without progress."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Seconds between two signs of life.
INTERVAL = 1.0
# Seconds of processor time that count as progress; the heartbeat itself uses far less.
_PROGRESS = 0.05


class Heartbeat:
    """Calls `send` once in a while, in a thread of its own.

    It is given the seconds for which the worker has been at work without using the processor: a
    thread that sleeps, or waits for a lock or for data, for ever.
    """

    def __init__(self, send: Callable[[float], None]) -> None:
        self._send = send
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="dfwtrace-heartbeat", daemon=True)
        self._working = False
        self._progress = (0.0, 0.0)  # the clock, and the processor time, when there last was some

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Mark the block as work; a worker that waits for others is not stalled."""
        self._progress = (time.monotonic(), time.process_time())
        self._working = True
        try:
            yield
        finally:
            self._working = False

    def stalled(self) -> float:
        """Seconds at work without progress."""
        if not self._working:
            return 0.0
        now, used = time.monotonic(), time.process_time()
        since, used_then = self._progress
        if used - used_then > _PROGRESS:
            self._progress = (now, used)
            return 0.0
        return now - since

    def _beat(self) -> None:
        while not self._end.wait(INTERVAL):
            try:
                self._send(self.stalled())
            except OSError:
                return
