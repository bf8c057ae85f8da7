"""What a report tells: plain data, from whichever run they come."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from dfwtrace._typing import FloatArray
from dfwtrace.report.surroundings import machine_here, time_now, versions_here
from dfwtrace.result import History, Path, Result
from dfwtrace.validation import describe

TaskName = Literal["classification", "regression"]
TASKS = ("classification", "regression")


class DataFacts(NamedTuple):
    """What was learned from; `targets` is the number of classes or of regression tasks."""

    rows: int
    features: int
    targets: int
    dtype: str = ""
    source: str = ""


class Settings(NamedTuple):
    """How it was learned; what is None or empty is left out of the page."""

    radius: float
    solver: str = ""
    tol: float | None = None
    engine: str = ""
    representation: str = ""
    shards: int | None = None


class Outcome(NamedTuple):
    """How the run ended; see `dfwtrace.Result`."""

    status: str
    message: str
    objective: float
    objective_at_zero: float
    gap: float
    relative_gap: float
    rank: int
    seconds: float
    epochs: int


class Communication(NamedTuple):
    """Totals of a run: the oracle's rounds and numbers, those of the rest, bytes on all wires."""

    rounds: int
    numbers: int
    other_rounds: int
    other_numbers: int
    bytes_on_wire: int


@dataclass(frozen=True)
class Worst:
    """A class or task that is told badly: its name, its rows and its error."""

    name: str
    count: int
    error: float


class Radii(NamedTuple):
    """Validation losses of several radii: of shape (radii,) or (radii, folds)."""

    radii: FloatArray
    validation: FloatArray


@dataclass(frozen=True, eq=False)
class Report:
    """All that a report page shows.

    Attributes
    ----------
    title : str
    task : {"classification", "regression"}
    data : DataFacts
    settings : Settings
    outcome : Outcome
    history : History
        A record for each epoch, as of `dfwtrace.Result`.
    spectrum : array
        Singular values of W.
    communication : Communication, optional
    where : sequence of (str, str)
        What was done, and where it ran.
    scores : mapping of str to float
        What the model is worth, by the names of the scores.
    worst : sequence of Worst
        The classes or tasks with the largest errors, the worst first.
    path : Radii, optional
    when : str
    versions, machine : mapping of str to str
        Of now and of here, unless they are given.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> from dfwtrace.report import Report
    >>> X, y, _ = dt.datasets.make_multiclass(n=200, d=10, m=4, rank=2, seed=0)
    >>> result = dt.solve(dt.Multinomial(), X, y, radius=5.0, epochs=5)
    >>> report = Report.of_result(result, task="classification", radius=5.0)
    >>> report.data.rows, report.outcome.epochs, report.outcome.status
    (200, 5, 'max_epochs')
    """

    title: str
    task: TaskName
    data: DataFacts
    settings: Settings
    outcome: Outcome
    history: History
    spectrum: FloatArray
    communication: Communication | None = None
    where: Sequence[tuple[str, str]] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    worst: Sequence[Worst] = ()
    path: Radii | None = None
    when: str = field(default_factory=time_now)
    versions: Mapping[str, str] = field(default_factory=versions_here)
    machine: Mapping[str, str] = field(default_factory=machine_here)

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise ValueError(
                f'task must be "classification" or "regression", got {describe(self.task)}.'
            )
        if not isinstance(self.history, History):
            raise TypeError(f"history must be a History, got {describe(self.history)}.")
        spectrum = np.asarray(self.spectrum, dtype=np.float64)
        if spectrum.ndim != 1:
            raise ValueError(f"spectrum must be one list of numbers, got shape {spectrum.shape}.")
        object.__setattr__(self, "spectrum", spectrum)  # a plain list is as good
        if self.path is not None:
            radii, validation = np.asarray(self.path.radii), np.asarray(self.path.validation)
            if radii.ndim != 1 or validation.ndim not in (1, 2) or len(radii) != len(validation):
                raise ValueError(
                    "path must have validation losses for each radius, got radii of shape "
                    f"{radii.shape} and losses of shape {validation.shape}."
                )

    @classmethod
    def of_result(
        cls,
        result: Result,
        *,
        task: TaskName,
        radius: float,
        title: str | None = None,
        solver: str = "",
        tol: float | None = None,
        engine: str = "",
        source: str = "",
        path: Path | None = None,
        **more: Any,
    ) -> Report:
        """A report of a run.

        Parameters
        ----------
        result : Result
        task : {"classification", "regression"}
        radius : float
        title : str, optional
        solver, tol, engine, source : optional
            As `Settings` and `DataFacts` have them.
        path : Path, optional
            Shown if it has validation losses.
        **more
            Further attributes of `Report`: where, scores, worst, when, versions, machine.

        Returns
        -------
        Report
        """
        w = result.plan.workload
        kind = "sparse" if w.sparse else "dense"
        radii = None
        if path is not None and path.validation is not None:
            radii = Radii(path.radii, path.validation)
        return cls(
            title=f"Low-rank {task}" if title is None else title,
            task=task,
            data=DataFacts(w.n, w.d, w.m, f"{kind} float{8 * w.itemsize}", source),
            settings=Settings(radius, solver, tol, engine, result.plan.representation, w.n_shards),
            outcome=_outcome(result),
            history=result.history,
            spectrum=result.W.singular_values,
            communication=_communication(result.rounds),
            path=radii,
            **more,
        )


def _outcome(result: Result) -> Outcome:
    seconds = float(result.history[-1]["seconds"]) if result.history else math.nan
    return Outcome(
        result.status,
        result.message,
        result.objective,
        result.objective_at_zero,
        result.gap,
        result.relative_gap,
        result.W.rank,
        seconds,
        len(result.history),
    )


def _communication(rounds: History) -> Communication:
    oracle = [made for made in rounds if made["oracle"]]
    numbers, of_oracle = (
        sum(int(made["numbers_sent"]) for made in some) for some in (rounds, oracle)
    )
    n_bytes = sum(int(made["bytes_on_wire"]) for made in rounds)
    others = len(rounds) - len(oracle)
    return Communication(len(oracle), of_oracle, others, numbers - of_oracle, n_bytes)
