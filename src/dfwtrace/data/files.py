"""From a path to features, targets and names: everything behind ``dfwtrace fit FILE``."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import scipy.sparse as sp

from dfwtrace._typing import Array
from dfwtrace.data.arrays import read_arrays, survey_arrays
from dfwtrace.data.columns import Choice, Names, choose, columns_with, matching
from dfwtrace.data.table import DataFileError, Survey, Table, reading

if TYPE_CHECKING:
    from dfwtrace.data.arrow import ArrowTable

_FORMATS = {
    **{
        f"{csv}{packed}": "csv"
        for csv in (".csv", ".tsv")
        for packed in ("", ".gz", ".bz2", ".zst")
    },
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".npz": "npz",
    ".npy": "npy",
    ".svm": "svmlight",
    ".libsvm": "svmlight",
    ".svmlight": "svmlight",
}
_WITH_COLUMNS = ("parquet", "arrow", "csv")


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
        A .csv or .tsv file, maybe compressed (.gz, .bz2, .zst), a .parquet, .arrow, .feather,
        .npz, .npy, .svm, .libsvm or .svmlight file; or a folder of CSV, Parquet or Arrow files,
        which are read in the order of their names.
    target : str or sequence of str, or None
        Columns: names, shell patterns such as ``"y*"``, comma lists. For .npz the name of an array
        ("y" if None); for .npy and .npz also the path of a .npy file. svmlight files have theirs.
    features : str or sequence of str, default=None
        Columns likewise; all but the target and the weight if None. For .npz the name of an array
        ("X" if None), which may also be stored in CSR parts: X_data, X_indices, X_indptr, X_shape.
    weight : str, default=None
        A column, or as for `target`.
    spill : path of a folder, default=None
        For files with columns that do not fit in memory: the features are written batch by batch to
        a new .npy file there, of which X is a memory map. The file is the caller's to remove.

    Returns
    -------
    Table

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
    path = Path(path)
    kind, table = _open(path)
    if table is None:
        return read_arrays(path, kind, target=target, features=features, weight=weight)
    choice = choose(table.columns, file=table.name, target=target, features=features, weight=weight)
    return table.read(choice, spill=None if spill is None else Path(spill))


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
    """Read the features that a model was fitted on, in its order.

    Parameters
    ----------
    path : path
        As for `read_table`.
    names : list of str, or None
        The model's feature names; other columns are ignored. If None, or if the file has no names,
        the number of columns must be right; an svmlight file may have fewer, as it ends with the
        last column that is not zero.
    n_features : int
    targets : bool, default=False
        Whether to read the targets as well.
    target : str or sequence of str, default=None
        As for `read_table`; the columns are no features where the names are not known.
    array : str, default=None
        The array of an .npz file that holds the features; "X" if None.
    first_index : 0 or 1, default=None
        The number of the first column in the svmlight file that the model was fitted on.

    Returns
    -------
    Table

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
    path = Path(path)
    kind, table = _open(path)
    if table is None:
        found = read_arrays(
            path,
            kind,
            target=target,
            features=array if kind == "npz" else None,
            targets=targets,
            first_index=first_index,
        )
        X = found.X
        if kind == "svmlight" and X.shape[1] < n_features:
            X = sp.csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], n_features))
            found = found._replace(X=X)
    else:
        if names is None:
            columns = choose(table.columns, file=table.name, target=target).features
        else:
            columns = columns_with(names, table.columns, table.name)
        found = table.read(Choice(columns, []), order=names)
        if targets:  # by themselves: a feature may be a target too
            y = table.read(Choice([], matching(table.columns, target or "", table.name)))
            found = found._replace(y=y.y, target_names=y.target_names)
    width = found.X.shape[1]
    if width != n_features:
        raise DataFileError(
            f"{path.name} has {width} features, but the model was fitted on {n_features}."
        )
    return found


def survey(path: str | os.PathLike[str], *, target: Names = None, features: Names = None) -> Survey:
    """Return the size and kind of a file's data from headers, footers and first rows only.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> with TemporaryDirectory() as folder:
    ...     np.save(Path(folder) / "X.npy", np.ones((5, 3), dtype=np.float32))
    ...     found = survey(Path(folder) / "X.npy")
    >>> found.rows, found.features, found.nbytes, found.kind
    (5, 3, 60, None)
    """
    return _survey(Path(path), target, features)[0]


def first_targets(path: Path, target: Names, features: Names) -> Array | None:
    """Return the targets of the first rows, to judge by; of several columns maybe only a shape."""
    return _survey(path, target, features)[1]


def column_names(path: Path) -> list[str] | None:
    """Return the names of a file's columns; None where its format has none."""
    table = _open(path)[1]
    return None if table is None else table.columns


def array_name(path: Path, features: Sequence[str] | None) -> str | None:
    """Return the array of an .npz file that holds the features; None for other files."""
    if _files(path)[0] != "npz":
        return None
    return (features[0] if features else "") or "X"


def _survey(path: Path, target: Names, features: Names) -> tuple[Survey, Array | None]:
    kind, table = _open(path)
    if table is None:
        return survey_arrays(path, kind, target, features)
    return table.survey(choose(table.columns, file=table.name, target=target, features=features))


def _open(path: Path) -> tuple[str, ArrowTable | None]:
    """Return the format, and the table where it has named columns."""
    kind, files = _files(path)
    if kind not in _WITH_COLUMNS:
        return kind, None
    try:
        from dfwtrace.data.arrow import ArrowTable
    except ImportError as error:
        raise DataFileError(
            f"reading {path.name} needs pyarrow: pip install 'dfwtrace[cli]'."
        ) from error
    return kind, ArrowTable(path, kind, files)


def _files(path: Path) -> tuple[str, list[Path]]:
    """Return the format and the files of a path."""
    with reading(path, "a file or folder"):
        folder = stat.S_ISDIR(path.stat().st_mode)
        # Writers leave marks such as _SUCCESS and hidden checksums beside the data.
        files = sorted(p for p in path.iterdir() if p.name[0] not in "._") if folder else [path]
    kinds = {file: kind for file in files if (kind := _format(file, folder)) is not None}
    if not kinds:
        what = (
            f"the folder {path} holds no data files" if folder else f"{path} is of no known format"
        )
        raise DataFileError(
            f"{what}; known are {', '.join(_FORMATS)}, and folders of files with named columns."
        )
    kind = "parquet" if "parquet" in kinds.values() else next(iter(kinds.values()))
    if kind != "parquet" and len(set(kinds.values())) > 1:
        raise DataFileError(f"the folder {path} holds files of several formats: separate them.")
    files = [file for file in files if kinds.get(file) == kind]
    for file in files:
        if not file.is_file():  # a pipe could be read only once, or for ever
            raise DataFileError(f"{file} is not a regular file.")
    return kind, files


def _format(file: Path, with_columns: bool) -> str | None:
    name = file.name.lower()
    kind = next((kind for suffix, kind in _FORMATS.items() if name.endswith(suffix)), None)
    return None if with_columns and kind not in _WITH_COLUMNS else kind
