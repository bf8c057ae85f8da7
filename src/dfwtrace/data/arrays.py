"""Files without column names: .npy as a memory map, .npz with arrays by name, svmlight text."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.lib.npyio import NpzFile

from dfwtrace._typing import Array, Matrix
from dfwtrace.data.columns import Names, nearest
from dfwtrace.data.table import (
    FIRST_ROWS,
    DataFileError,
    Survey,
    Table,
    check_finite,
    check_weight,
    describe,
    no_value,
    reading,
    summarise,
    whole_as_integers,
)
from dfwtrace.validation import as_floating

# Rows that are checked at once, in bytes, so that a map is never in memory as a whole.
_BYTES_AT_ONCE = 16 << 20


def read_arrays(
    path: Path,
    kind: str,
    *,
    target: Names = None,
    features: Names = None,
    weight: str | None = None,
    targets: bool = True,
    first_index: int | None = None,
) -> Table:
    """Read a file of kind "npy", "npz" or "svmlight"; without `targets`, features only.

    Without `first_index`, an svmlight file counts its columns from 0 if it has a column 0, else
    from 1.
    """
    X: Matrix
    y = w = names = None
    with _opened(path, kind) as archive:
        label, name, what = _arguments(path, kind, archive, target, features)
        if kind == "svmlight":
            with path.open("rb") as lines:
                X, y, first_index = _svmlight(lines, path, first_index, empty=not targets)
        else:
            X = _matrix(archive, name, path)
            y = _array(archive, label, path) if targets and label is not None else None
        if targets and weight is not None:
            w = _array(archive, weight, path)
    _check_matrix(X.shape, X.dtype, what)
    X = as_floating(X)
    _check_values(X, path.name)
    if targets and y is not None and label is not None:
        y = _fitting(y, X.shape[0], f"the targets {label!r} of {path.name}")
        stem = Path(label).stem if label.endswith(".npy") else label
        names = [stem] if y.ndim == 1 else [f"{stem}[{j}]" for j in range(y.shape[1])]
        check_finite(y, names, path.name)
    if w is not None:
        w = _fitting(w, X.shape[0], f"the weights of {path.name}")
        w = check_weight(w, str(weight), path.name)
    source = describe(path.name, X, names)
    return Table(X, y if targets else None, None, names, source, w, first_index)


def survey_arrays(
    path: Path, kind: str, target: Names, features: Names
) -> tuple[Survey, Array | None]:
    """Return size and first targets from the headers, or the first lines of an svmlight file."""
    y, stored = None, None
    with _opened(path, kind) as archive:
        label, name, what = _arguments(path, kind, archive, target, features)
        if kind == "svmlight":
            with path.open("rb") as lines:
                head = b"".join(islice(lines, FIRST_ROWS))
                exact = not lines.read(1)
            X, y, _ = _svmlight(io.BytesIO(head), path, None, empty=False)
            scale = 1.0 if exact else path.stat().st_size / len(head)
            rows, stored = round(X.shape[0] * scale), round(X.nnz * scale)
            return summarise(rows, X.shape[1], X.dtype, stored, exact, y), y
        if archive is None:
            mapped = _matrix(None, name, path)
            shape, dtype = mapped.shape, mapped.dtype
        else:
            parts = _in_parts(archive, name)
            shape, dtype = _header(archive, f"{name}_data" if parts else name, path)
            if parts:
                stored, shape = shape[0], tuple(_array(archive, f"{name}_shape", path).tolist())
        if label is not None:
            y = _first_targets(archive, label, path)
    _check_matrix(shape, dtype, what)
    if y is not None:
        y = _check_shape(y, shape[0], f"the targets {label!r} of {path.name}")[:FIRST_ROWS]
    dtype = as_floating(np.empty(0, dtype)).dtype
    return summarise(shape[0], shape[1], dtype, stored, True, y), y


@contextmanager
def _opened(path: Path, kind: str) -> Iterator[NpzFile[Any] | None]:
    """Open an .npz archive; whatever is wrong with a file becomes one sentence."""
    with reading(path, "an svmlight file" if kind == "svmlight" else f"an {kind.upper()} file"):
        if kind != "npz":
            yield None
            return
        with path.open("rb") as raw, NpzFile(raw, allow_pickle=False) as archive:
            yield archive


def _arguments(
    path: Path, kind: str, archive: NpzFile[Any] | None, target: Names, features: Names
) -> tuple[str | None, str, str]:
    """Return the names of targets and features, and what to call the features in messages."""
    names: list[str | None] = []
    for given in (target, features):
        several = [given] if given is None or isinstance(given, str) else list(given)
        if len(several) != 1:
            raise DataFileError(f"{path.name} has no column names: name one array, not several.")
        names += several
    label, name = names
    if archive is None and name is not None:
        raise DataFileError(f"{path.name} has no column names: leave out --features.")
    if kind == "svmlight" and label not in (None, "label"):
        raise DataFileError(
            f"{path.name} has its labels at the start of each line: leave out --target."
        )
    if label is None and kind != "npy":
        label = "label" if archive is None else "y" if "y" in archive else None
    name = name or "X"
    return label, name, path.name if archive is None else f"array {name!r} of {path.name}"


def _in_parts(archive: NpzFile[Any], name: str) -> bool:
    return name not in archive and f"{name}_indptr" in archive


def _require(archive: NpzFile[Any], name: str, path: Path) -> None:
    if name not in archive:
        hint = nearest(name, list(archive)) if list(archive) else "; it is empty."
        raise DataFileError(f"{path.name} has no array {name!r}{hint}")


def _header(archive: NpzFile[Any], name: str, path: Path) -> tuple[Any, np.dtype[Any]]:
    """Return shape and dtype of an array, which is not read."""
    _require(archive, name, path)
    assert archive.zip is not None
    with archive.zip.open(f"{name}.npy") as part:
        first = np.lib.format.read_magic(part) == (1, 0)
        read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(part)
    return shape, dtype


def _array(archive: NpzFile[Any] | None, name: str, path: Path) -> Array:
    """Return an array of the archive, or of a separate .npy file."""
    if archive is not None and (name in archive or not name.endswith(".npy")):
        _require(archive, name, path)
        return np.asarray(archive[name])
    other = Path(name) if Path(name).exists() else path.parent / name
    if other.suffix != ".npy":
        raise DataFileError(
            f"{path.name} has no column names: give the targets or weights as a .npy file, "
            f"not {name!r}."
        )
    if other.exists() and not other.is_file():
        raise DataFileError(f"{other} is not a regular file.")
    with reading(other, "an NPY file"), other.open("rb") as part:
        array: Array = np.lib.format.read_array(part, allow_pickle=False)
    return array


def _first_targets(archive: NpzFile[Any] | None, label: str, path: Path) -> Array:
    """Return targets to judge by: of several columns, only the shape matters."""
    if archive is not None and label in archive:
        shape, dtype = _header(archive, label, path)
        if len(shape) == 2 and shape[1] > 1:
            return np.broadcast_to(np.zeros((), dtype), shape)
    return _array(archive, label, path)


def _matrix(archive: NpzFile[Any] | None, name: str, path: Path) -> Matrix:
    """Return a map, an array, or the CSR matrix that the parts X_data, X_indices, ... make."""
    if archive is None:
        return np.lib.format.open_memmap(path, mode="r")
    if not _in_parts(archive, name):
        return _array(archive, name, path)
    data, indices, indptr, shape = (
        _array(archive, f"{name}_{part}", path) for part in ("data", "indices", "indptr", "shape")
    )
    try:
        matrix = sp.csr_array((data, indices, indptr), shape=tuple(int(size) for size in shape))
        matrix.check_format(full_check=True)
    except (ValueError, TypeError) as error:
        raise DataFileError(
            f"the parts of {name!r} in {path.name} make no sparse matrix: {error}."
        ) from error
    return matrix


def _svmlight(
    lines: IO[bytes], path: Path, first_index: int | None, *, empty: bool
) -> tuple[Matrix, Array, int]:
    """Return a CSR matrix, the labels, and the number of the first column, 0 or 1."""
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(lines, zero_based=True)
    rows, columns = X.shape
    if not rows:
        raise DataFileError(f"{path} has no rows.")
    if not X.nnz and not empty:
        raise DataFileError(f"{path} has no features.")
    least = int(X.indices.min()) if X.nnz else None
    if first_index is None:
        first_index = 1 if least else 0
    if first_index and least == 0:
        raise DataFileError(
            f"{path.name} has a column 0, but the model was fitted on a file that counts its "
            "columns from 1."
        )
    shape = (rows, max(1, columns - first_index))
    shifted = sp.csr_array((X.data, X.indices - first_index, X.indptr), shape=shape)
    return shifted, whole_as_integers(y), first_index


def _check_matrix(shape: Sequence[int], dtype: np.dtype[Any], what: str) -> None:
    if dtype.kind not in "biuf":
        held = "text" if dtype.kind in "US" else f"values of {dtype}"
        raise DataFileError(f"{what} holds {held}: features must be real numbers.")
    if len(shape) != 2 or 0 in shape:
        raise DataFileError(
            f"{what} has the shape {tuple(shape)}: features need at least one row and one column."
        )


def _check_values(X: Matrix, file: str) -> None:
    if sp.issparse(X):
        bad = np.flatnonzero(~np.isfinite(X.data))
        if bad.size:
            row = int(np.searchsorted(X.indptr, bad[0], side="right")) - 1
            infinite = bool(np.isinf(X.data[bad[0]]))
            raise no_value(file, str(X.indices[bad[0]]), row, infinite=infinite)
        return
    names = [str(j) for j in range(X.shape[1])]
    rows = max(1, _BYTES_AT_ONCE // (X.shape[1] * X.itemsize))
    for start in range(0, X.shape[0], rows):
        check_finite(X[start : start + rows], names, file, start)


def _check_shape(values: Array, rows: int, what: str) -> Array:
    if values.ndim not in (1, 2) or values.shape[0] != rows:
        raise DataFileError(
            f"{what} have the shape {values.shape}, but there are {rows} rows of features."
        )
    return values[:, 0] if values.shape[1:] == (1,) else values


def _fitting(values: Array, rows: int, what: str) -> Array:
    """Return targets or weights with the right number of rows, as numbers or text."""
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    if values.dtype.kind not in "biufU":
        raise DataFileError(f"{what} hold values of {values.dtype}, not numbers or text.")
    values = _check_shape(values, rows, what)
    if values.ndim == 2 and values.dtype.kind == "U":
        raise DataFileError(f"{what} hold several columns of text, not of numbers.")
    return as_floating(values) if values.ndim == 2 else values
