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
_FRESH = 4e9  # bytes of new memory, whose pages the system has to bring and to clear first
_CACHE, _MISS = 16e6, 15e-9  # bytes of what is found at once, and seconds to find other numbers
_SPARSE_FLOPS = 4e9
_SPARSE_SQUARE_FLOPS = 0.15e9  # products of two sparse matrices
_SECONDS_OF_ROW = {False: 25e-9, True: 3e-9}  # to evaluate a loss, by whether it is quadratic
_SECONDS_OF_SCORE = {4: 0.4e-9, 8: 0.8e-9}
_SLOPE_OF_ROW, _SLOPE_OF_SCORE = 60e-9, 2e-9  # of a line search, where no kernel does it
_SUM_OF_ROW, _SUM_OF_SCORE = 15e-9, 0.3e-9  # residuals summed by column, for an intercept
_ROUND_SECONDS, _SHARD_SECONDS = 2e-5, 1e-5  # that a round takes whatever the data, and a shard
_EPOCH_SECONDS = {False: 5e-5, True: 4e-4}  # of the solver itself: vectors, or blocks
_SETUP_SECONDS = 2e-3
_QR_SECONDS = 0.5e-9  # to orthogonalise, over rows times columns squared
_EIGEN_SECONDS = 0.06e-9  # to find and prove the largest eigenvalue, over the size cubed
# What an epoch takes, about, on average: evaluations of F with its gradient along W's factors and
# some probes (accelerated), slopes of a line search and steps of the intercept (dfw).
_EVALUATIONS, _PROBES, _SLOPES, _SHIFTS = 1.2, 8, 2.3, 4.0
_MOMENTS_OF_ROW = 1e-7  # seconds, where rows are centred or weighted before they are squared
_MEMORY_SHARE = 0.8  # of the free memory, which a run may take
_FACTORED_BLOCK = 4 << 20, 32  # bytes of scores that the factored form rebuilds at once, rows
_SHORT_BLOCKS = 1.05  # times as long as with the longer blocks of scores that are kept
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
    forms = _Passes(w)
    master, rounds = _master(w), _rounds(w)
    once = {name: forms.check + forms.first(name) for name in ("implicit", "dense", "factored")}
    epoch = forms.evaluation if w.columns > 1 else forms.frank_wolfe
    costs = {"gram": (forms.check + _moments(w) + forms.bound, _gram_epoch(w))}
    for name, seconds in once.items():
        costs[name] = seconds, master + rounds * forms.a_round + epoch(name)
    return costs


