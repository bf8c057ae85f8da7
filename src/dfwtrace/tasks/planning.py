"""Which representation to take: a cost model in flops, bytes and memory that explains itself."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from dfwtrace.data.shards import ROWS_IN_BLOCK
from dfwtrace.linalg.certificate import DENSE_ENTRIES, SMALL_ENTRIES

# What one core does, as measured on a machine with AVX2 of 2020 or later. They are fixed, not
# measured at run time, so that the choice (and with it the bits of the result) does not change
# from run to run.
_FLOPS = {4: 60e9, 8: 30e9}  # products of matrices, by bytes of a number
_BANDWIDTH = 25e9  # bytes read or written in order
_LARGE = 32e6  # bytes from which an array is new memory, and not what another one left behind
_FRESH = 2e9  # bytes of new memory, whose pages the system has to bring and to clear first
_SPARSE_FLOPS = 4e9
_SPARSE_SQUARE_FLOPS = 0.15e9  # products of two sparse matrices
_SECONDS_OF_ROW = {False: 25e-9, True: 3e-9}  # to evaluate a loss, by whether it is quadratic
_SECONDS_OF_SCORE = {4: 0.4e-9, 8: 0.8e-9}
_SLOPE_OF_ROW, _SLOPE_OF_SCORE = 60e-9, 2e-9  # of a line search, where no kernel does it
_SUM_OF_ROW, _SUM_OF_SCORE = 15e-9, 0.5e-9  # residuals summed by column, for an intercept
_ROUND_SECONDS, _SHARD_SECONDS = 2e-5, 1e-5  # that a round takes whatever the data, and a shard
_EPOCH_SECONDS = {False: 5e-5, True: 4e-4}  # of the solver itself: vectors, or blocks
_SETUP_SECONDS = 2e-3
_QR_SECONDS = 0.5e-9  # to orthogonalise, over rows times columns squared
_EIGEN_SECONDS = 0.06e-9  # to find and prove the largest eigenvalue, over the size cubed
# What an epoch takes, about, on average: evaluations of F and looks at the gradient outside of
# W's span (accelerated), slopes of a line search (dfw), and steps of the intercept for each W.
_EVALUATIONS, _EXPLORATIONS, _SLOPES, _SHIFTS = 1.4, 0.7, 2.3, 4.0
_MOMENTS_OF_ROW = 1e-7  # seconds, where rows are centred or weighted before they are squared
_SPARE = 12  # columns of such a look
_MEMORY_SHARE = 0.8  # of the free memory, which a run may take
_FACTORED_BLOCK = 4 << 20  # bytes of scores that the factored form rebuilds at once
_FIXED_MEMORY = 4e6  # bytes of small things, and of blocks of rows


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
    columns: int = 1  # vectors that are multiplied at once, and the rank of W, about
    quadratic: bool = False  # the loss
    intercept: bool = False
    weighted: bool = False
    copied: int = 0  # bytes of X and y that are not as the shards hold them
    far: bool = False  # from zero, so that rows are centred before products with them


@dataclass(frozen=True)
class Estimate:
    """Bytes at the peak beyond the data as they were given, seconds once, seconds an epoch."""

    memory: float
    setup: float
    epoch: float

    def total(self, epochs: int) -> float:
        """Seconds of a run that makes all these epochs."""
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
        By representation: bytes that a run adds at its peak to the data as they are given, and
        seconds for what is done once and for an epoch. Empty for a custom task, which has only its
        own form.
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
        row = "{:<16}{:>12}{:>12}{:>12}{:>16}".format
        heading = "representation", "memory", "set-up", "an epoch", f"≤ {w.epochs} epochs"
        if self.costs:
            lines.append("memory: added to the data at the peak; time: if no epoch is left out")
            lines.append(row(*heading))
        for name, cost in self.costs.items():
            mark = "→ " if name == self.representation else "  "
            seconds = map(duration_text, (cost.setup, cost.epoch, cost.total(w.epochs)))
            lines.append(row(mark + name, size_text(cost.memory), *seconds))
        return "\n".join(lines)


def estimates(w: Workload) -> dict[str, Estimate]:
    """What each representation costs, from passes over memory and matrix products."""
    memory, times = _memory(w), _seconds(w)
    # Most memory is new to the process, and first touched while the run is set up.
    return {
        name: Estimate(memory[name], once + memory[name] / _FRESH, epoch)
        for name, (once, epoch) in times.items()
    }


def _rank(w: Workload, at_most: bool = False) -> int:
    """Columns of W's factors, on average or at the most, about; only a run can know."""
    narrow = min(w.d, w.m)
    if w.columns > 1:  # far from the optimum, a loss such as the multinomial has more of them
        more = 0 if w.quadratic else narrow // (4 if at_most else 8)
        return min(w.columns + more, narrow)
    # Frank-Wolfe adds one an epoch, and compresses them after every hundred.
    return min(w.epochs, 100) + (min(w.epochs - 100, narrow) if w.epochs > 100 else 0)


