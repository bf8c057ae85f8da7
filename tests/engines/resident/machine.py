"""What is open in this process, and how to wait for it."""

from __future__ import annotations

import contextlib
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def open_sockets() -> set[str]:
    """Sockets of this process, as the system knows them."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{name}")
            if target.startswith("socket:"):
                found.add(target)
    return found


@contextlib.contextmanager
def no_files_left() -> Iterator[None]:
    """This process can open no file and no socket."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    next_free = os.dup(0)
    os.close(next_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def our_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("dfwtrace")]


def side_by_side(work: Callable[[Any], None], cases: list[Any]) -> None:
    """Run cases that mostly wait at the same time; the first that failed is told."""
    with ThreadPoolExecutor(len(cases)) as pool:
        for future in [pool.submit(work, case) for case in cases]:
            future.result()


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Whether it comes true; what is true at once costs no time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
