"""Rounds as Spark jobs over an RDD of states."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from dfwtrace._typing import Array, FloatArray
from dfwtrace.data.rows import ArrayRows
from dfwtrace.engines.engine import Cost
from dfwtrace.engines.failures import CrewLostError
from dfwtrace.engines.recovery import Change, Restarts, check_same_rows
from dfwtrace.engines.spark.job import python_traceback
from dfwtrace.engines.spark.mapreduce.jobs import JobThread
from dfwtrace.engines.spark.mapreduce.rows import shards_of
from dfwtrace.engines.spark.mapreduce.storage import Storage
from dfwtrace.engines.spark.mapreduce.tasks import (
    Greatest,
    NewState,
    Order,
    Reply,
    added_along_tree,
    look_at,
    size_of,
)
from dfwtrace.engines.spark.session import Cluster
from dfwtrace.engines.spark.survey import FrameRows
from dfwtrace.engines.tree import Node, TreeSum

if TYPE_CHECKING:
    from pyspark import RDD

Outcome = TypeVar("Outcome")


class MapReduceWorkers:
    """Shards and their states in persisted RDDs, one partition each.

    States are kept without the lineage that they came by. What has changed them since they were
    last built from W is kept here instead, W and the atoms since, and gone through again in one job
    if blocks of them are lost.

    Parameters
    ----------
    cluster : Cluster
    program : object
        Its methods run on the shards by name.
    rows : ArrayRows or FrameRows
    n_shards, depth, max_restarts : int
        See `SparkMapReduceEngine`.
    """

    def __init__(
        self,
        cluster: Cluster,
        program: Any,
        rows: ArrayRows | FrameRows,
        n_shards: int,
        depth: int,
        max_restarts: int,
    ) -> None:
        from pyspark import cloudpickle

        self.cost = Cost()
        self._cluster, self._rows = cluster, rows
        self._n_shards, self._depth = n_shards, depth
        self._restarts = Restarts(max_restarts, self._abandon)
        self._changes: list[Change] = []
        self._facts: list[tuple[int, bytes]] = []  # rows and digest of every shard
        self._shards: RDD[bytes] | None = None
        self._states: RDD[bytes] | None = None
        packed_program = cloudpickle.dumps(program)
        self._seconds = cluster.spark.sparkContext.accumulator(0.0, Greatest())
        self._storage = Storage(cluster.spark)
        self._jobs = JobThread(cluster, f"dfwtrace: rounds over {n_shards} shards")
        try:
            self._program = self._storage.send(packed_program)
            self._until_it_works("the first look at the shards", self._ready_shards)
        except BaseException:
            self.close()
            raise

    @property
    def restarts(self) -> int:
        """How often states were lost and made again."""
        return self._restarts.count

    @property
    def shard_rows(self) -> list[int]:
        return [n_rows for n_rows, _ in self._facts]

    def build(self, method: str, *args: Array | float) -> None:
        change = Change.kept(method, args)
        self._until_it_works(method, lambda: self._renew([change]))
        self._changes = [change]

    def apply(self, method: str, *args: Array | float) -> None:
        change = Change.kept(method, args)
        self._until_it_works(method, lambda: self._advance(change))
        self._changes.append(change)

    def sum(self, method: str, *args: Array | float) -> FloatArray:
        return self._until_it_works(method, lambda: self._sum(Change(method, args)))

    def gather(self, method: str, *args: Array | float) -> list[FloatArray]:
        return self._until_it_works(method, lambda: self._gather(Change(method, args)))

    def close(self) -> None:
        self._jobs.close()
        self._shards = self._states = None
        self._changes = []
        self._storage.clear()

    # What follows runs in the thread of the jobs, up to `_until_it_works`.

    def _sum(self, change: Change) -> FloatArray:
        held, digests = self._held()

        def job(order: Order) -> list[list[Node]]:
            replies = held.mapPartitionsWithIndex(Reply(order))
            sums: list[list[Node]] = added_along_tree(
                replies, self._n_shards, self._depth
            ).collect()
            return sums

        sums, sent = self._ordered([change], digests, job)
        total = TreeSum(self._n_shards)
        for nodes in sums:
            for node in nodes:
                total.add_node(node)
        received = sum(size_of(nodes) for nodes in sums)
        self.cost = Cost(sent + received, reduce=total.seconds)
        return total.result()

    def _gather(self, change: Change) -> list[FloatArray]:
        held, digests = self._held()

        def job(order: Order) -> list[list[Node]]:
            collected: list[list[Node]] = held.mapPartitionsWithIndex(Reply(order)).collect()
            return collected

        replies, sent = self._ordered([change], digests, job)
        nodes = sorted((node for (node,) in replies), key=lambda node: node.place)
        self.cost = Cost(sent + size_of(nodes))
        return [node.partial for node in nodes]

    def _advance(self, change: Change) -> None:
        held, digests = self._held()
        self._new_states(held, digests, [change])

    def _renew(self, changes: list[Change]) -> None:
        """States made of the shards by all of these changes, one after the other."""
        shards = self._ready_shards()
        self._states = None
        self._storage.keep_only(shards)  # frees the old states before the new ones are made
        self._new_states(shards, [digest for _, digest in self._facts], changes)

    def _new_states(
        self, held: RDD[bytes], digests: list[bytes] | None, changes: list[Change]
    ) -> None:
        def job(order: Order) -> RDD[bytes]:
            return self._storage.detach(held.mapPartitionsWithIndex(NewState(order)))

        self._states, sent = self._ordered(changes, digests, job)
        self._storage.keep_only(self._shards, self._states)
        self.cost = Cost(sent)

    def _held(self) -> tuple[RDD[bytes], list[bytes] | None]:
        """The states, with None; before the first `build`, the shards and their digests."""
        shards = self._ready_shards()
        if self._states is None and self._changes:
            self._renew(self._changes)
        if self._states is not None:
            return self._states, None
        return shards, [digest for _, digest in self._facts]

    def _ready_shards(self) -> RDD[bytes]:
        if self._shards is None:
            spark, send = self._cluster.spark, self._storage.send
            shards = self._storage.persist(shards_of(spark, self._rows, self._n_shards, send))
            found = sorted(shards.mapPartitionsWithIndex(look_at).collect())
            facts = [(n_rows, digest) for _, n_rows, digest in found]
            before = self._facts or facts
            check_same_rows([digest for _, digest in facts], [digest for _, digest in before])
            self._shards, self._facts = shards, facts
        return self._shards

    def _ordered(
        self, calls: list[Change], digests: list[bytes] | None, job: Callable[[Order], Outcome]
    ) -> tuple[Outcome, int]:
        """What the job gives, and the bytes that went out to its tasks."""
        pickled = pickle.dumps(calls, protocol=5)
        broadcast = self._storage.send(pickled)
        try:
            return job(Order(self._program, broadcast, self._seconds, digests)), len(pickled)
        finally:
            self._storage.destroy(broadcast)

    def _until_it_works(self, method: str, attempt: Callable[[], Outcome]) -> Outcome:
        """Run one round; tell what it took."""

        def run() -> Outcome:
            from py4j.protocol import Py4JError
            from pyspark.errors import PySparkException

            self._cluster.check_alive()
            self._seconds.value = 0.0
            try:
                return self._jobs.run(attempt)
            except (Py4JError, PySparkException) as error:
                self._cluster.check_alive()
                told = str(error)
                what = f"Spark's job for {method} failed ({_reason(told)})"
                raise CrewLostError(what, python_traceback(told)) from error

        began = time.perf_counter()
        outcome = self._restarts.until_it_works(run)
        seconds, compute = time.perf_counter() - began, float(self._seconds.value)
        wait = max(0.0, seconds - compute - self.cost.reduce)
        self.cost = Cost(self.cost.bytes, compute, wait, self.cost.reduce)
        return outcome

    def _abandon(self) -> None:
        """Let go of the states, of which nothing is certain; shards Spark can compute again."""
        self._states = None
        self._storage.keep_only(self._shards)


def _reason(told: str) -> str:
    """The line of Spark's long story that says what happened."""
    lines = [line.strip(" :") for line in told.splitlines() if line.strip()]
    telling = [line for line in lines if "Exception: " in line or "Error: " in line] or lines
    return telling[0][:300] if telling else "it told no reason"
