"""Rows of a DataFrame: checked and measured where they are, then shuffled and made shards.

A packed row has the key of its group, its place among all rows, its features and its targets. A
dense row of X, and a row of y, are the bytes of their numbers. A sparse row is a record for each
stored entry: the column and the value.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.sparse as sp

from dfwtrace._typing import Array, DType, Matrix
from dfwtrace.data.shards import (
    ArrayRows,
    Examine,
    Examined,
    Facts,
    Shard,
    compressed_rows,
    shard_bounds,
    slice_rows,
)
from dfwtrace.engines.base import RowsChangedError
from dfwtrace.engines.spark.dataframe import (
    BadRowsError,
    Reading,
    choose_columns,
    row_place,
    task_context,
    uneven,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession

#: Runs a query.
Collect = Callable[["DataFrame"], "list[Row]"]

PACKED_SCHEMA = "key int, row long, x binary, y binary"

# Bytes handed to Spark at once. Arrow's offsets end at 2 GiB, and memory should not grow by that.
_BATCH_BYTES = 16 << 20
_REFUSALS = (BadRowsError, TypeError, ValueError)


@dataclass(frozen=True)
class FrameRows:
    """Rows in a Spark DataFrame, examined, in the order of ``frame.toPandas()``."""

    frame: DataFrame | None  # the columns that are read, as `Reading.select` names them
    reading: Reading
    examine: Examine
    facts: Facts
    counts: tuple[int, ...]  # rows in each partition


def survey(
    frame: DataFrame,
    features: object,
    label: object,
    examine: Examine,
    collect: Collect = lambda frame: frame.collect(),
) -> FrameRows:
    """Check and measure all rows in one Spark job, which `collect` runs; raises the first refusal.

    `examine` is called on the workers, with the rows of one Arrow batch at a time.
    """
    reading = choose_columns(frame.schema, features, label)
    chosen = reading.select(frame)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        partition = task_context().partitionId()
        report = survey_batches(batches, reading, examine, partition)
        columns = [pa.array([partition], pa.int32()), pa.array([pickle.dumps(report)], pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, ["partition", "report"])

    found = collect(chosen.mapInArrow(task, "partition int, report binary"))
    reports = {int(row["partition"]): pickle.loads(row["report"]) for row in found}
    return FrameRows(chosen, reading, examine, *merge(reports, reading))


class Measured(NamedTuple):
    """What is known of the rows of one batch."""

    facts: Facts
    nonzeros: int
    place: str  # of the first row

    @property
    def widths(self) -> tuple[int, int]:
        """Numbers in a row of X, and of y."""
        targets = self.facts.targets
        return self.facts.n_columns, 0 if targets is None else math.prod(targets.shape)


#: What is known of a partition's batches, or what was refused.
Report = list[Measured] | Exception


def merge(reports: dict[int, Report], reading: Reading) -> tuple[Facts, tuple[int, ...]]:
    """The facts of all rows, and the rows of each partition, from the partitions' reports."""
    found: list[Measured] = []
    counts = [0] * (max(reports, default=0) + 1)
    for partition, report in sorted(reports.items()):
        if isinstance(report, Exception):
            raise report
        for batch in report:
            found.append(batch)
            counts[partition] += batch.facts.n_rows
            _check_even(found[0], batch, reading)
    if not found:
        raise ValueError("X must have at least one row, but the DataFrame has none.")
    facts = [batch.facts for batch in found]
    first, n_rows, sparse = facts[0], sum(counts), any(one.sparse for one in facts)
    targets = first.targets
    if targets is not None:
        kinds = {one.targets.base for one in facts if one.targets is not None}
        targets = np.dtype((np.result_type(*kinds), targets.shape))
    stored = sum(one.nonzeros for one in found) if sparse else n_rows * first.n_columns
    shape = (max(one.shape[0] for one in facts), max(one.shape[1] for one in facts))
    dtype = np.result_type(*{one.dtype for one in facts})
    whole = Facts(n_rows, first.n_columns, stored, sparse, dtype, shape, targets)
    return whole, tuple(counts)


def _check_even(first: Measured, other: Measured, reading: Reading) -> None:
    sources = (reading.features, reading.label or reading.features)
    for source, here, there in zip(sources, first.widths, other.widths, strict=True):
        if here != there:
            name = source.names[0]
            raise uneven(source.argument, name, here, first.place, there, other.place)


def survey_batches(
    batches: Iterator[pa.RecordBatch], reading: Reading, examine: Examine, partition: int
) -> Report:
    """One partition's report. A refusal is returned: Spark would wrap and repeat what is raised."""
    found = []
    try:
        for start, X, y in reading.walk(batches, partition):
            rows = ArrayRows.examined(X, y, examine)
            nonzeros = rows.facts.stored if rows.facts.sparse else int(np.count_nonzero(rows.X))
            found.append(Measured(rows.facts, nonzeros, row_place(partition, start)))
    except _REFUSALS as error:
        kind, message = next(kind for kind in _REFUSALS if isinstance(error, kind)), str(error)
        # A task's sentence about X or y gets the name of the column.
        source = {"X ": reading.features, "y ": reading.label}.get(message[:2])
        return kind(message if source is None else f"{message.removesuffix('.')} ({source}).")
    return found


