"""svmlight text files: labels and sparse features."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import IO, Any

import scipy.sparse as sp

from dfwtrace.io.read_checks import Arrays, Outline, checked, checked_features, separate_array
from dfwtrace.io.read_errors import DataFileError, reading
from dfwtrace.io.read_targets import whole_as_integers

_LINES_TO_GUESS_FROM = 1000


def read_svmlight(
    path: Path,
    weight: str | None,
    max_rows: int | None,
    *,
    all_zero: bool = False,
    first_index: int | None = None,
) -> tuple[Arrays, int]:
    """A CSR matrix and the labels, and the number of the first column in the file, 0 or 1.

    Where nobody says which, it is 0 if the file has a column 0, else 1. Rows that are all zero, as
    in a file that has nothing but labels, are refused if not allowed.
    """
    from sklearn.datasets import load_svmlight_file

    with reading(path, "an svmlight file"), path.open("rb") as lines:
        loaded: Any = lines if max_rows is None else _FirstLines(lines, max_rows)
        X, y = load_svmlight_file(loaded, zero_based=True)
    if not X.shape[0]:
        raise DataFileError(f"{path} has no rows.")
    if not X.nnz and not all_zero:
        raise DataFileError(f"{path} has no features.")
    X, first_index = _counted_from(sp.csr_array(X), first_index, path.name)
    X = checked_features(X, path.name, path.name)
    w = None if weight is None else separate_array(weight, path)
    arrays = checked(X, y, "label", w, path, max_rows)
    assert arrays.y is not None
    return arrays._replace(y=whole_as_integers(arrays.y)), first_index


def _counted_from(X: Any, first_index: int | None, file: str) -> tuple[Any, int]:
    """X without the column 0 that a file which counts from 1 does not have."""
    least = int(X.indices.min()) if X.nnz else None
    if first_index is None:
        first_index = 1 if least else 0
    if first_index and least == 0:
        raise DataFileError(
            f"{file} has a column 0, but the model was fitted on a file that counts its columns "
            "from 1."
        )
    rows, columns = X.shape
    shape = (rows, max(1, columns - first_index))
    return sp.csr_array((X.data, X.indices - first_index, X.indptr), shape=shape), first_index


def outline_svmlight(path: Path) -> Outline:
    """From the first lines and the size of the file; there may be more features than they show."""
    found, _ = read_svmlight(path, None, _LINES_TO_GUESS_FROM)
    rows, columns = found.X.shape
    with reading(path, "an svmlight file"), path.open("rb") as lines:
        used = sum(map(len, islice(lines, _LINES_TO_GUESS_FROM)))
        exact = not lines.read(1)
    scale = 1.0 if exact else path.stat().st_size / used
    stored = round(found.X.nnz * scale)
    return Outline(round(rows * scale), columns, found.X.dtype, stored, exact, found.y)


class _FirstLines:
    """The start of a file, for a reader that iterates over lines."""

    def __init__(self, lines: IO[bytes], count: int) -> None:
        kept = (line for line in lines if line.split(b"#")[0].strip())
        self._lines = islice(kept, count)

    def __iter__(self) -> Any:
        return self._lines

    def read(self) -> bytes:
        return b"".join(self._lines)