class _Passes:
    """Seconds of what shards do in the forms that keep the rows."""

    def __init__(self, w: Workload) -> None:
        jobs = w.n_jobs
        self.w, self.rank = w, _rank(w) + (_PROBES if w.columns > 1 else 0)
        self.rank = min(self.rank, w.d, w.m) if w.columns > 1 else self.rank
        self.dense_flops, self.bandwidth = _FLOPS[w.itemsize] * jobs, _BANDWIDTH * jobs
        self.flops = _SPARSE_FLOPS * jobs if w.sparse else self.dense_flops
        self.features = float(w.stored * w.itemsize)
        self.scores = float(w.n * w.m * w.itemsize)
        self.loss = (
            w.n * (_SECONDS_OF_ROW[w.quadratic] + w.m * _SECONDS_OF_SCORE[w.itemsize]) / jobs
        )
        self.column_sums = w.n * (_SUM_OF_ROW + w.m * _SUM_OF_SCORE) / jobs
        self.a_round = _ROUND_SECONDS + _SHARD_SECONDS * w.n_shards / jobs
        self.check = _SETUP_SECONDS + self.features / self.bandwidth + 4.0 * w.copied / _BANDWIDTH
        self.check += self.features / self.bandwidth * (w.intercept + 2.0 * w.far)
        self.bound = _bound(w)
        self.shifts = 0.0 if w.quadratic else _SHIFTS + min(w.m / 400.0, 8.0)

    # Products

    def product(self, columns: float) -> float:
        """XU."""
        # Not the larger of the two: BLAS is slow at products with few columns.
        seconds = 2.0 * self.w.stored * columns / self.flops + self.features / self.bandwidth
        if self.w.sparse and 8.0 * self.w.d * columns > _CACHE:
            seconds += self.w.stored * _MISS / self.w.n_jobs
        return seconds

    def transposed(self, columns: float) -> float:
        """XᵀT, a dense array of each shard, and their sum."""
        replies = 8.0 * self.w.d * columns * self.w.n_shards
        return self.product(columns) + (3.0 * replies / self.bandwidth)

    def of_scores(self, columns: float) -> float:
        """RV, or RᵀA, or scores from factors."""
        w = self.w
        return max(2.0 * w.n * w.m * columns / self.dense_flops, self.scores / self.bandwidth)

    def pair(self, columns: int, rebuilt: float) -> float:
        """GV and GᵀU."""
        both = self.product(columns) + self.transposed(columns) + 2.0 * rebuilt
        return both + 2.0 * self.of_scores(columns)

    @property
    def gradient(self) -> float:
        return self.transposed(self.w.m)

    def rebuilt(self, name: str, rank: float) -> float:
        """Scores and residual anew, where they are not kept."""
        if name != "factored":
            return 0.0
        scores = 2.0 * self.w.n * rank * self.w.m / self.dense_flops
        return scores + self.scores / self.bandwidth + self.loss

    # Parts of a run

    def first(self, name: str) -> float:
        """What is done once: F at the start, and a certificate at the end."""
        rebuilt = self.rebuilt(name, self.rank)
        shift = self.shift(name) if self.w.columns == 1 else 0.0
        if _gathered(self.w):
            return self.loss + shift + self.gradient + rebuilt + self.bound
        products = 20.0 * self.pair(1, rebuilt)
        if self.w.columns > 1:
            products += 6.0 * self.pair(self.rank, rebuilt)
        return self.loss + shift + rebuilt + products

    def shift(self, name: str) -> float:
        """Steps of the intercept after W has moved."""
        if not self.w.intercept:
            return 0.0
        looks = (self.shifts + 1.0) * (self.column_sums + self.a_round)
        if name == "factored":
            return looks + (self.shifts + 1.0) * (
                self.rebuilt(name, self.rank / 2.0) + self.a_round
            )
        steps = self.shifts * (self.loss + 3.0 * self.scores / self.bandwidth + self.a_round)
        return looks + steps + (self.shifts + 1.0) * self.scores / self.bandwidth

    def evaluation(self, name: str) -> float:
        """F at another W, and its gradient along the factors: one pass, with or without memory."""
        k, w = self.rank, self.w
        one = self.product(k) + self.transposed(k) + 3.0 * self.of_scores(k)
        one += self.loss + self.column_sums
        if name == "factored":  # factors and sums are read and written for each block
            rows = max(_FACTORED_BLOCK[1], _FACTORED_BLOCK[0] / (w.m * w.itemsize))
            one = _SHORT_BLOCKS * one + 16.0 * w.n / rows * w.m * k / self.bandwidth
        else:
            one += self.scores / self.bandwidth
        return _EVALUATIONS * one

    def frank_wolfe(self, name: str) -> float:
        """A step towards an atom, found by products with the gradient."""
        w, rank = self.w, self.rank
        rebuilt = self.rebuilt(name, rank / 2.0)
        slope = w.n * (_SLOPE_OF_ROW + w.m * _SECONDS_OF_SCORE[w.itemsize]) / w.n_jobs
        slopes = (1.0 if w.quadratic else _SLOPES) * (
            (slope if w.quadratic else self.loss) + rebuilt
        )
        epoch = self.shift(name) + slopes
        vectors = 4.0 * 8.0 * (w.d + w.m) * w.n_shards
        epoch += _rounds(w) * vectors / self.bandwidth
        if name == "dense":
            epoch += self.product(1) + self.gradient
            epoch += 8.0 * w.d * w.m * w.products * w.n_shards / self.bandwidth
        else:
            epoch += self.gradient * w.gathers
            # The first product comes out of the pass that finds F.
            products = 0.5 * w.products * self.pair(1, rebuilt) - rebuilt
            epoch += max(0.0, products)
        if name == "factored":
            return epoch + rebuilt
        return epoch + self.loss + 3.0 * self.scores / self.bandwidth


def _bound(w: Workload) -> float:
    """The largest singular value of a dense gradient."""
    p, q = min(w.d, w.m), max(w.d, w.m)
    bound = 2.0 * p * p * q / _FLOPS[8] + _EIGEN_SECONDS * min(p, 2000) * p * p
    return bound + 3.0 * 8.0 * w.d * w.m / _BANDWIDTH


