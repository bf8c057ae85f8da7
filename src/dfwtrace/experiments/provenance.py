"""Where and on what a row was measured."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_info

from dfwtrace.report.surroundings import versions_of

#: The checkout that this package runs from, where it does.
ROOT = Path(__file__).resolve().parents[3]

# From the top of the repository: what may be measured.
_SOURCES = (":/src", ":/benchmarks", ":(exclude,top)benchmarks/results")
_PACKAGES = (
    *("dfwtrace", "numpy", "scipy", "numba", "scikit-learn", "pyspark", "pyarrow"),
    *("copt", "cvxpy", "clarabel"),  # peers
)


def provenance() -> dict[str, Any]:
    """Commit, date, versions and machine.

    Examples
    --------
    >>> sorted(provenance())
    ['blas', 'commit', 'cores', 'cpu', 'date', 'versions']
    """
    return {
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "python": platform.python_version(),
            **versions_of(_PACKAGES),
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


@cache
def commit() -> str:
    """Short commit of this package, marked if what is measured is not what it holds.

    As it was when somebody first asked: what changes later is not what runs.
    """
    return commit_of(Path(__file__).resolve().parent)


def commit_of(folder: Path) -> str:
    """Short commit of a folder of sources, with "-dirty" if it was changed since.

    "unknown" outside Git, and in a repository that does not hold the folder: one into which the
    package was installed, for example.
    """
    try:
        if not _git(folder, "ls-files", "--", "."):
            return "unknown"
        head = _git(folder, "rev-parse", "--short", "HEAD")
        return f"{head}-dirty" if _git(folder, "status", "--porcelain", "--", *_SOURCES) else head
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def cpu_model() -> str:
    """What the processor calls itself."""
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


def _git(folder: Path, *arguments: str) -> str:
    run = subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return run.stdout.strip()
