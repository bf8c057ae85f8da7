"""K(t): how many power iterations epoch t gets, by a plain rule or by the paper's theorem.

With γ = 2/(t+2), an error of ½ δ γ C_F in every subproblem gives F(W_t) - F* ≤ 2 C_F (1+δ)/(t+2).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil, floor, log, nan
from typing import NamedTuple

from dfwtrace._typing import FloatArray
from dfwtrace.linalg.golub_kahan import uniform_on_sphere
from dfwtrace.validation import check_count, check_positive, describe

# σ₂/σ₁ that the logarithmic bound assumes until it has been observed, and never exceeds.
_BETA_AT_FIRST, _BETA_AT_MOST = 0.9, 0.99


class Constants(NamedTuple):
    """The constants in the theorem.

    Attributes
    ----------
    lipschitz, curvature : float
        L ≥ σ₁(∇F(W)) over the ball, and C_F.
    """

    lipschitz: float = nan
    curvature: float = nan


class Setting(NamedTuple):
    """What an oracle may know of a run.

    Attributes
    ----------
    radius : float
        μ.
    shape : (d, m)
    seed : int
        The seed that all workers share.
    constants : callable
        Bounds the theorem's constants, in a few rounds.
    """

    radius: float
    shape: tuple[int, int]
    seed: int
    constants: Callable[[], Constants]

    def random_start(self, t: int) -> FloatArray:
        """v₀ of epoch t: uniform on the unit sphere of Rᵐ, the same wherever it is drawn."""
        return uniform_on_sphere(self.shape[1], self.seed, t)


@dataclass
class PowerRun:
    """What has been seen so far: the values σ of this epoch's iterations, recent ratios σ₂/σ₁."""

    setting: Setting
    constants: Constants = field(default_factory=Constants)
    sigmas: list[float] = field(default_factory=list)
    ratios: deque[float] = field(default_factory=lambda: deque(maxlen=10))


class Schedule:
    """A rule for the number of power iterations: a subclass has `iterations` or `enough`.

    Examples
    --------
    >>> isinstance(Constant(2), Schedule)
    True
    """

    @property
    def needs_constants(self) -> bool:
        """Whether constants of the theorem are not given, and must be bounded from the data."""
        return any(name in vars(self) and vars(self)[name] is None for name in Constants._fields)

    @property
    def observes_ratio(self) -> bool:
        """Whether σ₂/σ₁ is to be observed."""
        return False

    def iterations(self, t: int, run: PowerRun) -> int:
        """K(t) ≥ 1, where it is known before epoch t begins."""
        raise NotImplementedError

    def enough(self, t: int, k: int, run: PowerRun) -> bool:
        """Whether epoch t may stop after k iterations."""
        return k >= self.iterations(t, run)

    def mean_iterations(self, epochs: int) -> float:
        """Mean of K(t) over the epochs, or a guess of it, for the cost model."""
        return 5.0


@dataclass(frozen=True)
class Constant(Schedule):
    """K(t) = k: converges to a neighbourhood that shrinks as k grows.

    Parameters
    ----------
    k : int, default=1
        Iterations of every epoch.

    Examples
    --------
    >>> Constant(2)
    Constant(k=2)
    """

    k: int = 1

    def __post_init__(self) -> None:
        check_count("k", self.k, 1)

    def iterations(self, t: int, run: PowerRun) -> int:
        return int(self.k)

    def mean_iterations(self, epochs: int) -> float:
        return float(self.k)


