"""A row as it travels through Spark's shuffle: as bytes, and back from them."""

from __future__ import annotations

from typing import Any

import numpy as np

from dfwtrace._typing import Array, Matrix
from dfwtrace.data.rows import Facts
from dfwtrace.engines.failures import RowsChangedError

#: One row of the data: its group's key, its place among all rows, its features and its targets.
#: A dense row of X, and a row of y, are the bytes of their numbers. A sparse row is a record for
#: each stored entry: the column (int32, or int64 if X has more columns than that) and the value.
PACKED_SCHEMA = "key int, row long, x binary, y binary"


def changed(what: str) -> RowsChangedError:
    """The refusal of rows that are not the same, and what can be done about it."""
    return RowsChangedError(
        f"X must have the same rows in the same partitions whenever Spark computes it again, but "
        f"{what}: persist the DataFrame, or write it to a file and read that."
    )


def entry_type(facts: Facts) -> np.dtype[Any]:
    """A stored entry of a sparse row, as it travels."""
    wide = facts.n_columns > np.iinfo(np.int32).max
    return np.dtype([("column", np.int64 if wide else np.int32), ("value", facts.dtype)])


def dense_bytes(rows: Array) -> tuple[Array, Array]:
    """All rows' bytes, and where each row's begin and end."""
    n = rows.shape[0]
    row_bytes = rows.dtype.itemsize * int(np.prod(rows.shape[1:]))
    flat = np.ascontiguousarray(rows).reshape(-1).view(np.uint8)
    return flat, np.arange(n + 1, dtype=np.int64) * row_bytes


def sparse_bytes(X: Matrix, facts: Facts) -> tuple[Array, Array]:
    """The same of the rows of a CSR matrix."""
    entries = np.empty(X.nnz, entry_type(facts))
    entries["column"], entries["value"] = X.indices, X.data
    return entries.view(np.uint8), X.indptr.astype(np.int64) * entries.itemsize


def binaries(cells: Array, bounds: Array) -> Any:
    """An Arrow array of binaries over memory that is already there."""
    import pyarrow as pa

    offsets = (bounds - bounds[0]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(cells[bounds[0] : bounds[-1]])]
    return pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers)


def cells_of(column: Any) -> tuple[Array, Array]:
    """The bounds of an Arrow array of binaries, from 0, and its bytes; no copy."""
    import pyarrow as pa

    _, offsets, cells = column.buffers()
    offset = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    start = column.offset
    bounds = np.frombuffer(offsets, offset)[start : start + len(column) + 1].astype(np.int64)
    data = np.empty(0, np.uint8) if cells is None else np.frombuffer(cells, np.uint8)
    return bounds - bounds[0], data[bounds[0] : bounds[-1]]
