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
from dfwtrace.data import files
from dfwtrace.data.table import Table, is_classification, whole_as_integers

# Rows that are converted at once, so that a map is never in memory as a whole.
_ROWS_AT_ONCE = 65_536


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

    def features(self, path: Path) -> Table:
        """Read the features of a file, in the order of the model."""
        return self._read(path, targets=False, target=None)

    def features_and_targets(self, path: Path, target: Sequence[str] | None) -> Table:
        """Read both."""
        return self._read(path, targets=True, target=target)

    def _read(self, path: Path, *, targets: bool, target: Sequence[str] | None) -> Table:
        return files.read_features(
            path,
            self.feature_names,
            self.n_features,
            targets=targets,
            target=target,
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
    """Read features and targets; what was spilled to a folder is removed after the block."""
    if spill is not None and not spill.is_dir():
        raise CommandError(f"--spill: there is no folder {spill}.")
    require_target(path, target)
    with _room_in(spill) as room:
        table = files.read_table(path, target=target, features=features, weight=weight, spill=room)
        if table.y is None:
            raise CommandError(f"--target is missing: {path.name} has no targets of its own.")
        yield table._replace(X=_as_dtype(table.X, dtype, room))


def known_rows(
    path: Path, wanted: Wanted, target: Sequence[str] | None = None
) -> tuple[Matrix, Array]:
    """Read the features of a model and targets, both in its order, to score it."""
    if files.column_names(path) is not None:
        target = wanted.target if target is None else target
        require_target(path, target)
    elif target is None and wanted.array is not None and files.array_name(path, None) is not None:
        # The arrays of the fit; a separate file would hold the targets of other rows. In other
        # cases the target of the fit names a column, which a file without columns has not.
        target = wanted.target
        if target is not None and target[0].endswith(".npy"):
            raise CommandError(
                f"which are the targets of {path.name}? Those of the fit are in a separate file, "
                f"{target[0]!r}."
            )
    table = wanted.features_and_targets(path, target)
    y, names = _required(table.y, path), table.target_names or []
    if y.ndim > 1 and wanted.target_names and sorted(names) == sorted(wanted.target_names):
        y = y[:, [names.index(name) for name in wanted.target_names]]
    return table.X, y


def first_targets(
    path: Path, target: Sequence[str] | None, features: Sequence[str] | None
) -> Array:
    """Read targets to judge by, from the first rows."""
    return _required(files.first_targets(path, target=target, features=features), path)


def array_of(path: Path, features: Sequence[str] | None) -> str | None:
    """Return the array of an .npz file that holds the features; None for other files."""
    return files.array_name(path, features)


def require_same_kind(y: Array, table: Table, asked: str, file: str) -> None:
    """Refuse targets to score a model on that are not of the kind that it learns from a table."""
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
    """Return the task that was asked for, or that targets ask for, and the targets for it."""
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
    """Refuse a file with named columns if none of them is named as the target."""
    columns = files.column_names(path) if target is None else None
    if columns is not None:
        names = [repr(name) for name in columns if name]
        some = ", ".join(names if len(names) <= 5 else [*names[:3], "…", names[-1]])
        raise CommandError(f"--target is missing: which column of {path.name} is it, {some}?")


def _required(y: Array | None, path: Path) -> Array:
    if y is None:
        raise CommandError(f"{path.name} has no targets: --target names their file.")
    return y


@contextmanager
def _room_in(spill: Path | None) -> Iterator[Path | None]:
    """Make a new folder in that of the user, so that nothing else is removed with it."""
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
    """Return X in the given precision; a map where there is room for one."""
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
