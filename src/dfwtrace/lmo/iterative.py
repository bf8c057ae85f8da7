"""What the power method and Lanczos share: a schedule, a start, and rounds over the gradient."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import astuple, dataclass
from typing import Protocol

from dfwtrace._typing import FloatArray, Memory
from dfwtrace.linalg.golub_kahan import Pair
from dfwtrace.linalg.gradient import GradientOperator
from dfwtrace.lmo.schedules import PowerRun, Schedule
from dfwtrace.lmo.setting import Setting, zero_pair
from dfwtrace.lmo.sva import averaged_pair
from dfwtrace.validation import describe


class Start(Protocol):
    """v₀ for epoch t; `finish` gets the vector that the epoch ended with."""

    def __call__(self, gradient: GradientOperator, t: int) -> FloatArray: ...

    def finish(self, gradient: GradientOperator, t: int, v: FloatArray) -> None: ...


class RandomStart:
    """Uniform on the unit sphere, drawn from the common seed: nothing is sent."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    def __call__(self, gradient: GradientOperator, t: int) -> FloatArray:
        return self.setting.random_start(t)

    def finish(self, gradient: GradientOperator, t: int, v: FloatArray) -> None:
        gradient.expect(self.setting.seed, t + 1)


class PreviousStart(RandomStart):
    """The vector that the last epoch ended with; the first epoch draws one."""

    previous: FloatArray | None = None

    def __call__(self, gradient: GradientOperator, t: int) -> FloatArray:
        return super().__call__(gradient, t) if self.previous is None else self.previous

    def finish(self, gradient: GradientOperator, t: int, v: FloatArray) -> None:
        self.previous = v


class SVAStart(RandomStart):
    """The average of the shards' own top right vectors: one more round of N(d+m) numbers."""

    def __call__(self, gradient: GradientOperator, t: int) -> FloatArray:
        _, v = averaged_pair(gradient, self.setting.seed)
        return v if v.any() else super().__call__(gradient, t)

    def finish(self, gradient: GradientOperator, t: int, v: FloatArray) -> None:
        """The next start is known only when the shards have moved."""


_STARTS = {"random": RandomStart, "previous": PreviousStart, "sva": SVAStart}


@dataclass(frozen=True)
class IterativeLMO(ABC):
    """Settings of an oracle that multiplies K(t) times by G and Gᵀ."""

    schedule: Schedule
    start: str = "random"

    def __post_init__(self) -> None:
        if not isinstance(self.schedule, Schedule):
            raise TypeError(f"schedule must be a Schedule, got {describe(self.schedule)}.")
        if self.start not in _STARTS:
            raise ValueError(
                f"start must be one of {', '.join(_STARTS)}, got {describe(self.start)}."
            )

    @property
    def needs(self) -> tuple[str, ...]:
        return ("curvature_product",) if self.schedule.needs_constants else ()

    @property
    def local(self) -> bool:
        return self.start == "sva"

    @property
    def gathers(self) -> bool:
        return False

    def mean_products(self, epochs: int) -> float:
        return 2.0 * self.schedule.mean_iterations(epochs)

    @abstractmethod
    def begin(self, setting: Setting) -> IterativeOracle: ...


class IterativeOracle(ABC):
    """Such an oracle within one run, with what it has seen so far."""

    def __init__(self, lmo: IterativeLMO, setting: Setting) -> None:
        self.schedule = lmo.schedule
        self.setting = setting
        self.start = _STARTS[lmo.start](setting)
        constants = setting.constants() if lmo.schedule.needs_constants else None
        self.seen = PowerRun(setting, constants)

    def __call__(self, gradient: GradientOperator, t: int) -> Pair:
        pair = self.iterate(gradient, t, self.start(gradient, t))
        if pair is None:  # G v₀ = 0: a start that is not random may lie in the kernel of G ≠ 0
            pair = self.iterate(gradient, t, self.setting.random_start(t))
        if pair is None:
            return zero_pair(gradient.shape)
        self.start.finish(gradient, t, pair.v)
        return pair

    def memory(self) -> Memory:
        """What a resumed run must know."""
        constants = self.seen.constants
        return {
            "start": getattr(self.start, "previous", None),
            "ratios": list(self.seen.ratios),
            "constants": None if constants is None else astuple(constants),
        }

    def restore(self, memory: Memory) -> None:
        if isinstance(self.start, PreviousStart):
            self.start.previous = memory["start"]
        self.seen.ratios.extend(memory["ratios"])

    @abstractmethod
    def iterate(self, gradient: GradientOperator, t: int, v: FloatArray) -> Pair | None:
        """K(t) iterations from v; None if G v = 0."""
