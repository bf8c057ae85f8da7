"""The paper's own form on Spark: every round is a job, its replies added up a tree."""

from __future__ import annotations

import gc
import math
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from dfwtrace.data.shards import ArrayRows, Examine, Shard, split_rows
from dfwtrace.engines.base import (
    Args,
    Call,
    Cost,
    Engine,
    RecoveringWorkers,
    WorkersLostError,
    check_same_rows,
)
from dfwtrace.engines.local import single_threaded_blas
from dfwtrace.engines.spark.dataframe import task_context
from dfwtrace.engines.spark.packing import FrameRows, shuffled, survey
from dfwtrace.engines.spark.session import Cluster, python_traceback, reason, run_job
from dfwtrace.engines.tree import Node, TreeSum
from dfwtrace.validation import check_count

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import RDD, Accumulator, Broadcast, SparkContext
    from pyspark.sql import DataFrame, SparkSession

Outcome = TypeVar("Outcome")
Sent = TypeVar("Sent")

# Bytes of a chunk. Spark refuses an element of 2 GiB, and holds several in memory at once.
_CHUNK_BYTES = 8 << 20


class SparkMapReduceEngine(Engine):
    """Logical shards in an RDD; a round is one Spark job: broadcast, map, and add up along a tree.

    For clusters that forbid barrier jobs, or sockets between driver and executors; elsewhere
    `SparkEngine` does the same rounds in a fraction of the time. The same `n_shards` gives the same
    bits on both.

    Parameters
    ----------
    spark : SparkSession, default=None
        The active session by default, or a new one. Spark Connect has no RDDs and is refused.
    n_shards : int, default=8
        Number of logical shards, and of partitions.
    depth : int, default=2
        Levels of the tree that replies are added along: the driver receives about the depth-th
        root of `n_shards` partial sums. With 1, all replies go to the driver.
    max_restarts : int, default=3
        How often states that were lost may be made again in a run, after Spark itself has tried
        `spark.task.maxFailures` times.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> engine = dt.SparkMapReduceEngine(spark, n_shards=8)  # doctest: +SKIP
    >>> result = dt.solve(  # doctest: +SKIP
    ...     dt.Multinomial(), df, label="label", radius=30.0, solver="dfw", engine=engine
    ... )
    """

    def __init__(
        self,
        spark: SparkSession | None = None,
        n_shards: int = 8,
        depth: int = 2,
        *,
        max_restarts: int = 3,
    ) -> None:
        self.n_shards = check_count("n_shards", n_shards, 1)
        self.depth = check_count("depth", depth, 1)
        self.max_restarts = check_count("max_restarts", max_restarts, 0)
        self.cluster = Cluster(spark)
        if self.cluster.connect:
            raise TypeError(
                "spark must be a classic SparkSession for SparkMapReduceEngine, got one of Spark "
                "Connect, which has no RDDs: take SparkEngine."
            )

    @property
    def n_jobs(self) -> int:
        return self.cluster.processors(self.n_shards)

    def survey(
        self, frame: DataFrame, features: object, label: object, examine: Examine
    ) -> FrameRows:
        self.cluster.check_alive()
        return survey(frame, features, label, examine, self.cluster.collect)

    def start(self, program: object, rows: ArrayRows | FrameRows) -> MapReduceWorkers:
        """Cut the rows into shards; see `Engine.start`."""
        self.cluster.check_alive()
        return MapReduceWorkers(self, program, rows)

    def __repr__(self) -> str:
        return f"SparkMapReduceEngine(n_shards={self.n_shards}, depth={self.depth})"


