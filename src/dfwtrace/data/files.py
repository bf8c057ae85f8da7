"""From a path to features, targets and names: everything behind ``dfwtrace fit FILE``."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from dfwtrace._typing import Array
from dfwtrace.data import table
from dfwtrace.data.arrays import read_arrays
from dfwtrace.data.columns import Choice, Names, choose, matching, require
from dfwtrace.data.table import FIRST_ROWS, DataFileError, Survey, Table, reading
from dfwtrace.validation import as_floating

if TYPE_CHECKING:
    from dfwtrace.data.arrow import ArrowTable

_PACKED = ("", ".gz", ".bz2", ".zst")
_FORMATS = {f"{kind}{packed}": "csv" for kind in (".csv", ".tsv") for packed in _PACKED}
_FORMATS |= {".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow"}
_WITH_COLUMNS = set(_FORMATS.values())
_FORMATS |= {".npz": "npz", ".npy": "npy"}
_FORMATS |= dict.fromkeys((".svm", ".libsvm", ".svmlight"), "svmlight")


def read_table(
    path: str | os.PathLike[str],
    *,
    target: Names,
    features: Names = None,
    weight: str | None = None,
    spill: str | os.PathLike[str] | None = None,
) -> Table:
    """Read features and targets.

    Parameters
    ----------
    path : path
        A file, or a folder of CSV, Parquet or Arrow files, read in the order of their names.
    target, features : str or sequence of str, or None
        Columns: names, shell patterns such as ``"y*"``, comma lists; features are all others if
        None. For .npz the names of arrays ("y" and "X" if None); X may be in CSR parts: X_data,
        X_indices, X_indptr and X_shape. For .npy and .npz, a target may be the path of a .npy file.
    weight : str, default=None
        A column, or as for `target`.
    spill : path of a folder, default=None
        For files with columns that do not fit in memory: the features are written batch by batch to
        a new .npy file there, of which X is a memory map. The file is the caller's to remove.

    Raises
    ------
    DataFileError
        In one sentence, whatever is wrong with the file.
    """
    path = Path(path)
    kind, frame = _open(path)
    if frame is None:
        return read_arrays(path, kind, target, features, weight)
    choice = choose(frame.columns, file=path.name, target=target, features=features, weight=weight)
    return frame.read(choice, None if spill is None else Path(spill))


def read_features(
    path: str | os.PathLike[str],
    names: list[str] | None,
    n_features: int,
    *,
    targets: bool = False,
    target: Names = None,
    array: str | None = None,
    first_index: int | None = None,
) -> Table:
    """Read the features that a model was fitted on, in its order; other columns are ignored.

    Without `names`, or if the file has none, the number of columns must be right, but for svmlight
    files, which end with the last column that is not zero. `array` is that of an .npz file,
    `first_index` that of the svmlight file that the model was fitted on.
    """
    path = Path(path)
    kind, frame = _open(path)
    if frame is None:
        array = array if kind == "npz" else None
        found = read_arrays(path, kind, target, array, None, targets, first_index)
        X = found.X
        if kind == "svmlight" and X.shape[1] < n_features:
            X.resize(X.shape[0], n_features)
    else:
        if names is None:
            columns = choose(frame.columns, file=path.name, target=target).features
        else:  # 'e[3]' may be in a column 'e' of lists
            known = set(frame.columns)
            each = (n if n in known else re.sub(r"\[\d+\]$", "", n) for n in names)
            columns = list(dict.fromkeys(each))
        found = frame.read(Choice(columns, []))
        X, place = found.X, {name: j for j, name in enumerate(found.feature_names or [])}
        if names is not None and list(place) != names:
            require(list(place), names, path.name)
            X = np.take(X, [place[name] for name in names], axis=1)
            found = found._replace(feature_names=names)
        if targets:  # by themselves: a feature may be a target too
            y = frame.read(Choice([], matching(frame.columns, target or "", path.name)))
            found = found._replace(y=y.y, target_names=y.target_names)
    if (width := X.shape[1]) != n_features:
        problem = f"has {width} features, but the model was fitted on {n_features}"
        raise DataFileError(f"{path.name} {problem}.")
    return found._replace(X=X)


def survey(path: str | os.PathLike[str], *, target: Names = None, features: Names = None) -> Survey:
    """Return the size and kind of a file's data from headers, footers and first rows only."""
    return _survey(Path(path), target, features)[0]


