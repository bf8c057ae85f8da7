"""Oracles: the distributed power method, lines 4-10 of Algorithm 2, Lanczos and two baselines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol, runtime_checkable

import numpy as np
from scipy.sparse.linalg import svds

from dfwtrace._typing import FloatArray, Memory
from dfwtrace.linalg.golub_kahan import GolubKahan, Pair, unit
from dfwtrace.linalg.gradient import GradientOperator
from dfwtrace.lmo.schedules import Constant, Log, PowerRun, Schedule, Setting
from dfwtrace.validation import describe

_SMALL = 64  # up to here a full SVD is as fast as ARPACK, and it has no special cases
_SIGNS = ("largest-entry", "agreement")
_STARTS = ("random", "previous", "sva")


class Oracle(Protocol):
    """Minimises ⟨S, G⟩ over the ball: a pair (u, v) with uᵀGv near σ₁(G), for S = -μ uvᵀ."""

    def __call__(self, gradient: GradientOperator, t: int) -> Pair: ...


@runtime_checkable
class RememberingOracle(Protocol):
    """An oracle whose next pairs depend on earlier epochs; a checkpoint keeps its memory."""

    def memory(self) -> Memory:
        """What a resumed run must know."""

    def restore(self, memory: Memory) -> None:
        """Continue from there."""


class LMO(ABC):
    """An oracle's settings, which can be used for many runs, and what the oracle needs.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> isinstance(dt.lmo.Naive(), dt.lmo.LMO)
    True
    """

    gathers: bool = False  #: Whether the dense gradient is gathered.

    @abstractmethod
    def begin(self, setting: Setting) -> Oracle:
        """The oracle of one run."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Methods beyond the products that the task must have."""
        return ()

    @property
    def local(self) -> bool:
        """Whether the shards' own gradients are needed, not only their sum."""
        return False

    def mean_products(self, epochs: int) -> float:
        """Mean number of products with a gradient in an epoch, for the cost model."""
        return 0.0


def zero_pair(shape: tuple[int, int]) -> Pair:
    """What an oracle answers for a zero gradient."""
    return Pair(np.zeros(shape[0]), np.zeros(shape[1]), 0.0, 1)


@dataclass(frozen=True)
class Power(LMO):
    """K(t) power iterations on GᵀG: 2·N·K·(d+m) numbers in 2K rounds.

    Parameters
    ----------
    schedule : Schedule
        K(t): `Constant`, `Log`, `Linear`, `TheoremLinear`, `TheoremLog` or `Adaptive`.
    start : {"random", "previous", "sva"}
        Where the first right vector comes from: uniform on the sphere from the common seed (the
        paper's), the last epoch's result, or the average of the shards' own top pairs.

    Examples
    --------
    >>> Power(schedule=Constant(2), start="previous")
    Power(schedule=Constant(k=2), start='previous')
    """

    schedule: Schedule = field(default_factory=Log)
    start: str = "random"

    def __post_init__(self) -> None:
        if not isinstance(self.schedule, Schedule):
            raise TypeError(f"schedule must be a Schedule, got {describe(self.schedule)}.")
        if self.start not in _STARTS:
            raise ValueError(f"start must be one of {', '.join(_STARTS)}, got {self.start!r}.")

    @property
    def needs(self) -> tuple[str, ...]:
        return ("curvature_product",) if self.schedule.needs_constants else ()

    @property
    def local(self) -> bool:
        return self.start == "sva"

    def mean_products(self, epochs: int) -> float:
        return 2.0 * self.schedule.mean_iterations(epochs)

    def begin(self, setting: Setting) -> IterativeOracle:
        return IterativeOracle(self, setting)

    def iterate(self, G: GradientOperator, t: int, v: FloatArray, run: PowerRun) -> Pair | None:
        """Make K(t) iterations from v; None if G v = 0."""
        run.sigmas = []
        images: list[tuple[FloatArray, FloatArray]] = []
        for k in count(1):
            product = G.times(v)  # Σ_j ∇F_j v_k
            images.append((v, product))
            u, length = unit(product)
            if length == 0.0:
                return None
            v, sigma = unit(G.transpose_times(u))  # Σ_j ∇F_jᵀ u_{k+1}
            run.sigmas.append(sigma)
            if self.schedule.enough(t, k, run):
                break
        if self.schedule.observes_ratio:
            run.ratios.append(_observed_ratio(images))
        return Pair(u, v, sigma, k)


@dataclass(frozen=True)
class Lanczos(Power):
    """K(t) steps of Golub-Kahan bidiagonalisation: 2·N·K·(d+m) numbers in 2K rounds.

    It sends what the power method sends, and finds the best pair in the span of all the vectors
    instead of the last pair: far more accurate for the same rounds.

    Parameters
    ----------
    schedule : Schedule
        K(t), see `Power`; 4 steps by default.
    start : {"random", "previous", "sva"}
        See `Power`.

    Examples
    --------
    >>> Lanczos()
    Lanczos(schedule=Constant(k=4), start='random')
    """

    schedule: Schedule = field(default_factory=lambda: Constant(4))

    def iterate(self, G: GradientOperator, t: int, v: FloatArray, run: PowerRun) -> Pair | None:
        run.sigmas = []
        process = GolubKahan(G.times, G.transpose_times, v)
        while not process.run(1).exhausted:
            run.sigmas.append(float(process.singular_values()[0]))
            if self.schedule.enough(t, process.steps, run):
                break
        if process.steps == 0:
            return None
        if self.schedule.observes_ratio:
            values = process.singular_values()
            run.ratios.append(float(values[1] / values[0]) if values.size > 1 else 0.0)
        return process.top_pair()


