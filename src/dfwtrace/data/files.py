"""From a path to features, targets and names: everything behind ``dfwtrace fit FILE``."""

from __future__ import annotations

import io
import os
import re
import stat
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.lib import format as npy
from numpy.lib.npyio import NpzFile

from dfwtrace._typing import Array, Matrix
from dfwtrace.data import table
from dfwtrace.data.preparation import Preparation, advising, warn_of_ids
from dfwtrace.data.table import Choice, DataFileError, Names, Survey, Table, choose, reading
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
    categorical: Names = None,
    impute: str | None = None,
    keep: Names = None,
    drop: Names = None,
    spill: str | os.PathLike[str] | None = None,
) -> Table:
    """Read features and targets of a file, or of a folder of CSV, Parquet or Arrow files.

    Columns are names, shell patterns such as ``"y*"`` and comma lists; features are all others if
    None. For .npz they are names of arrays ("y" and "X" if None); X may be in CSR parts: X_data,
    X_indices, X_indptr and X_shape. For .npy and .npz, a target or weight may be the path of a .npy
    file. Features of files with columns that do not fit in memory are written batch by batch to a
    file in the folder `spill`, of which X is a memory map; it has no name and goes with the map.

    Columns to `drop` or to `keep` are no features, those that are `categorical` are one-hot
    encoded, and missing numbers are replaced by their mean or median if `impute` says so; the
    table's preparation has what `read_features` needs to do the same.
    """
    path, options = Path(path), {"categorical": categorical, "keep": keep, "drop": drop}
    kind, frame = _open(path)
    wanted = [f"--{name}" for name, given in options.items() if given is not None]
    if frame is None:
        _refuse_options(path, kind, [*wanted, *(["--impute"] if impute else [])])
        preparation = Preparation(impute=impute) if impute else None
        found = _read_arrays(path, kind, target, features, weight, preparation=preparation)
    else:
        columns: Any = {"target": target, "features": features, "weight": weight, **options}
        choice = choose(frame.columns, file=path.name, **columns)
        taken = [*choice.targets, choice.weight]
        with advising(taken, frame.kinds(choice.features), learning=True):
            known = frame.categories(choice.categorical) if choice.categorical else {}
            preparation = None
            if wanted or impute:
                kept, dropped = list(choice.keep), list(choice.drop)
                preparation = Preparation(choice.features, known, impute, {}, kept, dropped)
            room = None if spill is None else Path(spill)
            found = frame.read(choice._replace(keep=()), room, preparation=preparation)
    if impute and preparation is not None:
        names = found.feature_names or [str(j) for j in range(found.X.shape[1])]
        preparation = preparation.with_fill(found.X, names, path.name)
        found = found._replace(preparation=preparation)
    if found.feature_names is not None:
        notes = warn_of_ids(found.X, found.feature_names, preparation or Preparation())
        found = found._replace(warnings=notes)
    return found


def read_features(
    path: str | os.PathLike[str],
    names: list[str] | None,
    n_features: int,
    *,
    targets: bool = False,
    target: Names = None,
    array: str | None = None,
    first_index: int | None = None,
    preparation: Preparation | None = None,
) -> Table:
    """Read the features that a model was fitted on, in its order; other columns are ignored.

    Without `names`, or if the file has none, the number of columns must be right, but for svmlight
    files, which end with the last column that is not zero. `array` is that of an .npz file,
    `first_index` that of the svmlight file that the model was fitted on. What the preparation says
    is done again; columns to keep are in the table if the file has them.
    """
    path, done = Path(path), preparation or Preparation()
    kind, frame = _open(path)
    if frame is None:
        array = array if kind == "npz" else None
        if done.categories:
            problem = (
                f"the model makes features of the categories in {next(iter(done.categories))!r}"
            )
            raise DataFileError(f"{path.name} has no column names, but {problem}.")
        how: Any = {"preparation": preparation, "feature_names": names, "learning": False}
        found = _read_arrays(path, kind, target, array, None, targets, first_index, **how)
        X = found.X
        if kind == "svmlight" and X.shape[1] < n_features:
            X.resize(X.shape[0], n_features)
    else:
        known = set(frame.columns)
        if done.columns is not None:
            columns = done.columns
        elif names is None:
            columns = choose(frame.columns, file=path.name, target=target).features
        else:  # 'e[3]' may be in a column 'e' of lists
            each = (n if n in known else re.sub(r"\[\d+\]$", "", n) for n in names)
            columns = list(dict.fromkeys(each))
        keep = [name for name in done.keep if name in known]
        with advising([], {}, learning=False):
            found = frame.read(Choice(columns, [], keep=tuple(keep)), preparation=preparation)
        X, place = found.X, {name: j for j, name in enumerate(found.feature_names or [])}
        if names is not None and list(place) != names:
            table.require(list(place), names, path.name)
            X = X[:, [place[name] for name in names]]
            found = found._replace(feature_names=names)
        if targets:  # by themselves: a feature may be a target too
            y = frame.read(Choice([], table.matching(frame.columns, target or "", path.name)))
            found = found._replace(y=y.y, target_names=y.target_names)
    if (width := X.shape[1]) != n_features:
        problem = f"has {width} features, but the model was fitted on {n_features}"
        raise DataFileError(f"{path.name} {problem}.")
    return found._replace(X=X)


