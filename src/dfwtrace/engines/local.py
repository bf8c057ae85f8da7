"""The in-process engine: logical shards on a pool of threads, each with one BLAS thread."""

from __future__ import annotations

import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

import scipy.linalg  # noqa: F401  # brings a BLAS of its own, which a limit set before would miss
import threadpoolctl

from dfwtrace.data.shards import ArrayRows, split_rows
from dfwtrace.engines.base import Args, Cost, Engine, Workers
from dfwtrace.engines.tree import Node, TreeSum
from dfwtrace.validation import check_count

# Handing work to a thread costs more than it saves below this much data for each.
_BYTES_FOR_A_THREAD = 1 << 19
# Of the limit to one BLAS thread. Reentrant: a garbage collection under it may end another hold.
_lock = threading.RLock()
_holders = 0
_limits: threadpoolctl.threadpool_limits | None = None


class LocalEngine(Engine):
    """Logical shards in this process, worked on by threads.

    The same `n_shards` gives the same bits for every `n_jobs`: inside a shard everything runs on
    one thread, and sums follow one fixed tree.

    Parameters
    ----------
    n_shards : int, default=8
        Number of logical shards; may exceed the number of rows.
    n_jobs : int, default=None
        Number of threads; by default, the processors that this process may use.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> dt.LocalEngine(n_shards=4, n_jobs=1)
    LocalEngine(n_shards=4, n_jobs=1)
    """

    n_jobs = 1

    def __init__(self, n_shards: int = 8, n_jobs: int | None = None) -> None:
        self.n_shards = check_count("n_shards", n_shards, 1)
        self.n_jobs = check_count("n_jobs", _usable_cores() if n_jobs is None else n_jobs, 1)

    def start(self, program: object, rows: ArrayRows) -> LocalWorkers:
        """Cut the rows into shards; see `Engine.start`."""
        shards = split_rows(rows.X, rows.y, self.n_shards)
        n_bytes = rows.facts.stored * rows.facts.dtype.itemsize
        return LocalWorkers(program, shards, threads_for(n_bytes, self.n_jobs))

    def __repr__(self) -> str:
        return f"LocalEngine(n_shards={self.n_shards}, n_jobs={self.n_jobs})"


class ShardStates:
    """Shards of this process, from `first` on of all `n_shards`, their states and their threads.

    `n_jobs` threads include the calling one. The last call took `seconds`, of which `adding`.
    """

    def __init__(
        self,
        program: object,
        shards: Sequence[object],
        n_jobs: int = 1,
        first: int = 0,
        n_shards: int | None = None,
    ) -> None:
        self.seconds = self.adding = 0.0
        self._first = first
        self._n_shards = len(shards) if n_shards is None else n_shards
        self._program = program
        self._shards, self._states = list(shards), list(shards)
        self._helpers = min(n_jobs, len(shards)) - 1  # beside the thread that calls
        self._pool = ThreadPoolExecutor(self._helpers, "dfwtrace") if self._helpers > 0 else None
        # One BLAS thread a shard: shards run side by side, and bits do not depend on n_jobs.
        _hold_blas()
        self._release = weakref.finalize(self, _release_blas)  # also if nobody calls `close`

    def change(self, method: str, args: Args, build: bool) -> None:
        run = getattr(self._program, method)
        reuses = build and getattr(self._program, "reuses_memory", False)

        def make(j: int) -> None:
            if reuses:
                self._states[j] = run(self._shards[j], *args, old=self._states[j])
                return
            if build:
                self._states[j] = None  # frees the old state's memory before the new one is made
            self._states[j] = run(self._shards[j] if build else self._states[j], *args)

        self._each(make)

    def replies(self, method: str, args: Args, add: bool) -> list[Node]:
        """The shards' replies; with `add`, summed as far as they are neighbours in the tree."""
        run, nodes = getattr(self._program, method), list[Node]()
        if len(self._states) == 1:  # as for moments, where a round takes but microseconds
            began, self.adding = time.perf_counter(), 0.0
            nodes.append(Node(0, self._first, run(self._states[0], *args)))
            self.seconds = time.perf_counter() - began
            return nodes
        total = TreeSum(self._n_shards)
        put = total.add if add else nodes.append
        self._each(lambda j: put(Node(0, self._first + j, run(self._states[j], *args))))
        self.adding = total.seconds
        return total.nodes() if add else nodes

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._release()
        self._states, self._shards = [], []

    def _each(self, work: Callable[[int], None]) -> None:
        """Run `work` on every shard index; each thread, this one too, takes the next one left."""
        began = time.perf_counter()
        if self._pool is None:
            for j in range(len(self._states)):
                work(j)
        else:
            self._in_threads(self._pool, work)
        self.seconds = time.perf_counter() - began

    def _in_threads(self, pool: ThreadPoolExecutor, work: Callable[[int], None]) -> None:
        left, lock, over = iter(range(len(self._states))), threading.Lock(), threading.Event()

        def take() -> None:
            try:
                while not (over.is_set() or interrupt.noted):
                    with lock:
                        j = next(left, None)
                    if j is None:
                        return
                    work(j)
            finally:  # nothing is left, or after an error nobody will read the states
                over.set()

        with DeferredInterrupt() as interrupt:
            others = [pool.submit(take) for _ in range(self._helpers)]
            try:
                take()
            finally:
                started = [other for other in others if not other.cancel()]
                wait(started)
            for other in started:
                other.result()


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


class LocalWorkers(Workers):
    """Rounds over shards in this process, or over statistics of shards that have `shard_rows`."""

    def __init__(
        self,
        program: object,
        shards: Sequence[Any],
        n_jobs: int = 1,
        shard_rows: list[int] | None = None,
    ) -> None:
        super().__init__(shard_rows or [int(shard.n_rows) for shard in shards])
        self._shards = ShardStates(program, shards, n_jobs)

    def close(self) -> None:
        self._shards.close()

    def _change(self, method: str, args: Args, build: bool) -> None:
        self._shards.change(method, args, build)
        self.cost = Cost(compute=self._shards.seconds)

    def _replies(self, method: str, args: Args, add: bool) -> list[Node]:
        nodes = self._shards.replies(method, args, add)
        adding = self._shards.adding
        self.cost = Cost(0, max(0.0, self._shards.seconds - adding), 0.0, adding)
        return nodes


def threads_for(n_bytes: int, n_jobs: int) -> int:
    """Of `n_jobs` threads, those that are worth their trouble with this much data."""
    return min(n_jobs, 1 + n_bytes // _BYTES_FOR_A_THREAD)


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit BLAS to one thread: the bits of a product then do not depend on the machine's cores."""
    _hold_blas()
    try:
        yield
    finally:
        _release_blas()


def _hold_blas() -> None:
    """The limit is the process's, so runs share it: the first sets it, the last restores it."""
    global _holders, _limits
    with _lock:
        if _holders == 0:
            _take_control()
            _limits = threadpoolctl.threadpool_limits(limits=1, user_api="blas")
        _holders += 1


def _release_blas() -> None:
    global _holders, _limits
    with _lock:
        _holders -= 1
        if _holders == 0 and _limits is not None:
            _take_control()
            _limits.restore_original_limits()
            _limits = None
            _take_control()  # and leave it to whoever comes next


def _take_control() -> None:
    """Let this thread set the limit: threadpoolctl 3.8 ignores all threads but the first."""
    openblas = getattr(threadpoolctl, "OpenBLASController", None)
    if openblas is not None and hasattr(openblas, "clear_controlling_thread"):
        openblas.clear_controlling_thread(force=True)
