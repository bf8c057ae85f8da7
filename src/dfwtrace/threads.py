"""Threads that share out pieces of work, and a Ctrl-C that waits for them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Self


def usable_cores() -> int:
    """Number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Threads:
    """The calling thread and `n_jobs - 1` others, which are started when there is work for them."""

    def __init__(self, n_jobs: int) -> None:
        self._helpers = n_jobs - 1
        self._pool = ThreadPoolExecutor(self._helpers, "dfwtrace") if n_jobs > 1 else None

    def each(self, work: Callable[[int], None], count: int) -> None:
        """Run `work` on 0 … count-1; each thread, the calling one too, takes the next one left.

        What `work` has for threads to do then runs on the thread that calls for it.
        """
        if self._pool is None or count < 2:
            for j in range(count):
                work(j)
            return
        outer = _current.set(None)  # other threads have a context of their own, without any
        try:
            self._share(self._pool, work, count)
        finally:
            _current.reset(outer)

    def _share(self, pool: ThreadPoolExecutor, work: Callable[[int], None], count: int) -> None:
        left, lock, over = iter(range(count)), threading.Lock(), threading.Event()

        def take() -> None:
            try:
                while not (over.is_set() or interrupt.noted):
                    with lock:
                        j = next(left, None)
                    if j is None:
                        return
                    work(j)
            finally:  # nothing is left, or after an error nobody will read what was made
                over.set()

        with DeferredInterrupt() as interrupt:
            others = [pool.submit(take) for _ in range(min(self._helpers, count - 1))]
            try:
                take()
            finally:
                started = [other for other in others if not other.cancel()]
                wait(started)
            for other in started:
                other.result()
        for j in left:  # a Ctrl-C came, and its handler wants to go on
            work(j)

    def close(self) -> None:
        if self._pool is not None:
            with DeferredInterrupt():
                self._pool.shutdown(wait=True, cancel_futures=True)


_current: ContextVar[Threads | None] = ContextVar("threads", default=None)


@contextmanager
def use_threads(n_jobs: int) -> Iterator[None]:
    """Let `each`, called from this thread within the block, use `n_jobs` threads."""
    threads = Threads(n_jobs)
    before = _current.set(threads)
    try:
        yield
    finally:
        _current.reset(before)
        threads.close()


def each(work: Callable[[int], None], count: int) -> None:
    """Run `work` on 0 … count-1: on the threads of `use_threads`, unless this is one of them.

    Examples
    --------
    >>> squares = [0] * 5
    >>> def square(j: int) -> None:
    ...     squares[j] = j * j
    >>> with use_threads(2):
    ...     each(square, 5)
    >>> squares
    [0, 1, 4, 9, 16]
    """
    threads = _current.get()
    if threads is None:
        for j in range(count):
            work(j)
    else:
        threads.each(work, count)


class DeferredInterrupt:
    """Within the block, the first Ctrl-C is only `noted` (and raised at its end), not the second.

    Python raises KeyboardInterrupt between any two instructions, also while a thread pool holds one
    of its locks, which nobody would then release. Signals reach the main thread only.
    """

    noted = False
    _handler: Callable[[int, FrameType | None], object] | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            handler = signal.getsignal(signal.SIGINT)
            if callable(handler):
                self._handler = handler
                signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
            if self.noted:
                self._handler(signal.SIGINT, None)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.noted and self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
            self._handler(number, frame)
        self.noted = True
