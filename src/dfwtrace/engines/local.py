"""The in-process engine: logical shards on a pool of threads, each with one BLAS thread."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import scipy.linalg  # noqa: F401  # brings a BLAS of its own, which a limit set before would miss
import threadpoolctl

from dfwtrace.data.shards import ArrayRows, split_rows
from dfwtrace.engines.base import Args, Cost, Engine, Workers
from dfwtrace.engines.tree import Node, TreeSum
from dfwtrace.threads import Threads, usable_cores
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
    one thread, sums follow one fixed tree, and the algebra outside the shards is cut into blocks
    that depend on sizes alone.

    Parameters
    ----------
    n_shards : int, default=8
        Number of logical shards; may exceed the number of rows.
    n_jobs : int, default=None
        Number of threads, for the shards and for the algebra outside of them; by default, the
        processors that this process may use.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> dt.LocalEngine(n_shards=4, n_jobs=1)
    LocalEngine(n_shards=4, n_jobs=1)
    """

    n_jobs = 1

    def __init__(self, n_shards: int = 8, n_jobs: int | None = None) -> None:
        self.n_shards = check_count("n_shards", n_shards, 1)
        self.n_jobs = check_count("n_jobs", usable_cores() if n_jobs is None else n_jobs, 1)

    @property
    def n_threads(self) -> int:
        """Threads for the algebra outside the shards."""
        return self.n_jobs

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
        self._threads = Threads(min(n_jobs, len(shards)))
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
        self._threads.close()
        self._release()
        self._states, self._shards = [], []

    def _each(self, work: Callable[[int], None]) -> None:
        began = time.perf_counter()
        self._threads.each(work, len(self._states))
        self.seconds = time.perf_counter() - began


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
