"""How many bytes a second the threads of this process can read from memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import numpy as np
from numba import njit
from threadpoolctl import threadpool_limits

_COLUMNS = 1000


@njit(nogil=True, fastmath=True)
def _total(numbers):  # type: ignore[no-untyped-def]
    """A sum in vector registers does nothing but read."""
    total = np.float32(0)
    for i in range(numbers.size):
        total += numbers[i]
    return total


class StreamingRead:
    """Threads that each read an array of their own from end to end.

    Two readers are tried, a compiled sum and BLAS's matrix-vector product; the quicker one shows
    what the machine can do.

    Parameters
    ----------
    threads : int
    numbers : int
        Size of a thread's float32 array: several times what any cache could keep of it.
    """

    def __init__(self, threads: int, numbers: int) -> None:
        self._pool = ThreadPoolExecutor(threads)
        # Pages that were never written are all the same one, and would be read from cache.
        self._arrays = [np.ones(numbers, np.float32) for _ in range(threads)]
        self._vector = np.ones(_COLUMNS, np.float32)
        self.bytes = sum(array.nbytes for array in self._arrays)

    def best(self, tries: int) -> float:
        """Bytes a second, the best of so many tries of either reader."""
        self._seconds(_total)  # compiles, and wakes the threads
        with threadpool_limits(limits=1, user_api="blas"):
            seconds = [
                self._seconds(reader) for _ in range(tries) for reader in (_total, self._product)
            ]
        return self.bytes / min(seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown()

    def _product(self, numbers: np.ndarray) -> np.ndarray:
        return numbers.reshape(-1, _COLUMNS) @ self._vector

    def _seconds(self, reader: Callable[[np.ndarray], object]) -> float:
        began = time.perf_counter()
        list(self._pool.map(reader, self._arrays))
        return time.perf_counter() - began
