"""Where and on what something was measured, and what else the machine did meanwhile."""

from __future__ import annotations

import os
import platform
import subprocess
import threading
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

import psutil
from threadpoolctl import threadpool_info

ROOT = Path(__file__).resolve().parents[1]

# What may be measured, from the top of the repository.
_SOURCES = (
    *(":/src", ":/benchmarks", ":/reproduction"),
    *(":(exclude,top)benchmarks/results", ":(exclude,top)reproduction/results"),
)
_PACKAGES = (
    *("dfwtrace", "numpy", "scipy", "numba", "scikit-learn", "pyspark", "pyarrow"),
    *("copt", "cvxpy", "clarabel"),  # peers
)
_SECONDS_BETWEEN_SAMPLES = 0.5


def provenance() -> dict[str, Any]:
    """Return commit, date, versions and machine, in JSON's types."""
    blas = {
        f"{pool['internal_api']} {pool['version']} {pool.get('architecture', '')}".strip()
        for pool in threadpool_info()
        if pool["user_api"] == "blas"
    }
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return {
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions,
        "blas": sorted(blas),
        "cpu": cpu_model(),
        "cores": cores(),
    }


@cache
def commit(folder: Path = ROOT) -> str:
    """Return the short commit of a checkout, with "-dirty" if what is measured was changed since.

    As of the first call: what changes later is not what runs. "unknown" outside Git.
    """
    try:
        head = _git(folder, "rev-parse", "--short", "HEAD")
        return f"{head}-dirty" if _git(folder, "status", "--porcelain", "--", *_SOURCES) else head
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def cpu_model() -> str:
    """Return the processor's name, which psutil does not know."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def cores() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class OtherWork:
    """Share of the processors' time that other programs had while a block of code ran.

    Threads that wait for each other lose more than their share when a core is taken away, so the
    two sides of a ratio do not suffer alike on a busy machine. What this process has started, such
    as Spark's JVM and workers, is no other work; of a process that ended, what it did after the
    last sample is not known and counts as other work.

    Examples
    --------
    >>> with OtherWork() as others:
    ...     total = sum(range(1000))
    >>> 0.0 <= others.share <= 1.0
    True
    """

    share = 0.0

    def __enter__(self) -> Self:
        self._before = _machine_seconds()
        self._seen = _family_seconds()
        self.own_seconds = 0.0
        self._end = threading.Event()
        self._sampler = threading.Thread(target=self._sample, name="other-work", daemon=True)
        self._sampler.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._sampler.join()
        self.add()
        available, busy = (b - a for a, b in zip(self._before, _machine_seconds(), strict=True))
        if available > 0.0:
            # Ticks of a hundredth of a second: parts of a short block may exceed the whole.
            self.share = min(max(busy - self.own_seconds, 0.0) / available, 1.0)

    def _sample(self) -> None:
        while not self._end.wait(_SECONDS_BETWEEN_SAMPLES):
            self.add()

    def add(self) -> None:
        """Add what this process and its descendants did since the last sample."""
        now = _family_seconds()
        self.own_seconds += sum(seconds - self._seen.get(who, 0.0) for who, seconds in now.items())
        self._seen |= now


def _machine_seconds() -> tuple[float, float]:
    """Seconds of all processors so far, and of them busy."""
    times = psutil.cpu_times()._asdict()
    # Guests are counted as users already.
    total = sum(seconds for name, seconds in times.items() if not name.startswith("guest"))
    return total, total - times["idle"] - times.get("iowait", 0.0)


def _family_seconds() -> dict[psutil.Process, float]:
    """Processor seconds of this process and of each of its descendants."""
    own = psutil.Process()
    seconds = {}
    for process in (own, *own.children(recursive=True)):
        with suppress(psutil.Error):  # it has ended since
            times = process.cpu_times()
            seconds[process] = times.user + times.system
    return seconds


def _git(folder: Path, *arguments: str) -> str:
    run = subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return run.stdout.strip()
