"""What the power method and Lanczos share: a schedule, a start, and rounds over the gradient."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import astuple, dataclass
from typing import Any

from dfwtrace._typing import FloatArray
from dfwtrace.gradient import GradientOperator
from dfwtrace.lanczos import Pair
from dfwtrace.lmo.schedules import PowerRun, Schedule
from dfwtrace.lmo.setting import Setting, zero_pair
from dfwtrace.lmo.starts import START_NAMES, PreviousStart, begin_start
from dfwtrace.validation import describe


@dataclass(frozen=True)
class IterativeLMO(ABC):
    """Settings of an oracle that multiplies K(t) times by G and Gᵀ."""

    schedule: Schedule
    start: str = "random"

    def __post_init__(self) -> None:
        if not isinstance(self.schedule, Schedule):
            raise TypeError(f"schedule must be a Schedule, got {describe(self.schedule)}.")
        if self.start not in START_NAMES:
            raise ValueError(
                f"start must be one of {', '.join(START_NAMES)}, got {describe(self.start)}."
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
        self.start = begin_start(lmo.start, setting)
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

    def memory(self) -> dict[str, Any]:
        """What a run that goes on must know."""
        constants = self.seen.constants
        return {
            "start": getattr(self.start, "previous", None),
            "ratios": list(self.seen.ratios),
            "constants": None if constants is None else astuple(constants),
        }

    def restore(self, memory: dict[str, Any]) -> None:
        if isinstance(self.start, PreviousStart):
            self.start.previous = memory["start"]
        self.seen.ratios.extend(memory["ratios"])

    @abstractmethod
    def iterate(self, gradient: GradientOperator, t: int, v: FloatArray) -> Pair | None:
        """K(t) iterations from v; None if G v = 0."""
