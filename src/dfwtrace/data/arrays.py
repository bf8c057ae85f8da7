"""Files without column names: .npy as a memory map, .npz with arrays by name, svmlight text."""

from __future__ import annotations

import io
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.lib import format as npy
from numpy.lib.npyio import NpzFile

from dfwtrace._typing import Array, Matrix
from dfwtrace.data import table
from dfwtrace.data.columns import Names, require
from dfwtrace.data.table import DataFileError, Table
from dfwtrace.validation import as_floating


def read_arrays(
    path: Path,
    kind: str,
    target: Names = None,
    features: Names = None,
    weight: str | None = None,
    targets: bool = True,
    first_index: int | None = None,
    head: bool = False,
) -> Table:
    """Read a file of kind "npy", "npz" or "svmlight"; without `targets`, features only.

    With `head`, X has only the right shape and type; of an svmlight file, the first rows.
    """
    file, y, w, names = path.name, None, None, []
    label, name = _only(target, file), _only(features, file)
    if kind != "npz" and name is not None:
        raise DataFileError(f"{file} has no column names: leave out --features.")
    if kind == "svmlight" and label not in (None, "label"):
        raise DataFileError(f"{file} has its labels at the start of each line: leave out --target.")
    with (
        table.reading(path, f"an {kind if kind == 'svmlight' else kind.upper()} file"),
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
        raise DataFileError(
            f"{what} holds {X.dtype} of shape {X.shape}: features must be numbers, in at least one "
            "row and one column."
        )
    if not head:
        X = as_floating(X)
        table.check_finite(X, None, file)
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
        require(list(archive), [name], path.name, "array")
        return np.asarray(archive[name])
    other = Path(name) if Path(name).exists() else path.parent / name
    if other.suffix != ".npy":
        raise DataFileError(f"{path.name} has no column names: give a .npy file, not {name!r}.")
    if other.exists() and not other.is_file():
        raise DataFileError(f"{other} is not a regular file.")
    with table.reading(other, "an NPY file"), other.open("rb") as part:
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
        raise DataFileError(
            f"{file} has a column 0, but the model was fitted on a file that counts its columns "
            "from 1."
        )
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
