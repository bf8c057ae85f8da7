"""How a model is to be fitted, checked before anything is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dfwtrace.cli.guard import CommandError, refusing
from dfwtrace.cli.options import check_solver
from dfwtrace.validation import check_positive, check_tolerance

#: Radii that are tried where none are given.
DEFAULT_RADII = 10
_DEFAULT_TOL = 1e-4


@dataclass(frozen=True)
class FitSettings:
    """The options of ``dfwtrace fit`` that an estimator gets."""

    radius: float | None = None
    radii: int | list[float] | None = None
    folds: int = 5
    solver: str = "accelerated"
    lmo: str | None = None
    step: str | float | None = None
    tol: float | None = None
    max_iter: int | None = None
    max_time: float | None = None
    intercept: bool = True
    class_weight: str | None = None
    n_shards: int | None = None
    n_jobs: int | None = None
    seed: int | None = None
    representation: str = "auto"
    checkpoint: Path | None = None

    def __post_init__(self) -> None:
        check_solver(self.solver, self.lmo, self.step)
        with refusing():
            for name in ("radius", "max_time"):
                if getattr(self, name) is not None:
                    check_positive(f"--{name.replace('_', '-')}", getattr(self, name))
            check_tolerance(self.tol)
        if self.radius is not None and self.radii is not None:
            raise CommandError("--radius and --radii exclude each other: one radius, or many.")
        if self.radius is not None:
            return
        single = {
            "--solver dfw": self.solver == "dfw",
            "--max-time": self.max_time is not None,
            "--checkpoint": self.checkpoint is not None,
        }
        for option, given in single.items():
            if given:
                raise CommandError(
                    f"{option} needs --radius: it does not go with cross-validation."
                )

    @property
    def validates(self) -> bool:
        """Whether the radius is found by cross-validation."""
        return self.radius is None

    @property
    def tries(self) -> int | list[float]:
        """The radii to try."""
        return DEFAULT_RADII if self.radii is None else self.radii

    @property
    def runs(self) -> int:
        """Runs of the solver, at the most."""
        if not self.validates:
            return 1
        count = self.tries if isinstance(self.tries, int) else len(self.tries)
        return count * (1 + self.folds)

    @property
    def tolerance(self) -> float | None:
        """The paper's solver runs through its epochs unless a tolerance is given."""
        return _DEFAULT_TOL if self.tol is None and self.solver != "dfw" else self.tol

    def estimator(self, task: str, engine: Any = "local") -> Any:
        """An estimator with these settings, not fitted."""
        from dfwtrace import estimators

        if self.class_weight is not None and task == "regression":
            raise CommandError("--class-weight belongs to classification.")
        shared: dict[str, Any] = {
            "tol": self.tolerance,
            "max_iter": self.max_iter,
            "fit_intercept": self.intercept,
            "engine": engine,
            "representation": self.representation,
            "n_shards": self.n_shards,
            "n_jobs": self.n_jobs,
            "random_state": self.seed,
        }
        if task == "classification":
            shared["class_weight"] = self.class_weight
        name = "TraceNormClassifier" if task == "classification" else "TraceNormRegressor"
        if self.validates:
            kind = getattr(estimators, f"{name}CV")
            return kind(radii=self.tries, cv=self.folds, **shared)
        return getattr(estimators, name)(
            self.radius,
            solver=self.solver,
            lmo=self.lmo,
            step=self.step,
            max_time=self.max_time,
            checkpoint=self.checkpoint,
            **shared,
        )
