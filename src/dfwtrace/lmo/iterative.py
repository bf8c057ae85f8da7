"""What the power method and Lanczos share: a schedule, a start, and rounds over the gradient."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import astuple, dataclass

from dfwtrace._typing import FloatArray, Memory
from dfwtrace.linalg.golub_kahan import Pair
from dfwtrace.linalg.gradient import GradientOperator
from dfwtrace.lmo.schedules import PowerRun, Schedule
from dfwtrace.lmo.setting import LMO, Setting, zero_pair
from dfwtrace.lmo.sva import averaged_pair
from dfwtrace.validation import describe

_STARTS = ("random", "previous", "sva")


@dataclass(frozen=True)
class IterativeLMO(LMO):
    """An oracle that multiplies K(t) times by G and Gᵀ."""

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

    def mean_products(self, epochs: int) -> float:
        return 2.0 * self.schedule.mean_iterations(epochs)

    def begin(self, setting: Setting) -> IterativeOracle:
        return IterativeOracle(self, setting)

    @abstractmethod
    def iterate(
        self, gradient: GradientOperator, t: int, v: FloatArray, run: PowerRun
    ) -> Pair | None:
        """Make K(t) iterations from v; None if G v = 0."""


class IterativeOracle:
    """Such an oracle within one run, with what it has seen so far."""

    def __init__(self, lmo: IterativeLMO, setting: Setting) -> None:
        self._lmo, self._setting = lmo, setting
        self._previous: FloatArray | None = None
        self.seen = PowerRun(setting, setting.constants() if lmo.needs else None)

    def __call__(self, gradient: GradientOperator, t: int) -> Pair:
        pair = self._lmo.iterate(gradient, t, self._start(gradient, t), self.seen)
        if pair is None:  # G v₀ = 0: a start that is not random may lie in the kernel of G ≠ 0
            pair = self._lmo.iterate(gradient, t, self._setting.random_start(t), self.seen)
        if pair is None:
            return zero_pair(gradient.shape)
        self._previous = pair.v
        if self._lmo.start == "random":  # other starts are known only after the update
            gradient.expect(self._setting.seed, t + 1)
        return pair

    def _start(self, gradient: GradientOperator, t: int) -> FloatArray:
        """v₀: the last epoch's result, the shards' average, or drawn from the common seed."""
        if self._lmo.start == "previous" and self._previous is not None:
            return self._previous
        if self._lmo.start == "sva":
            v = averaged_pair(gradient, self._setting.seed)[1]
            if v.any():
                return v
        return self._setting.random_start(t)

    def memory(self) -> Memory:
        """What a resumed run must know."""
        constants = self.seen.constants
        return {
            "start": self._previous if self._lmo.start == "previous" else None,
            "ratios": list(self.seen.ratios),
            "constants": None if constants is None else astuple(constants),
        }

    def restore(self, memory: Memory) -> None:
        """Continue from there."""
        self._previous = memory["start"]
        self.seen.ratios.extend(memory["ratios"])
