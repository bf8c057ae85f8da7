"""``dfwtrace path``: many radii on the same rows, to see which one is right."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from dfwtrace.cli import options as shared
from dfwtrace.cli.data import training_rows
from dfwtrace.cli.fitting import fit_table
from dfwtrace.cli.guard import SHORT
from dfwtrace.cli.outfiles import check_outputs
from dfwtrace.cli.output import Output, plain
from dfwtrace.cli.settings import FitSettings
from dfwtrace.files.atomic import atomic_write
from dfwtrace.report.numbers import number


def command(
    data: shared.DataArgument,
    target: shared.TargetOption = None,
    features: shared.FeaturesOption = None,
    weight: shared.WeightOption = None,
    task: shared.TaskOption = "auto",
    radii: Annotated[
        str, typer.Option(metavar="COUNT|LIST", help="How many radii, or 1,3,10.")
    ] = "10",
    folds: Annotated[int, typer.Option(min=2, help="Folds to validate on.")] = 5,
    tol: Annotated[float | None, typer.Option(help="Relative gap of each. Default: 1e-4.")] = None,
    max_iter: Annotated[int | None, typer.Option(min=1, help="Epochs of each.")] = None,
    no_intercept: Annotated[bool, typer.Option("--no-intercept", help="No free term.")] = False,
    n_jobs: Annotated[int | None, typer.Option(help="Threads.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="The same in every run.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The table as JSON.")] = None,
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
    verbose: shared.VerboseOption = False,
) -> None:
    """Fit and cross-validate a list of radii, from the smallest to the largest.

    Example: dfwtrace path train.csv --target label --radii 10 --folds 5
    """
    output = Output(json, quiet)
    settings = FitSettings(
        radii=shared.radii_of(radii),
        folds=folds,
        tol=tol,
        max_iter=max_iter,
        intercept=not no_intercept,
        n_jobs=n_jobs,
        seed=seed,
    )
    check_outputs({"--out": out}, {"the data": data})
    with training_rows(
        data, target=target, features=features, weight=weight, dtype=None, spill=None
    ) as table:
        output.say(table.source)
        model = fit_table(table, task, settings, output, verbose)
    rows = _rows(model.estimator)
    short = [row for row in rows if row["status"] != "optimal"]
    if short:
        count = f"{len(short)} of {len(rows)} fits"
        output.warn(f"{count} ended short of the tolerance of {settings.tolerance:g}.")
    facts = {"source": table.source, "task": model.task, "folds": folds, "path": rows}
    facts["best_radius"] = float(model.estimator.radius_)
    if out is not None:
        with atomic_write(out) as file:
            file.write(json_format.dumps(plain(facts), indent=1).encode())
    output.show(_tabulate(rows))
    if out is not None:
        output.say(f"path  {out}")
    output.tell(facts)
    if short:
        raise typer.Exit(SHORT)


def _rows(estimator: Any) -> list[dict[str, Any]]:
    found, best = estimator.path_, float(estimator.radius_)
    validation = estimator.validation_.mean(axis=1)
    return [
        {
            "radius": float(radius),
            "objective": result.objective,
            "gap": result.gap,
            "relative_gap": result.relative_gap,
            "rank": result.W.rank,
            "status": result.status,
            "validation": float(loss),
            "best": float(radius) == best,
        }
        for radius, result, loss in zip(found.radii, found.results, validation, strict=True)
    ]


def _tabulate(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("radius", "objective", "relative gap", "rank", "validation loss"):
        table.add_column(name, justify="right")
    table.add_column("")
    for row in rows:
        table.add_row(
            number(row["radius"]),
            number(row["objective"]),
            f"{row['relative_gap']:.1e}",
            str(row["rank"]),
            number(row["validation"]),
            "best" if row["best"] else "" if row["status"] == "optimal" else row["status"],
        )
    return table
