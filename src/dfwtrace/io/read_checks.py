"""What a file without named columns gives, checked: features, targets and weights that fit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dfwtrace._typing import Array, Matrix
from dfwtrace.io.read_batches import check_finite
from dfwtrace.io.read_errors import DataFileError, no_value, reading
from dfwtrace.validation import as_floating

# Rows looked through at a time, so that a map is never in memory as a whole.
_BYTES_AT_ONCE = 16 << 20


class Arrays(NamedTuple):
    """What a file without named columns gives."""

    X: Matrix
    y: Array | None
    target: str | None  # the name of y
    weight: Array | None


class Outline(NamedTuple):
    """The same before it is read: X's shape and dtype, and the first targets."""

    rows: int
    features: int
    dtype: np.dtype[Any]
    stored: int | None  # non-zeros of a sparse X
    exact: bool
    y: Array | None


def separate_array(name: str, beside: Path) -> Array:
    """An array in a file of its own, named from here or from beside the features."""
    path = Path(name)
    if not path.exists() and (beside.parent / path).exists():
        path = beside.parent / path
    if path.suffix != ".npy":
        raise DataFileError(
            f"{beside.name} has no column names: give the targets or weights as a .npy file, "
            f"not {name!r}."
        )
    with reading(path, "an NPY file"), path.open("rb") as raw:
        array: Array = np.lib.format.read_array(raw, allow_pickle=False)
    return array


def check_matrix(shape: Sequence[int], dtype: np.dtype[Any], what: str) -> None:
    """Refuse what cannot be features, from its header."""
    if dtype.hasobject:
        raise python_objects(what)
    if dtype.kind in "US":
        raise DataFileError(f"{what} holds text: features must be numbers.")
    if dtype.kind not in "biuf":
        raise DataFileError(f"{what} holds values of {dtype}: features must be real numbers.")
    if len(shape) != 2 or 0 in shape:
        raise DataFileError(
            f"{what} has the shape {tuple(shape)}: features need rows and columns, of each at "
            "least one."
        )


def checked_features(X: Matrix, what: str, file: str) -> Matrix:
    """Finite floats: as they come if they are float32 or float64."""
    check_matrix(X.shape, X.dtype, what)
    X = as_floating(X)
    if sp.issparse(X):
        bad = np.flatnonzero(~np.isfinite(X.data))
        if bad.size:
            row = int(np.searchsorted(X.indptr, bad[0], side="right")) - 1
            value = X.data[bad[0]]
            column = str(X.indices[bad[0]])
            raise no_value(file, column, row, infinite=bool(np.isinf(value)))
        return X
    names = [str(j) for j in range(X.shape[1])]
    rows = max(1, _BYTES_AT_ONCE // (X.shape[1] * X.itemsize))
    for start in range(0, X.shape[0], rows):
        check_finite(X[start : start + rows], names, file, start)
    return X


def checked(
    X: Matrix,
    y: Array | None,
    target: str | None,
    weight: Array | None,
    path: Path,
    max_rows: int | None,
) -> Arrays:
    """Targets and weights that fit the rows."""
    if y is not None:
        y = y[:max_rows] if y.ndim else y
        y = _fitting(y, X.shape[0], f"the targets {target!r}", path)
    if weight is not None:
        weight = weight[:max_rows] if weight.ndim else weight
        weight = _fitting(weight, X.shape[0], "the weights", path)
    return Arrays(X, y, target, weight)


def _fitting(values: Array, rows: int, what: str, path: Path) -> Array:
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    if values.dtype.kind not in "biufU":
        raise DataFileError(
            f"{what} of {path.name} hold values of {values.dtype}, not numbers or text."
        )
    if values.ndim not in (1, 2) or values.shape[0] != rows:
        raise DataFileError(
            f"{what} of {path.name} have the shape {values.shape}, but there are {rows} rows "
            "of features."
        )
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim == 2 and values.dtype.kind == "U":
        raise DataFileError(f"{what} of {path.name} hold several columns of text, not of numbers.")
    return as_floating(values) if values.ndim == 2 else values


def floating_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """What features of a dtype are kept as."""
    kept: np.dtype[Any] = as_floating(np.empty(0, dtype=dtype)).dtype
    return kept


def python_objects(what: str) -> DataFileError:
    """The error about an array that only pickle could read."""
    return DataFileError(f"{what} holds Python objects, which are never loaded: save plain arrays.")