def column_names(path: Path) -> list[str] | None:
    """Return the names of a file's columns; None where its format has none."""
    frame = _open(path)[1]
    return None if frame is None else frame.columns


def array_name(path: Path, features: Sequence[str] | None) -> str | None:
    """Return the array of an .npz file that holds the features; None for other files."""
    return ((features or [""])[0] or "X") if _files(path)[0] == "npz" else None


def survey(
    path: Path,
    *,
    target: Names = None,
    features: Names = None,
    impute: str | None = None,
    **more: Names,
) -> tuple[Survey, Array | None]:
    """Return the size of a file's data and its first targets, without reading it in full.

    Options are those of `read_table`; categories are those of the first rows.
    """
    kind, frame = _open(path)
    scale, y = 1.0, None
    if frame is None:
        _refuse_options(path, kind, [f"--{name}" for name, given in more.items() if given])
        X, y, *_ = _read_arrays(path, kind, target, features, head=True)
        if kind == "svmlight":
            with path.open("rb") as lines:
                scale = path.stat().st_size / sum(map(len, islice(lines, table.FIRST_ROWS)))
        rows, exact = round(X.shape[0] * scale), scale == 1.0
    else:
        columns: Any = {"target": target, "features": features, **more}
        choice = choose(frame.columns, file=path.name, **columns)
        known = {}
        if choice.categorical:
            known = frame.categories(choice.categorical, enough=table.FIRST_ROWS)
        done = Preparation(choice.features, known, impute)
        with advising(choice.targets, frame.kinds(choice.features), learning=True):
            X = frame.read(Choice(choice.features, []), enough=1, preparation=done).X
        if choice.targets:
            y = frame.read(Choice([], choice.targets), enough=table.FIRST_ROWS).y
        counts, certain = zip(*(part.count() for part in frame.parts), strict=True)
        rows = sum(counts)
        exact = all(certain) and (rows <= table.FIRST_ROWS or not choice.categorical)
        scale = rows / X.shape[0]
    width, dtype, asked, columns = X.shape[1], as_floating(X[:0]).dtype, None, 0
    nbytes = rows * width * dtype.itemsize
    if sp.issparse(X):  # a value and a 32-bit column number each, and where each row begins
        nbytes = round(X.nnz * scale) * (dtype.itemsize + 4) + (rows + 1) * 4
    if y is not None:
        y = y[: table.FIRST_ROWS]
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
        file: kind
        for file in files
        for end, kind in _FORMATS.items()
        if file.name.lower().endswith(end) and (kind in _WITH_COLUMNS or not folder)
    }
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


def _read_arrays(
    path: Path,
    kind: str,
    target: Names = None,
    features: Names = None,
    weight: str | None = None,
    targets: bool = True,
    first_index: int | None = None,
    head: bool = False,
    preparation: Preparation | None = None,
    feature_names: list[str] | None = None,
    learning: bool = True,
) -> Table:
    """Read such a file; with `head`, X has the right shape and type, or the first rows alone."""
    file, y, w, names = path.name, None, None, []
    label, name = _only(target, file), _only(features, file)
    if kind != "npz" and name is not None:
        raise DataFileError(f"{file} has no column names: leave out --features.")
    if kind == "svmlight" and label not in (None, "label"):
        raise DataFileError(f"{file} has its labels at the start of each line: leave out --target.")
    with (
        reading(path, f"an {kind if kind == 'svmlight' else kind.upper()} file"),
        path.open("rb") as raw,
        NpzFile(raw, allow_pickle=False) if kind == "npz" else nullcontext() as archive,
    ):
        if kind == "svmlight":
            lines = io.BytesIO(b"".join(islice(raw, table.FIRST_ROWS))) if head else raw
            X, y, first_index = _svmlight(lines, file, first_index, empty=not targets)
            label = "label"
        else:
            X = _matrix(archive, name or "X", path, head)
            if label is None and archive is not None and "y" in archive:
                label = "y"
            y = _array(archive, label, path) if targets and label is not None else None
        if targets and weight is not None:
            w = _array(archive, weight, path)
    if X.dtype.kind not in "biuf" or X.ndim != 2 or 0 in X.shape:
        what = f"array {name or 'X'!r} of {file}" if kind == "npz" else file
        found = f"{what} holds {X.dtype} of shape {X.shape}"
        raise DataFileError(f"{found}: features must be numbers in rows and columns.")
    if not head:
        X = as_floating(X)
        done = preparation or Preparation()
        if done.impute is not None:
            X = X.copy()  # it may be a map of the user's file
            done.fill_missing(X, feature_names or [str(j) for j in range(X.shape[1])])
        with advising([], {}, learning=learning) if kind != "svmlight" else nullcontext():
            table.check_finite(X, None, file, missing=done.leaves_nan)
    if targets and y is not None and label is not None:
        y = _fitting(y, X.shape[0], f"the targets {label!r} of {file}")
        stem = Path(label).stem if label.endswith(".npy") else label
        names = [stem] if y.ndim == 1 else [f"{stem}[{j}]" for j in range(y.shape[1])]
        table.check_finite(y, names, file)
    if w is not None:
        w = _fitting(w, X.shape[0], f"the weights {weight!r} of {file}")
        w = table.check_weight(w, str(weight), file)
    source = table.describe(file, X, names)
    return Table(X, y if targets else None, None, names or None, source, w, first_index)


