"""From a path to features, targets and names: everything behind ``dfwtrace fit FILE``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import scipy.sparse as sp

from dfwtrace._typing import Array, Matrix
from dfwtrace.io.columns import Choice, choose, default_features
from dfwtrace.io.read_batches import ColumnFile
from dfwtrace.io.read_errors import DataFileError
from dfwtrace.io.read_formats import open_columns, suffix_of
from dfwtrace.io.read_gather import collect, columns_for, names_of_features
from dfwtrace.io.read_survey import Survey, survey
from dfwtrace.io.read_targets import is_classification
from dfwtrace.io.read_unnamed import SVMLIGHT, Names, names_of_targets, read_unnamed
from dfwtrace.validation import check_count

__all__ = [
    "DataFileError",
    "Survey",
    "Table",
    "is_classification",
    "read_features",
    "read_table",
    "survey",
]


class Table(NamedTuple):
    """What the estimators get.

    Attributes
    ----------
    X : array, maybe a memory map, or csr_array, of float32 or float64
    y : array of shape (n,) or (n, m), or None
        Numbers, or text for labels.
    feature_names, target_names : list of str, or None
        None where the file has no names.
    source : str
        One line for people.
    weight : array of shape (n,), or None
    first_index : 0, 1 or None
        The number that an svmlight file gives its first column.
    """

    X: Matrix
    y: Array | None
    feature_names: list[str] | None
    target_names: list[str] | None
    source: str
    weight: Array | None = None
    first_index: int | None = None


def read_table(
    path: str | os.PathLike[str],
    *,
    target: Names,
    features: Names = None,
    weight: str | None = None,
    max_rows: int | None = None,
    spill: str | os.PathLike[str] | None = None,
) -> Table:
    """Read features and targets.

    Parameters
    ----------
    path : path
        A .csv, .csv.gz, .npz, .npy, .parquet, .arrow, .feather, .svm, .libsvm or .svmlight file, or
        a folder of .parquet files, which are taken in the order of their names.
    target : str or sequence of str, or None
        Columns: names, shell patterns such as ``"y*"``, comma lists. For .npz the name of an array
        ("y" if None); for .npy and .npz also the path of a .npy file. svmlight files have theirs.
    features : str or sequence of str, optional
        Columns likewise; all but the target and the weight if left out. For .npz the name of an
        array ("X" if None), which may also be there in CSR parts: X_data, X_indices, X_indptr,
        X_shape.
    weight : str, optional
        A column, or as for `target`.
    max_rows : int, optional
        Only the first rows.
    spill : path of a folder, optional
        For files with columns that do not fit in memory: the features are written batch by batch to
        a new .npy file there, of which X is a memory map. The file is the caller's to remove.

    Raises
    ------
    DataFileError
        In one sentence, whatever is wrong with the file.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "train.csv"
    ...     _ = path.write_text("x1,x2,label\\n1,2,red\\n3,4.5,blue\\n")
    ...     table = read_table(path, target="label")
    >>> table.source
    "train.csv: 2 rows, 2 features, target 'label'"
    >>> table.X, table.y
    (array([[1. , 2. ],
           [3. , 4.5]]), array(['red', 'blue'], dtype='<U4'))
    """
    if max_rows is not None:
        max_rows = check_count("max_rows", max_rows, 1)
    path = Path(path)
    suffix = suffix_of(path)
    file = open_columns(path, suffix)
    if file is None:
        found = read_unnamed(path, suffix, target, features, weight, max_rows)
        targets = names_of_targets(found)
        source = _describe(path.name, found.X, targets)
        return Table(found.X, found.y, None, targets, source, found.weight, found.first_index)
    choice = choose(file.columns, file=file.name, target=target, features=features, weight=weight)
    return _read_columns(file, choice, max_rows, None if spill is None else Path(spill))


def read_features(
    path: str | os.PathLike[str],
    names: list[str] | None,
    n_features: int,
    *,
    exclude: Sequence[str] = (),
    array: str | None = None,
    first_index: int | None = None,
    max_rows: int | None = None,
    spill: str | os.PathLike[str] | None = None,
) -> Table:
    """Read the features that a model was fitted on, in its order.

    Parameters
    ----------
    path : path
        As for `read_table`.
    names : list of str, or None
        The model's feature names; other columns are ignored. Where they are not known, or the file
        has none, the number of columns must be right; an svmlight file may have fewer, as it ends
        with the last column that is not zero.
    n_features : int
    exclude : sequence of str
        Columns that are no features, where the names are not known.
    array : str, optional
        The array of an .npz file that holds the features; "X" if None.
    first_index : 0 or 1, optional
        The number that the model's own svmlight file gave its first column. Other files count as
        it did, whether they have that column or not.
    max_rows, spill
        As for `read_table`.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "test.csv"
    ...     _ = path.write_text("id,b,a\\n7,1,2\\n")
    ...     read_features(path, ["a", "b"], 2).X
    array([[2., 1.]])
    """
    if max_rows is not None:
        max_rows = check_count("max_rows", max_rows, 1)
    path = Path(path)
    suffix = suffix_of(path)
    file = open_columns(path, suffix)
    if file is None:
        named = array if suffix == ".npz" else None
        X = read_unnamed(
            path, suffix, None, named, None, max_rows, with_targets=False, first_index=first_index
        ).X
        if X.shape[1] < n_features and suffix in SVMLIGHT:
            X = sp.csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], n_features))
        if X.shape[1] != n_features:
            raise _wrong_width(path.name, X.shape[1], n_features)
        return Table(X, None, None, None, _describe(path.name, X, None))
    room = None if spill is None else Path(spill)
    if names is not None:
        choice = Choice(columns_for(names, file), [], None)
        return _read_columns(file, choice, max_rows, room, order=names)
    choice = Choice(default_features(file.columns, file.name, set(exclude)), [], None)
    width = len(names_of_features(file, choice))
    if width != n_features:
        raise _wrong_width(file.name, width, n_features)
    return _read_columns(file, choice, max_rows, room)


def _read_columns(
    file: ColumnFile,
    choice: Choice,
    max_rows: int | None,
    spill: Path | None,
    order: list[str] | None = None,
) -> Table:
    found = collect(file, choice, max_rows, spill, order)
    source = _describe(file.name, found.X, found.targets)
    return Table(found.X, found.y, found.names, found.targets or None, source, found.weight)


def _wrong_width(file: str, width: int, n_features: int) -> DataFileError:
    return DataFileError(f"{file} has {width} features, but the model was fitted on {n_features}.")


def _describe(file: str, X: Matrix, targets: list[str] | None) -> str:
    """One line for people."""
    rows, columns = X.shape
    line = f"{file}: {rows} {'row' if rows == 1 else 'rows'}, {columns} "
    line += "feature" if columns == 1 else "features"
    if targets and len(targets) == 1:
        line += f", target {targets[0]!r}"
    elif targets and len(targets) <= 3:
        line += f", targets {', '.join(map(repr, targets))}"
    elif targets:
        line += f", {len(targets)} targets"
    return line