def _moments(w: Workload) -> float:
    """XᵀX and XᵀY of all rows."""
    bandwidth, features = _BANDWIDTH * w.n_jobs, float(w.stored * w.itemsize)
    if w.sparse:  # a dense d×d matrix for each block of rows
        flops = _SPARSE_FLOPS * w.n_jobs
        seconds = w.stored / w.n * w.stored / _SPARSE_SQUARE_FLOPS / w.n_jobs
        seconds += w.m * w.stored / flops
        seconds += 3.0 * 8.0 * w.d**2 * max(w.n_shards, w.n / ROWS_IN_BLOCK) / bandwidth
    elif w.itemsize == 4 or w.weighted or w.intercept:
        seconds = (w.d + w.m) * w.stored / _FLOPS[8] / w.n_jobs + 4.0 * features / bandwidth
        seconds += w.n * _MOMENTS_OF_ROW * (w.intercept or w.weighted) / w.n_jobs
    else:
        seconds = (w.d + w.m) * w.stored / _FLOPS[8] / w.n_jobs
    return seconds + 3.0 * 8.0 * w.d * (w.d + w.m) * w.n_shards / _BANDWIDTH


def _gram_epoch(w: Workload) -> float:
    gradient, rank = 8.0 * w.d * w.m, _rank(w)
    if w.columns > 1:
        columns = min(rank + _PROBES, w.d, w.m)
        seconds = 2.0 * w.d * columns * (w.d + 2.0 * w.m) / _FLOPS[8]
        seconds = _EVALUATIONS * (seconds + 8.0 * w.d * (w.d + w.m) / _BANDWIDTH)
    else:
        states = w.n_shards if w.local else 1
        seconds = ((w.products + 5.0) * gradient + 8.0 * w.d**2) * states / _BANDWIDTH
    return _master(w) + _rounds(w) * _ROUND_SECONDS + seconds


def _rounds(w: Workload) -> float:
    if w.columns > 1:
        return 2.0 * _EVALUATIONS
    return w.products + 2.0 + (1.0 if w.quadratic else _SLOPES)


def _master(w: Workload) -> float:
    """What the solver itself does in an epoch."""
    rank = _rank(w)
    factors = 8.0 * (w.d + w.m) * rank
    if w.columns > 1:  # L-BFGS, and what makes factors orthonormal
        seconds = factors * (8.0 * _pairs(w, rank) + 30.0) / _BANDWIDTH
        seconds += 20.0 * factors * (factors > _LARGE) / _FRESH
        seconds += _QR_SECONDS * (w.d + w.m) * (rank + _PROBES) ** 2
    else:
        seconds = _QR_SECONDS * (w.d + w.m) * rank**2 * (1.0 / max(1, w.epochs) + 0.01)
    return seconds + _EPOCH_SECONDS[w.columns > 1]


def _pairs(w: Workload, rank: int) -> int:
    """Pairs of changes that L-BFGS keeps, as `solvers.lbfgs.room` decides."""
    return min(w.epochs, 160, max(3, (1 << 28) // (16 * (w.d + w.m) * max(1, rank))))


def _memory(w: Workload) -> dict[str, float]:
    """Bytes at the peak of each representation, beyond the data as they were given."""
    rank, jobs = _rank(w, at_most=True), min(w.n_jobs, w.n_shards)
    features = float(w.stored * w.itemsize) + (4.0 * w.stored if w.sparse else 0.0)
    gradient, factors = 8.0 * w.d * w.m, 8.0 * (w.d + w.m) * rank
    # Sums along a tree hold one part for each of its levels, and what threads work on.
    level = math.ceil(math.log2(w.n_shards)) + 1 if w.n_shards > 1 else 1
    p = min(w.d, w.m)
    if w.columns > 1:
        wider = 8.0 * (w.d + w.m) * (rank + min(_PROBES, p - rank))
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
    block = max(_FACTORED_BLOCK[0], _FACTORED_BLOCK[1] * w.m * w.itemsize)
    block = min(block, w.n * w.m * w.itemsize)
    images += w.n_shards * w.m * w.itemsize * rank + jobs * 2.0 * block
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
