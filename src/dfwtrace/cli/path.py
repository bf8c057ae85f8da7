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
from dfwtrace.cli.fit import fit_table, parameters_of
from dfwtrace.cli.guard import SHORT, check_outputs
from dfwtrace.cli.models import task_of
from dfwtrace.cli.output import Output, number, plain
from dfwtrace.files.atomic import atomic_write


def path(
    data: shared.DataArgument,
    target: shared.TargetOption = None,
    features: shared.FeaturesOption = None,
    weight: shared.WeightOption = None,
    task: shared.TaskOption = "auto",
    radii: shared.RadiiOption = None,
    folds: shared.FoldsOption = 5,
    tol: shared.TolOption = None,
    max_iter: shared.MaxIterOption = None,
    no_intercept: shared.NoInterceptOption = False,
    n_jobs: shared.JobsOption = None,
    seed: shared.SeedOption = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The table as JSON.")] = None,
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
    verbose: shared.VerboseOption = False,
) -> None:
    """Fit and cross-validate a list of radii, from the smallest to the largest.

    Example: dfwtrace path train.csv --target label --radii 10 --folds 5
    """
    output = Output(json, quiet)
    parameters = parameters_of(
        None,
        radii,
        folds,
        tol=tol,
        max_iter=max_iter,
        fit_intercept=not no_intercept,
        n_jobs=n_jobs,
        random_state=seed,
    )
    check_outputs({"--out": out}, {"the data": data})
    columns: dict[str, Any] = {"target": target, "features": features, "weight": weight}
    with training_rows(data, **columns, dtype=None, spill=None) as table:
        output.say(table.source)
        estimator = fit_table(table, task, parameters, output, verbose)
    rows = _rows(estimator)
    short = sum(row["status"] != "optimal" for row in rows)
    if short:
        tol = parameters["tol"]
        output.warn(f"{short} of {len(rows)} fits ended short of the tolerance of {tol:g}.")
    facts = {
        "source": table.source,
        "task": task_of(estimator),
        "folds": folds,
        "path": rows,
        "best_radius": float(estimator.radius_),
    }
    if out is not None:
        with atomic_write(out) as file:
            file.write(json_format.dumps(plain(facts), indent=1).encode())
    output.show(_table(rows))
    if out is not None:
        output.say(f"path  {out}")
    output.tell(facts)
    if short:
        raise typer.Exit(SHORT)


def _rows(estimator: Any) -> list[dict[str, Any]]:
    found, validation = estimator.path_, estimator.validation_.mean(axis=1)
    return [
        {
            "radius": float(radius),
            "objective": result.objective,
            "gap": result.gap,
            "relative_gap": result.relative_gap,
            "rank": result.W.rank,
            "status": result.status,
            "validation": float(loss),
            "best": float(radius) == float(estimator.radius_),
        }
        for radius, result, loss in zip(found.radii, found.results, validation, strict=True)
    ]


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("radius", "objective", "relative gap", "rank", "validation loss"):
        table.add_column(name, justify="right")
    table.add_column("")
    for row in rows:
        radius, objective, loss = (number(row[k]) for k in ("radius", "objective", "validation"))
        remark = "best" if row["best"] else "" if row["status"] == "optimal" else row["status"]
        table.add_row(
            radius, objective, f"{row['relative_gap']:.1e}", f"{row['rank']}", loss, remark
        )
    return table
