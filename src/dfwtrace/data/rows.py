"""Rows of the data before they are cut: their sizes, and how a task examines them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from dfwtrace._typing import Array, DType, Matrix


class Examined(NamedTuple):
    """Rows as the shards hold them, and the shape of W that they imply."""

    X: Matrix
    y: Array | None
    shape: tuple[int, int]


#: Refuses bad rows in one sentence and converts good ones. It may see all rows at once or some of
#: them at a time: W's shape is then the largest of the shapes that it returns.
Examine = Callable[[Matrix, Array | None], Examined]


class Targets(NamedTuple):
    """What y is made of: its dtype and the shape of one row of it."""

    dtype: DType
    row: tuple[int, ...]


@dataclass(frozen=True)
class Facts:
    """The sizes of a data set, as the shards hold it; `n_rows` to `dtype` are those of X."""

    n_rows: int
    n_columns: int
    stored: int  # numbers in X: all of them if it is dense, the non-zeros if it is sparse
    sparse: bool
    dtype: DType
    shape: tuple[int, int]  # (d, m) of W
    targets: Targets | None


@dataclass(frozen=True)
class ArrayRows:
    """Rows in this process's memory, examined."""

    X: Matrix
    y: Array | None
    facts: Facts

    @classmethod
    def examined(cls, X: Matrix, y: Array | None, examine: Examine) -> ArrayRows:
        """Examine all rows at once, and copy those that do not lie one behind the other.

        BLAS may round differently for another layout, and every engine must get the same.
        """
        X, y, shape = examine(X, y)
        sparse = bool(sp.issparse(X))
        X = X if sparse else np.ascontiguousarray(X)
        y = None if y is None else np.ascontiguousarray(y)
        stored = int(X.nnz) if sparse else int(X.size)
        targets = None if y is None else Targets(y.dtype, tuple(y.shape[1:]))
        facts = Facts(int(X.shape[0]), int(X.shape[1]), stored, sparse, X.dtype, shape, targets)
        return cls(X, y, facts)
