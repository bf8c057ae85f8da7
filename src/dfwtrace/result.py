"""What a run returns: the solution, and a record for each epoch."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, get_args

import numpy as np

from dfwtrace._typing import Array, Data, FloatArray
from dfwtrace.files.container import JSON, plain, read_container, whole, write_container
from dfwtrace.linalg.certificate import Certificate
from dfwtrace.linalg.lowrank import LowRankMatrix
from dfwtrace.tasks.planning import Estimate, Plan, Workload
from dfwtrace.validation import describe

Status = Literal[
    "optimal", "max_iter", "max_time", "stalled", "stopped", "early_stopping", "interrupted"
]
Record = dict[str, Any]
_KIND = "result"  # of a file
_ACTIVE = 0.99  # share of the radius that W's trace norm has, at least, where the bound is active


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
        Orthonormal factors and singular values, ‖W‖_* ≤ radius. If the features were standardised,
        they are those of diag(scale) W, whose trace norm is bounded, with the rows of U divided by
        scale, so that XW is for X in its own units.
    objective : float
        F(W).
    gap : float
        Certified upper bound of F(W) - F*; NaN if the run was interrupted before one was known, or
        only served to compare radii.
    status : str
        "optimal": the certified gap is at most tol·F(0). "max_iter", "max_time": a limit was
        reached. "stalled": no step lowers F by more than its rounding error; `message` says what
        keeps the gap above the tolerance. "stopped": the callback asked for it. "early_stopping":
        an estimator's, W is the iterate with the best validation score. "interrupted": Ctrl-C; W is
        the best iterate.
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
    radius : float
        The bound of the trace norm; NaN in files of versions before 0.2.
    search : Path or None
        The radii that ``radius="auto"`` tried, and their validation losses.
    scale : array of shape (d,), or None
        Standard deviations of the features, 1 for a constant one, if they were standardised.

    Examples
    --------
    >>> import tempfile, pathlib, dfwtrace as dt
    >>> X, Y, _ = dt.datasets.make_multitask(n=100, d=8, m=6, rank=2, random_state=0)
    >>> result = dt.solve(dt.LeastSquares(), X, Y, radius=1.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result.save(pathlib.Path(folder) / "result.safetensors")
    ...     again = dt.Result.load(pathlib.Path(folder) / "result.safetensors")
    >>> again.status, again.gap == result.gap, again.history == result.history
    ('optimal', True, True)
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
    radius: float = math.nan
    scale: FloatArray | None = None
    search: Path | None = field(default=None, repr=False)

    @property
    def is_bound_active(self) -> bool:
        """Whether the bound holds W back, so that a larger radius would give another W."""
        return float(self.W.s.sum()) >= _ACTIVE * self.radius

    @property
    def message(self) -> str:
        """One sentence on how the run ended."""
        reached = f"a relative gap of {self.relative_gap:.2g}"
        if math.isnan(self.gap):  # it ended before a gap was certified
            reached = "no certified gap"
        if self.status == "optimal":
            if math.isnan(self.gap):
                return "The gap is estimated to be within the tolerance; none is certified."
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
            "early_stopping": "later epochs do no better on the rows left out",
            "interrupted": "it was interrupted",
        }[self.status]
        return f"Ended with {reached}: {reason}.{self._above_zero()}"

    def _above_zero(self) -> str:
        """A sentence for a run that ended higher than it could have begun."""
        if not self.objective > self.objective_at_zero + 1e-6 * abs(self.objective_at_zero):
            return ""
        return (
            f" F(W) = {self.objective:.6g} is above F(0) = {self.objective_at_zero:.6g}: raise "
            "max_iter or take smaller steps, such as step='linesearch'."
        )

    @property
    def relative_gap(self) -> float:
        """Ratio gap / |F(0)|, what `tol` is compared with; the gap itself if F(0) = 0."""
        scale = abs(self.objective_at_zero)
        return self.gap / scale if scale > 0.0 else self.gap

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the result to a file, which `Result.load` reads.

        Parameters
        ----------
        path : str or path-like
            The file, written whole or not at all: a previous one stays until it is complete. Of
            what a callback added to the history, it keeps numbers and strings; of a search for the
            radius, what it found, but not `search`.
        """
        header, arrays = pack(self)
        header["setup_seconds"] = float(self.setup_seconds)
        header["rounds"] = [plain(record) for record in self.rounds]
        header["costs"] = {name: plain(vars(cost)) for name, cost in self.plan.costs.items()}
        if self.certificate is not None:
            header["certificate"] = plain(vars(self.certificate))
        write_container(path, _KIND, header, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a result that was written with `save`; nothing in the file is run.

        Parameters
        ----------
        path : str or path-like
            The file.

        Returns
        -------
        Result
            As it was saved, to the last bit, but for `search`, which is not written.

        Raises
        ------
        ModelFormatError
            The file is damaged or does not hold a result.
        OSError
            The file is missing or may not be read.
        """
        header, arrays = read_container(path, _KIND)
        with whole(path, _KIND):
            return cls(**vars(unpack(header, arrays)))

    def __repr__(self) -> str:
        return (
            f"Result(status={self.status!r}, objective={self.objective:.6g}, gap={self.gap:.3g}, "
            f"rank={self.W.rank}, epochs={len(self.history)})"
        )


def pack(result: Result) -> tuple[dict[str, JSON], dict[str, Array]]:
    """Return what files keep of every result: parts of a header, and arrays."""
    plan, arrays = result.plan, {"U": result.W.U, "s": result.W.s, "V": result.W.V}
    if result.intercept is not None:
        arrays["intercept"] = result.intercept
    if result.scale is not None:
        arrays["scale"] = result.scale
    header = {
        "objective": float(result.objective),
        "objective_at_zero": float(result.objective_at_zero),
        "gap": float(result.gap),
        "radius": None if math.isnan(result.radius) else float(result.radius),
        "status": result.status,
        "history": [plain(record) for record in result.history],
        "plan": plain(vars(plan)) | {"workload": plain(vars(plan.workload))},
    }
    return header, arrays


def unpack(header: Mapping[str, JSON], arrays: Mapping[str, Array]) -> Result:
    """Return the result that was packed; errors say what is wrong with the parts."""
    W = LowRankMatrix(arrays["U"], arrays["s"], arrays["V"])
    sizes = {"scale": W.shape[0], "intercept": W.shape[1]}
    known = {name: arrays[name] for name in sizes if name in arrays}
    if any(array.shape != (sizes[name],) for name, array in known.items()):
        raise ValueError("its arrays do not fit together")
    if not all(np.isfinite(part).all() for part in (W.U, W.s, W.V, *known.values())):
        raise ValueError("its arrays must be finite, but hold NaN or infinity")
    status = header["status"]
    if status == "max_epochs":  # as it was called before 0.2
        status = "max_iter"
    if status not in get_args(Status):
        raise ValueError(f"it ended in an unknown way, {describe(status)}")
    for name in ("objective", "gap", "objective_at_zero"):
        if type(header[name]) not in (int, float):
            raise ValueError(f"its {name} is no number")
    radius = math.nan if header.get("radius") is None else header["radius"]
    if type(radius) not in (int, float):
        raise ValueError("its radius is no number")
    history, rounds, plan = History(), History(), header["plan"]
    history.extend(dict(record) for record in header["history"])
    rounds.extend(dict(record) for record in header.get("rounds", ()))
    costs = {name: Estimate(**cost) for name, cost in header.get("costs", {}).items()}
    certificate = header.get("certificate")
    return Result(
        W=W,
        objective=float(header["objective"]),
        gap=float(header["gap"]),
        objective_at_zero=float(header["objective_at_zero"]),
        status=status,
        history=history,
        certificate=None if certificate is None else Certificate(**certificate),
        plan=Plan(plan["representation"], plan["reason"], costs, Workload(**plan["workload"])),
        rounds=rounds,
        intercept=known.get("intercept"),
        scale=known.get("scale"),
        setup_seconds=float(header.get("setup_seconds", 0.0)),
        radius=float(radius),
    )


@dataclass(frozen=True)
class Path:
    """Solutions along a list of radii.

    Attributes
    ----------
    radii : array
        As given, or from the smallest to the largest if they were found.
    results : list of Result
        One for each radius; none where only the best was fitted to all rows.
    validation : array of shape (radii, folds), or None
        Mean loss of a row that the run had not seen, if folds were asked for.
    fold_results : list of lists of Result
        For each fold the results without its rows, in the order of the radii.
    scores : array of shape (radii, folds), or None
        Scores by which the best radius was chosen, if not by the validation losses.
    """

    radii: FloatArray
    results: list[Result]
    validation: FloatArray | None = None
    fold_results: list[list[Result]] = field(default_factory=list, repr=False)
    scores: FloatArray | None = None

    @property
    def best(self) -> int:
        """Index of the radius with the best mean score, or with the least mean validation loss."""
        if self.validation is None:
            raise ValueError("best needs validation losses: ask for folds with cv.")
        scores = -self.validation if self.scores is None else self.scores
        # A radius whose score is NaN is never the best.
        return int(np.argmax(np.nan_to_num(scores.mean(axis=1), nan=-np.inf)))

    @property
    def warning(self) -> str | None:
        """One sentence if the best radius is at an end or has no score; else None."""
        if self.validation is None:
            return None
        best, count = self.radii[self.best], len(self.radii)
        if self.scores is not None and np.isnan(self.scores.mean(axis=1)).all():
            return (
                f"The score of every radius is NaN, so that {best:.3g} is a guess: the folds may "
                "be too small for this scoring."
            )
        if count < 2:
            return None
        if best == self.radii.min():
            return (
                f"The best radius, {best:.3g}, is the smallest of the {count} tried: smaller ones "
                "may do better, or there is little to learn from these features."
            )
        active = [results[self.best].is_bound_active for results in self.fold_results]
        if best == self.radii.max() and any(active):
            return (
                f"The best radius, {best:.3g}, is the largest of the {count} tried: larger ones "
                "may do better."
            )
        return None

    def __repr__(self) -> str:
        return f"Path({len(self.radii)} radii from {self.radii.min():g} to {self.radii.max():g})"
