"""``dfwtrace predict`` and ``dfwtrace evaluate``: what a model makes of rows."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, BinaryIO, TextIO, TypeAlias

import numpy as np
import typer

from dfwtrace._typing import Array, Matrix
from dfwtrace.cli import options as shared
from dfwtrace.cli.data import known_rows
from dfwtrace.cli.guard import CommandError, check_outputs, refusing, visible
from dfwtrace.cli.models import Model, Scores, load_model, row_blocks, score
from dfwtrace.cli.output import Output, lines, number, word
from dfwtrace.files.atomic import atomic_write

Blocks: TypeAlias = Iterable[dict[str, Array]]

_MOST_WORST = 50  # classes or targets in a JSON object
# What makes a spreadsheet take a cell for a formula, also in full width.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def predict(
    model: shared.ModelArgument,
    data: shared.DataArgument,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="A .csv, .npy or .parquet file; without it, CSV is printed."
        ),
    ] = None,
    proba: Annotated[bool, typer.Option("--proba", help="A probability for each class.")] = False,
    top: Annotated[int | None, typer.Option(min=1, help="The n most probable classes.")] = None,
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
) -> None:
    """Predict classes, probabilities or targets.

    Example: dfwtrace predict model.safetensors new.csv --out predictions.csv --proba
    """
    output = Output(json, quiet)
    if json and out is None:
        raise CommandError("--json needs --out: predictions would be mixed up with it.")
    suffix = ".csv" if out is None else out.suffix.lower()
    if suffix not in (".csv", ".npy", ".parquet"):
        raise CommandError(f"--out must end in .csv, .npy or .parquet, got {out}.")
    if suffix == ".npy" and top is not None:
        raise CommandError("--top needs a .csv or .parquet file: classes and numbers do not mix.")
    if proba and top is not None:
        raise CommandError("--proba and --top exclude each other: --top has probabilities too.")
    check_outputs({"--out": out}, {"the model": model, "the data": data})
    known = load_model(model)
    for option, given in (("--proba", proba), ("--top", top is not None)):
        if given and not known.classifies:
            raise CommandError(f"{option} needs a classifier, but {model} holds a {known.kind}.")
    table = known.wanted.features(data)
    with refusing():
        blocks = (_columns(known, block, proba, top) for _, block in row_blocks(known, table.X))
        if out is None:
            _write_csv(blocks, sys.stdout)
            return
        with atomic_write(out) as file:
            names = _WRITERS[suffix](blocks, file)
    output.say(f"{table.source.split(',')[0]} → {out}")
    output.tell({"rows": table.X.shape[0], "predictions": str(out), "columns": names})


def evaluate(
    model: shared.ModelArgument,
    data: shared.DataArgument,
    target: shared.TargetOption = None,
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
) -> None:
    """Score a model: accuracy, balanced accuracy and log loss, or R² and RMSE.

    The target is that of the fit, unless --target names another.

    Example: dfwtrace evaluate model.safetensors test.csv --target label
    """
    output = Output(json, quiet)
    known = load_model(model)
    X, y = known_rows(data, known.wanted, target)
    with refusing():
        found = score(known, X, y)
    if found.warning is not None:
        output.warn(found.warning)
    facts = [("rows", f"{len(y):,}"), *found.shown(), *_worst_line(found, known.classifies)]
    output.say(lines(facts))
    worst = [vars(entry) for entry in found.worst[:_MOST_WORST]]
    output.tell({"rows": len(y), "task": known.task, "scores": found.by_key(), "worst": worst})


def _columns(model: Model, X: Matrix, proba: bool, top: int | None) -> dict[str, Array]:
    """Predictions for some rows, by the names of their columns."""
    estimator, width = model.estimator, model.width
    if not model.classifies:
        numbered = ["prediction"] if width == 1 else [f"prediction_{j}" for j in range(width)]
        names = model.wanted.target_names or numbered
        return dict(zip(names, estimator.predict(X).reshape(-1, width).T, strict=True))
    if not proba and top is None:
        return {"prediction": estimator.predict(X)}
    classes, shares = estimator.classes_, estimator.predict_proba(X)
    if top is None:
        return {f"p_{label}": share for label, share in zip(classes, shares.T, strict=True)}
    order = np.argsort(-shares, axis=1, kind="stable")[:, :top]
    best = np.take_along_axis(shares, order, axis=1)
    found = {}
    for j in range(order.shape[1]):
        found[f"class_{j + 1}"] = classes[order[:, j]]
        found[f"probability_{j + 1}"] = best[:, j]
    return found


def inert(value: Any) -> Any:
    """A cell that no spreadsheet runs: text that begins like a formula gets a quote before it."""
    if not isinstance(value, str) or not value.startswith(_FORMULA):
        return value
    try:
        float(value)  # a number such as -1 is harmless
    except ValueError:
        return f"'{value}"
    return value


def _write_csv(blocks: Blocks, text: TextIO) -> list[str]:
    def cell(value: Any) -> Any:
        value = inert(value)
        return visible(value) if isinstance(value, str) and text.isatty() else value

    writer, names = csv.writer(text, lineterminator="\n"), None
    for block in blocks:
        if names is None:
            names = list(block)
            writer.writerow(map(cell, names))
        columns = (map(cell, column.tolist()) for column in block.values())
        writer.writerows(zip(*columns, strict=True))
    return names or []


def _write_csv_file(blocks: Blocks, file: BinaryIO) -> list[str]:
    with io.TextIOWrapper(file, "utf-8", newline="") as text:
        return _write_csv(blocks, text)


def _write_npy(blocks: Blocks, file: BinaryIO) -> list[str]:
    found = list(blocks)
    names = list(found[0])
    stacked = np.concatenate([np.column_stack(list(block.values())) for block in found])
    array = stacked if len(names) > 1 else stacked[:, 0]
    np.save(file, array.astype(str) if array.dtype.kind == "O" else array, allow_pickle=False)
    return names


def _write_parquet(blocks: Blocks, file: BinaryIO) -> list[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = (pa.table(block) for block in blocks)
    first = next(tables)
    with pq.ParquetWriter(file, first.schema) as writer:
        for table in chain([first], tables):
            writer.write_table(table)
    return list(first.column_names)


_WRITERS = {".csv": _write_csv_file, ".npy": _write_npy, ".parquet": _write_parquet}


def _worst_line(found: Scores, classifies: bool) -> list[tuple[str, str]]:
    """The three classes or targets with the largest errors."""
    worst = [entry for entry in found.worst[:3] if entry.error != 0.0]
    if len(found.worst) < 2 or not worst:
        return []
    shown = [
        f"{word(entry.name)} ({100.0 * entry.error:.1f} % wrong of {entry.count} rows)"
        if classifies
        else f"{word(entry.name)} (RMSE {number(entry.error)})"
        for entry in worst
    ]
    return [("worst", ", ".join(shown))]
