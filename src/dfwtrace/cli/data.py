"""Rows for a command: read, and judged to be a classification or a regression."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from dfwtrace._typing import Array, Matrix
from dfwtrace.cli.guard import CommandError
from dfwtrace.io.columns import choose
from dfwtrace.io.read_formats import open_columns, suffix_of
from dfwtrace.io.read_gather import collect
from dfwtrace.io.read_targets import is_classification, whole_as_integers
from dfwtrace.io.read_unnamed import read_unnamed
from dfwtrace.io.tables import Table, read_features, read_table

# Rows that are converted at once, so that a map is never in memory as a whole.
_ROWS_AT_ONCE = 65_536


@contextmanager
def training_rows(
    path: Path,
    *,
    target: Sequence[str] | None,
    features: Sequence[str] | None,
    weight: str | None,
    dtype: str | None,
    spill: Path | None,
) -> Iterator[Table]:
    """Features and targets; what was spilled to a folder is removed after the block."""
    if spill is not None and not spill.is_dir():
        raise CommandError(f"--spill: there is no folder {spill}.")
    require_target(path, target)
    table = read_table(path, target=target, features=features, weight=weight, spill=spill)
    spilled = [_file_of(table.X)] if spill is not None else []
    try:
        if table.y is None:
            raise CommandError(f"--target is missing: {path.name} has no targets of its own.")
        X = _as_dtype(table.X, dtype, spill)
        spilled += [_file_of(X)] if spill is not None else []
        yield table._replace(X=X)
    finally:
        for name in {name for name in spilled if name is not None}:
            os.unlink(name)


def known_rows(
    path: Path,
    feature_names: list[str] | None,
    n_features: int,
    target: Sequence[str] | None,
    known: Sequence[str] | None = None,
) -> tuple[Matrix, Array]:
    """The features of a model, in its order, and targets, to see what it is worth."""
    named = known if target is None else target
    exclude = () if named is None else tuple(named)
    table = read_features(path, feature_names, n_features, exclude=exclude)
    return table.X, read_targets(path, target, known)


def read_targets(
    path: Path,
    target: Sequence[str] | None,
    known: Sequence[str] | None = None,
    max_rows: int | None = None,
) -> Array:
    """Only the targets; from the columns `known` where nobody said which."""
    suffix = suffix_of(path)
    file = open_columns(path, suffix)
    if file is None:
        # A name that a column had says nothing about a file without columns.
        y = read_unnamed(path, suffix, target, None, None, max_rows).y
    else:
        target = known if target is None else target
        require_target(path, target)
        assert target is not None
        columns = [name for name in file.columns if name]
        choice = choose(columns, file=file.name, target=target)
        y = collect(file, choice._replace(features=[]), max_rows, None, None).y
    if y is None:
        raise CommandError(f"{path.name} has no targets: --target names their file.")
    return y


def judge(y: Array, asked: str, names: Sequence[str] | None) -> tuple[str, Array]:
    """The task that targets ask for, or the one that was asked for, and the targets for it."""
    what = f"target {names[0]!r}" if names and len(names) == 1 else "the target"
    task = asked
    if asked == "auto":
        task = "classification" if is_classification(y) else "regression"
    if task == "regression":
        if y.dtype.kind not in "biuf":
            raise CommandError(f"{what} holds text ({str(y[0])!r}): regression needs numbers.")
        return task, y.astype(np.float64) if y.dtype.kind in "biu" else y
    if y.ndim > 1:
        raise CommandError(f"classification takes one target, got {y.shape[1]}.")
    labels = whole_as_integers(y)
    if labels.dtype.kind == "f":
        odd = labels[np.argmax(labels != np.rint(labels))]
        raise CommandError(f"{what} holds {odd:g}, which is no label: --task regression?")
    return task, labels


def require_target(path: Path, target: Sequence[str] | None) -> None:
    """Where columns have names, one of them must be named."""
    file = open_columns(path, suffix_of(path)) if target is None else None
    if file is not None:
        names = [repr(name) for name in file.columns if name]
        some = ", ".join(names if len(names) <= 5 else [*names[:3], "…", names[-1]])
        raise CommandError(f"--target is missing: which column of {path.name} is it, {some}?")


def _file_of(X: Matrix) -> str | None:
    base = X
    while base is not None and not isinstance(base, np.memmap):
        base = getattr(base, "base", None)
    return None if base is None else str(base.filename)


def _as_dtype(X: Matrix, dtype: str | None, spill: Path | None) -> Matrix:
    """X in the precision that was asked for; a map becomes another map."""
    if dtype is None or X.dtype == dtype:
        return X
    if spill is None or sp.issparse(X):
        return X.astype(dtype)
    converted: Matrix = np.lib.format.open_memmap(
        f"{_file_of(X)}.{dtype}.npy", mode="w+", dtype=np.dtype(dtype), shape=X.shape
    )
    for start in range(0, X.shape[0], _ROWS_AT_ONCE):
        converted[start : start + _ROWS_AT_ONCE] = X[start : start + _ROWS_AT_ONCE]
    return converted
