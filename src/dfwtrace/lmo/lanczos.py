"""The Lanczos oracle: the power method's rounds, all of its vectors used."""

from __future__ import annotations

from dataclasses import dataclass, field

from dfwtrace._typing import FloatArray
from dfwtrace.linalg.golub_kahan import GolubKahan, Pair
from dfwtrace.linalg.gradient import GradientOperator
from dfwtrace.lmo.iterative import IterativeLMO
from dfwtrace.lmo.schedules import Constant, PowerRun, Schedule


@dataclass(frozen=True)
class Lanczos(IterativeLMO):
    """K(t) steps of Golub-Kahan bidiagonalisation: 2·N·K·(d+m) numbers in 2K rounds.

    It sends what the power method sends, and finds the best pair in the span of all the vectors
    instead of the last pair: far more accurate for the same rounds.

    Parameters
    ----------
    schedule : Schedule
        K(t), see `Power`; 4 steps by default.
    start : {"random", "previous", "sva"}
        See `Power`.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> X, Y, _ = dt.datasets.make_multitask(n=100, d=8, m=6, rank=6, seed=0)
    >>> result = dt.solve(dt.LeastSquares(), X, Y, radius=1.0, lmo="lanczos", epochs=3)
    >>> [int(k) for k in result.history.column("power_iterations")]
    [4, 4, 4]
    """

    schedule: Schedule = field(default_factory=lambda: Constant(4))

    def iterate(
        self, gradient: GradientOperator, t: int, v: FloatArray, run: PowerRun
    ) -> Pair | None:
        run.sigmas = []
        process = GolubKahan(gradient.times, gradient.transpose_times, v)
        while not process.run(1).exhausted:
            run.sigmas.append(float(process.singular_values()[0]))
            if self.schedule.enough(t, process.steps, run):
                break
        if process.steps == 0:
            return None
        if self.schedule.observes_ratio:
            values = process.singular_values()
            run.ratios.append(float(values[1] / values[0]) if values.size > 1 else 0.0)
        return process.top_pair()
