"""What is in a file, before anything is read in full."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dfwtrace._typing import Array
from dfwtrace.io.columns import choose
from dfwtrace.io.read_formats import open_columns, suffix_of
from dfwtrace.io.read_gather import collect, names_of_features
from dfwtrace.io.read_targets import is_classification
from dfwtrace.io.read_unnamed import Names, outline_unnamed

_ROWS_TO_JUDGE_BY = 10_000
# What a non-zero of a CSR matrix takes beside its value: a 32-bit column number.
_INDEX_BYTES = 4


class Survey(NamedTuple):
    """What is in a file, told before it is read in full.

    Attributes
    ----------
    rows, features : int
    dtype : dtype
        Of X.
    sparse : bool
    nbytes : int
        What X takes in memory.
    kind : "classification", "regression" or None
        What the first targets ask for; None without targets.
    targets : int
        Columns of targets.
    exact : bool
        Whether rows and bytes were counted, not estimated from the first rows.
    """

    rows: int
    features: int
    dtype: np.dtype[Any]
    sparse: bool
    nbytes: int
    kind: str | None
    targets: int
    exact: bool


def survey(path: str | os.PathLike[str], *, target: Names = None, features: Names = None) -> Survey:
    """Say what is in a file from headers, footers and first rows only.

    Parameters
    ----------
    path, target, features
        As for `read_table`.

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
    path = Path(path)
    suffix = suffix_of(path)
    file = open_columns(path, suffix)
    if file is None:
        return _surveyed(*outline_unnamed(path, suffix, target, features))
    choice = choose(file.columns, file=file.name, target=target, features=features)
    dtype = file.dtype(choice.features)
    width = len(names_of_features(file, choice))
    rows, exact = file.guess_rows()
    y = None
    if choice.targets:
        y = collect(file, choice._replace(features=[]), _ROWS_TO_JUDGE_BY, None, None).y
    return _surveyed(rows, width, dtype, None, exact, y)


def _surveyed(
    rows: int,
    width: int,
    dtype: np.dtype[Any],
    stored: int | None,
    exact: bool,
    y: Array | None,
) -> Survey:
    kind = None
    if y is not None:
        kind = "classification" if is_classification(y) else "regression"
    if stored is None:
        nbytes = rows * width * dtype.itemsize
    else:
        nbytes = stored * (dtype.itemsize + _INDEX_BYTES) + (rows + 1) * _INDEX_BYTES
    targets = 0 if y is None else 1 if y.ndim == 1 else y.shape[1]
    return Survey(rows, width, dtype, stored is not None, nbytes, kind, targets, exact)
