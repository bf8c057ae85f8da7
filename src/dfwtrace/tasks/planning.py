"""Which representation to take: a cost model in flops, bytes and memory that explains itself."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

# What one core of a present-day machine does. They are fixed, not measured, so that the choice
# (and with it the bits of the result) does not change from run to run.
_FLOPS = {4: 60e9, 8: 30e9}  # matrix products, by bytes of a number
_BANDWIDTH = 12e9  # bytes
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
        sizes = f"n={w.n} d={w.d} m={w.m}, {kind} float{8 * w.itemsize}, {where}"
        lines = [f"{self.representation}: {self.reason}", sizes]
        row = "{:<16}{:>12}{:>12}{:>12}{:>14}".format
        heading = "representation", "memory", "set-up", "an epoch", f"{w.epochs} epochs"
        lines += [row(*heading)] if self.costs else []
        for name, cost in self.costs.items():
            mark = "→ " if name == self.representation else "  "
            seconds = map(duration_text, (cost.setup, cost.epoch, cost.total(w.epochs)))
            lines.append(row(mark + name, size_text(cost.memory), *seconds))
        return "\n".join(lines)


def estimates(w: Workload) -> dict[str, Estimate]:
    """What each representation costs, from passes over memory and matrix products."""
    bandwidth, dense_flops = _BANDWIDTH * w.n_jobs, _FLOPS[w.itemsize] * w.n_jobs
    flops = _SPARSE_FLOPS * w.n_jobs if w.sparse else dense_flops
    features, scores, gradient = w.stored * w.itemsize, w.n * w.m * w.itemsize, w.d * w.m * 8
    loss = w.n * w.m * _LOSS_SECONDS / w.n_jobs
    rounds = _ROUND_SECONDS * (w.products + 4)
    form_gradient = 2.0 * w.stored * w.m / flops
    gather = form_gradient if w.gathers else 0.0
    # Products with blocks of vectors, and scores or a gradient built from as many columns; single
    # vectors are bound by memory, which is counted elsewhere.
    columns = (w.products + 1) * 2.0 * w.columns if w.columns > 1 else 0.0
    block = columns * (w.stored / flops + w.n * w.m / dense_flops)

    # Moments: XᵀX costs half of a product where BLAS knows that it is symmetric.
    setup = w.stored * (w.stored / w.n if w.sparse else w.d) / flops + form_gradient
    states = w.n_shards if w.local else 1
    passes = (w.products + 1) * gradient + 4 * gradient + 8 * w.d**2
    epoch = rounds + columns * (w.d**2 + w.d * w.m) / _FLOPS[8] + passes * states / _BANDWIDTH
    memory = (8.0 * w.d**2 + 2 * gradient) * states + w.n_shards * (8.0 * w.d**2 + gradient)
    costs = {"gram": Estimate(memory, setup, epoch)}

    passes = w.products * (features + scores) + 3 * scores
    epoch = passes / bandwidth + block + loss + gather
    costs["implicit"] = Estimate(2.0 * scores, scores / bandwidth + loss, rounds + epoch)

    passes = w.products * gradient * w.n_shards + 3 * scores
    epoch = passes / bandwidth + loss + form_gradient
    memory = 2.0 * scores + gradient * w.n_shards
    costs["dense"] = Estimate(memory, form_gradient + loss, rounds + epoch)

    narrow = min(w.d, w.m)
    rank = min(w.epochs, 2 * narrow) if w.columns == 1 else min(2 * w.columns, narrow)
    rebuilt = 2.0 * w.n * (rank / 2) * w.m / dense_flops + loss
    epoch = (w.products + 2) * rebuilt + w.products * features / bandwidth + block + gather
    costs["factored"] = Estimate(2.0 * w.n * rank * w.itemsize, rebuilt, rounds + epoch)
    return costs


def choose(names: Sequence[str], workload: Workload, asked: str, free_memory: float | None) -> Plan:
    """The fastest of these representations that fits into memory, or the one asked for."""
    costs = {name: cost for name, cost in estimates(workload).items() if name in names}
    if asked != "auto":
        return Plan(asked, "asked for", costs, workload)
    budget = float("inf") if free_memory is None else _MEMORY_SHARE * free_memory
    fitting = [name for name in costs if costs[name].memory <= budget]
    if not fitting:
        smallest = min(costs, key=lambda name: costs[name].memory)
        reason = f"the smallest, though it may not fit into {size_text(budget)} of free memory"
        return Plan(smallest, reason, costs, workload)
    # On one thread, whatever there are: the choice must not change the bits with the threads.
    alone = estimates(replace(workload, n_jobs=1))
    best = min(fitting, key=lambda name: alone[name].total(workload.epochs))
    reason = f"the least time over {workload.epochs} epochs"
    if len(fitting) < len(costs):
        reason += f" of those that fit into {size_text(budget)} of free memory"
    return Plan(best, reason, costs, workload)


def free_memory() -> float | None:
    """Bytes available without swapping, where the system reports them."""
    known, group = list[float](), Path("/sys/fs/cgroup")
    with suppress(AttributeError, OSError, ValueError):  # not on Windows
        known.append(float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))
    with suppress(OSError):  # only on Linux
        _, _, rest = Path("/proc/meminfo").read_text().partition("MemAvailable:")
        known.append(1024.0 * float(rest.split()[0]))
    with suppress(OSError, ValueError):  # no control group, or no limit ("max")
        limit, used = ((group / name).read_text() for name in ("memory.max", "memory.current"))
        known.append(float(limit) - float(used))
    return min(known, default=None)


def size_text(n_bytes: float) -> str:
    """Bytes in the unit that fits, such as "1.5 KiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n_bytes < 1024.0:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1024.0
    return f"{n_bytes:.3g} TiB"


def duration_text(seconds: float) -> str:
    """Seconds in the unit that fits, such as "4.2 ms" or "1 h 2 min"."""
    if not math.isfinite(seconds):
        return "—"
    if 0.0 < seconds < 0.9995:
        return f"{1e6 * seconds:.3g} µs" if seconds < 0.9995e-3 else f"{1e3 * seconds:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60} min"