class MapReduceWorkers(RecoveringWorkers):
    """Shards and their states in persisted RDDs, one partition each.

    States are kept without their lineage; if blocks of them are lost, the logged calls are repeated
    on the shards in one job.
    """

    def __init__(
        self, engine: SparkMapReduceEngine, program: object, rows: ArrayRows | FrameRows
    ) -> None:
        from pyspark import cloudpickle

        super().__init__([0] * engine.n_shards, engine.max_restarts)
        self._cluster, self._rows, self._depth = engine.cluster, rows, engine.depth
        self._context: SparkContext = self._cluster.spark.sparkContext
        self._shards: RDD[bytes] | None = None
        self._states: RDD[bytes] | None = None
        self._persisted: set[int] = set()  # ids of RDDs
        self._broadcasts: list[Broadcast[object]] = []
        self._seconds = self._context.accumulator(0.0, _Maximum())
        try:
            self._program = self._send(cloudpickle.dumps(program))
            self._retry("the first pass over the shards", self._ready_shards)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._shards = None
        self._abandon()
        while self._broadcasts:
            _destroy(self._broadcasts.pop())

    def _change(self, method: str, args: Args, build: bool) -> None:
        self._retry(method, lambda: self._make_states([(method, args)], build))

    def _replies(self, method: str, args: Args, add: bool) -> list[Node]:
        """The shards' replies, in any order; added up as far as tasks do it."""

        def collect() -> list[Node]:
            source = self._source()
            with self._order(source, [(method, args)]) as order:
                replies = source.mapPartitionsWithIndex(
                    lambda j, chunks: [[Node(0, j, order.run(j, chunks))]]
                )
                if add:
                    replies = add_along_tree(replies, self.n_shards, self._depth)
                nodes = [node for nodes in replies.collect() for node in nodes]
            self.cost = Cost(self.cost.bytes + sum(node.partial.nbytes for node in nodes))
            return nodes

        return self._retry(method, collect)

    def _make_states(self, calls: list[Call], build: bool) -> None:
        """New states by these calls, one after the other, on the shards or on the states so far."""
        if build:
            self._abandon()  # frees their memory first
        source = self._ready_shards() if build else self._source()
        with self._order(source, calls) as order:
            # Computed now, kept, and what it was computed from forgotten: of a union Spark clears
            # the parents, whereas an RDD of Python's would hold on to its function, and so to
            # broadcasts that are to be destroyed.
            made = source.mapPartitionsWithIndex(lambda j, chunks: to_chunks(order.run(j, chunks)))
            states = self._persist(self._context.union([made]))
            states.localCheckpoint()
            states._jrdd.count()  # by the JVM alone: `count()` would send all of it to Python
        self._states = states
        self._keep_only(self._shards, states)

    def _source(self) -> RDD[bytes]:
        """The states, or before the first `build` the shards."""
        shards = self._ready_shards()
        if self._states is None and self._log:
            self._make_states(self._log, build=True)
        return shards if self._states is None else self._states

    def _ready_shards(self) -> RDD[bytes]:
        if self._shards is None:
            shards = self._persist(self._cut_rows())
            found = sorted(shards.mapPartitionsWithIndex(_measure).collect())
            self._check_digests([digest for _, _, digest in found])
            self.shard_rows = [n_rows for _, n_rows, _ in found]
            self._shards = shards
        return self._shards

    def _cut_rows(self) -> RDD[bytes]:
        """Partition j holds shard j. Every time Spark computes it, the bits are equal."""
        rows = self._rows
        if isinstance(rows, FrameRows):
            return _chunked(*shuffled(rows, self.n_shards, self.n_shards))
        # Spark cuts a broadcast into blocks by itself and keeps them on disk where memory is short.
        # An RDD made with `parallelize` would stay in the driver's Java heap, and a task with more
        # than `spark.rpc.message.maxSize` of it could not be sent.
        one_partition = self._context.parallelize([None], 1)
        shards = split_rows(rows.X, rows.y, self.n_shards)
        chunks = [self._send(list(to_chunks(shard))) for shard in shards]
        return self._context.union(
            [one_partition.mapPartitions(partial(_received, part)) for part in chunks]
        )

    @contextmanager
    def _order(self, source: RDD[bytes], calls: list[Call]) -> Iterator[_Order]:
        """Calls on every partition, while they are broadcast; `cost` has their bytes."""
        pickled = pickle.dumps(calls, protocol=5)
        self.cost = Cost(len(pickled))
        broadcast = self._context.broadcast(pickled)
        try:
            digests = self._digests if source is self._shards else None
            yield _Order(self._program, broadcast, self._seconds, digests)
        finally:
            _destroy(broadcast)

    def _retry(self, method: str, attempt: Callable[[], Outcome]) -> Outcome:
        description = f"dfwtrace: {method} on {self.n_shards} shards"

        def run() -> Outcome:
            from py4j.protocol import Py4JError
            from pyspark.errors import PySparkException

            self._cluster.check_alive()
            self._seconds.value = 0.0
            try:
                return run_job(self._cluster, description, attempt)
            except (Py4JError, PySparkException) as error:
                self._cluster.check_alive()
                message = str(error)
                what = f"Spark's job for {method} failed ({reason(message)})"
                raise WorkersLostError(what, python_traceback(message)) from error

        began = time.perf_counter()
        outcome = self._recover(run)
        seconds, compute = time.perf_counter() - began, float(self._seconds.value)
        wait = max(0.0, seconds - compute - self.cost.reduce)
        self.cost = self.cost._replace(compute=compute, wait=wait)
        return outcome

    # What Spark keeps. Its context may be stopped at any time.

    def _abandon(self) -> None:
        """Drop the states, of which nothing is certain; shards Spark can compute again."""
        self._states = None
        self._keep_only(self._shards)

    def _persist(self, rdd: RDD[bytes]) -> RDD[bytes]:
        from pyspark import StorageLevel

        self._persisted.add(rdd.id())
        return rdd.persist(StorageLevel.MEMORY_AND_DISK)

    def _keep_only(self, *kept: RDD[bytes] | None) -> None:
        for number in self._persisted - {rdd.id() for rdd in kept if rdd is not None}:
            self._persisted.remove(number)
            with suppress(Exception):
                # `rdd.unpersist()` would log a warning that a checkpointed RDD cannot be had again.
                self._context._jsc.sc().unpersistRDD(number, False)

    def _send(self, value: Sent) -> Broadcast[Sent]:
        broadcast = self._context.broadcast(value)
        self._broadcasts.append(broadcast)
        return broadcast


