"""``dfwtrace predict`` and ``dfwtrace evaluate``: what a model makes of rows."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TextIO

import numpy as np
import typer

from dfwtrace._typing import Array, Matrix
from dfwtrace.cli import options as shared
from dfwtrace.cli.data import known_rows
from dfwtrace.cli.guard import CommandError, check_outputs, refusing
from dfwtrace.cli.models import Model, Scores, load_model, row_blocks, score
from dfwtrace.cli.output import Output, lines, number, word
from dfwtrace.io.atomic import atomic_write

_MOST_WORST = 50  # classes or targets in a JSON object
# What makes a spreadsheet take a cell for a formula, also in full width.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


class Columns(NamedTuple):
    """The names of columns of predictions, and what they hold for some rows."""

    names: list[str]
    of: Callable[[Matrix], list[Array]]


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
        columns = _columns(known, proba, top)
        blocks = (columns.of(block) for _, block in row_blocks(known, table.X))
        if out is None:
            _write_csv(columns.names, blocks, sys.stdout)
        else:
            with atomic_write(out) as file:
                _WRITERS[suffix](columns.names, blocks, file)
    if out is not None:
        output.say(f"{table.source.split(',')[0]} → {out}")
    predictions = None if out is None else str(out)
    output.tell({"rows": table.X.shape[0], "predictions": predictions, "columns": columns.names})


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


def _columns(model: Model, proba: bool, top: int | None) -> Columns:
    """What is to be predicted for each row."""
    estimator, width = model.estimator, model.width
    if not model.classifies:
        numbered = ["prediction"] if width == 1 else [f"prediction_{j}" for j in range(width)]
        names = model.wanted.target_names or numbered
        return Columns(list(names), lambda X: list(estimator.predict(X).reshape(-1, width).T))
    classes = estimator.classes_
    if proba:
        names = [f"p_{label}" for label in classes]
        return Columns(names, lambda X: list(estimator.predict_proba(X).T))
    if top is None:
        return Columns(["prediction"], lambda X: [estimator.predict(X)])
    count = min(top, len(classes))

    def likeliest(X: Matrix) -> list[Array]:
        shares = estimator.predict_proba(X)
        order = np.argsort(-shares, axis=1, kind="stable")[:, :count]
        best = np.take_along_axis(shares, order, axis=1)
        return [part for j in range(count) for part in (classes[order[:, j]], best[:, j])]

    names = [name for j in range(count) for name in (f"class_{j + 1}", f"probability_{j + 1}")]
    return Columns(names, likeliest)


def inert(value: Any) -> Any:
    """A cell that no spreadsheet runs: text that begins like a formula gets a quote before it.

    Examples
    --------
    >>> inert("=1+2"), inert("-1"), inert(-1), inert("a=b")
    ("'=1+2", '-1', -1, 'a=b')
    """
    if not isinstance(value, str) or not value.startswith(_FORMULA):
        return value
    try:
        float(value)  # a number such as -1 is harmless
    except ValueError:
        return f"'{value}"
    return value


def _write_csv(names: list[str], blocks: Iterable[list[Array]], text: TextIO) -> None:
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(inert, names))
    for columns in blocks:
        writer.writerows(zip(*(map(inert, column.tolist()) for column in columns), strict=True))


def _write_csv_file(names: list[str], blocks: Iterable[list[Array]], file: Any) -> None:
    with io.TextIOWrapper(file, "utf-8", newline="") as text:
        _write_csv(names, blocks, text)


def _write_npy(names: list[str], blocks: Iterable[list[Array]], file: Any) -> None:
    arrays = [np.column_stack(found) if len(names) > 1 else found[0] for found in blocks]
    together = np.concatenate(arrays)
    labels = together.dtype.kind == "O"
    np.save(file, together.astype(str) if labels else together, allow_pickle=False)


def _write_parquet(names: list[str], blocks: Iterable[list[Array]], file: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer = None
    for columns in blocks:
        table = pa.Table.from_arrays([pa.array(column) for column in columns], names)
        writer = writer or pq.ParquetWriter(file, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


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
