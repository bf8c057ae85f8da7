"""Rows of a DataFrame on their way to the workers: packed as bytes, shuffled, and made shards.

A packed row has the key of its group, its place among all rows, its features and its targets. A
dense row of X, and a row of y, are the bytes of their numbers. A sparse row is a record for each
stored entry: the column (int32, or int64 if X has more columns than that) and the value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from dfwtrace._typing import Array, DType, Matrix
from dfwtrace.data.shards import Facts, Shard, slice_rows
from dfwtrace.engines.base import RowsChangedError
from dfwtrace.engines.spark.dataframe import task_context
from dfwtrace.engines.spark.survey import FrameRows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession

PACKED_SCHEMA = "key int, row long, x binary, y binary"

# Bytes handed to Spark at once. Arrow's offsets end at 2 GiB, and memory should not grow by that.
_BATCH_BYTES = 16 << 20
# Keys tried for each partition, beyond log n: one time in e¹² some partition gets none of them.
_SPARE_DRAWS = 12.0


def packed(rows: FrameRows, bounds: Sequence[tuple[int, int]], keys: Sequence[int]) -> DataFrame:
    """All rows of a DataFrame as bytes, each with the key of its group (a range of rows).

    ``packed(rows, bounds, keys_for(spark, n)).repartition(n, "key")`` has group i in partition i.
    """
    there = replace(rows, frame=None)
    ends = np.array([stop for _, stop in bounds], np.int64)
    group_keys = np.array(keys, np.int32)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return pack_batches(batches, there, ends, group_keys, task_context().partitionId())

    assert rows.frame is not None
    return rows.frame.mapInArrow(task, PACKED_SCHEMA)


def keys_for(
    spark: SparkSession, n: int, collect: Callable[[DataFrame], list[Row]] | None = None
) -> list[int]:
    """Keys that Spark, when asked, sends to partitions 0, 1, …, n - 1; `collect` runs the query."""
    if n == 1:
        return [0]
    tried = int(n * (np.log(n) + _SPARE_DRAWS))
    while True:
        places = spark.range(0, tried, 1, 1).selectExpr(
            "cast(id as int) as key", f"pmod(hash(cast(id as int)), {n}) as place"
        )
        query = places.groupBy("place").min("key")
        found = query.collect() if collect is None else collect(query)
        if len(found) == n:
            return [int(key) for _, key in sorted(map(tuple, found))]
        tried *= 2


def pack_batches(
    batches: Iterable[pa.RecordBatch], rows: FrameRows, ends: Array, keys: Array, partition: int
) -> Iterator[pa.RecordBatch]:
    """One partition of `packed`: ends[i] is where group i ends, keys[i] its key."""
    facts, counts = rows.facts, rows.counts
    expected = counts[partition] if partition < len(counts) else 0
    first, n_rows = sum(counts[:partition]), 0
    for start, X, y in rows.reading.walk(batches, partition):
        X, y, shape = rows.examine(X, y)
        # Such as by a label beyond the last one, for which there would be no memory.
        if shape[0] > facts.shape[0] or shape[1] > facts.shape[1]:
            raise _changed(f"W would have to be {shape} for it and {facts.shape} did before")
        n_rows = start + int(X.shape[0])
        if n_rows > expected:
            break
        yield from pack(*_conformed(X, y, facts), first + start, facts, ends, keys)
    if n_rows != expected:
        found = "more" if n_rows > expected else str(n_rows)
        raise _changed(f"partition {partition} had {expected} rows and now has {found}")


def pack(
    X: Matrix, y: Array | None, first: int, facts: Facts, ends: Array, keys: Array
) -> Iterator[pa.RecordBatch]:
    """Rows first, first + 1, … of all, as batches of `PACKED_SCHEMA`, without a loop over rows."""
    import pyarrow as pa

    n = int(X.shape[0])
    if facts.sparse:
        entries = np.empty(X.nnz, _entry_type(facts))
        entries["column"], entries["value"] = X.indices, X.data
        x_bytes, x_bounds = entries.view(np.uint8), X.indptr.astype(np.int64) * entries.itemsize
    else:
        x_bytes, x_bounds = _dense_bytes(X)
    y_bytes, y_bounds = _dense_bytes(np.empty((n, 0)) if y is None else y)
    for a, b in _pieces(x_bounds + y_bounds):
        rows = np.arange(first + a, first + b)
        columns = [
            pa.array(keys[np.searchsorted(ends, rows, side="right")], pa.int32()),
            pa.array(rows, pa.int64()),
            _to_arrow(x_bytes, x_bounds[a : b + 1]),
            _to_arrow(y_bytes, y_bounds[a : b + 1]),
        ]
        yield pa.RecordBatch.from_arrays(columns, ["key", "row", "x", "y"])


def assemble(
    batches: Iterable[pa.RecordBatch], facts: Facts, bounds: Sequence[tuple[int, int]], first: int
) -> list[Shard]:
    """Shards `first`, … of rows `bounds` from packed rows in any order, as `split_rows` cuts them.

    Raises RowsChangedError if a row is missing, comes twice or belongs elsewhere.
    """
    if not bounds:
        return []
    base, n = bounds[0][0], bounds[-1][1] - bounds[0][0]
    sides: dict[str, _DenseRows | _SparseRows] = {"x": _SparseRows(n, facts)}
    if not facts.sparse:
        sides["x"] = _DenseRows(n, facts.dtype, (facts.n_columns,))
    if facts.targets is not None:
        sides["y"] = _DenseRows(n, facts.targets.dtype, facts.targets.row)
    seen, arrived = np.zeros(n, bool), 0
    for batch in batches:
        if not batch.num_rows:
            continue
        places = batch.column("row").to_numpy() - base
        if places.min() < 0 or places.max() >= n:
            raise _changed("rows came to a worker that they do not belong to")
        seen[places] = True
        arrived += len(places)
        for name, side in sides.items():
            side.put(places, *_from_arrow(batch.column(name)))
    if not seen.all():
        raise _changed(f"row {base + int(np.argmin(seen))} is missing")
    if arrived != n:
        raise _changed("some rows came twice")
    X, y = sides["x"].finish(), sides["y"].finish() if "y" in sides else None
    return [
        Shard(first + i, slice_rows(X, a, b), None if y is None else y[a:b])
        for i, (a, b) in enumerate((a - base, b - base) for a, b in bounds)
    ]


class _DenseRows:
    """Rows of one dense array, put into their places as they arrive."""

    def __init__(self, n: int, dtype: DType, row: tuple[int, ...]) -> None:
        self._rows = np.empty((n, *row), dtype)

    def put(self, places: Array, bounds: Array, cells: Array) -> None:
        shape, dtype = (len(places), *self._rows.shape[1:]), self._rows.dtype
        if (np.diff(bounds) != dtype.itemsize * math.prod(shape[1:])).any():
            raise _changed("rows differ in length from those that were examined")
        self._rows[_slice_if_consecutive(places)] = cells.view(dtype).reshape(shape)

    def finish(self) -> Array:
        return self._rows


class _SparseRows:
    """Rows of a CSR matrix. Their places are known only when all of them have arrived."""

    def __init__(self, n: int, facts: Facts) -> None:
        self._facts = facts
        self._lengths = np.zeros(n, np.int64)
        self._pieces: list[tuple[Array, Array, Array]] = []

    def put(self, places: Array, bounds: Array, cells: Array) -> None:
        entry = _entry_type(self._facts)
        if (bounds % entry.itemsize).any():
            raise _changed("rows differ in kind from those that were examined")
        self._lengths[places] = np.diff(bounds) // entry.itemsize
        self._pieces.append((places, bounds // entry.itemsize, cells.view(entry)))

    def finish(self) -> Matrix:
        facts, n = self._facts, len(self._lengths)
        bounds = np.concatenate(([0], np.cumsum(self._lengths)))
        # The same as SciPy would take for all rows in one matrix: 32 bits wherever they do.
        index = sp.get_index_dtype(maxval=max(facts.stored, facts.n_columns, facts.n_rows))
        columns, data = np.empty(bounds[-1], index), np.empty(bounds[-1], facts.dtype)
        while self._pieces:  # each one's memory goes back as soon as it is copied
            places, starts, entries = self._pieces.pop()
            shift = np.repeat(bounds[places] - starts[:-1], np.diff(starts))
            target = _slice_if_consecutive(np.arange(len(entries)) + shift)
            columns[target], data[target] = entries["column"], entries["value"]
        parts = (data, columns, bounds.astype(index))
        return sp.csr_array(parts, shape=(n, facts.n_columns))


def _slice_if_consecutive(places: Array) -> Array | slice:
    """The same places, as a slice if they can be one: copying is then as fast as memory."""
    if len(places) and (np.diff(places) == 1).all():
        return slice(int(places[0]), int(places[-1]) + 1)
    return places


def _changed(what: str) -> RowsChangedError:
    return RowsChangedError(
        f"X must have the same rows in the same partitions whenever Spark computes it again, but "
        f"{what}: persist the DataFrame, or write it to a file and read that."
    )


def _conformed(X: Matrix, y: Array | None, facts: Facts) -> tuple[Matrix, Array | None]:
    """Rows as the facts say that they are: CSR if any are, the same dtypes."""
    targets, row = facts.targets, None if y is None else y.shape[1:]
    same_row = row == (None if targets is None else targets.row)
    if X.shape[1] != facts.n_columns or (sp.issparse(X) and not facts.sparse) or not same_row:
        raise _changed("rows differ in kind from those that were examined")
    if y is not None and targets is not None:
        y = y.astype(targets.dtype, copy=False)
    if facts.sparse:
        X = sp.csr_array(X)
        X = X if X.has_sorted_indices else X.sorted_indices()
    return X.astype(facts.dtype, copy=False), y


def _pieces(bounds: Array) -> Iterator[tuple[int, int]]:
    """Ranges of rows of at most `_BATCH_BYTES`, or of a single row that is longer."""
    n = len(bounds) - 1
    cuts = [0]
    while cuts[-1] < n:
        full = np.searchsorted(bounds, bounds[cuts[-1]] + _BATCH_BYTES, side="right") - 1
        cuts.append(min(n, max(cuts[-1] + 1, int(full))))
    return pairwise(cuts)


def _entry_type(facts: Facts) -> DType:
    wide = facts.n_columns > np.iinfo(np.int32).max
    return np.dtype([("column", np.int64 if wide else np.int32), ("value", facts.dtype)])


def _dense_bytes(rows: Array) -> tuple[Array, Array]:
    """All rows' bytes, and where each row's begin and end."""
    row_bytes = rows.dtype.itemsize * int(np.prod(rows.shape[1:]))
    flat = np.ascontiguousarray(rows).reshape(-1).view(np.uint8)
    return flat, np.arange(rows.shape[0] + 1, dtype=np.int64) * row_bytes


def _to_arrow(cells: Array, bounds: Array) -> pa.Array:
    """An Arrow array of binaries over memory that is already there."""
    import pyarrow as pa

    offsets = (bounds - bounds[0]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(cells[bounds[0] : bounds[-1]])]
    return pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers)


def _from_arrow(column: pa.Array) -> tuple[Array, Array]:
    """The bounds of an Arrow array of binaries, from 0, and its bytes; no copy."""
    import pyarrow as pa

    _, offsets, cells = column.buffers()
    offset = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    start = column.offset
    bounds = np.frombuffer(offsets, offset)[start : start + len(column) + 1].astype(np.int64)
    data = np.empty(0, np.uint8) if cells is None else np.frombuffer(cells, np.uint8)
    return bounds - bounds[0], data[bounds[0] : bounds[-1]]
