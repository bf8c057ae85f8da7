"""What a data file becomes, and the errors about one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from dfwtrace._typing import Array, DType, Matrix

#: Rows that are enough to judge targets by.
FIRST_ROWS = 10_000


class DataFileError(ValueError):
    """A data file cannot be used; the message names the file and says why."""


class Table(NamedTuple):
    """Features, targets and weights of a file."""

    X: Matrix  # of float32 or float64: an array, a memory map or a csr_array
    y: Array | None  # of shape (n,) or (n, m); text for labels that are not numbers
    feature_names: list[str] | None  # None where the file has no names
    target_names: list[str] | None
    source: str  # a line that describes the data
    weight: Array | None = None
    first_index: int | None = None  # the number that an svmlight file gives its first column


class Survey(NamedTuple):
    """The size of a file's data, known before it is read in full."""

    rows: int
    features: int
    dtype: DType  # of X in memory, as are the next two
    sparse: bool
    nbytes: int
    kind: str | None  # what the first targets ask for: "classification" or "regression"
    targets: int  # their number of columns
    exact: bool  # or rows and bytes are estimates from the start of the file


def describe(file: str, X: Matrix, targets: list[str]) -> str:
    """Return the `source` of a table."""
    n, d = X.shape
    names = f"target{'s'[: len(targets) - 1]} {', '.join(map(repr, targets))}" if targets else ""
    names = f"{len(targets)} targets" if len(targets) > 3 else names
    line = f"{file}: {n} row{'s'[: n != 1]}, {d} feature{'s'[: d != 1]}"
    return f"{line}, {names}" if names else line


def is_classification(y: Array) -> bool:
    """Return whether targets are labels rather than measurements.

    Text and bool are labels, several columns are not. Numbers are if all are whole and the distinct
    ones among the n targets are at most n/2 (each occurs twice, on average) and max(20, n/4).
    """
    if y.ndim > 1 or y.dtype.kind in "USOb":
        return y.ndim == 1
    few = min(len(y) / 2, max(20, len(y) / 4))
    return _all_whole(y) and bool(np.unique(y).size <= few)


def whole_as_integers(y: Array) -> Array:
    """Return floats that are all whole as int64, everything else as it is."""
    if y.dtype.kind != "f" or not _all_whole(y) or np.abs(y).max(initial=0) >= 2.0**53:
        return y
    return y.astype(np.int64)


def _all_whole(y: Array) -> bool:
    return bool(np.all(np.isfinite(y)) and np.all(y == np.rint(y)))


@contextmanager
def reading(
    path: Path, kind: str, explain: Callable[[str], DataFileError | None] = lambda _: None
) -> Iterator[None]:
    """Turn whatever a library raises about a file into one sentence, maybe that of `explain`.

    `kind` says what the file should be, with its article: "a Parquet file".
    """
    try:
        yield
    except DataFileError:
        raise
    except FileNotFoundError as error:
        raise DataFileError(f"{path} is not there.") from error
    except PermissionError as error:
        raise DataFileError(f"{path} may not be read: permission denied.") from error
    # Readers of damaged files raise almost anything: EOFError, struct.error, MemoryError, KeyError.
    except Exception as error:
        reason = " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__
        sentence = f"{path} is not {kind}, or is cut short or damaged: {reason}."
        raise explain(str(error)) or DataFileError(sentence) from error


def bad_value(file: str, column: str, row: int, problem: str, text: str = "") -> DataFileError:
    """Return the error about the first bad value, which may be `text`; `row` counts from 0."""
    remark = "numbering rows from 1 after the header"
    if text:
        shown = text if len(text) <= 40 else text[:37] + "..."
        problem, remark = f"holds text ({shown!r})", "encode it, or choose others with --features"
    return DataFileError(f"column {column!r} of {file} {problem} in row {row + 1} ({remark}).")


def check_finite(block: Matrix, names: list[str] | None, file: str, first_row: int = 0) -> None:
    """Refuse NaN and infinity by row and column; without names, columns are counted."""
    with np.errstate(over="ignore", invalid="ignore"):
        if block.dtype.kind != "f" or np.isfinite(block.sum()):  # then all values are
            return
    block = block if block.ndim == 2 else block[:, None]
    for start in range(0, block.shape[0], 4096):  # it may be a map of more than fits in memory
        rows = block[start : start + 4096]
        bad = ~np.isfinite(rows.data if sp.issparse(rows) else rows)
        if sp.issparse(rows):
            bad = sp.csr_array((bad, rows.indices, rows.indptr), shape=rows.shape)
        for row, column in zip(*bad.nonzero(), strict=True):
            problem = "has no value" if np.isnan(rows[row, column]) else "is infinite"
            name = names[column] if names else str(column)
            raise bad_value(file, name, first_row + start + int(row), problem)


def check_weight(weight: Array, column: str, file: str, first_row: int = 0) -> Array:
    """Return weights as float64, refusing what is not one column of numbers of at least 0."""
    if weight.ndim != 1 or weight.dtype.kind not in "biuf":
        raise DataFileError(f"the weights {column!r} of {file} must be one column of numbers.")
    weight = weight.astype(np.float64)
    check_finite(weight, [column], file, first_row)
    if (weight < 0).any():
        raise bad_value(file, column, first_row + int(np.argmax(weight < 0)), "is negative")
    return weight
