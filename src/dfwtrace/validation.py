"""Refuses bad input: one sentence that names the argument, before any work."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
import scipy.sparse as sp

from dfwtrace._typing import Array, Data, DType, FloatArray, Matrix

_CHUNK_BYTES = 16 << 20  # summed at once when looking for NaN: bounds the temporary memory

Number = TypeVar("Number", float, FloatArray)
Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")


def require_finite(value: Number, what: str) -> Number:
    """Return the value if all of it is finite; an overflow ends the run with a sentence."""
    finite = math.isfinite(value) if isinstance(value, float) else np.isfinite(value).all()
    if not finite:
        raise ArithmeticError(
            f"X, y or radius is too large for the precision of the data: {what} is not finite; "
            "rescale the data or use float64."
        )
    return value


def check_features(X: Data) -> Matrix:
    """X as a numeric, finite, non-empty array or CSR matrix, without a copy if it is one."""
    if sp.issparse(X):
        matrix: Matrix = X if X.format == "csr" else X.tocsr()
        _check_numeric("X", matrix.dtype)
        try:
            matrix.check_format(full_check=True)
        except ValueError as error:
            raise ValueError(f"X must be a valid sparse matrix, but {error}.") from error
    else:
        matrix = _as_array("X", X)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(f"X must have rows and columns, at least one, got shape {matrix.shape}.")
    _check_finite("X", matrix)
    return matrix


def check_targets(y: Data, n_rows: int) -> Array | None:
    """y as a numeric, finite array with as many rows as X, or None."""
    if y is None:
        return None
    if sp.issparse(y):
        raise TypeError("y must be a dense array, got a sparse matrix.")
    targets = _as_array("y", y)
    if targets.ndim == 0 or targets.shape[0] != n_rows:
        raise ValueError(
            f"y must have one row for each of the {n_rows} rows of X, got shape {targets.shape}."
        )
    _check_finite("y", targets)
    return targets


def check_weights(sample_weight: object, n_rows: int) -> Array:
    """One finite weight of at least 0 for every row, not all of them 0."""
    weights = _as_array("sample_weight", sample_weight)
    if weights.shape != (n_rows,):
        raise ValueError(
            f"sample_weight must have one number for each of the {n_rows} rows of X, "
            f"got shape {weights.shape}."
        )
    _check_finite("sample_weight", weights)
    if weights.min() < 0:
        raise ValueError(f"sample_weight must not be negative, got {weights.min():g}.")
    if not weights.max() > 0:
        raise ValueError("sample_weight must not be zero for all rows.")
    return weights


def as_floating(X: Matrix) -> Matrix:
    """Float32 and float64 as they come; half precision as float32, everything else as float64."""
    if X.dtype in (np.float32, np.float64) and X.dtype.isnative:
        return X
    dtype = np.float32 if X.dtype == np.float16 else np.float64
    if sp.issparse(X):  # its `astype` would copy the column numbers too
        return type(X)((X.data.astype(dtype), X.indices, X.indptr), shape=X.shape)
    return X.astype(dtype, order="C")  # as the shards hold it: one copy, not two


def check_positive(name: str, value: object, or_zero: bool = False) -> float:
    """A finite number above zero, or of at least zero."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name} must be a number, got {describe(value)}.")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not 0.0 <= number < math.inf or (number == 0.0 and not or_zero):
        least = "of at least 0" if or_zero else "above 0"
        raise ValueError(f"{name} must be a finite number {least}, got {describe(value)}.")
    return number


def check_count(name: str, value: object, least: int) -> int:
    """A whole number of at least `least`."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= least:
        return int(value)
    raise ValueError(f"{name} must be a whole number of at least {least}, got {describe(value)}.")


def check_seed(random_state: object) -> int:
    """The seed that all workers share: a whole number as it is; 0, so always the same, for None."""
    if random_state is None:
        return 0
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(np.iinfo(np.int32).max))
    try:
        return check_count("random_state", random_state, 0)
    except ValueError as error:
        what = "a whole number of at least 0, a RandomState or None"
        raise ValueError(f"random_state must be {what}, got {describe(random_state)}.") from error


def renamed(
    **new_names: str,
) -> Callable[[Callable[Arguments, Returned]], Callable[Arguments, Returned]]:
    """Let a function take arguments by former names too, ``former="new"``, with a warning."""

    def decorate(function: Callable[Arguments, Returned]) -> Callable[Arguments, Returned]:
        @wraps(function)
        def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Returned:
            for former, new in new_names.items():
                if former not in kwargs:
                    continue
                if new in kwargs:
                    raise TypeError(f"{new} and {former}, its former name, exclude each other.")
                sentence = f"{former} is deprecated: use {new}."
                warnings.warn(sentence, DeprecationWarning, stacklevel=2)
                kwargs[new] = kwargs.pop(former)
            return function(*args, **kwargs)

        return call

    return decorate


def as_number(value: Any, what: str) -> float:
    """What a user's method returned, as a float: any object that is one number."""
    if not np.shape(value):
        with suppress(TypeError, ValueError):
            return float(value)
    raise TypeError(f"{what} must return a number, got {describe(value)}.")


def describe(value: object) -> str:
    """A value in an error message: itself if it is short, else what kind of thing it is."""
    text = repr(value)
    if len(text) <= 80 and "\n" not in text and not isinstance(value, np.ndarray):
        return text
    return f"an object of type {type(value).__name__}"


def check_not_masked(name: str, value: object) -> None:
    """Refuse a masked array, whose hidden values would count."""
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name} must not be a masked array; fill or drop the masked entries.")


def _as_array(name: str, value: object) -> Array:
    check_not_masked(name, value)
    try:
        array = np.asarray(value)
    except ValueError as error:  # ragged rows
        raise ValueError(f"{name} must be a rectangular array of numbers.") from error
    _check_numeric(name, array.dtype)
    return array


def _check_numeric(name: str, dtype: DType) -> None:
    if dtype.kind not in "biuf":
        raise TypeError(f"{name} must hold real numbers, got values of {dtype}.")


def _check_finite(name: str, values: Matrix) -> None:
    place = find_not_finite(values)
    if place is not None:
        kind = "NaN" if np.isnan(values[place]) else "infinity"
        raise ValueError(f"{name} must be finite, but holds {kind} (first in row {place[0]}).")


def find_not_finite(X: Matrix) -> tuple[int, ...] | None:
    """Return row, and column if there are any, of the first NaN or infinity."""
    values: Array = X.data if sp.issparse(X) else X
    if values.dtype.kind != "f" or values.size == 0:
        return None
    rows = max(1, _CHUNK_BYTES // max(1, values.nbytes // values.shape[0]))

    def first_bad(start: int) -> tuple[int, ...] | None:
        chunk = values[start : start + rows]
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(chunk.sum()):  # then all entries are
                return None
        for row, *columns in np.argwhere(~np.isfinite(chunk)).tolist():
            return start + row, *columns
        return None

    with ThreadPoolExecutor() as pool:  # a sum is bound by memory, which one thread cannot fill
        found = filter(None, pool.map(first_bad, range(0, values.shape[0], rows)))
        place = next(found, None)
    if place is None or not sp.issparse(X):
        return place
    return int(np.searchsorted(X.indptr, place[0], side="right")) - 1, int(X.indices[place[0]])