def _gathered(w: Workload) -> bool:
    """Whether the certificate gathers the dense gradient, as `certify` decides; not for gram."""
    few = w.columns > 1 and 4 * (_rank(w) + 8) < min(w.d, w.m)
    return w.d * w.m <= (SMALL_ENTRIES if few else DENSE_ENTRIES)


def _seconds(w: Workload) -> dict[str, tuple[float, float]]:
    """Of each representation, once and in an epoch."""
    jobs, rank, blocks = w.n_jobs, _rank(w), w.columns > 1
    dense_flops = _FLOPS[w.itemsize] * jobs
    bandwidth, flops = _BANDWIDTH * jobs, _SPARSE_FLOPS * jobs if w.sparse else dense_flops
    features, scores = float(w.stored * w.itemsize), float(w.n * w.m * w.itemsize)
    gradient, factors = 8.0 * w.d * w.m, 8.0 * (w.d + w.m) * rank
    loss = w.n * (_SECONDS_OF_ROW[w.quadratic] + w.m * _SECONDS_OF_SCORE[w.itemsize]) / jobs
    slope = w.n * (_SLOPE_OF_ROW + w.m * _SLOPE_OF_SCORE) / jobs if w.quadratic else loss
    column_sums = w.n * (_SUM_OF_ROW + w.m * _SUM_OF_SCORE) / jobs
    # Sparse rows times residuals are a dense array for each block of rows, new if it is large.
    large = factors > _LARGE
    length = 24.0 * w.d * w.sparse / (bandwidth / 3.0 if large else bandwidth)
    n_blocks = max(w.n_shards, w.n / ROWS_IN_BLOCK)
    a_round = _ROUND_SECONDS + _SHARD_SECONDS * w.n_shards / jobs

    def product(columns: float) -> float:
        """XU."""
        return max(2.0 * w.stored * columns / flops, features / bandwidth)

    def transposed(columns: float, blocks: float) -> float:
        """XᵀT."""
        return product(columns) + blocks * columns * length

    def product_of_scores(columns: float) -> float:
        """RV, or RᵀA, or scores from factors."""
        return max(2.0 * w.n * w.m * columns / dense_flops, scores / bandwidth)

    form_gradient = 2.0 * w.stored * w.m / flops + n_blocks * w.m * length
    moments = (w.d + w.m) * w.stored / flops
    if w.sparse:  # a dense d×d matrix for each block of rows
        moments = w.stored / w.n * w.stored / _SPARSE_SQUARE_FLOPS / jobs + w.m * w.stored / flops
        moments += 3.0 * 8.0 * w.d**2 * n_blocks / bandwidth
    elif w.itemsize == 4 or w.weighted or w.intercept:
        moments = (w.d + w.m) * w.stored / _FLOPS[8] / jobs + 4.0 * features / bandwidth
        moments += w.n * _MOMENTS_OF_ROW * (w.intercept or w.weighted) / jobs
    moments += 3.0 * 8.0 * w.d * (w.d + w.m) * w.n_shards / _BANDWIDTH
    check = _SETUP_SECONDS + features / bandwidth + 4.0 * w.copied / _BANDWIDTH
    check += features / bandwidth * (w.intercept + 2.0 * w.far)
    p, q = min(w.d, w.m), max(w.d, w.m)
    bound = 2.0 * p * p * q / _FLOPS[8] + _EIGEN_SECONDS * min(p, 2000) * p * p
    bound += 3.0 * gradient / _BANDWIDTH
    shifts = 0.0 if w.quadratic else _SHIFTS + (min(w.m / 40.0, 12.0) if blocks else 0.0)
    shift = w.intercept * (shifts * (loss + a_round) + (shifts + 1.0) * (column_sums + a_round))
    spare = min(_SPARE, p)
    if blocks:  # L-BFGS, and what an exploration makes orthonormal
        pairs = _pairs(w, rank)
        master = factors * ((8.0 * pairs + 30.0) / _BANDWIDTH + 20.0 * large / _FRESH)
        master += _EXPLORATIONS * _QR_SECONDS * (w.d + w.m) * (rank + spare) ** 2
        rounds = 2.0 * _EVALUATIONS + 2.0 * _EXPLORATIONS
    else:
        master = _QR_SECONDS * (w.d + w.m) * rank**2 * (1.0 / max(1, w.epochs) + 0.01)
        rounds = w.products + 2.0 + (1.0 if w.quadratic else _SLOPES)
    master += _EPOCH_SECONDS[blocks]

    costs = dict[str, tuple[float, float]]()
    if blocks:
        a_tangent = 2.0 * w.d * rank * (w.d + 2.0 * w.m)
        a_look = 2.0 * w.d * w.m * (rank + 2.0 * spare)
        of_moments = (_EVALUATIONS * a_tangent + _EXPLORATIONS * a_look) / _FLOPS[8]
        of_moments += (_EVALUATIONS * 8.0 * w.d * (w.d + w.m) + gradient) / _BANDWIDTH
    else:
        states = w.n_shards if w.local else 1
        passes = (w.products + 5.0) * gradient + 8.0 * w.d**2
        of_moments = passes * states / _BANDWIDTH
    epoch = master + rounds * _ROUND_SECONDS + of_moments
    costs["gram"] = check + moments + bound, epoch

    build = product(rank) + product_of_scores(rank) + loss
    tangent = transposed(rank, n_blocks) + 2.0 * product_of_scores(rank)
    at_once = spare if blocks else 1

    def pair(columns: int, blocks: float) -> float:
        """GV and GᵀU."""
        both = product(columns) + transposed(columns, blocks)
        return both + 2.0 * product_of_scores(columns)

    lanczos = (6.0 * pair(rank + 8, n_blocks) if blocks else 0.0) + 20.0 * pair(1, n_blocks)
    certificate = form_gradient + bound if _gathered(w) else lanczos
    once = check + loss + shift + certificate
    gather = form_gradient if w.gathers else 0.0
    if blocks:
        evaluations = _EVALUATIONS * (build + shift + tangent)
        epoch = evaluations + _EXPLORATIONS * pair(at_once, n_blocks)
    else:  # the first product comes out of the update
        update = loss + 3.0 * scores / bandwidth + product(1)
        epoch = update + shift + 0.5 * w.products * pair(1, n_blocks)
        epoch += (1.0 if w.quadratic else _SLOPES) * slope + gather
    overhead = master + rounds * a_round
    costs["implicit"] = once, overhead + epoch

    if blocks:
        # With an intercept, the gradient is formed for each tangent, and an exploration has it.
        gradients = _EVALUATIONS if w.intercept else _EXPLORATIONS
        tangents = 0.0 if w.intercept else tangent
        epoch = _EVALUATIONS * (build + shift + tangents) + gradients * form_gradient
    else:
        epoch = update + shift + form_gradient
        epoch += (1.0 if w.quadratic else _SLOPES) * slope
        epoch += w.products * gradient * w.n_shards / bandwidth
    costs["dense"] = once, overhead + epoch

    rebuilt = 2.0 * w.n * (rank if blocks else rank / 2.0) * w.m / dense_flops + loss
    extra = w.intercept * (shifts + 1.0) * (rebuilt + column_sums + 2.0 * a_round)
    n_blocks = max(w.n_shards, scores / _FACTORED_BLOCK)
    if blocks:
        a_tangent = transposed(rank, n_blocks) + 2.0 * product_of_scores(rank)
        epoch = _EVALUATIONS * (product(rank) + rebuilt + a_tangent + extra)
        epoch += _EXPLORATIONS * (pair(at_once, n_blocks) + 2.0 * rebuilt)
    else:
        epoch = rebuilt + extra + w.products * (rebuilt + 0.5 * pair(1, n_blocks)) + gather
        epoch += product(1)
        epoch += (1.0 if w.quadratic else _SLOPES) * (rebuilt + slope)
    costs["factored"] = once + rebuilt, overhead + epoch
    return costs


