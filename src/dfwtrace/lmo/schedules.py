"""K(t): how many power iterations epoch t gets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field
from math import ceil, floor, log

from dfwtrace.lmo.setting import Constants, Setting

# σ₂/σ₁ that the logarithmic bound assumes until it has been observed, and never exceeds.
_BETA_AT_FIRST = 0.9
_BETA_AT_MOST = 0.99


@dataclass
class PowerRun:
    """What has been seen so far: the values σ of this epoch's iterations, recent ratios σ₂/σ₁."""

    setting: Setting
    constants: Constants | None = None
    sigmas: list[float] = field(default_factory=list)
    ratios: deque[float] = field(default_factory=lambda: deque(maxlen=10))


class Schedule(ABC):
    """A rule for the number of power iterations."""

    #: Constants of the theorem that are not given, and must be bounded from the data.
    needs_constants: bool = False
    #: Whether σ₂/σ₁ shall be observed.
    observes_ratio: bool = False

    @abstractmethod
    def iterations(self, t: int, run: PowerRun) -> int:
        """K(t) ≥ 1."""

    def enough(self, t: int, k: int, run: PowerRun) -> bool:
        """Whether epoch t may stop after k iterations."""
        return k >= self.iterations(t, run)


@dataclass(frozen=True)
class Constant(Schedule):
    """K(t) = k: converges to a neighbourhood that shrinks as k grows.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> dt.lmo.Power(schedule=dt.lmo.Constant(2))
    Power(schedule=Constant(k=2), start='random')
    """

    k: int = 1

    def __post_init__(self) -> None:
        _require(isinstance(self.k, int) and self.k >= 1, "k", "a whole number ≥ 1", self.k)

    def iterations(self, t: int, run: PowerRun) -> int:
        return self.k


@dataclass(frozen=True)
class Log(Schedule):
    """K(t) = ⌊1 + c·log t⌋, to base 10 by default, as in the paper's experiments."""

    factor: float = 1.0
    base: float = 10.0

    def __post_init__(self) -> None:
        _require(self.factor > 0, "factor", "positive", self.factor)
        _require(self.base > 1, "base", "above 1", self.base)

    def iterations(self, t: int, run: PowerRun) -> int:
        # log(1000)/log(10) is 2.9999999999999996: a hair is added so that breaks fall where meant.
        return floor(1.0 + self.factor * log(max(t, 1)) / log(self.base) + 1e-9)


@dataclass(frozen=True)
class Linear(Schedule):
    """K(t) = ⌊1 + c·t⌋, the O(t) of the theorem with a slope of one's own."""

    slope: float = 1.0

    def __post_init__(self) -> None:
        _require(self.slope > 0, "slope", "positive", self.slope)

    def iterations(self, t: int, run: PowerRun) -> int:
        return floor(1.0 + self.slope * t)


@dataclass(frozen=True)
class _Theorem(Schedule):
    """Constants of the theorem: given, or bounded from the data where they are None."""

    delta: float = 1.0
    lipschitz: float | None = None
    curvature: float | None = None
    radius: float | None = None
    m: int | None = None

    def __post_init__(self) -> None:
        _require(self.delta > 0, "delta", "positive", self.delta)
        for name in ("lipschitz", "curvature", "radius", "m"):
            value = getattr(self, name)
            _require(value is None or value > 0, name, "positive", value)

    @property
    def needs_constants(self) -> bool:  # type: ignore[override]  # known from the fields
        return self.lipschitz is None or self.curvature is None

    def difficulty(self, t: int, run: PowerRun) -> float:
        """μL(t+2)/(δ C_F) = μσ₁ / (½ δ γ C_F): 1 / the relative accuracy that epoch t needs."""
        lipschitz, curvature = self.lipschitz, self.curvature
        if run.constants is not None:
            lipschitz = lipschitz or run.constants.lipschitz
            curvature = curvature or run.constants.curvature
        assert lipschitz is not None  # see needs_constants
        assert curvature is not None
        radius = self.radius or run.setting.radius
        return radius * lipschitz * (t + 2) / (self.delta * curvature)

    def linear_bound(self, t: int, run: PowerRun) -> int:
        """1 + ⌈μ L (t+2) ln m / (δ C_F)⌉."""
        return 1 + ceil(self.difficulty(t, run) * log(self.m or run.setting.shape[1]))


