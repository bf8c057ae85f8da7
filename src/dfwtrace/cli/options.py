"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from dfwtrace.cli.guard import CommandError
from dfwtrace.solvers import resolve
from dfwtrace.validation import check_positive

Task = Literal["auto", "classification", "regression"]
SolverName = Literal["accelerated", "dfw"]
Representation = Literal["auto", "gram", "implicit", "dense", "factored"]
Precision = Literal["float32", "float64"]

FORMATS = "A .csv, .parquet, .arrow, .npz, .npy or .svm file, or a folder of .parquet files."

TargetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--target", "-t", metavar="NAME", help="Column of labels or targets; several: 'y*'."
    ),
]
FeaturesOption = Annotated[
    list[str] | None,
    typer.Option("--features", metavar="NAMES", help="Columns to learn from; default: the rest."),
]
WeightOption = Annotated[
    str | None, typer.Option("--weight", metavar="NAME", help="Column of row weights.")
]
TaskOption = Annotated[Task, typer.Option("--task", help="Told from the target unless given.")]
JsonOption = Annotated[
    bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Only warnings and errors.")]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Progress lines also where there is no terminal.")
]
ModelArgument = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="A file that `dfwtrace fit` wrote.", show_default=False),
]
DataArgument = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        help=FORMATS,
        show_default=False,
    ),
]


def radii_of(text: str | None) -> int | list[float] | None:
    """A number of radii, or the radii themselves.

    Examples
    --------
    >>> radii_of("10"), radii_of("0.5, 2"), radii_of(None)
    (10, [0.5, 2.0], None)
    """
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    try:
        if len(parts) == 1:
            count = int(parts[0])
            if count < 1:
                raise ValueError
            return count
        return [check_positive("--radii", float(part)) for part in parts]
    except ValueError as error:
        raise CommandError(
            f"--radii must be how many to try, such as 10, or a list such as 1,3,10, got {text!r}."
        ) from error


def step_of(text: str | None) -> str | float | None:
    """A rule's name, or a constant step."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def check_solver(solver: str, lmo: str | None, step: str | float | None) -> None:
    """Refuse an oracle or a step that the solver does not have."""
    if solver != "dfw":
        for option, given in (("--lmo", lmo), ("--step", step)):
            if given is not None:
                raise CommandError(f"{option} belongs to --solver dfw.")
    try:
        resolve(solver, lmo, step)
    except (ValueError, TypeError) as error:
        raise CommandError(f"--{error}") from error
