"""Features, targets and weights from the columns of a file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dfwtrace._typing import Array
from dfwtrace.io.columns import Choice, nearest
from dfwtrace.io.read_batches import (
    Batch,
    ColumnFile,
    Features,
    check_finite,
    lay_out,
    spread_names,
)
from dfwtrace.io.read_errors import AwkwardError, DataFileError
from dfwtrace.validation import as_floating


class Gathered(NamedTuple):
    """What a choice of columns comes to; X is None where no features were chosen."""

    X: Array | None
    y: Array | None
    weight: Array | None
    names: list[str]
    targets: list[str]


def collect(
    file: ColumnFile,
    choice: Choice,
    max_rows: int | None,
    spill: Path | None,
    order: list[str] | None,
) -> Gathered:
    """Read the columns of a choice, by the first reader that can."""
    dtype = file.dtype(choice.features) if choice.features else np.dtype(np.float64)
    rows = file.rows if file.rows is None or max_rows is None else min(file.rows, max_rows)
    for batches in file.ways(choice, max_rows):
        held = Features(dtype, rows, spill if choice.features else None)
        try:
            return _gather(file, choice, batches, held, order)
        except AwkwardError:
            held.abandon()
        except MemoryError as error:
            held.abandon()
            raise DataFileError(
                f"the features of {file.name} do not fit in memory; spill them to a folder."
            ) from error
        except BaseException:
            held.abandon()
            raise
    raise AssertionError("the last reader settles everything")


def _gather(
    file: ColumnFile,
    choice: Choice,
    batches: Iterator[Batch],
    held: Features,
    order: list[str] | None,
) -> Gathered:
    names: list[str] = []
    taken: list[int] | None = None
    targets: list[list[Any]] = [[] for _ in choice.targets]
    weights: list[Array] = []
    seen = 0
    for batch in batches:
        seen += batch.rows
        if file.rows is not None and seen > file.rows:
            raise DataFileError(f"{file.name} is damaged: it has more rows than it says.")
        here = spread_names(choice.features, batch.features)
        if not names:
            names = here
            taken = None if order in (None, names) else _places(order, names, file.name)
        elif here != names:
            raise DataFileError(
                f"a column of lists in {file.name} has rows of different lengths from row "
                f"{batch.first_row + 1} of {batch.file} on."
            )
        if choice.features:
            block = lay_out(batch, names, held.dtype)
            held.append(block if taken is None else block[:, taken])
        for name, pieces, piece in zip(choice.targets, targets, batch.targets, strict=True):
            if isinstance(piece, np.ndarray):  # text is judged when all of it is there
                check_finite(piece, spread_names([name], [piece]), batch.file, batch.first_row)
            pieces.append(piece)
        if batch.weight is not None:
            weights.append(_checked_weight(batch, str(choice.weight)))
    if not seen:
        raise DataFileError(f"{file.name} has no rows.")
    X = held.finish() if choice.features else None
    y, target_names = _targets(file, choice.targets, targets)
    weight = np.concatenate(weights) if weights else None
    return Gathered(X, y, weight, names if order is None else order, target_names)


def _targets(
    file: ColumnFile, columns: list[str], pieces: list[list[Any]]
) -> tuple[Array | None, list[str]]:
    if not columns:
        return None, []
    if len(columns) == 1:
        found = [file.target(columns[0], pieces[0])]
    else:
        found = [
            file.numeric_target(name, held) for name, held in zip(columns, pieces, strict=True)
        ]
    names = spread_names(columns, found)
    if len(found) == 1 and found[0].ndim == 1:
        return found[0], names
    y = as_floating(np.column_stack(found))
    check_finite(y, names, file.name)
    return y[:, 0] if y.shape[1] == 1 else y, names


def _checked_weight(batch: Batch, column: str) -> Array:
    assert batch.weight is not None
    weight = batch.weight.astype(np.float64)
    check_finite(weight, [column], batch.file, batch.first_row)
    refuse_negative(weight, f"column {column!r} of {batch.file}", batch.first_row)
    return weight


def refuse_negative(weight: Array, what: str, first_row: int) -> None:
    """By row."""
    if (weight < 0).any():
        row = first_row + int(np.argmax(weight < 0)) + 1
        raise DataFileError(f"{what} is negative in row {row}: weights must be at least 0.")


def names_of_features(file: ColumnFile, choice: Choice) -> list[str]:
    """One for each number in a row, from the first row."""
    file.dtype(choice.features)
    for batches in file.ways(Choice(choice.features, [], None), 1):
        try:
            return spread_names(choice.features, next(batches).features)
        except AwkwardError:
            continue
    raise AssertionError("the last reader settles everything")


def columns_for(names: list[str], file: ColumnFile) -> list[str]:
    """The columns that hold a model's features; 'e[3]' may be the fourth number of a column 'e'."""
    known = set(file.columns)
    wanted = {name if name in known else re.sub(r"\[\d+\]$", "", name) for name in names}
    missing = [name for name in names if not known & {name, re.sub(r"\[\d+\]$", "", name)}]
    if missing:
        raise _features_missing(missing, file.columns, file.name)
    return [name for name in file.columns if name in wanted]


def _places(order: list[str] | None, names: list[str], file: str) -> list[int]:
    assert order is not None
    place = {name: i for i, name in enumerate(names)}
    missing = [name for name in order if name not in place]
    if missing:
        raise _features_missing(missing, names, file)
    return [place[name] for name in order]


def _features_missing(missing: list[str], columns: list[str], file: str) -> DataFileError:
    if len(missing) == 1:
        hint = nearest(missing[0], columns)
        return DataFileError(f"{file} has no column {missing[0]!r}, a feature of the model{hint}")
    shown = ", ".join(repr(name) for name in missing[:5])
    more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
    return DataFileError(f"{file} lacks features of the model: {shown}{more}.")
