"""What a data file becomes, and the errors about one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dfwtrace._typing import Array, Matrix

#: Rows that are enough to judge targets by.
FIRST_ROWS = 10_000
# What a non-zero of a CSR matrix takes beside its value, and what a row takes.
_INDEX_BYTES = 4


class DataFileError(ValueError):
    """A data file cannot be used; the message names the file and says why."""


class Table(NamedTuple):
    """Features, targets and weights of a file.

    Attributes
    ----------
    X : array, maybe a memory map, or csr_array, of float32 or float64
    y : array of shape (n,) or (n, m), or None
        Numbers, or text for labels.
    feature_names, target_names : list of str, or None
        None where the file has no names.
    source : str
        A line that describes the data.
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


class Survey(NamedTuple):
    """The size of a file's data, known before it is read in full.

    `dtype`, `sparse` and `nbytes` are those of X in memory, `kind` is what the first targets ask
    for ("classification", "regression" or None) and `targets` their number of columns; unless
    `exact`, rows and bytes are estimates from the start of the file.
    """

    rows: int
    features: int
    dtype: np.dtype[Any]
    sparse: bool
    nbytes: int
    kind: str | None
    targets: int
    exact: bool


def describe(file: str, X: Matrix, targets: list[str] | None) -> str:
    """Return the `source` of a table."""
    rows, columns = X.shape
    line = f"{file}: {rows} {'row' if rows == 1 else 'rows'}, "
    line += f"{columns} {'feature' if columns == 1 else 'features'}"
    if targets and len(targets) <= 3:
        return f"{line}, target{'s'[: len(targets) - 1]} {', '.join(map(repr, targets))}"
    return f"{line}, {len(targets)} targets" if targets else line


def summarise(
    rows: int, width: int, dtype: np.dtype[Any], stored: int | None, exact: bool, y: Array | None
) -> Survey:
    """Return a survey; `stored` are the non-zeros of a sparse X, and `y` the first targets."""
    nbytes = rows * width * dtype.itemsize
    if stored is not None:
        nbytes = stored * (dtype.itemsize + _INDEX_BYTES) + (rows + 1) * _INDEX_BYTES
    kind, targets = None, 0
    if y is not None:
        kind = "classification" if is_classification(y) else "regression"
        targets = 1 if y.ndim == 1 else y.shape[1]
    return Survey(rows, width, dtype, stored is not None, nbytes, kind, targets, exact)


def is_classification(y: Array) -> bool:
    """Return whether targets are labels rather than measurements.

    The rule, in this order:

    1. Several columns of targets: regression.
    2. Text and bool: classification.
    3. Numbers that are not all whole: regression.
    4. Whole numbers, stored as integers or floats: classification if the distinct ones among the n
       targets are at most n/2 (each occurs twice, on average) and at most max(20, n/4); otherwise
       regression.

    Examples
    --------
    >>> import numpy as np
    >>> is_classification(np.array(["red", "blue"])), is_classification(np.array([0, 1, 1, 0]))
    (True, True)
    >>> is_classification(np.array([0.5, 1.0, 1.0])), is_classification(np.arange(100))
    (False, False)
    """
    y = np.asarray(y)
    if y.ndim > 1:
        return False
    if y.dtype.kind in "USOb":
        return True
    if y.dtype.kind == "f" and not _all_whole(y):
        return False
    n = y.shape[0]
    return bool(np.unique(y).size <= min(n / 2, max(20, n / 4)))


def whole_as_integers(y: Array) -> Array:
    """Return floats that are all whole as int64, everything else as it is.

    Examples
    --------
    >>> import numpy as np
    >>> whole_as_integers(np.array([1.0, -1.0])).dtype, whole_as_integers(np.array([0.5])).dtype
    (dtype('int64'), dtype('float64'))
    """
    if y.dtype.kind != "f" or not _all_whole(y) or np.abs(y).max(initial=0) >= 2.0**53:
        return y
    return y.astype(np.int64)


def _all_whole(y: Array) -> bool:
    return bool(np.all(np.isfinite(y)) and np.all(y == np.rint(y)))


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever a library raises about a file into one sentence.

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
    except MemoryError as error:
        raise DataFileError(f"{path} does not fit in memory, or is damaged.") from error
    # Readers of damaged files raise almost anything: EOFError, struct.error, zlib.error, KeyError.
    except Exception as error:
        reason = " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__
        raise DataFileError(
            f"{path} is not {kind}, or is cut short or damaged: {reason}."
        ) from error


def no_value(file: str, column: str, row: int, *, infinite: bool = False) -> DataFileError:
    """Return the error about a value that is missing or infinite; `row` counts from 0."""
    what = "is infinite" if infinite else "has no value"
    return DataFileError(
        f"column {column!r} of {file} {what} in row {row + 1} "
        "(numbering rows from 1 after the header)."
    )


def not_numeric(file: str, column: str, row: int, value: str) -> DataFileError:
    """Return the error about text where a number should be; `row` counts from 0."""
    shown = value if len(value) <= 40 else value[:37] + "..."
    return DataFileError(
        f"column {column!r} of {file} holds text ({shown!r} in row {row + 1}), not numbers: "
        "encode it, or choose other columns with --features."
    )


def check_finite(block: Array, names: Sequence[str], file: str, first_row: int = 0) -> None:
    """Refuse NaN and infinity by column and row; where the sum is finite, all values are."""
    if block.dtype.kind != "f":
        return
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(block.sum()):
            return
    block = block.reshape(block.shape[0], -1)
    bad = np.argwhere(~np.isfinite(block))
    if bad.size:
        row, column = (int(i) for i in bad[0])
        infinite = bool(np.isinf(block[row, column]))
        raise no_value(file, names[column], first_row + row, infinite=infinite)


def check_weight(weight: Array, column: str, file: str, first_row: int = 0) -> Array:
    """Return weights as float64, refusing what is not one column of numbers of at least 0."""
    if weight.ndim != 1 or weight.dtype.kind not in "biuf":
        raise DataFileError(f"the weights {column!r} of {file} must be one column of numbers.")
    weight = weight.astype(np.float64)
    check_finite(weight, [column], file, first_row)
    if (weight < 0).any():
        row = first_row + int(np.argmax(weight < 0)) + 1
        raise DataFileError(
            f"column {column!r} of {file} is negative in row {row}: weights must be at least 0."
        )
    return weight