def shuffled(
    rows: FrameRows, n_shards: int, n_groups: int, collect: Collect = lambda frame: frame.collect()
) -> tuple[DataFrame, Callable[..., list[Shard]]]:
    """A DataFrame with a partition for each group of shards, and what makes them of it there."""
    frame, there = rows.frame, replace(rows, frame=None)
    assert frame is not None
    bounds, groups = shard_bounds(rows.facts.n_rows, n_shards), shard_bounds(n_shards, n_groups)
    ends = np.array([bounds[last - 1][1] for _, last in groups], np.int64)
    keys = np.array(keys_for(frame.sparkSession, n_groups, collect), np.int32)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return pack_batches(batches, there, ends, keys, task_context().partitionId())

    def load(group: int, batches: Iterable[pa.RecordBatch], *_: object) -> list[Shard]:
        first, last = groups[group]
        return assemble(batches, there.facts, bounds[first:last], first)

    return frame.mapInArrow(task, PACKED_SCHEMA).repartition(n_groups, "key"), load


def keys_for(
    spark: SparkSession, n: int, collect: Collect = lambda frame: frame.collect()
) -> list[int]:
    """Keys that Spark, when asked, sends to partitions 0, 1, …, n - 1; `collect` runs the query."""
    if n == 1:
        return [0]
    tried = int(n * (np.log(n) + 40.0))  # one time in e⁴⁰ some partition gets none of them
    places = spark.range(0, tried, 1, 1).selectExpr(
        "cast(id as int) as key", f"pmod(hash(cast(id as int)), {n}) as place"
    )
    return [int(key) for _, key in sorted(map(tuple, collect(places.groupBy("place").min("key"))))]


def pack_batches(
    batches: Iterable[pa.RecordBatch], rows: FrameRows, ends: Array, keys: Array, partition: int
) -> Iterator[pa.RecordBatch]:
    """One partition before it is shuffled: ends[i] is where group i ends, keys[i] its key."""
    first, expected = sum(rows.counts[:partition]), sum(rows.counts[partition : partition + 1])
    n_rows = 0
    for start, X, y in rows.reading.walk(batches, partition):
        n_rows = start + int(X.shape[0])
        if n_rows > expected:
            break
        X, y = _conformed(rows.examine(X, y), rows.facts)
        yield from pack(X, y, first + start, rows.facts, ends, keys)
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
    longest = int(np.diff(x_bounds + y_bounds).max(initial=1))
    at_once = max(1, _BATCH_BYTES // longest)
    for a in range(0, n, at_once):
        b = min(n, a + at_once)
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
    X = _SparseRows(facts) if facts.sparse else _DenseRows(n, facts.dtype, (facts.n_columns,))
    y = None if facts.targets is None else _DenseRows(n, facts.targets.base, facts.targets.shape)
    seen, arrived = np.zeros(n, bool), 0
    for batch in batches:
        if not batch.num_rows:
            continue
        places = batch.column("row").to_numpy() - base
        if places.min() < 0 or places.max() >= n:
            raise _changed("rows came to a worker that they do not belong to")
        seen[places] = True
        arrived += len(places)
        X.put(places, *_from_arrow(batch.column("x")))
        if y is not None:
            y.put(places, *_from_arrow(batch.column("y")))
    if not seen.all():
        raise _changed(f"row {base + int(np.argmin(seen))} is missing")
    if arrived != n:
        raise _changed("some rows came twice")
    rows, targets = X.finish(), None if y is None else y.finish()
    return [
        Shard(first + i, slice_rows(rows, a, b), None if targets is None else targets[a:b])
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
        self._rows[places] = cells.view(dtype).reshape(shape)

    def finish(self) -> Array:
        return self._rows


class _SparseRows:
    """Rows of a CSR matrix, put into their order when all of them have arrived."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._places: list[Array] = []
        self._pieces: list[Matrix] = [sp.csr_array((0, facts.n_columns), dtype=facts.dtype)]

    def put(self, places: Array, bounds: Array, cells: Array) -> None:
        entry = _entry_type(self._facts)
        if (bounds % entry.itemsize).any():
            raise _changed("rows differ in kind from those that were examined")
        entries, pointers = cells.view(entry), bounds // entry.itemsize
        columns, data = entries["column"].copy(), entries["value"].copy()
        self._places.append(places)
        self._pieces.append(compressed_rows(data, columns, pointers, self._facts.n_columns))

    def finish(self) -> Matrix:
        facts, X = self._facts, sp.vstack(self._pieces, format="csr")
        self._pieces = []
        X = X[np.argsort(np.concatenate(self._places or [np.empty(0, np.int64)]))]
        # The same as SciPy would take for all rows in one matrix: 32 bits wherever they do.
        index = sp.get_index_dtype(maxval=max(facts.stored, facts.n_columns, facts.n_rows))
        X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
        return X


def _changed(what: str) -> RowsChangedError:
    return RowsChangedError(
        f"X must have the same rows in the same partitions whenever Spark computes it again, but "
        f"{what}: persist the DataFrame, or write it to a file and read that."
    )


def _conformed(examined: Examined, facts: Facts) -> tuple[Matrix, Array | None]:
    """Rows as the facts say that they are: CSR if any are, the same dtypes."""
    X, y, shape = examined
    targets, row = facts.targets, None if y is None else y.shape[1:]
    if (
        X.shape[1] != facts.n_columns
        or (sp.issparse(X) and not facts.sparse)
        or row != (None if targets is None else targets.shape)
        or (np.array(shape) > facts.shape).any()  # such as by a label beyond the last one
    ):
        raise _changed("rows differ in kind from those that were examined")
    if y is not None and targets is not None:
        y = y.astype(targets.base, copy=False)
    if facts.sparse:
        X = sp.csr_array(X)
        X = X if X.has_sorted_indices else X.sorted_indices()
    return X.astype(facts.dtype, copy=False), y


def _entry_type(facts: Facts) -> DType:
    return np.dtype([("column", np.int32), ("value", facts.dtype)])  # as in Spark's own vectors


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
