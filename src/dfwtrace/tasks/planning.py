"""Which representation to take: a cost model in flops, bytes and memory that explains itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

# What one core of a present-day machine does. They are fixed, not measured, so that the choice
# (and with it the bits of the result) does not change from run to run.
FLOPS = {4: 60e9, 8: 30e9}  # matrix products, by bytes of a number
BANDWIDTH = 12e9  # bytes
_SPARSE_FLOPS = 1e9
_LOSS_SECONDS = 5e-10  # to evaluate the loss on one score
_ROUND_SECONDS = 2e-5

_MEMORY_SHARE = 0.8  # of the free memory, which a run may take


@dataclass(frozen=True)
class Workload:
    """The sizes that costs depend on."""

    n: int  # rows
    d: int  # features
    m: int  # columns of W
    stored: int  # numbers in X: n·d if dense, the non-zeros if sparse
    sparse: bool
    itemsize: int  # bytes of one number of X
    epochs: int
    products: float  # with the gradient in an epoch, 2K
    gathers: bool  # the oracle gathers the dense gradient instead
    local: bool  # every shard must keep a gradient of its own
    n_shards: int
    n_jobs: int  # threads that work on the shards
    columns: int = 1  # vectors that are multiplied at once

    # What several representations cost alike: bytes, and seconds of an epoch.

    @property
    def flops(self) -> float:
        """Operations a second in products with X."""
        return (_SPARSE_FLOPS if self.sparse else FLOPS[self.itemsize]) * self.n_jobs

    @property
    def data_bytes(self) -> float:
        return self.stored * self.itemsize

    @property
    def score_bytes(self) -> float:
        return self.n * self.m * self.itemsize

    @property
    def gradient_bytes(self) -> float:
        return self.d * self.m * 8

    @property
    def gradient_seconds(self) -> float:
        """To form the dense gradient XᵀR."""
        return 2.0 * self.stored * self.m / self.flops

    @property
    def loss_seconds(self) -> float:
        return self.n * self.m * _LOSS_SECONDS / self.n_jobs

    @property
    def round_seconds(self) -> float:
        return _ROUND_SECONDS * (self.products + 4)

    @property
    def block_seconds(self) -> float:
        """Of products with blocks of vectors, and of scores built from as many columns."""
        if self.columns == 1:
            return 0.0  # bound by memory, which is counted elsewhere
        scores = self.n * self.m / (FLOPS[self.itemsize] * self.n_jobs)
        return (self.products + 1) * 2.0 * self.columns * (self.stored / self.flops + scores)


@dataclass(frozen=True)
class Estimate:
    """Bytes beyond the data themselves, seconds once, seconds an epoch."""

    memory: float
    setup: float
    epoch: float

    def total(self, epochs: int) -> float:
        """Seconds of a run."""
        return self.setup + epochs * self.epoch


@dataclass(frozen=True)
class Plan:
    """The representation taken, why, and what the others would have cost.

    Attributes
    ----------
    representation : str
        Its name.
    reason : str
        Why it was taken.
    costs : dict of str to Estimate
        By representation. Empty for a custom task, which has only its own form.
    workload : Workload
        The sizes that costs depend on.
    """

    representation: str
    reason: str
    costs: dict[str, Estimate]
    workload: Workload

    def __str__(self) -> str:
        w = self.workload
        kind = "sparse" if w.sparse else "dense"
        where = f"{w.n_shards} shards on {w.n_jobs} threads" if w.n_shards > 1 else "one shard"
        lines = [
            f"{self.representation}: {self.reason}",
            f"n={w.n} d={w.d} m={w.m}, {kind} float{8 * w.itemsize}, {where}",
        ]
        row = "{:<16}{:>12}{:>12}{:>12}{:>14}".format
        heading = "representation", "memory", "set-up", "an epoch", f"{w.epochs} epochs"
        if self.costs:
            lines.append(row(*heading))
        for name, cost in self.costs.items():
            mark = "→ " if name == self.representation else "  "
            seconds = map(duration_text, (cost.setup, cost.epoch, cost.total(w.epochs)))
            lines.append(row(mark + name, size_text(cost.memory), *seconds))
        return "\n".join(lines)


def choose(
    estimates: Mapping[str, Callable[[Workload], Estimate]],
    workload: Workload,
    asked: str,
    free_memory: float | None,
) -> Plan:
    """The fastest representation that fits into memory, or the one that was asked for."""
    costs = {name: estimate(workload) for name, estimate in estimates.items()}
    if asked != "auto":
        return Plan(asked, "asked for", costs, workload)
    budget = float("inf") if free_memory is None else _MEMORY_SHARE * free_memory
    fitting = [name for name in costs if costs[name].memory <= budget]
    if not fitting:
        smallest = min(costs, key=lambda name: costs[name].memory)
        reason = f"the smallest, though it may not fit into {size_text(budget)} of free memory"
        return Plan(smallest, reason, costs, workload)
    # On one thread, whatever there are: the choice must not change the bits with the threads.
    alone = replace(workload, n_jobs=1)
    best = min(fitting, key=lambda name: estimates[name](alone).total(workload.epochs))
    reason = f"the least time over {workload.epochs} epochs"
    if len(fitting) < len(costs):
        reason += f" of those that fit into {size_text(budget)} of free memory"
    return Plan(best, reason, costs, workload)


def free_memory() -> float:
    """Bytes available without swapping, within the limit of a container's control group."""
    import psutil  # of no use to workers, which import this module too

    free, group = float(psutil.virtual_memory().available), Path("/sys/fs/cgroup")
    try:
        limit, used = ((group / name).read_text() for name in ("memory.max", "memory.current"))
        return min(free, float(limit) - float(used))
    except (OSError, ValueError):  # no control group, or no limit ("max")
        return free


def size_text(n_bytes: float) -> str:
    """Bytes in the unit that fits, such as "1.5 KiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n_bytes < 1024.0:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1024.0
    return f"{n_bytes:.3g} TiB"


def duration_text(seconds: float) -> str:
    """Seconds in the unit that fits, such as "4.2 ms" or "1 h 2 min"."""
    if 0.0 < seconds < 0.9995:
        return f"{1e6 * seconds:.3g} µs" if seconds < 0.9995e-3 else f"{1e3 * seconds:.3g} ms"
    if not 59.95 <= seconds < math.inf:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60} min"
