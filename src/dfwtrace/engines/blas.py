"""One BLAS thread while any run is under way in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import scipy.linalg  # noqa: F401  # brings a BLAS of its own, which a limit set before would miss
import threadpoolctl
from threadpoolctl import threadpool_limits

# Reentrant: a garbage collection under it may call `unlimit_blas`.
_lock = threading.RLock()
_holders = 0
_limits: threadpool_limits | None = None


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit BLAS to one thread: the bits of a product then do not depend on the machine's cores."""
    limit_blas()
    try:
        yield
    finally:
        unlimit_blas()


def limit_blas() -> None:
    """Limit BLAS to one thread until `unlimit_blas` has been called as often.

    The limit belongs to the whole process, so runs side by side must share it: the first sets it
    and the last restores what was there.
    """
    global _holders, _limits
    with _lock:
        if _holders == 0:
            _take_control()
            _limits = threadpool_limits(limits=1, user_api="blas")
        _holders += 1


def unlimit_blas() -> None:
    """Undo one call of `limit_blas`."""
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
