"""Which representation to take: a cost model in flops, bytes and memory that explains itself."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

# What one core of a present-day machine does. They are fixed, not measured, so that the choice
# (and with it the bits of the result) does not change from run to run.
_FLOPS = {4: 60e9, 8: 30e9}  # matrix products, by bytes of a number
_SPARSE_FLOPS = 1e9
_BANDWIDTH = 12e9  # bytes
_LOSS_SECONDS = 5e-10  # to evaluate the loss on one score
_ROUND_SECONDS = 2e-5

# Share of the free memory that a run may take.
_MEMORY_SHARE = 0.8


@dataclass(frozen=True)
class Workload:
    """The sizes that costs depend on.

    Attributes
    ----------
    n, d, m : int
        Rows, features, columns of W.
    stored : int
        Numbers stored in X: n·d if dense, the non-zeros if sparse.
    sparse : bool
    itemsize : int
        Bytes of one number of X.
    epochs : int
    products : float
        Products with the gradient in an epoch, 2K.
    columns : int
        Vectors that are multiplied at once.
    gathers : bool
        Whether the oracle gathers the dense gradient instead.
    local : bool
        Whether every shard must keep a gradient of its own.
    n_shards, n_jobs : int
    """

    n: int
    d: int
    m: int
    stored: int
    sparse: bool
    itemsize: int
    epochs: int
    products: float
    gathers: bool
    local: bool
    n_shards: int
    n_jobs: int
    columns: int = 1


@dataclass(frozen=True)
class Cost:
    """An estimate: bytes beyond the data themselves, seconds once, seconds an epoch."""

    memory: float
    setup: float
    epoch: float

    def total(self, epochs: int) -> float:
        return self.setup + epochs * self.epoch


@dataclass(frozen=True)
class Plan:
    """The representation taken, why, and what the others would have cost.

    Attributes
    ----------
    representation : str
    reason : str
    costs : dict of str to Cost
        By representation. Empty for a task of the user's own, which has only its own form.
    workload : Workload
    """

    representation: str
    reason: str
    costs: dict[str, Cost]
    workload: Workload

    def __str__(self) -> str:
        w = self.workload
        kind = "sparse" if w.sparse else "dense"
        where = f"{w.n_shards} shards on {w.n_jobs} threads" if w.n_shards > 1 else "one shard"
        lines = [
            f"{self.representation}: {self.reason}",
            f"n={w.n} d={w.d} m={w.m}, {kind} float{8 * w.itemsize}, {where}",
        ]
        if self.costs:
            lines.append(
                f"{'representation':<16}{'memory':>12}{'set-up':>12}{'an epoch':>12}"
                f"{f'{w.epochs} epochs':>14}"
            )
        for name, cost in self.costs.items():
            mark = "→ " if name == self.representation else "  "
            lines.append(
                f"{mark + name:<16}{_size(cost.memory):>12}{_time(cost.setup):>12}"
                f"{_time(cost.epoch):>12}{_time(cost.total(w.epochs)):>14}"
            )
        return "\n".join(lines)


def estimate(name: str, w: Workload) -> Cost:
    """What a representation would cost, from its passes over memory and its matrix products."""
    flops = (_SPARSE_FLOPS if w.sparse else _FLOPS[w.itemsize]) * w.n_jobs
    bandwidth = _BANDWIDTH * w.n_jobs
    X, scores, W = w.stored * w.itemsize, w.n * w.m * w.itemsize, w.d * w.m * 8
    evaluation = w.n * w.m * _LOSS_SECONDS / w.n_jobs
    gradient = 2.0 * w.stored * w.m / flops
    states = w.n_shards if w.local else 1
    # Products with several vectors at once are bound by the arithmetic, not by the memory, and each
    # epoch builds the scores anew from as many columns.
    block = 0.0
    if w.columns > 1:
        thin = 2.0 * w.columns * (w.stored / flops + w.n * w.m / (_FLOPS[w.itemsize] * w.n_jobs))
        block = (w.products + 1) * thin
    rounds = _ROUND_SECONDS * (w.products + 4)
    if name == "gram":
        # XᵀX costs half of a product where BLAS knows that it is symmetric.
        setup = w.stored * (w.stored / w.n if w.sparse else w.d) / flops + gradient
        passes = (w.products + 1) * W + 4 * W + 8 * w.d**2
        if w.columns > 1:
            block = (w.products + 1) * 2.0 * w.columns * (w.d**2 + w.d * w.m) / _FLOPS[8]
        memory = (8.0 * w.d**2 + 2 * W) * states + w.n_shards * (8.0 * w.d**2 + W)
        return Cost(memory, setup, rounds + block + passes * states / _BANDWIDTH)
    if name == "implicit":
        passes = w.products * (X + scores) + 3 * scores
        epoch = passes / bandwidth + block + evaluation + (gradient if w.gathers else 0.0)
        return Cost(2.0 * scores, scores / bandwidth + evaluation, rounds + epoch)
    if name == "dense":
        passes = w.products * W * w.n_shards + 3 * scores
        epoch = passes / bandwidth + evaluation + gradient
        return Cost(2.0 * scores + W * w.n_shards, gradient + evaluation, rounds + epoch)
    rank = min(w.epochs, 2 * min(w.d, w.m)) if w.columns == 1 else min(2 * w.columns, w.d, w.m)
    blocks = 2.0 * w.n * (rank / 2) * w.m / (_FLOPS[w.itemsize] * w.n_jobs) + evaluation
    epoch = (w.products + 2) * blocks + w.products * X / bandwidth + block
    epoch += gradient if w.gathers else 0.0
    return Cost(2.0 * w.n * rank * w.itemsize, blocks, rounds + epoch)


def choose(
    representations: tuple[str, ...], workload: Workload, asked: str, free_memory: float | None
) -> Plan:
    """The quickest representation that fits into memory, or the one that was asked for."""
    costs = {name: estimate(name, workload) for name in representations}
    if asked != "auto":
        return Plan(asked, "asked for", costs, workload)
    budget = float("inf") if free_memory is None else _MEMORY_SHARE * free_memory
    fitting = [name for name in representations if costs[name].memory <= budget]
    if not fitting:
        smallest = min(representations, key=lambda name: costs[name].memory)
        reason = f"the smallest, though it may not fit into {_size(budget)} of free memory"
        return Plan(smallest, reason, costs, workload)
    # On one thread, whatever there are: the choice must not change the bits with the threads.
    alone = replace(workload, n_jobs=1)
    best = min(fitting, key=lambda name: estimate(name, alone).total(workload.epochs))
    reason = f"the least time over {workload.epochs} epochs"
    if len(fitting) < len(representations):
        reason += f" of those that fit into {_size(budget)} of free memory"
    return Plan(best, reason, costs, workload)


def free_memory() -> float | None:
    """Bytes that can be had without swapping, where the system tells."""
    told = [bytes_free for bytes_free in (_machine_free(), _container_free()) if bytes_free]
    return min(told, default=None)


def _machine_free() -> float | None:
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return 1024.0 * float(line.split()[1])
    except OSError:
        pass
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return None


def _container_free() -> float | None:
    """What is left of a control group's limit, as containers have."""
    group = Path("/sys/fs/cgroup")
    try:
        limit, used = ((group / name).read_text() for name in ("memory.max", "memory.current"))
        return float(limit) - float(used)
    except (OSError, ValueError):  # no control group, or no limit ("max")
        return None


def _size(number: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024.0:
            return f"{number:.3g} {unit}"
        number /= 1024.0
    return f"{number:.3g} TiB"


def _time(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{1e6 * seconds:.3g} µs"
    return f"{1e3 * seconds:.3g} ms" if seconds < 1.0 else f"{seconds:.3g} s"
