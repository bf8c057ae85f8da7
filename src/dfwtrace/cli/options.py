"""Options that several commands share, and their values."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from dfwtrace.cli.guard import CommandError
from dfwtrace.solvers import resolve
from dfwtrace.validation import check_positive

FORMATS = "A .csv, .parquet, .arrow, .npz, .npy or .svm file, or a folder of .parquet files."

ModelArgument = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A file that `dfwtrace fit` wrote.")
]
DataArgument = Annotated[Path, typer.Argument(metavar="DATA", help=FORMATS)]
TargetOption = Annotated[
    list[str] | None,
    typer.Option("--target", "-t", metavar="NAME", help="Column of labels or targets, or 'y*'."),
]
FeaturesOption = Annotated[
    list[str] | None,
    typer.Option("--features", metavar="NAMES", help="Columns to learn from; default: the rest."),
]
WeightOption = Annotated[
    str | None, typer.Option("--weight", metavar="NAME", help="Column of row weights.")
]
TaskOption = Annotated[
    Literal["auto", "classification", "regression"],
    typer.Option("--task", help="Chosen by the target unless given."),
]
RadiiOption = Annotated[
    str | None,
    typer.Option(metavar="COUNT|LIST", help="Radii to try: how many, or 1,3,10. Default: 10."),
]
FoldsOption = Annotated[int, typer.Option(min=2, help="Folds of the cross-validation.")]
SolverOption = Annotated[
    Literal["accelerated", "dfw"], typer.Option("--solver", help="dfw is the paper's.")
]
LmoOption = Annotated[str | None, typer.Option(help="Oracle of dfw, such as power-log.")]
TolOption = Annotated[
    float | None, typer.Option(help="Relative gap to reach. Default: 1e-4, for dfw none.")
]
MaxIterOption = Annotated[int | None, typer.Option(min=1, help="Epochs at most.")]
NoInterceptOption = Annotated[bool, typer.Option("--no-intercept", help="No free term.")]
ShardsOption = Annotated[
    int | None, typer.Option(min=1, help="Logical shards. Default: 8, or 1 for small data.")
]
JobsOption = Annotated[int | None, typer.Option(help="Threads, or Spark's workers.")]
SeedOption = Annotated[int | None, typer.Option(min=0, help="Seed of all random numbers.")]
RepresentationOption = Annotated[
    Literal["auto", "gram", "implicit", "dense", "factored"],
    typer.Option("--representation", help="What a shard keeps."),
]
DtypeOption = Annotated[
    Literal["float32", "float64"] | None,
    typer.Option("--dtype", help="Precision of the features. Default: as in the file."),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Only warnings and errors.")]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Progress lines also where there is no terminal.")
]


def radii_of(text: str) -> int | list[float]:
    """A number of radii, or the radii themselves."""
    parts = [part.strip() for part in text.split(",")]
    try:
        if len(parts) > 1:
            return [check_positive("--radii", float(part)) for part in parts]
        count = int(parts[0])
        if count < 1:
            raise ValueError
    except ValueError as error:
        raise CommandError(
            f"--radii must be how many to try, such as 10, or a list such as 1,3,10, got {text!r}."
        ) from error
    return count


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
