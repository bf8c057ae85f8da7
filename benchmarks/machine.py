"""Where and on what a row was measured."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

from threadpoolctl import threadpool_info

ROOT = Path(__file__).resolve().parents[1]


def provenance() -> dict[str, Any]:
    """Commit, date, versions and machine: the same for all rows of a run."""
    return {
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("dfwtrace", "numpy", "scipy", "numba")},
        },
        "blas": sorted(
            {
                f"{pool['internal_api']} {pool['version']} {pool.get('architecture', '')}".strip()
                for pool in threadpool_info()
                if pool["user_api"] == "blas"
            }
        ),
        "cpu": cpu_model(),
        "cores": cores(),
    }


def commit() -> str:
    """Short commit, marked if what is measured is not what it holds; "unknown" outside Git."""
    try:
        head = _git("rev-parse", "--short", "HEAD")
        return f"{head}-dirty" if _git("status", "--porcelain", "--", "src") else head
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def cores() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class OtherWork:
    """Share of the processors' time that went to other processes while a block of code ran.

    Threads that wait for each other lose more than their share when a core is taken away, and
    NumPy's BLAS most of all. So two sides of a ratio do not suffer alike, and a ratio from a busy
    machine can err in either direction.
    """

    share = 0.0  # also where the system does not tell

    def __enter__(self) -> Self:
        self._before = _processor_seconds()
        return self

    def __exit__(self, *error: object) -> None:
        after = _processor_seconds()
        if self._before is None or after is None:
            return
        available, busy, own = (b - a for a, b in zip(self._before, after, strict=True))
        if available > 0.0:
            self.share = max(busy - own, 0.0) / available


def _processor_seconds() -> tuple[float, float, float] | None:
    """Seconds so far: of all processors, of them busy, of this process and its ended children."""
    try:
        first = Path("/proc/stat").read_text().partition("\n")[0]
    except OSError:
        return None
    # Guests, the last two of ten, are counted as users already.
    user, nice, system, idle, waiting, *interrupts_and_stolen = map(int, first.split()[1:9])
    busy = user + nice + system + sum(interrupts_and_stolen)
    ticks = os.sysconf("SC_CLK_TCK")
    return (busy + idle + waiting) / ticks, busy / ticks, sum(os.times()[:4])


def _git(*arguments: str) -> str:
    run = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return run.stdout.strip()