def _destroy(broadcast: Broadcast[object]) -> None:
    with suppress(Exception):  # of a context that has been stopped
        broadcast.destroy()


# What follows runs within tasks, with nothing of the driver in it.


class _Order(NamedTuple):
    """The work of one round, as every task gets it."""

    program: Broadcast[bytes]  # whose methods run by name
    calls: Broadcast[bytes]  # a list of them, made one after the other
    seconds: Accumulator[float]  # of the slowest task
    # Of all shards, if the partitions hold shards and not states: Spark may have read the rows of a
    # shard again, unnoticed by the driver.
    digests: Sequence[bytes] | None

    def run(self, index: int, chunks: Iterable[bytes]) -> Any:
        """Each call is given what the call before it returned; the first one, the partition's."""
        _freeze_garbage()
        program, state = pickle.loads(self.program.value), from_chunks(chunks)
        if self.digests is not None:
            check_same_rows([state.digest()], [self.digests[index]], first=index)
        began = time.perf_counter()
        with single_threaded_blas():
            for method, args in pickle.loads(self.calls.value):
                state = getattr(program, method)(state, *args)
        self.seconds.add(time.perf_counter() - began)
        return state


@cache  # once in a process
def _freeze_garbage() -> None:
    """Exempt all modules from the full collection that Spark makes after every task."""
    gc.collect()
    gc.freeze()


def _measure(index: int, chunks: Iterable[bytes]) -> Iterator[tuple[int, int, bytes]]:
    shard = from_chunks(chunks)
    yield index, shard.n_rows, shard.digest()


def _received(chunks: Broadcast[list[bytes]], nothing: Iterable[None]) -> Iterator[bytes]:
    for _ in nothing:  # a task must read its input to the end
        yield from chunks.value


def _chunked(frame: DataFrame, load: Callable[..., list[Shard]]) -> RDD[bytes]:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        (shard,) = load(task_context().partitionId(), batches)
        for chunk in to_chunks(shard):
            yield pa.RecordBatch.from_pydict({"chunk": pa.array([chunk], pa.binary())})

    return frame.mapInArrow(task, "chunk binary").rdd.map(lambda row: bytes(row[0]))


def tree_levels(n_shards: int, depth: int) -> tuple[int, list[int]]:
    """How many partial sums are added at once, and how many are left after each level in tasks.

    A level adds aligned blocks of 2ᵏ neighbours, at least the depth-th root of `n_shards`, because
    the fixed tree of sums joins neighbours: Spark's own `treeAggregate` takes every k-th.
    """
    size, levels, left = 2 ** math.ceil(max(1.0, math.log2(n_shards) / depth)), [], n_shards
    while left > size + left / size:  # else it saves the driver less than it costs
        left = -(-left // size)
        levels.append(left)
    return size, levels


def add_along_tree(replies: RDD[list[Node]], n_shards: int, depth: int) -> RDD[list[Node]]:
    """Replies, one in each partition, added up in tasks as far as the depth says."""
    size, levels = tree_levels(n_shards, depth)

    def in_blocks(index: int, replies: Iterable[list[Node]]) -> Iterator[tuple[int, list[Node]]]:
        return ((index // size, nodes) for nodes in replies)

    def add(one: list[Node], other: list[Node]) -> list[Node]:
        return TreeSum(n_shards, [*one, *other]).nodes()

    for left in levels:
        # `int` sends block i to partition i.
        replies = replies.mapPartitionsWithIndex(in_blocks).reduceByKey(add, left, int).values()
    return replies


class _Maximum:
    """Lets Spark's accumulator keep the greatest number."""

    def zero(self, value: float) -> float:
        return 0.0

    def addInPlace(self, one: float, other: float) -> float:
        return max(one, other)


def to_chunks(thing: object) -> Iterator[bytes]:
    """An object as Spark stores it: its pickle, cut into chunks."""
    pickled = memoryview(pickle.dumps(thing, protocol=5))
    return (bytes(pickled[at : at + _CHUNK_BYTES]) for at in range(0, len(pickled), _CHUNK_BYTES))


def from_chunks(chunks: Iterable[bytes]) -> Any:
    return pickle.loads(b"".join(chunks))
