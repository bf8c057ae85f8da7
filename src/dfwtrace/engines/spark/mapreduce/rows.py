"""Rows of a DataFrame or of this process as an RDD with one shard in each partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dfwtrace.data.rows import ArrayRows, Facts
from dfwtrace.data.shards import shard_bounds, split_rows
from dfwtrace.engines.spark.assembling import assemble
from dfwtrace.engines.spark.mapreduce.parcels import parcel
from dfwtrace.engines.spark.packing import keys_for, packed
from dfwtrace.engines.spark.survey import FrameRows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import RDD
    from pyspark.sql import SparkSession

#: Sends a value to the executors, and keeps it there until the run ends.
Send = Callable[[Any], Any]


def shards_of(
    spark: SparkSession, rows: ArrayRows | FrameRows, n_shards: int, send: Send
) -> RDD[bytes]:
    """Partition j holds the parcel of shard j. Every time Spark computes it, the bits are equal."""
    if isinstance(rows, ArrayRows):
        return _from_arrays(spark, rows, n_shards, send)
    return _from_frame(spark, rows, n_shards)


def _from_arrays(spark: SparkSession, rows: ArrayRows, n_shards: int, send: Send) -> RDD[bytes]:
    """A broadcast for each shard.

    Spark cuts a broadcast into blocks by itself and keeps them on disk where memory is short. An
    RDD made with `parallelize` would stay in the driver's Java heap, and a task with more than
    `spark.rpc.message.maxSize` of it could not be sent.
    """
    context = spark.sparkContext
    one_partition = context.parallelize([None], 1)
    return context.union(
        [
            one_partition.mapPartitions(_Unwrap(send(list(parcel(shard)))))
            for shard in split_rows(rows.X, rows.y, n_shards)
        ]
    )


@dataclass(frozen=True)
class _Unwrap:
    """A partition made of what was broadcast."""

    pieces: Any

    def __call__(self, nothing: Iterable[None]) -> Iterator[bytes]:
        for _ in nothing:  # a task must read its input to the end
            yield from self.pieces.value


def _from_frame(spark: SparkSession, rows: FrameRows, n_shards: int) -> RDD[bytes]:
    bounds = shard_bounds(rows.facts.n_rows, n_shards)
    frame = packed(rows, bounds, keys_for(spark, n_shards)).repartition(n_shards, "key")
    pieces = frame.mapInArrow(_Assembly(rows.facts, bounds), "piece binary")
    return pieces.rdd.mapPartitions(_bytes_of)


@dataclass(frozen=True)
class _Assembly:
    """The parcel of the shard whose packed rows are in a partition."""

    facts: Facts
    bounds: list[tuple[int, int]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None  # this runs within a task
        index = context.partitionId()
        (shard,) = assemble(batches, self.facts, self.bounds[index : index + 1], index)
        for piece in parcel(shard):
            column = pa.array([piece], pa.binary())
            yield pa.RecordBatch.from_arrays([column], ["piece"])


def _bytes_of(rows: Iterable[Any]) -> Iterator[bytes]:
    return (bytes(row[0]) for row in rows)
