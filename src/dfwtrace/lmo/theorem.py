"""Schedules from the convergence theorem: how accurate an epoch's pair must be, and what it takes.

With γ = 2/(t+2), an error of ½ δ γ C_F in every subproblem gives F(W_t) - F* ≤ 2 C_F (1+δ)/(t+2).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log

from dfwtrace.lmo.schedules import FixedSchedule, PowerRun, Schedule
from dfwtrace.validation import check_positive, describe

# σ₂/σ₁ that the logarithmic bound assumes until it has been observed, and never exceeds.
_BETA_AT_FIRST = 0.9
_BETA_AT_MOST = 0.99


@dataclass(frozen=True)
class _TheoremSchedule(FixedSchedule):
    """Constants of the theorem: given, or bounded from the data where they are None."""

    delta: float = 1.0
    lipschitz: float | None = None
    curvature: float | None = None
    radius: float | None = None
    m: int | None = None

    def __post_init__(self) -> None:
        check_positive("delta", self.delta)
        for name in ("lipschitz", "curvature", "radius", "m"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))

    @property
    def needs_constants(self) -> bool:
        return self.lipschitz is None or self.curvature is None

    def difficulty(self, t: int, run: PowerRun) -> float:
        """μL(t+2)/(δ C_F) = μL / (½ δ γ C_F): 1 / the relative accuracy that epoch t needs."""
        lipschitz, curvature = self.lipschitz, self.curvature
        if run.constants is not None:
            lipschitz = lipschitz or run.constants.lipschitz
            curvature = curvature or run.constants.curvature
        assert lipschitz is not None  # see needs_constants
        assert curvature is not None
        radius = self.radius or run.setting.radius
        return radius * lipschitz * (t + 2) / (self.delta * curvature)

    def mean_iterations(self, epochs: int) -> float:
        return 1.0 + 0.5 * epochs  # a guess: the constants are not known yet

    def linear_bound(self, t: int, run: PowerRun) -> int:
        """1 + ⌈μ L (t+2) ln m / (δ C_F)⌉."""
        return 1 + ceil(self.difficulty(t, run) * log(self.m or run.setting.shape[1]))


@dataclass(frozen=True)
class TheoremLinear(_TheoremSchedule):
    """K(t) = 1 + ⌈μ L (t+2) ln m / (δ C_F)⌉, enough in expectation for any spectrum.

    Parameters
    ----------
    delta : float
        δ in the bound 2 C_F (1+δ)/(t+2).
    lipschitz : float, optional
        L ≥ σ₁(∇F(W)) over the ball; bounded from the data by default.
    curvature : float, optional
        C_F; bounded from the data by default.
    radius, m : optional
        μ and the number of columns of W; the run's by default.
    """

    def iterations(self, t: int, run: PowerRun) -> int:
        return self.linear_bound(t, run)


@dataclass(frozen=True)
class TheoremLog(_TheoremSchedule):
    """K(t) = 1 + ⌈ln(1.6 √m μ L (t+2)/(δ C_F)) / (2 ln 1/β)⌉, enough where σ₂/σ₁ ≤ β < 1.

    After k iterations the relative error is at most min(1, β^(4k-2) tan²θ), where θ is the angle
    of the start to the top singular vector. For a start uniform on the sphere its expectation is
    at most 1.6 √m β^(2k-1), and the theorem needs it to be δ C_F / (μ L (t+2)). The linear bound,
    which holds for any spectrum, is taken where it is smaller (β near 1).

    Parameters
    ----------
    beta : float, optional
        Upper bound of σ₂/σ₁. Without it, the largest ratio observed over the last epochs is taken.
    delta, lipschitz, curvature, radius, m
        See `TheoremLinear`.
    """

    beta: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beta is not None and check_positive("beta", self.beta) >= 1:
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
        return max(least, min(bound, self.linear_bound(t, run)))


@dataclass(frozen=True)
class Adaptive(Schedule):
    """Iterate until μ(σ₁ - σ) is at most ½ δ γ C_F, with the error σ₁ - σ estimated.

    The increments of σ fall at a rate that itself rises towards (σ₂/σ₁)⁴, so the sum of those to
    come is extrapolated with a rate nearer to 1 than the last one seen, its sixth root: on flat,
    geometric and random spectra the accuracy is then met nine times in ten. The theorem's bound
    σ ln(m)/k ends the epoch where it is reached sooner.

    Parameters
    ----------
    delta : float
        δ in the bound 2 C_F (1+δ)/(t+2).
    curvature : float, optional
        C_F; bounded from the data by default.
    """

    delta: float = 1.0
    curvature: float | None = None

    def __post_init__(self) -> None:
        check_positive("delta", self.delta)
        if self.curvature is not None:
            check_positive("curvature", self.curvature)

    @property
    def needs_constants(self) -> bool:
        return self.curvature is None

    def enough(self, t: int, k: int, run: PowerRun) -> bool:
        curvature = self.curvature
        if curvature is None:
            assert run.constants is not None  # see needs_constants
            curvature = run.constants.curvature
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
