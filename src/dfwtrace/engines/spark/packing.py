"""Rows on their way to the workers, as bytes, each with the key of the group that it goes to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from dfwtrace._typing import Array, Matrix
from dfwtrace.data.rows import Examine, Facts
from dfwtrace.engines.spark.reading import Reading, partition_here
from dfwtrace.engines.spark.row_bytes import (
    PACKED_SCHEMA,
    binaries,
    changed,
    dense_bytes,
    sparse_bytes,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession

    from dfwtrace.engines.spark.survey import FrameRows

# Bytes handed to Spark at once. Arrow's offsets end at 2 GiB, and memory should not grow by that.
_BATCH_BYTES = 16 << 20

# Keys tried for each partition, beyond log n: one time in e¹² some partition gets none of them.
_SPARE_DRAWS = 12.0


def packed(rows: FrameRows, bounds: Sequence[tuple[int, int]], keys: Sequence[int]) -> DataFrame:
    """All rows of a DataFrame as bytes, each with the key of its group.

    ``packed(rows, bounds, keys_for(spark, n)).repartition(n, "key")`` has group i in partition i.

    Parameters
    ----------
    rows : FrameRows
    bounds : sequence of (start, stop)
        The groups: contiguous ranges of rows, perhaps empty, that cover all of them.
    keys : sequence of int
        A key for each group.

    Returns
    -------
    pyspark.sql.DataFrame
        Of `PACKED_SCHEMA`. To compute it raises RowsChangedError (inside Spark's own error) if a
        partition has not as many rows as it had.
    """
    reading, examine, facts, counts = rows.reading, rows.examine, rows.facts, rows.counts
    ends = np.array([stop for _, stop in bounds], np.int64)
    group_keys = np.array(keys, np.int32)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return pack_batches(
            batches, reading, examine, facts, counts, ends, group_keys, partition_here()
        )

    return rows.frame.mapInArrow(task, PACKED_SCHEMA)


def keys_for(
    spark: SparkSession, n: int, collect: Callable[[DataFrame], list[Row]] | None = None
) -> list[int]:
    """Keys that Spark's hash partitioning into n partitions sends to partition 0, 1, …, n - 1.

    Spark is asked, in one small query, and not imitated; `collect` runs it.
    """
    if n == 1:
        return [0]
    tried = int(n * (np.log(n) + _SPARE_DRAWS))
    while True:
        query = (
            spark.range(0, tried, 1, 1)
            .selectExpr("cast(id as int) as key", f"pmod(hash(cast(id as int)), {n}) as place")
            .groupBy("place")
            .min("key")
        )
        found = query.collect() if collect is None else collect(query)
        if len(found) == n:
            return [int(key) for _, key in sorted(map(tuple, found))]
        tried *= 2


def pack_batches(
    batches: Iterable[pa.RecordBatch],
    reading: Reading,
    examine: Examine,
    facts: Facts,
    counts: Sequence[int],
    ends: Array,
    keys: Array,
    partition: int,
) -> Iterator[pa.RecordBatch]:
    """One partition of `packed`: ends[i] is where group i ends, keys[i] its key."""
    expected = counts[partition] if partition < len(counts) else 0
    first, n_rows = sum(counts[:partition]), 0
    for start, X, y in reading.walk(batches, partition):
        X, y, shape = examine(X, y)
        # Such as by a label beyond the last one, for which no memory would be there.
        if shape[0] > facts.shape[0] or shape[1] > facts.shape[1]:
            raise changed(f"W would have to be {shape} for it and {facts.shape} did before")
        n_rows = start + int(X.shape[0])
        if n_rows > expected:
            break
        yield from pack(*_conformed(X, y, facts), first + start, facts, ends, keys)
    if n_rows != expected:
        found = "more" if n_rows > expected else str(n_rows)
        raise changed(f"partition {partition} had {expected} rows and now has {found}")


def pack(
    X: Matrix, y: Array | None, first: int, facts: Facts, ends: Array, keys: Array
) -> Iterator[pa.RecordBatch]:
    """Rows first, first + 1, … of all, as batches of `PACKED_SCHEMA`, without a loop over rows."""
    import pyarrow as pa

    n = int(X.shape[0])
    x_bytes, x_bounds = sparse_bytes(X, facts) if facts.sparse else dense_bytes(X)
    y_bytes, y_bounds = dense_bytes(np.empty((n, 0)) if y is None else y)
    for a, b in _pieces(x_bounds + y_bounds):
        rows = np.arange(first + a, first + b)
        columns = [
            pa.array(keys[np.searchsorted(ends, rows, side="right")], pa.int32()),
            pa.array(rows, pa.int64()),
            binaries(x_bytes, x_bounds[a : b + 1]),
            binaries(y_bytes, y_bounds[a : b + 1]),
        ]
        yield pa.RecordBatch.from_arrays(columns, ["key", "row", "x", "y"])


def _conformed(X: Matrix, y: Array | None, facts: Facts) -> tuple[Matrix, Array | None]:
    """Rows as the facts say that they are: CSR if any are, the same dtypes."""
    targets = facts.targets
    if int(X.shape[1]) != facts.n_columns or (sp.issparse(X) and not facts.sparse):
        raise changed("rows differ in kind from those that were examined")
    if (y is None) != (targets is None):
        raise changed("rows have no targets where they had some, or the other way round")
    if y is not None and targets is not None:
        if y.shape[1:] != targets.row:
            raise changed("targets differ in length from those that were examined")
        y = y.astype(targets.dtype, copy=False)
    if facts.sparse:
        X = sp.csr_array(X)
        if not X.has_sorted_indices:
            X = X.sorted_indices()
    return X.astype(facts.dtype, copy=False), y


def _pieces(bounds: Array) -> Iterator[tuple[int, int]]:
    """Ranges of rows of at most `_BATCH_BYTES`, or of a single row that is longer."""
    n = len(bounds) - 1
    cuts = [0]
    while cuts[-1] < n:
        full = np.searchsorted(bounds, bounds[cuts[-1]] + _BATCH_BYTES, side="right") - 1
        cuts.append(min(n, max(cuts[-1] + 1, int(full))))
    return pairwise(cuts)