def _pairs(w: Workload, rank: int) -> int:
    """Pairs of changes that L-BFGS keeps, as `solvers.lbfgs.room` decides."""
    return min(w.epochs, 40, max(3, (1 << 28) // (16 * (w.d + w.m) * max(1, rank))))


def _memory(w: Workload) -> dict[str, float]:
    """Bytes at the peak of each representation, beyond the data as they were given."""
    rank, jobs = _rank(w, at_most=True), min(w.n_jobs, w.n_shards)
    features = float(w.stored * w.itemsize) + (4.0 * w.stored if w.sparse else 0.0)
    gradient, factors = 8.0 * w.d * w.m, 8.0 * (w.d + w.m) * rank
    # Sums along a tree hold one part for each of its levels, and what threads work on.
    level = math.ceil(math.log2(w.n_shards)) + 1 if w.n_shards > 1 else 1
    p = min(w.d, w.m)
    if w.columns > 1:
        wider = 8.0 * (w.d + w.m) * (rank + min(_SPARE, p - rank))
        solver = factors * (10.0 + 2.0 * _pairs(w, rank)) + 4.0 * wider
        replies = factors
    else:
        room = 0
        while room < rank:
            room = max(8, 2 * (room + 1))
        solver = 8.0 * (w.d + w.m) * (room + 4.0 * rank)
        replies = 8.0 * (w.d + w.m)
    bound = 2.0 * gradient + 3.0 * 8.0 * p * p
    if _gathered(w):
        certificate = max(bound, (level + 2.0 * jobs) * gradient)
    else:
        certificate = 8.0 * (w.d + w.m) * (40.0 + 4.0 * (rank + 8.0) * (w.columns > 1))
    # Weights and labels are parted in every shard; sparse blocks have row pointers of their own.
    rows = 8.0 * w.n * (2.0 * w.weighted + 2.0 * w.sparse) + (2.0 * features if w.far else 0.0)
    if w.far and not w.sparse:
        rows -= features
    shared = w.copied + _FIXED_MEMORY

    moments = 8.0 * w.d * (w.d + w.m)
    block = 3.0 * 8.0 * min(w.n, ROWS_IN_BLOCK) * (w.d + w.m)
    as_is = w.itemsize == 8 and not (w.sparse or w.weighted or w.intercept)
    summing = (level + jobs) * moments + (0.0 if as_is else jobs * (8.0 * w.d**2 + block))
    kept = moments * (w.n_shards + 1 if w.local else 1 + w.intercept) + 2.0 * gradient
    sizes = {"gram": shared + max(summing, kept + solver, kept + bound)}

    states = w.n * w.itemsize * (2.0 * w.m + 3.0 + (rank if w.columns > 1 else 1))
    states += w.n_shards * (replies + 8.0 * w.d) + rows
    working = (level + 2.0 * jobs) * replies
    rest = shared + max(solver + working, certificate)
    sizes["implicit"] = rest + states
    sizes["dense"] = rest + states + w.n_shards * gradient + jobs * gradient
    images = float(w.n * w.itemsize) * (2.0 * rank if w.columns > 1 else 1.5 * room + 2.0)
    images += w.n_shards * w.m * w.itemsize * rank + jobs * 2.0 * _FACTORED_BLOCK
    sizes["factored"] = rest + images + rows + w.n_shards * 8.0 * w.d
    return sizes


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
