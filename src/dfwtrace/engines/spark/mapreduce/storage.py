"""What a run has put into Spark's storage, so that all of it goes away again."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import RDD, Broadcast
    from pyspark.sql import SparkSession


class Storage:
    """Persisted RDDs and broadcasts of one run. Spark's context may be stopped at any time."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._rdds: dict[int, RDD[Any]] = {}
        self._broadcasts: list[Broadcast[Any]] = []

    def persist(self, rdd: RDD[Any]) -> RDD[Any]:
        """Keep an RDD as soon as it is computed; it is computed again where blocks are lost."""
        from pyspark import StorageLevel

        self._rdds[rdd.id()] = rdd
        return rdd.persist(StorageLevel.MEMORY_AND_DISK)

    def detach(self, rdd: RDD[Any]) -> RDD[Any]:
        """Compute an RDD now, keep it, and forget what it was computed from.

        What is checkpointed is a union of one: Spark clears a union's parents, whereas an RDD of
        Python's would hold on to its function, and so to broadcasts that are to be destroyed.
        """
        union = self.persist(self._context.union([rdd]))
        union.localCheckpoint()
        union._jrdd.count()  # by the JVM alone: `union.count()` would send all of it to Python
        return union

    def drop(self, rdd: RDD[Any]) -> None:
        """Free an RDD's memory."""
        del self._rdds[rdd.id()]
        with suppress(Exception):
            # `rdd.unpersist()` would log a warning that a checkpointed RDD cannot be had again.
            self._context._jsc.sc().unpersistRDD(rdd.id(), False)

    def send(self, value: Any) -> Broadcast[Any]:
        """Send a value to all executors that ask for it."""
        broadcast = self._context.broadcast(value)
        self._broadcasts.append(broadcast)
        return broadcast

    def destroy(self, broadcast: Broadcast[Any]) -> None:
        """Take a value back from the executors, and remove its file."""
        self._broadcasts.remove(broadcast)
        with suppress(Exception):
            broadcast.destroy()

    def keep_only(self, *kept: RDD[Any] | None) -> None:
        """Drop all RDDs but these."""
        ids = {rdd.id() for rdd in kept if rdd is not None}
        for number, rdd in list(self._rdds.items()):
            if number not in ids:
                self.drop(rdd)

    def clear(self) -> None:
        """Drop and destroy everything."""
        self.keep_only()
        for broadcast in list(self._broadcasts):
            self.destroy(broadcast)