class _Positive(Schedule):
    """A rule whose parameters are positive numbers, where they are given."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None:
                check_positive(name, value)


@dataclass(frozen=True)
class Log(_Positive):
    """K(t) = ⌊1 + c·log t⌋, to base 10 by default, as in the paper's experiments.

    Parameters
    ----------
    factor : float, default=1.0
        c.
    base : float, default=10.0
        Of the logarithm.

    Examples
    --------
    >>> Log(0.5)
    Log(factor=0.5, base=10.0)
    """

    factor: float = 1.0
    base: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.base <= 1:
            raise ValueError(f"base must be above 1, got {describe(self.base)}.")

    def iterations(self, t: int, run: PowerRun) -> int:
        # log(1000)/log(10) is 2.9999999999999996: 1e-9 is added so that breaks fall where meant.
        return floor(1.0 + self.factor * log(max(t, 1)) / log(self.base) + 1e-9)

    def mean_iterations(self, epochs: int) -> float:
        # The mean of log t over t = 1 … T is about log T - 1.
        return 1.0 + self.factor * max(log(max(epochs, 1)) - 1.0, 0.0) / log(self.base)


@dataclass(frozen=True)
class Linear(_Positive):
    """K(t) = ⌊1 + c·t⌋, the O(t) of the theorem with any slope.

    Parameters
    ----------
    slope : float, default=1.0
        c.

    Examples
    --------
    >>> Linear(0.5).mean_iterations(epochs=10)
    3.5
    """

    slope: float = 1.0

    def iterations(self, t: int, run: PowerRun) -> int:
        return floor(1.0 + self.slope * t)

    def mean_iterations(self, epochs: int) -> float:
        return 1.0 + 0.5 * self.slope * epochs


@dataclass(frozen=True)
class TheoremLinear(_Positive):
    """K(t) = 1 + ⌈μ L (t+2) ln m / (δ C_F)⌉, enough in expectation for any spectrum.

    Parameters
    ----------
    delta : float, default=1.0
        δ in the bound 2 C_F (1+δ)/(t+2).
    lipschitz, curvature : float, optional
        L ≥ σ₁(∇F(W)) over the ball, and C_F; bounded from the data by default.
    radius, m : float and int, optional
        μ, and the number of columns of W; the run's by default.

    Examples
    --------
    >>> TheoremLinear(delta=2.0).needs_constants
    True
    """

    delta: float = 1.0
    lipschitz: float | None = None
    curvature: float | None = None
    radius: float | None = None
    m: int | None = None

    def difficulty(self, t: int, run: PowerRun) -> float:
        """μL(t+2)/(δ C_F) = μL / (½ δ γ C_F): 1 / the relative accuracy that epoch t needs."""
        lipschitz = self.lipschitz or run.constants.lipschitz
        curvature = self.curvature or run.constants.curvature
        radius = self.radius or run.setting.radius
        return radius * lipschitz * (t + 2) / (self.delta * curvature)

    def mean_iterations(self, epochs: int) -> float:
        return 1.0 + 0.5 * epochs  # a guess: the constants are not known yet

    def iterations(self, t: int, run: PowerRun) -> int:
        return 1 + ceil(self.difficulty(t, run) * log(self.m or run.setting.shape[1]))


@dataclass(frozen=True)
class TheoremLog(TheoremLinear):
    """K(t) = 1 + ⌈ln(1.6 √m μ L (t+2)/(δ C_F)) / (2 ln 1/β)⌉, enough where σ₂/σ₁ ≤ β < 1.

    After k iterations the relative error is at most min(1, β^(4k-2) tan²θ), where θ is the angle
    of the start to the top singular vector. For a start uniform on the sphere its expectation is
    at most 1.6 √m β^(2k-1), and the theorem needs it to be δ C_F / (μ L (t+2)). The linear bound,
    which holds for any spectrum, is taken where it is smaller (β near 1).

    Parameters
    ----------
    delta, lipschitz, curvature, radius, m : float, optional
        These as for `TheoremLinear`.
    beta : float, optional
        Upper bound of σ₂/σ₁. Without it, the largest ratio observed over the last epochs is taken.

    Examples
    --------
    >>> TheoremLog(beta=0.9).observes_ratio
    False
    """

    beta: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beta is not None and self.beta >= 1:
            raise ValueError(f"beta must be below 1, got {describe(self.beta)}.")

    @property
    def observes_ratio(self) -> bool:
        return self.beta is None

    def iterations(self, t: int, run: PowerRun) -> int:
        beta = self.beta or min(max(run.ratios, default=_BETA_AT_FIRST), _BETA_AT_MOST)
        m = self.m or run.setting.shape[1]
        accuracy = max(1.6 * m**0.5 * self.difficulty(t, run), 1.0)
        bound = 1 + ceil(log(accuracy) / (2.0 * log(1.0 / max(beta, 1e-6))))
        least = 2 if self.observes_ratio else 1  # two Ritz values need two iterations
        return max(least, min(bound, super().iterations(t, run)))


@dataclass(frozen=True)
class Adaptive(_Positive):
    """Iterate until μ(σ₁ - σ) is at most ½ δ γ C_F, with the error σ₁ - σ estimated.

    The increments of σ fall at a rate that itself rises towards (σ₂/σ₁)⁴, so the sum of those to
    come is extrapolated with a rate nearer to 1 than the last one seen, its sixth root: on flat,
    geometric and random spectra the accuracy is then met nine times in ten. The theorem's bound
    σ ln(m)/k ends the epoch where it is reached sooner.

    Parameters
    ----------
    delta : float, default=1.0
        δ in the bound 2 C_F (1+δ)/(t+2).
    curvature : float, optional
        C_F; bounded from the data by default.

    Examples
    --------
    >>> Adaptive(curvature=1.0).needs_constants
    False
    """

    delta: float = 1.0
    curvature: float | None = None

    def enough(self, t: int, k: int, run: PowerRun) -> bool:
        curvature = self.curvature or run.constants.curvature
        accuracy = self.delta * curvature / (t + 2) / run.setting.radius  # ½ δ γ C_F / μ
        sigma = run.sigmas[-1]
        if sigma * log(max(run.setting.shape[1], 2)) / k <= accuracy:
            return True
        if k < 3:
            return False
        last, before = sigma - run.sigmas[-2], run.sigmas[-2] - run.sigmas[-3]
        if last <= 0.0:  # σ no longer rises: converged to rounding
            return True
        rate = min((last / before) ** (1 / 6), _BETA_AT_MOST) if before > 0.0 else _BETA_AT_MOST
        return last * rate / (1.0 - rate) <= accuracy