class IterativeOracle:
    """`Power` or `Lanczos` within one run, with what it has seen so far."""

    def __init__(self, lmo: Power, setting: Setting) -> None:
        self._lmo = lmo
        self._previous: FloatArray | None = None  # the last epoch's v, if the next starts there
        self.seen = PowerRun(setting, setting.constants()) if lmo.needs else PowerRun(setting)

    def __call__(self, gradient: GradientOperator, t: int) -> Pair:
        setting, start, pair = self.seen.setting, self._lmo.start, None
        v = self._previous
        if start == "sva":
            v = _averaged_pair(gradient, setting.seed, _SIGNS[0])[1]
        if v is not None and v.any():
            pair = self._lmo.iterate(gradient, t, v, self.seen)
        if pair is None:  # also if v lies in the kernel of G ≠ 0
            pair = self._lmo.iterate(gradient, t, setting.random_start(t), self.seen)
        if pair is None:
            return zero_pair(gradient.shape)
        if start == "random":  # other starts are known only after the update
            gradient.expected = setting.seed, t + 1
        elif start == "previous":
            self._previous = pair.v
        return pair

    def memory(self) -> Memory:
        constants = self.seen.constants if self._lmo.needs else None
        return {"start": self._previous, "ratios": list(self.seen.ratios), "constants": constants}

    def restore(self, memory: Memory) -> None:
        self._previous = memory["start"]
        self.seen.ratios.extend(memory["ratios"])


def _observed_ratio(images: list[tuple[FloatArray, FloatArray]]) -> float:
    """σ₂/σ₁ as seen from the span of the iterates v_k, whose images G v_k are known: no round."""
    V, GV = (np.column_stack(side) for side in zip(*images, strict=True))
    R: FloatArray = np.linalg.qr(V)[1]
    # Later iterates are nearly parallel; those before the first one that adds nothing are used.
    adds_nothing = np.abs(np.diag(R)) < 1e-8
    used = int(np.argmax(adds_nothing)) if adds_nothing.any() else adds_nothing.size
    if used < 2:
        return 0.0  # the start was the top vector itself, as far as can be seen
    # With V = QR, the singular values of GQ = (GV)R⁻¹ are Ritz values of G.
    ritz = np.linalg.svd(np.linalg.solve(R[:used, :used].T, GV[:, :used].T), compute_uv=False)
    return float(ritz[1] / ritz[0])


@dataclass(frozen=True)
class Naive(LMO):
    """The exact oracle, a baseline of the paper: N·d·m numbers in 1 round.

    Examples
    --------
    >>> Naive().gathers
    True
    """

    gathers = True

    def begin(self, setting: Setting) -> Oracle:
        def top_pair(gradient: GradientOperator, t: int) -> Pair:
            G = gradient.gather()
            if not G.any():
                return zero_pair(G.shape)
            if min(G.shape) <= _SMALL:
                U, s, Vt = np.linalg.svd(G, full_matrices=False)
            else:  # ARPACK works on the smaller side and wants its start from there
                start = setting.random_start(t)
                v0 = start if G.shape[1] <= G.shape[0] else G @ start
                U, s, Vt = svds(G, k=1, v0=v0, solver="arpack")
            return Pair(U[:, 0], Vt[0], float(s[0]), 0)

        return top_pair


@dataclass(frozen=True)
class SVA(LMO):
    """Singular vector averaging, a baseline of the paper: N(d+m) numbers in 1 round.

    Its pair comes without a value of uᵀGv; `sigma` is NaN in the history unless a line search
    computes it.

    Parameters
    ----------
    signs : {"largest-entry", "agreement"}, default="largest-entry"
        A pair (u_j, v_j) is only known up to a common sign. The paper makes the entry of u_j that
        is largest in magnitude positive. "agreement" takes the signs with which as many pairs as
        possible agree, which is far better where d and m are large.

    Examples
    --------
    >>> SVA(signs="agreement")
    SVA(signs='agreement')
    """

    signs: str = "largest-entry"
    local = True

    def __post_init__(self) -> None:
        if self.signs not in _SIGNS:
            raise ValueError(f"signs must be one of {', '.join(_SIGNS)}, got {self.signs!r}.")

    def mean_products(self, epochs: int) -> float:
        return 40.0  # a guess: each shard iterates until its pair stops improving

    def begin(self, setting: Setting) -> Oracle:
        def average(gradient: GradientOperator, t: int) -> Pair:
            u, v = _averaged_pair(gradient, setting.seed, self.signs)
            known = u.any() and v.any()
            return Pair(u, v, float("nan"), 0) if known else zero_pair(gradient.shape)

        return average


def _averaged_pair(G: GradientOperator, seed: int, signs: str) -> tuple[FloatArray, FloatArray]:
    """Σ_j n_j ε_j (u_j, v_j), both parts at length one: one sign ε_j, so that u_j v_jᵀ stays."""
    d, pairs = G.shape[0], np.column_stack(G.local_pairs(seed))
    weighted = pairs * np.asarray(G.workers.shard_rows, dtype=np.float64)
    if signs == "agreement":  # as in the top right singular vector of the matrix of all pairs
        reference = np.linalg.svd(weighted, full_matrices=False)[2][0]
    else:
        largest = np.argmax(np.abs(pairs[:d]), axis=0)
        reference = pairs[largest, np.arange(pairs.shape[1])]
    average = weighted @ np.where(reference < 0.0, -1.0, 1.0)
    if not (average[:d].any() and average[d:].any()):  # the pairs cancel: the heaviest decides
        average = weighted[:, int(np.argmax(np.linalg.norm(weighted, axis=0)))]
    return unit(average[:d])[0], unit(average[d:])[0]
