"""Finite differences of an objective whose units are not known, and how close is close enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dfwtrace._typing import Array

# Steps, along segments on which F changes by a good part of itself. In float64 a first derivative
# is right to 1e-8 then; in float32, where a task may compute in it, to 1e-5. What is wrong is wrong
# by much more. A second derivative may jump within a step, as that of Huber's loss does: it is
# right if it agrees with one step, at one of several places.
_STEPS = (3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4)
_SHORT_STEPS = (1e-4, 1e-2, 1e-3, 1e-5, 1e-6, 1e-7)
CLOSE, ROUGHLY = 1e-4, 1e-2


def derivative(f: Callable[[float], float]) -> float:
    """f'(0) by central differences, with the step at which it changes least."""
    return _steadiest([(f(h) - f(-h)) / (2.0 * h) for h in _STEPS])


def forward_derivative(f: Callable[[float], float]) -> float:
    """The same of an f that is not defined below 0."""
    here = f(0.0)
    return _steadiest([(4.0 * f(h) - f(2.0 * h) - 3.0 * here) / (2.0 * h) for h in _STEPS])


def second_derivatives(slope: Callable[[float], float]) -> list[float]:
    return [(slope(h) - slope(-h)) / (2.0 * h) for h in _SHORT_STEPS]


def among(given: float, found: list[float], least: float) -> bool:
    """Whether a second derivative agrees with one of those found."""
    return any(close(given, each, abs(each) + least, ROUGHLY) for each in found)


def _steadiest(estimates: list[float]) -> float:
    changes = np.abs(np.diff(estimates))
    return estimates[1 + int(np.nanargmin(changes))] if np.isfinite(changes).any() else np.nan


def natural_scale(values: Callable[[float], list[float]], here: float, size: float = 0.0) -> float:
    """A t at which values(t) = [f(t), f(-t)] differ from f(0) by a fair part of their size."""

    def share(t: float) -> float:
        there = values(t)
        if not np.isfinite(there).all():
            return np.inf
        most = max(size, abs(here), *map(abs, there))
        return abs(sum(there) - 2.0 * here) / most if most > 0.0 else 0.0

    t = 1.0
    for _ in range(60):
        found = share(t)
        if 0.1 <= found <= 1.0 or (found < np.inf and here == size == 0.0):
            break  # where F(0) = 0, no t is better than another
        t *= 4.0 if found < 0.1 else 0.5
    return t if np.isfinite(share(t)) else 1.0


def close(one: Any, other: Any, size: float, share: float = CLOSE) -> bool:
    """Whether two numbers or arrays differ by a small share of a size at the most."""
    return bool(norm(np.atleast_1d(np.asarray(one) - np.asarray(other))) <= share * size)


def norm(values: Array) -> float:
    return float(np.linalg.norm(values))
