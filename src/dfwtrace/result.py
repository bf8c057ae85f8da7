"""What a run returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dfwtrace._typing import FloatArray
from dfwtrace.certificate import Certificate
from dfwtrace.history import History
from dfwtrace.lowrank import LowRankMatrix
from dfwtrace.planning import Plan

Status = Literal["optimal", "max_epochs", "max_time", "stalled", "stopped", "interrupted"]


@dataclass(frozen=True)
class Result:
    """The solution, and all that is known of it.

    Attributes
    ----------
    W : LowRankMatrix
        Orthonormal factors and singular values, ‖W‖_* ≤ radius.
    objective : float
        F(W).
    gap : float
        Certified upper bound of F(W) - F*; NaN if the run was interrupted before one was known.
    status : str
        "optimal": the certified gap is at most tol·F(0). "max_epochs", "max_time": a limit was
        reached. "stalled": no step lowers F by more than its rounding error; `message` tells what
        stands between the gap and the tolerance. "stopped": the callback asked for it.
        "interrupted": Ctrl-C; W is the best iterate.
    history : History
        A record for each epoch.
    objective_at_zero : float
        F(0), which `tol` is relative to.
    certificate : Certificate or None
        How σ₁ was bounded at this W. The gap may lie below this certificate's, where an earlier
        one told more about F*.
    plan : Plan
        Which representation was taken, and why.
    rounds : History
        A record for each round: its epoch (0 is what it took to set up), whether it was the
        oracle's, the method that ran on the shards, the numbers that the paper counts, the bytes
        on the wire, and the seconds in compute, wait and reduce.
    intercept : array of shape (m,), or None
        b of the scores XW + 1bᵀ, if one was asked for.
    setup_seconds : float
        From the call to the first epoch: data to shards, their statistics, F at the start. The
        history's seconds include them.
    """

    W: LowRankMatrix
    objective: float
    gap: float
    status: Status
    history: History
    objective_at_zero: float
    certificate: Certificate | None
    plan: Plan
    rounds: History
    intercept: FloatArray | None = None
    setup_seconds: float = 0.0

    @property
    def message(self) -> str:
        """One sentence on how the run ended."""
        scale = abs(self.objective_at_zero) or 1.0
        reached = f"a relative gap of {self.relative_gap:.2g}"
        if self.status == "optimal":
            return f"Optimal: {reached} is certified."
        if self.status == "stalled":
            allowance = 0.0 if self.certificate is None else self.certificate.rounding / scale
            advice = "; data in float64 go further" if self.plan.workload.itemsize == 4 else ""
            return (
                f"Stalled at {reached}, {allowance:.2g} of it an allowance for rounding: no step "
                f"lowers F by more than its rounding error{advice}."
            )
        reason = {
            "max_epochs": "all epochs were used",
            "max_time": "the time was up",
            "stopped": "the callback asked for it",
            "interrupted": "it was interrupted",
        }[self.status]
        return f"Ended with {reached}: {reason}."

    @property
    def relative_gap(self) -> float:
        """gap / |F(0)|, what `tol` is compared with; the gap itself if F(0) = 0."""
        scale = abs(self.objective_at_zero)
        return self.gap / scale if scale > 0.0 else self.gap

    def __repr__(self) -> str:
        return (
            f"Result(status={self.status!r}, objective={self.objective:.6g}, gap={self.gap:.3g}, "
            f"rank={self.W.rank}, epochs={len(self.history)})"
        )
