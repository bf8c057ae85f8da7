"""When and where a report was written."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version

from dfwtrace.report.numbers import size

_PACKAGES = ("dfwtrace", "numpy", "scipy", "numba", "scikit-learn", "pyspark")


def time_now() -> str:
    """Today and now, with the offset of this place.

    Examples
    --------
    >>> time_now().count(":")
    2
    """
    return datetime.now().astimezone().isoformat(sep=" ", timespec="minutes").replace("+", " +")


def versions_here() -> dict[str, str]:
    """Versions of Python and of the packages that a result depends on, where they are installed.

    Examples
    --------
    >>> list(versions_here())[:3]
    ['Python', 'dfwtrace', 'numpy']
    """
    return {"Python": platform.python_version(), **versions_of(_PACKAGES)}


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """Versions of those packages that are installed.

    Examples
    --------
    >>> list(versions_of(["numpy", "there is no such package"]))
    ['numpy']
    """
    versions = {}
    for package in packages:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:  # an extra that is not there
            continue
    return versions


def machine_here() -> dict[str, str]:
    """What this machine is. Neither its name nor its user's: reports are passed on.

    Examples
    --------
    >>> list(machine_here())[:2]
    ['System', 'Processor']
    """
    machine = {
        "System": f"{platform.system()} {platform.release()}",
        "Processor": platform.machine(),
        "Cores": str(os.cpu_count() or "unknown"),
    }
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not on every system
        return machine
    return {**machine, "Memory": size(memory)}
