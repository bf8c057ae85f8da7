"""K(t): how many power iterations epoch t gets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field
from math import floor, inf, log

from dfwtrace.lmo.setting import Constants, Setting
from dfwtrace.validation import describe


@dataclass
class PowerRun:
    """What has been seen so far: the values σ of this epoch's iterations, recent ratios σ₂/σ₁."""

    setting: Setting
    constants: Constants | None = None
    sigmas: list[float] = field(default_factory=list)
    ratios: deque[float] = field(default_factory=lambda: deque(maxlen=10))


class Schedule(ABC):
    """A rule for the number of power iterations."""

    @property
    def needs_constants(self) -> bool:
        """Whether constants of the theorem are not given, and must be bounded from the data."""
        return False

    @property
    def observes_ratio(self) -> bool:
        """Whether σ₂/σ₁ shall be observed."""
        return False

    @abstractmethod
    def enough(self, t: int, k: int, run: PowerRun) -> bool:
        """Whether epoch t may stop after k iterations."""


class FixedSchedule(Schedule):
    """A rule that knows K(t) before epoch t begins."""

    @abstractmethod
    def iterations(self, t: int, run: PowerRun) -> int:
        """K(t) ≥ 1."""

    def enough(self, t: int, k: int, run: PowerRun) -> bool:
        return k >= self.iterations(t, run)


@dataclass(frozen=True)
class Constant(FixedSchedule):
    """K(t) = k: converges to a neighbourhood that shrinks as k grows.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> dt.lmo.Power(schedule=dt.lmo.Constant(2))
    Power(schedule=Constant(k=2), start='random')
    """

    k: int = 1

    def __post_init__(self) -> None:
        require(isinstance(self.k, int) and self.k >= 1, "k", "a whole number ≥ 1", self.k)

    def iterations(self, t: int, run: PowerRun) -> int:
        return self.k


@dataclass(frozen=True)
class Log(FixedSchedule):
    """K(t) = ⌊1 + c·log t⌋, to base 10 by default, as in the paper's experiments."""

    factor: float = 1.0
    base: float = 10.0

    def __post_init__(self) -> None:
        require(0 < self.factor < inf, "factor", "positive and finite", self.factor)
        require(1 < self.base < inf, "base", "above 1 and finite", self.base)

    def iterations(self, t: int, run: PowerRun) -> int:
        # log(1000)/log(10) is 2.9999999999999996: a hair is added so that breaks fall where meant.
        return floor(1.0 + self.factor * log(max(t, 1)) / log(self.base) + 1e-9)


@dataclass(frozen=True)
class Linear(FixedSchedule):
    """K(t) = ⌊1 + c·t⌋, the O(t) of the theorem with a slope of one's own."""

    slope: float = 1.0

    def __post_init__(self) -> None:
        require(0 < self.slope < inf, "slope", "positive and finite", self.slope)

    def iterations(self, t: int, run: PowerRun) -> int:
        return floor(1.0 + self.slope * t)


def require(holds: bool, name: str, what: str, value: object) -> None:
    """Refuse a parameter in one sentence."""
    if not holds:
        raise ValueError(f"{name} must be {what}, got {describe(value)}.")