def first_targets(path: Path, target: Names, features: Names) -> Array | None:
    """Return the targets of the first rows, to judge by."""
    return _survey(path, target, features)[1]


def column_names(path: Path) -> list[str] | None:
    """Return the names of a file's columns; None where its format has none."""
    frame = _open(path)[1]
    return None if frame is None else frame.columns


def array_name(path: Path, features: Sequence[str] | None) -> str | None:
    """Return the array of an .npz file that holds the features; None for other files."""
    return ((features or [""])[0] or "X") if _files(path)[0] == "npz" else None


def _survey(path: Path, target: Names, features: Names) -> tuple[Survey, Array | None]:
    kind, frame = _open(path)
    scale, y = 1.0, None
    if frame is None:
        X, y, *_ = read_arrays(path, kind, target, features, head=True)
        if kind == "svmlight":
            with path.open("rb") as lines:
                scale = path.stat().st_size / sum(map(len, islice(lines, FIRST_ROWS)))
        rows, exact = round(X.shape[0] * scale), scale == 1.0
    else:
        choice = choose(frame.columns, file=path.name, target=target, features=features)
        X = frame.read(Choice(choice.features, []), enough=1).X
        if choice.targets:
            y = frame.read(Choice([], choice.targets), enough=FIRST_ROWS).y
        counts, certain = zip(*(part.count() for part in frame.parts), strict=True)
        rows, exact = sum(counts), all(certain)
    width, dtype, asked, columns = X.shape[1], as_floating(X[:0]).dtype, None, 0
    nbytes = rows * width * dtype.itemsize
    if sp.issparse(X):  # a value and a 32-bit column number each, and where each row begins
        nbytes = round(X.nnz * scale) * (dtype.itemsize + 4) + (rows + 1) * 4
    if y is not None:
        y = y[:FIRST_ROWS]
        asked = "classification" if table.is_classification(y) else "regression"
        columns = 1 if y.ndim == 1 else y.shape[1]
    return Survey(rows, width, dtype, sp.issparse(X), nbytes, asked, columns, exact), y


def _open(path: Path) -> tuple[str, ArrowTable | None]:
    """Return the format, and the table where it has named columns."""
    kind, files = _files(path)
    if kind not in _WITH_COLUMNS:
        return kind, None
    try:
        from dfwtrace.data.arrow import ArrowTable
    except ImportError as error:
        problem = f"reading {path.name} needs pyarrow: pip install 'dfwtrace[cli]'."
        raise DataFileError(problem) from error
    return kind, ArrowTable(path, kind, files)


def _files(path: Path) -> tuple[str, list[Path]]:
    """Return the format and the files of a path."""
    with reading(path, "a file or folder"):
        folder = stat.S_ISDIR(path.stat().st_mode)
        # Writers leave marks such as _SUCCESS and hidden checksums beside the data.
        files = sorted(p for p in path.iterdir() if p.name[0] not in "._") if folder else [path]
    kinds = {
        file: _FORMATS[end] for file in files for end in _FORMATS if file.name.lower().endswith(end)
    }
    if folder:
        kinds = {file: kind for file, kind in kinds.items() if kind in _WITH_COLUMNS}
    found = set(kinds.values())
    if not found:
        what = "holds no data files" if folder else "is of no known format"
        known = f"{', '.join(_FORMATS)}, and folders of files with named columns"
        raise DataFileError(f"{path} {what}; known are {known}.")
    if len(found) > 1 and "parquet" not in found:
        raise DataFileError(f"the folder {path} holds files of several formats: separate them.")
    kind = "parquet" if "parquet" in found else found.pop()
    files = [file for file in files if kinds.get(file) == kind]
    for file in files:
        if not file.is_file():  # a pipe could be read only once, or for ever
            raise DataFileError(f"{file} is not a regular file.")
    return kind, files
