"""Rows for a command: read, and judged to be a classification or a regression."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from dfwtrace._typing import Array, Matrix
from dfwtrace.cli.guard import CommandError
from dfwtrace.io.columns import choose
from dfwtrace.io.read_formats import open_columns, suffix_of
from dfwtrace.io.read_gather import collect
from dfwtrace.io.read_targets import is_classification, whole_as_integers
from dfwtrace.io.read_unnamed import names_of_targets, outline_unnamed, read_unnamed
from dfwtrace.io.tables import Table, read_features, read_table

# Rows that are converted at once, so that a map is never in memory as a whole.
_ROWS_AT_ONCE = 65_536
_ROWS_TO_JUDGE_BY = 10_000


class Wanted(NamedTuple):
    """What a model takes from other files than its own.

    Attributes
    ----------
    feature_names : list of str, or None
    n_features : int
    target : list of str, or None
        What ``--target`` said when it was fitted.
    target_names : list of str, or None
        One for each column of targets, in the order of the model.
    array : str, or None
        The array that held the features, if it was fitted on an .npz file.
    first_index : 0, 1 or None
        The number of the first column, if it was fitted on an svmlight file.
    """

    feature_names: list[str] | None
    n_features: int
    target: Sequence[str] | None = None
    target_names: Sequence[str] | None = None
    array: str | None = None
    first_index: int | None = None

    def features(self, path: Path, exclude: Sequence[str] = ()) -> Table:
        """The features of a file, in the order of the model."""
        return read_features(
            path,
            self.feature_names,
            self.n_features,
            exclude=exclude,
            array=self.array,
            first_index=self.first_index,
        )


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
    with _room_in(spill) as room:
        table = read_table(path, target=target, features=features, weight=weight, spill=room)
        if table.y is None:
            raise CommandError(f"--target is missing: {path.name} has no targets of its own.")
        yield table._replace(X=_as_dtype(table.X, dtype, room))


def known_rows(
    path: Path, wanted: Wanted, target: Sequence[str] | None = None
) -> tuple[Matrix, Array]:
    """The features of a model and targets, both in its order, to see what it is worth."""
    named = wanted.target if target is None else target
    table = wanted.features(path, () if named is None else tuple(named))
    suffix = suffix_of(path)
    if open_columns(path, suffix) is not None:
        y, names = _target_columns(path, named, None)
        return table.X, _in_order(y, names, wanted.target_names)
    array = wanted.array if suffix == ".npz" else None
    if target is None and array is not None:
        target = _target_array(path, wanted.target)
    # Else the target's name is that of a column, which says nothing about a file without columns.
    found = read_unnamed(path, suffix, target, array, None, None, first_index=wanted.first_index)
    y, names = _required(found.y, path), names_of_targets(found) or []
    return table.X, _in_order(y, names, wanted.target_names)


def first_targets(
    path: Path, target: Sequence[str] | None, features: Sequence[str] | None
) -> Array:
    """Targets to judge by, from the first rows; features that are apart from them stay unread."""
    suffix = suffix_of(path)
    if open_columns(path, suffix) is not None:
        return _target_columns(path, target, _ROWS_TO_JUDGE_BY)[0]
    if suffix in (".npz", ".npy"):  # their headers tell where the targets are
        return _required(outline_unnamed(path, suffix, target, features).y, path)
    return _required(read_unnamed(path, suffix, target, features, None, _ROWS_TO_JUDGE_BY).y, path)


def array_of(path: Path, features: Sequence[str] | None) -> str | None:
    """The array of an .npz file that has the features; None for other files."""
    if suffix_of(path) != ".npz":
        return None
    return (features[0] if features else "") or "X"


def require_same_kind(y: Array, table: Table, asked: str, file: str) -> None:
    """Targets to score a model on must be of the kind that it learns from a table."""
    assert table.y is not None
    task, learnt = judge(table.y, asked, table.target_names)
    if y.dtype.kind not in "biuf" and learnt.dtype.kind in "biuf":
        needs = "regression needs numbers"
        if task == "classification":
            needs = f"the labels to learn are numbers such as {learnt[0]}"
        raise CommandError(f"the target of {file} holds text ({str(y.flat[0])!r}), but {needs}.")
    width, other = (1 if each.ndim == 1 else each.shape[1] for each in (learnt, y))
    if width != other:
        count = "1 target" if width == 1 else f"{width} targets"
        raise CommandError(f"the model is to predict {count}, but {file} has {other}.")


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


def _target_columns(
    path: Path, target: Sequence[str] | None, max_rows: int | None
) -> tuple[Array, list[str]]:
    """The targets of a file with columns, and their names."""
    require_target(path, target)
    file = open_columns(path, suffix_of(path))
    assert file is not None
    columns = [name for name in file.columns if name]
    choice = choose(columns, file=file.name, target=target)
    found = collect(file, choice._replace(features=[]), max_rows, None, None)
    return _required(found.y, path), found.targets


def _target_array(path: Path, target: Sequence[str] | None) -> Sequence[str] | None:
    """The array that the model's targets were in; another file would hold those of other rows."""
    if target is not None and target[0].endswith(".npy"):
        raise CommandError(
            f"which are the targets of {path.name}? Those of the fit are in a file of their own, "
            f"{target[0]!r}."
        )
    return target


def _required(y: Array | None, path: Path) -> Array:
    if y is None:
        raise CommandError(f"{path.name} has no targets: --target names their file.")
    return y


def _in_order(y: Array, names: Sequence[str], wanted: Sequence[str] | None) -> Array:
    """Columns of targets as the model has them, if they are the same ones by name."""
    if y.ndim == 1 or wanted is None or sorted(names) != sorted(wanted):
        return y
    return y[:, [names.index(name) for name in wanted]]


@contextmanager
def _room_in(spill: Path | None) -> Iterator[Path | None]:
    """A new folder in that of the user, so that nothing is removed but what was put there."""
    if spill is None:
        yield None
        return
    try:
        room = TemporaryDirectory(dir=spill, prefix="dfwtrace-")
    except OSError as error:
        raise CommandError(f"--spill: {spill} cannot be written to: {error.strerror}.") from error
    with room as name:
        yield Path(name)


def _as_dtype(X: Matrix, dtype: str | None, room: Path | None) -> Matrix:
    """X in the precision that was asked for; a map where there is room for one."""
    if dtype is None or X.dtype == dtype:
        return X
    if room is None or sp.issparse(X):
        return X.astype(dtype)
    converted: Matrix = np.lib.format.open_memmap(
        room / f"{dtype}.npy", mode="w+", dtype=np.dtype(dtype), shape=X.shape
    )
    for start in range(0, X.shape[0], _ROWS_AT_ONCE):
        converted[start : start + _ROWS_AT_ONCE] = X[start : start + _ROWS_AT_ONCE]
    return converted
