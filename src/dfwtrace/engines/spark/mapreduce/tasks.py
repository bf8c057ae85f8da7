"""What runs within the tasks of a round. Pickled by name, with nothing of the driver in it."""

from __future__ import annotations

import functools
import gc
import math
import pickle
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dfwtrace._typing import FloatArray
from dfwtrace.engines.blas import single_threaded_blas
from dfwtrace.engines.recovery import Change, check_same_rows
from dfwtrace.engines.spark.mapreduce.parcels import parcel, unparcel
from dfwtrace.engines.tree import Node, TreeSum

if TYPE_CHECKING:
    from pyspark import RDD


@dataclass(frozen=True)
class Order:
    """The work of one round, as every task gets it.

    Attributes
    ----------
    program : Broadcast of bytes
        The pickled program whose methods run by name.
    calls : Broadcast of bytes
        The pickled list of `Change`: what is called, one after the other.
    seconds : Accumulator
        Keeps the seconds of the slowest task.
    digests : list of bytes, or None
        Of all shards, if the partitions hold shards and not states. Spark may have read the rows of
        a shard again, unnoticed by the driver.
    """

    program: Any
    calls: Any
    seconds: Any
    digests: Sequence[bytes] | None

    def run(self, index: int, pieces: Iterable[bytes]) -> Any:
        """Each call is given what the call before it gave; the first one, the partition's."""
        _spare_the_collector()
        program = pickle.loads(self.program.value)
        calls: list[Change] = pickle.loads(self.calls.value)
        held = unparcel(pieces)
        if self.digests is not None:
            check_same_rows([held.digest()], [self.digests[index]], first=index)
        began = time.perf_counter()
        with single_threaded_blas():
            for method, args in calls:
                held = getattr(program, method)(held, *args)
        self.seconds.add(time.perf_counter() - began)
        return held


@dataclass(frozen=True)
class NewState:
    """Makes a partition with a state of one that holds a shard or a state."""

    order: Order

    def __call__(self, index: int, pieces: Iterable[bytes]) -> Iterator[bytes]:
        return parcel(self.order.run(index, pieces))


@dataclass(frozen=True)
class Reply:
    """Makes a shard's reply of a partition."""

    order: Order

    def __call__(self, index: int, pieces: Iterable[bytes]) -> Iterator[list[Node]]:
        reply: FloatArray = self.order.run(index, pieces)
        yield [Node(0, index, reply)]


def tree_levels(n_shards: int, depth: int) -> list[int]:
    """How many partial sums there are after each level of adding up in tasks.

    A level adds aligned blocks of 2ᵏ neighbours, because the fixed tree of sums joins neighbours:
    Spark's own `treeAggregate` takes every k-th, which have nothing in common to be added.

    Examples
    --------
    >>> tree_levels(64, depth=2), tree_levels(64, depth=3), tree_levels(4, depth=2)
    ([8], [16, 4], [])
    """
    at_once, levels, left = _block_size(n_shards, depth), [], n_shards
    while left > at_once + left / at_once:  # else it saves the driver less than it costs
        left = -(-left // at_once)
        levels.append(left)
    return levels


def _block_size(n_shards: int, depth: int) -> int:
    """The power of two that is at least the depth-th root of `n_shards`."""
    return int(2 ** math.ceil(max(1.0, math.log2(n_shards) / depth)))


def added_along_tree(replies: RDD[list[Node]], n_shards: int, depth: int) -> RDD[list[Node]]:
    """Replies, one in each partition, added up in tasks as far as the depth says."""
    block = _Block(_block_size(n_shards, depth))
    for left in tree_levels(n_shards, depth):
        blocks = replies.mapPartitionsWithIndex(block)
        # `int` sends block i to partition i.
        replies = blocks.reduceByKey(_Addition(n_shards), left, int).values()
    return replies


@dataclass(frozen=True)
class _Block:
    """Says which block of neighbours a partition belongs to."""

    at_once: int

    def __call__(
        self, index: int, replies: Iterable[list[Node]]
    ) -> Iterator[tuple[int, list[Node]]]:
        return ((index // self.at_once, nodes) for nodes in replies)


@dataclass(frozen=True)
class _Addition:
    """Adds partial sums along the fixed tree."""

    n_shards: int

    def __call__(self, one: list[Node], other: list[Node]) -> list[Node]:
        total = TreeSum(self.n_shards)
        for node in (*one, *other):
            total.add_node(node)
        return total.nodes()


@functools.cache  # once in a process
def _spare_the_collector() -> None:
    """Let the garbage collector pass over all that is there now: the modules, for the most part.

    Spark makes a full collection after every task, which takes longer than a small task itself.
    """
    gc.collect()
    gc.freeze()


def size_of(nodes: Iterable[Node]) -> int:
    """Bytes of the numbers in these nodes."""
    return sum(node.partial.nbytes for node in nodes)


def look_at(index: int, pieces: Iterable[bytes]) -> Iterator[tuple[int, int, bytes]]:
    """The index of a shard, its number of rows and its digest."""
    shard = unparcel(pieces)
    yield index, shard.n_rows, shard.digest()


class Greatest:
    """How Spark's accumulator shall take in what tasks tell: the greatest number stays."""

    def zero(self, value: float) -> float:
        return 0.0

    def addInPlace(self, one: float, other: float) -> float:
        return max(one, other)
