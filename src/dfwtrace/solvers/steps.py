"""Step sizes: line 11 of Algorithm 2. Always within [0, 1]."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import ClassVar, Protocol, cast

from dfwtrace._typing import FloatArray
from dfwtrace.validation import check_count, check_positive, describe, require_finite


@dataclass
class Line:
    """φ(γ) = F((1-γ) W + γ S) on the way to the atom S, known through its derivatives."""

    ask: Callable[[float], FloatArray]  # γ ↦ [φ'(γ), φ''(γ)], one round
    quadratic: bool  # φ'' is constant
    first_slope: float = math.nan  # φ'(0) = ⟨S - W, ∇F(W)⟩ if it has been asked for

    def derivatives(self, gamma: float) -> tuple[float, float]:
        reply = require_finite(self.ask(gamma), "the objective's slope or curvature")
        slope, curvature = (float(number) for number in reply)
        if gamma == 0.0:
            self.first_slope = slope
        return slope, curvature


Rule = Callable[[int], float]  # t ↦ γ, given by the user


class Step(Protocol):
    """A rule for γ in epoch t."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Methods that the task must have."""

    def __call__(self, t: int, line: Line) -> float: ...


@dataclass(frozen=True)
class Harmonic:
    """The step size γ = 2/(t+2) of the paper's theorem.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> dt.Harmonic()
    Harmonic()
    """

    needs: ClassVar[tuple[str, ...]] = ()

    def __call__(self, t: int, line: Line) -> float:
        return 2.0 / (t + 2.0)


@dataclass(frozen=True)
class Given:
    """γ(t) from a function of the user's; a constant is a function too."""

    rule: Rule
    needs: ClassVar[tuple[str, ...]] = ()

    def __call__(self, t: int, line: Line) -> float:
        return self.rule(t)


@dataclass(frozen=True)
class LineSearch:
    """The minimiser of the convex φ over [0, 1]: closed form if quadratic, else guarded Newton.

    A Newton step is taken while it stays where the minimum can be and is at most half as long as
    the one before. Otherwise the bracket on which φ' changes its sign is halved, or, while there
    is none yet, the last step doubled.

    Parameters
    ----------
    tol : float, default=1e-2
        The search ends when |φ'| has fallen to this share of its first value.
    max_rounds : int, default=20
        Largest number of values of γ to try, one round each.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> dt.LineSearch(tol=1e-3)
    LineSearch(tol=0.001, max_rounds=20)
    """

    tol: float = 1e-2
    max_rounds: int = 20
    needs: ClassVar[tuple[str, ...]] = ("linesearch",)

    def __post_init__(self) -> None:
        check_positive("tol", self.tol)
        check_count("max_rounds", self.max_rounds, 1)

    def __call__(self, t: int, line: Line) -> float:
        slope, curvature = line.derivatives(0.0)
        if slope >= 0.0:  # an inexact oracle's pair need not be a descent direction
            return 0.0
        if line.quadratic:
            return min(-slope / curvature, 1.0) if curvature > 0.0 else 1.0
        first, gamma, low, high = slope, 0.0, 0.0, math.inf
        move = math.inf
        for _ in range(self.max_rounds):
            newton = -slope / curvature if curvature > 0.0 else math.inf
            if abs(newton) > 0.5 * abs(move) or not low < gamma + newton < high:
                newton = 0.5 * (low + high) - gamma if high < math.inf else max(newton, 2.0 * move)
            move = min(newton, 1.0 - gamma)
            gamma += move
            slope, curvature = line.derivatives(gamma)
            if abs(slope) <= self.tol * abs(first) or (gamma == 1.0 and slope <= 0.0):
                return gamma
            low, high = (gamma, high) if slope < 0.0 else (low, gamma)
        return low  # φ(low) < φ(0), since φ' < 0 up to there


def within_unit_interval(gamma: float, t: int) -> float:
    """γ clipped to [0, 1]."""
    if isinstance(gamma, bool) or not isinstance(gamma, Real):
        raise TypeError(f"step must give a number, got {describe(gamma)} at epoch {t}.")
    if math.isnan(gamma):
        raise ValueError(f"step must give a number, got NaN at epoch {t}.")
    return min(max(float(gamma), 0.0), 1.0)


def resolve(step: str | float | Rule | Step) -> Step:
    """The rule of that name, a constant, a function of t, or the object itself."""
    if isinstance(step, type):
        raise TypeError(f"step must be an object, not the class {step.__name__}.")
    if isinstance(step, str):
        if step not in ("harmonic", "linesearch"):
            raise ValueError(f"step must be harmonic or linesearch, got {describe(step)}.")
        return Harmonic() if step == "harmonic" else LineSearch()
    if callable(step):
        return cast(Step, step) if hasattr(step, "needs") else Given(step)
    if isinstance(step, bool) or not isinstance(step, Real):
        raise TypeError(f"step must be a name, a number or a function of t, got {describe(step)}.")
    gamma = float(step)
    if not 0.0 <= gamma <= 1.0:
        raise ValueError(f"step must be within [0, 1], got {describe(step)}.")
    return Given(lambda t: gamma)
