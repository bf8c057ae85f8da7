"""K(t): how many power iterations epoch t gets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field
from math import floor, log

from dfwtrace.lmo.setting import Constants, Setting
from dfwtrace.validation import check_count, check_positive, describe


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

    def mean_iterations(self, epochs: int) -> float:
        """K(t) on average over so many epochs, or a guess of it: for the cost model."""
        return 5.0


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

    Parameters
    ----------
    k : int

    Examples
    --------
    >>> import dfwtrace as dt
    >>> dt.lmo.Power(schedule=dt.lmo.Constant(2))
    Power(schedule=Constant(k=2), start='random')
    """

    k: int = 1

    def __post_init__(self) -> None:
        check_count("k", self.k, 1)

    def iterations(self, t: int, run: PowerRun) -> int:
        return int(self.k)

    def mean_iterations(self, epochs: int) -> float:
        return float(self.k)


@dataclass(frozen=True)
class Log(FixedSchedule):
    """K(t) = ⌊1 + c·log t⌋, to base 10 by default, as in the paper's experiments.

    Parameters
    ----------
    factor : float
        c.
    base : float
        Of the logarithm.
    """

    factor: float = 1.0
    base: float = 10.0

    def __post_init__(self) -> None:
        check_positive("factor", self.factor)
        if check_positive("base", self.base) <= 1:
            raise ValueError(f"base must be above 1, got {describe(self.base)}.")

    def iterations(self, t: int, run: PowerRun) -> int:
        # log(1000)/log(10) is 2.9999999999999996: a hair is added so that breaks fall where meant.
        return floor(1.0 + self.factor * log(max(t, 1)) / log(self.base) + 1e-9)

    def mean_iterations(self, epochs: int) -> float:
        # The mean of log t over t = 1 … T is about log T - 1.
        return 1.0 + self.factor * max(log(max(epochs, 1)) - 1.0, 0.0) / log(self.base)


@dataclass(frozen=True)
class Linear(FixedSchedule):
    """K(t) = ⌊1 + c·t⌋, the O(t) of the theorem with a slope of one's own.

    Parameters
    ----------
    slope : float
        c.
    """

    slope: float = 1.0

    def __post_init__(self) -> None:
        check_positive("slope", self.slope)

    def iterations(self, t: int, run: PowerRun) -> int:
        return floor(1.0 + self.slope * t)

    def mean_iterations(self, epochs: int) -> float:
        return 1.0 + 0.5 * self.slope * epochs
