"""What a run returns: the solution, and a record for each epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from dfwtrace._typing import Array, Data, FloatArray
from dfwtrace.linalg.certificate import Certificate
from dfwtrace.linalg.lowrank import LowRankMatrix
from dfwtrace.tasks.planning import Plan

Status = Literal["optimal", "max_iter", "max_time", "stalled", "stopped", "interrupted"]
Record = dict[str, Any]


class History(list[Record]):
    """Records of a run, one for each epoch, as rows or as columns.

    Examples
    --------
    >>> from dfwtrace import History
    >>> history = History()
    >>> history.append({"epoch": 1, "objective": 2.0})
    >>> history.append({"epoch": 2, "objective": 1.0, "test_error": 0.25})
    >>> history.column("test_error")
    array([ nan, 0.25])
    """

    def __init__(self) -> None:
        super().__init__()

    @property
    def columns(self) -> list[str]:
        """All names that some record has, in the order in which they came up."""
        return list(dict.fromkeys(name for record in self for name in record))

    def column(self, name: str) -> Array:
        """Return one column as an array, with NaN where a record has no such value."""
        if self and name not in self.columns:
            raise KeyError(f"no column {name!r}; there are {', '.join(self.columns)}.")
        return np.asarray([record.get(name, np.nan) for record in self])

    def to_pandas(self) -> Data:
        """Return a pandas DataFrame with a row for each epoch."""
        import pandas

        return pandas.DataFrame(list(self))

    def __repr__(self) -> str:
        return f"History({len(self)} epochs: {', '.join(self.columns)})"


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
        "optimal": the certified gap is at most tol·F(0). "max_iter", "max_time": a limit was
        reached. "stalled": no step lowers F by more than its rounding error; `message` says what
        keeps the gap above the tolerance. "stopped": the callback asked for it.
        "interrupted": Ctrl-C; W is the best iterate.
    history : History
        A record for each epoch.
    objective_at_zero : float
        F(0), which `tol` is relative to.
    certificate : Certificate or None
        How σ₁ was bounded at this W. The gap may lie below this certificate's, where an earlier
        one gave a better lower bound of F*.
    plan : Plan
        Which representation was taken, and why.
    rounds : History
        A record for each round: its epoch (0 for the set-up), whether it was the oracle's, the
        method that ran on the shards, the numbers that the paper counts, the bytes on the wire,
        and the seconds in compute, wait and reduce.
    intercept : array of shape (m,), or None
        b of the scores XW + 1bᵀ, if one was asked for.
    setup_seconds : float
        From the call to the first epoch; the history's seconds include them.
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
        reached = f"a relative gap of {self.relative_gap:.2g}"
        if self.status == "optimal":
            return f"Optimal: {reached} is certified."
        if self.status == "stalled":
            scale = abs(self.objective_at_zero) or 1.0
            allowance = 0.0 if self.certificate is None else self.certificate.rounding / scale
            advice = "; data in float64 go further" if self.plan.workload.itemsize == 4 else ""
            return (
                f"Stalled at {reached}, {allowance:.2g} of it an allowance for rounding: no step "
                f"lowers F by more than its rounding error{advice}."
            )
        reason = {
            "max_iter": "all epochs were used",
            "max_time": "the time was up",
            "stopped": "the callback asked for it",
            "interrupted": "it was interrupted",
        }[self.status]
        return f"Ended with {reached}: {reason}."

    @property
    def relative_gap(self) -> float:
        """Ratio gap / |F(0)|, what `tol` is compared with; the gap itself if F(0) = 0."""
        scale = abs(self.objective_at_zero)
        return self.gap / scale if scale > 0.0 else self.gap

    def __repr__(self) -> str:
        return (
            f"Result(status={self.status!r}, objective={self.objective:.6g}, gap={self.gap:.3g}, "
            f"rank={self.W.rank}, epochs={len(self.history)})"
        )


@dataclass(frozen=True)
class Path:
    """Solutions along a list of radii.

    Attributes
    ----------
    radii : array
        As given.
    results : list of Result
        One for each radius.
    validation : array of shape (radii, folds), or None
        Mean loss of a row that the run had not seen, if folds were asked for.
    fold_results : list of lists of Result
        For each fold the results without its rows, in the order of the radii.
    """

    radii: FloatArray
    results: list[Result]
    validation: FloatArray | None = None
    fold_results: list[list[Result]] = field(default_factory=list, repr=False)

    @property
    def best(self) -> int:
        """Index of the radius with the least mean validation loss."""
        if self.validation is None:
            raise ValueError("best needs validation losses: ask for folds.")
        return int(np.argmin(self.validation.mean(axis=1)))

    def __repr__(self) -> str:
        return f"Path({len(self.radii)} radii from {self.radii.min():g} to {self.radii.max():g})"
