"""``dfwtrace predict``: what a model says about rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dfwtrace.cli import options as shared
from dfwtrace.cli.guard import CommandError, refusing
from dfwtrace.cli.models import load_model
from dfwtrace.cli.outfiles import check_outputs
from dfwtrace.cli.output import Output
from dfwtrace.cli.predictions import Columns, columns_of, suffix_for, write


def command(
    model: shared.ModelArgument,
    data: shared.DataArgument,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="A .csv, .npy or .parquet file; without it, CSV is printed."
        ),
    ] = None,
    proba: Annotated[bool, typer.Option("--proba", help="A probability for each class.")] = False,
    top: Annotated[
        int | None, typer.Option(min=1, help="So many of the likeliest classes.")
    ] = None,
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
) -> None:
    """Predict classes, probabilities or targets.

    Example: dfwtrace predict model.safetensors new.csv --out predictions.csv --proba
    """
    output = Output(json, quiet)
    if json and out is None:
        raise CommandError("--json needs --out: predictions would be mixed up with it.")
    suffix = suffix_for(out, top)
    check_outputs({"--out": out}, {"the model": model, "the data": data})
    known = load_model(model)
    for option, given in (("--proba", proba), ("--top", top is not None)):
        if given and not known.classifies:
            raise CommandError(f"{option} needs a classifier, but {model} holds a {known.kind}.")
    if proba and top is not None:
        raise CommandError("--proba and --top exclude each other: --top tells probabilities too.")
    table = known.wanted.features(data)
    with refusing():
        columns: Columns = columns_of(known, proba=proba, top=top)
        write(columns, known, table.X, out, suffix)
    if out is not None:
        output.say(f"{table.source.split(',')[0]} → {out}")
    output.tell(
        {
            "rows": table.X.shape[0],
            "predictions": None if out is None else str(out),
            "columns": columns.names,
        }
    )
