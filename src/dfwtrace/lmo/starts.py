"""Where the power method starts: from the sphere, from the last epoch, or from SVA's average."""

from __future__ import annotations

from typing import Protocol

from dfwtrace._typing import FloatArray
from dfwtrace.gradient import GradientOperator
from dfwtrace.lmo.setting import Setting
from dfwtrace.lmo.sva import averaged_pair

START_NAMES = ("random", "previous", "sva")


class Start(Protocol):
    """v₀ for epoch t; `finish` hears the vector that the epoch ended with."""

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


def begin_start(name: str, setting: Setting) -> Start:
    starts = {"random": RandomStart, "previous": PreviousStart, "sva": SVAStart}
    return starts[name](setting)