def _refuse_options(path: Path, kind: str, options: list[str]) -> None:
    """Refuse options that need named columns, and --impute where zeros are left out."""
    for option in options:
        if option != "--impute":
            raise DataFileError(f"{option} needs named columns, which {path.name} has not.")
        if kind == "svmlight":
            raise DataFileError(f"{option} is not for svmlight files, such as {path.name}.")


def _only(given: Names, file: str) -> str | None:
    """Return the one name that was given."""
    if given is None or isinstance(given, str):
        return given
    if len(given) != 1:
        raise DataFileError(f"{file} has no column names: name one array, not several.")
    return given[0]


def _array(archive: NpzFile[Any] | None, name: str, path: Path) -> Array:
    """Return an array of the archive, or of a separate .npy file."""
    if archive is not None and (name in archive or not name.endswith(".npy")):
        table.require(list(archive), [name], path.name, "array")
        return np.asarray(archive[name])
    other = Path(name) if Path(name).exists() else path.parent / name
    if other.suffix != ".npy":
        raise DataFileError(f"{path.name} has no column names: give a .npy file, not {name!r}.")
    _files(other)  # refuses what is not there, or no regular file
    with reading(other, "an NPY file"), other.open("rb") as part:
        array: Array = npy.read_array(part, allow_pickle=False)
    return array


def _matrix(archive: NpzFile[Any] | None, name: str, path: Path, head: bool) -> Matrix:
    """Return a map, an array, or the CSR matrix that the parts X_data, X_indices, ... make."""
    if archive is None:
        return npy.open_memmap(path, mode="r")
    if name not in archive and f"{name}_indptr" in archive:
        parts = [f"{name}_{part}" for part in ("data", "indices", "indptr", "shape")]
        data, indices, indptr, shape = (_array(archive, part, path) for part in parts)
        matrix = sp.csr_array((data, indices, indptr), shape=tuple(shape.tolist()))
        matrix.check_format(full_check=True)
        return matrix
    if not head or name not in archive:
        return _array(archive, name, path)
    assert archive.zip is not None
    with archive.zip.open(f"{name}.npy") as part:  # its header only
        old = npy.read_magic(part) == (1, 0)
        size, _, dtype = (npy.read_array_header_1_0 if old else npy.read_array_header_2_0)(part)
    return np.broadcast_to(np.zeros((), dtype), size)


def _svmlight(
    lines: IO[bytes], file: str, first_index: int | None, *, empty: bool
) -> tuple[Matrix, Array, int]:
    """Return a CSR matrix, the labels, and the number of the first column, 0 or 1."""
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(lines, zero_based=True)
    if not X.shape[0] or not (X.nnz or empty):
        raise DataFileError(f"{file} has no {'features' if X.shape[0] else 'rows'}.")
    least = int(X.indices.min()) if X.nnz else None
    if first_index is None:
        first_index = 1 if least else 0
    if first_index and least == 0:
        problem = "but the model was fitted on a file that counts its columns from 1"
        raise DataFileError(f"{file} has a column 0, {problem}.")
    shape = (X.shape[0], max(1, X.shape[1] - first_index))
    shifted = sp.csr_array((X.data, X.indices - first_index, X.indptr), shape=shape)
    return shifted, table.whole_as_integers(y), first_index


def _fitting(values: Array, rows: int, what: str) -> Array:
    """Return targets or weights with the right number of rows, as numbers or text."""
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    if values.ndim not in (1, 2) or values.shape[0] != rows:
        problem = f"have the shape {values.shape}, but there are {rows} rows of features"
        raise DataFileError(f"{what} {problem}.")
    values = values[:, 0] if values.shape[1:] == (1,) else values
    if values.dtype.kind not in ("biufU" if values.ndim == 1 else "biuf"):
        problem = f"hold {values.dtype} in {values.ndim} dimensions"
        raise DataFileError(f"{what} {problem}, not numbers or one column of text.")
    return as_floating(values) if values.ndim == 2 else values
