"""Predictions as columns, some rows at a time, and the files that they go to."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from dfwtrace._typing import Array, Matrix
from dfwtrace.cli.guard import CommandError
from dfwtrace.cli.models import Model
from dfwtrace.cli.scores import row_blocks
from dfwtrace.files.atomic import atomic_write

_SUFFIXES = (".csv", ".npy", ".parquet")


class Columns(NamedTuple):
    """The names of the columns, and what they hold for some rows.

    `numeric` is True if they all are numbers, so that they make one matrix.
    """

    names: list[str]
    of: Callable[[Matrix], list[Array]]
    numeric: bool = False


def suffix_for(out: Path | None, top: int | None) -> str:
    """The format, by the name of the file."""
    suffix = ".csv" if out is None else out.suffix.lower()
    if suffix not in _SUFFIXES:
        raise CommandError(f"--out must end in .csv, .npy or .parquet, got {out}.")
    if suffix == ".npy" and top is not None:
        raise CommandError("--top needs a .csv or .parquet file: classes and numbers do not mix.")
    return suffix


def columns_of(model: Model, *, proba: bool, top: int | None) -> Columns:
    """What is to be told about each row."""
    estimator = model.estimator
    if not model.classifies:
        width = int(estimator.low_rank_.shape[1])
        names = model.target_names or (
            ["prediction"] if width == 1 else [f"prediction_{j}" for j in range(width)]
        )
        return Columns(names, lambda X: list(estimator.predict(X).reshape(-1, width).T), True)
    classes = estimator.classes_
    if proba:
        names = [f"p_{label}" for label in classes]
        return Columns(names, lambda X: list(estimator.predict_proba(X).T), True)
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


def write(columns: Columns, model: Model, X: Matrix, out: Path | None, suffix: str) -> None:
    """All rows, whole or not at all; to standard output if there is no file."""
    if out is None:
        _write_csv(columns, model, X, sys.stdout)
        return
    with atomic_write(out) as file:
        if suffix == ".csv":
            with io.TextIOWrapper(file, "utf-8", newline="") as text:
                _write_csv(columns, model, X, text)
        elif suffix == ".npy":
            blocks = [_together(columns, block) for _, block in row_blocks(model, X)]
            np.save(file, np.concatenate(blocks), allow_pickle=False)
        else:
            _write_parquet(columns, model, X, file)


def _write_csv(columns: Columns, model: Model, X: Matrix, text: TextIO) -> None:
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns.names)
    for _, block in row_blocks(model, X):
        writer.writerows(zip(*(column.tolist() for column in columns.of(block)), strict=True))


def _together(columns: Columns, block: Matrix) -> Array:
    """One array: a matrix of numbers, or a list of labels."""
    found = columns.of(block)
    if len(columns.names) > 1:
        return np.column_stack(found)
    only = found[0]
    return only.astype(str) if only.dtype.kind == "O" else only


def _write_parquet(columns: Columns, model: Model, X: Matrix, file: Any) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError(
            "writing Parquet needs pyarrow: pip install 'dfwtrace[files]'."
        ) from error
    writer = None
    for _, block in row_blocks(model, X):
        table = pa.Table.from_arrays([pa.array(c) for c in columns.of(block)], columns.names)
        if writer is None:
            writer = pq.ParquetWriter(file, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()