@dataclass(frozen=True)
class TheoremLinear(_Theorem):
    """K(t) = 1 + ⌈μ L (t+2) ln m / (δ C_F)⌉, enough for any spectrum.

    Then F(W_t) - F* ≤ 2 C_F (1+δ)/(t+2) in expectation. L bounds σ₁ of the gradient over the ball.
    """

    def iterations(self, t: int, run: PowerRun) -> int:
        return self.linear_bound(t, run)


@dataclass(frozen=True)
class TheoremLog(_Theorem):
    """K(t) = 1 + ⌈ln(1.6 √m μ L (t+2)/(δ C_F)) / (2 ln 1/β)⌉, enough where σ₂/σ₁ ≤ β < 1.

    After k iterations the relative error is at most min(1, β^(4k-2) tan²θ), where θ is the angle
    of the start to the top singular vector. For a start uniform on the sphere its expectation is
    at most 1.6 √m β^(2k-1), and the theorem needs it to be δ C_F / (μ L (t+2)). The linear bound,
    which holds for any spectrum, is taken where it is smaller (β near 1).

    Parameters
    ----------
    beta : float, optional
        Upper bound of σ₂/σ₁. Without it, the largest ratio observed over the last epochs is taken.
    """

    beta: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        within = self.beta is None or 0 < self.beta < 1
        _require(within, "beta", "between 0 and 1", self.beta)

    @property
    def observes_ratio(self) -> bool:  # type: ignore[override]  # known from the fields
        return self.beta is None

    def iterations(self, t: int, run: PowerRun) -> int:
        beta = self.beta or min(max(run.ratios, default=_BETA_AT_FIRST), _BETA_AT_MOST)
        m = self.m or run.setting.shape[1]
        accuracy = max(1.6 * m**0.5 * self.difficulty(t, run), 1.0)
        least = 2 if self.observes_ratio else 1  # two Ritz values need two iterations
        bound = 1 + ceil(log(accuracy) / (2.0 * log(1.0 / max(beta, 1e-6))))
        return max(least, min(bound, self.linear_bound(t, run)))


@dataclass(frozen=True)
class Adaptive(_Theorem):
    """Iterate until μ(σ₁ - σ) ≤ ½ δ γ C_F, as the convergence proof needs at γ = 2/(t+2).

    The error σ₁ - σ is extrapolated from the last three values, which approach σ₁ geometrically;
    the theorem's bound σ ln(m)/k ends the epoch where it is reached sooner.
    """

    lipschitz: float | None = 0.0  # not used: σ itself is known once the iterations run

    def __post_init__(self) -> None:
        _require(self.delta > 0, "delta", "positive", self.delta)
        _require(
            self.curvature is None or self.curvature > 0, "curvature", "positive", self.curvature
        )

    @property
    def needs_constants(self) -> bool:  # type: ignore[override]  # known from the fields
        return self.curvature is None

    def iterations(self, t: int, run: PowerRun) -> int:
        raise TypeError("an adaptive epoch's number of iterations is not known beforehand")

    def enough(self, t: int, k: int, run: PowerRun) -> bool:
        curvature = self.curvature
        if curvature is None:
            assert run.constants is not None  # see needs_constants
            curvature = run.constants.curvature
        radius = self.radius or run.setting.radius
        accuracy = self.delta * curvature / (t + 2) / radius  # ½ δ γ C_F / μ
        sigma = run.sigmas[-1]
        if sigma * log(max(self.m or run.setting.shape[1], 2)) / k <= accuracy:
            return True
        if k < 3:
            return False
        last, before = sigma - run.sigmas[-2], run.sigmas[-2] - run.sigmas[-3]
        if last <= 0.0:  # σ no longer rises: converged to rounding
            return True
        rate = min(last / before, _BETA_AT_MOST) if before > 0.0 else _BETA_AT_MOST
        return last * rate / (1.0 - rate) <= accuracy


def _require(holds: bool, name: str, what: str, value: object) -> None:
    if not holds:
        raise ValueError(f"{name} must be {what}, got {value!r}.")
