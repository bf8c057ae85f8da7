"""When a fit will have reached its tolerance, as far as can be told."""

from __future__ import annotations

import math

import numpy as np

# A line through fewer points tells nothing.
_LEAST_POINTS = 4
_MOST_POINTS = 400


class TimeLeft:
    """Extrapolates the logarithm of the gap, which falls about linearly in time.

    Parameters
    ----------
    target : float or None
        The gap at which the fit ends.

    Examples
    --------
    >>> left = TimeLeft(target=1e-4)
    >>> for second in range(6):
    ...     left.add(float(second), 10.0**-second * 1e2)
    >>> round(left.seconds())
    1
    """

    def __init__(self, target: float | None) -> None:
        self._target = target
        self._times: list[float] = []
        self._logs: list[float] = []

    def add(self, seconds: float, gap: float) -> None:
        """What the gap was at a time; only the least so far counts."""
        if not (math.isfinite(gap) and gap > 0.0):
            return
        log = math.log(gap)
        self._times.append(seconds)
        self._logs.append(min(log, self._logs[-1]) if self._logs else log)
        if len(self._times) > _MOST_POINTS:  # the early ones say the least
            self._times, self._logs = self._times[1:], self._logs[1:]

    def seconds(self) -> float | None:
        """From the last point on; None if nobody can tell."""
        count = len(self._times)
        if not self._target or self._target < 0.0 or count < _LEAST_POINTS:
            return None
        missing = self._logs[-1] - math.log(self._target)
        if missing <= 0.0:
            return 0.0
        recent = slice(min(count // 2, count - _LEAST_POINTS), None)
        times, logs = np.array(self._times[recent]), np.array(self._logs[recent])
        spread = times - times.mean()
        # What rounding leaves of a gap that stays where it is must not count as progress.
        if not spread.any() or not logs[0] - logs[-1] > 1e-9:
            return None
        slope = float(spread @ logs / (spread @ spread))
        return -missing / slope if slope < 0.0 else None
