"""What runs within the tasks of a round. Pickled by name, with nothing of the driver in it."""

from __future__ import annotations

import functools
import gc
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dfwtrace._typing import FloatArray
from dfwtrace.engines.blas import hold_single_threaded, release
from dfwtrace.engines.recovery import Change, check_same_rows
from dfwtrace.engines.spark.mapreduce.parcels import parcel, unparcel
from dfwtrace.engines.tree import Node, TreeSum


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
        hold_single_threaded()
        began = time.perf_counter()
        try:
            for method, args in calls:
                held = getattr(program, method)(held, *args)
        finally:
            release()
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


class Addition:
    """Adds partial sums along the fixed tree, in tasks and, in the end, on the driver.

    Attributes
    ----------
    seconds : float
        Spent on adding, here.
    received : int
        Bytes of the numbers that came from elsewhere.
    """

    def __init__(self, n_shards: int) -> None:
        self._n_shards = n_shards
        self._made: list[Node] | None = None
        self.seconds, self.received = 0.0, 0

    def __call__(self, one: list[Node], other: list[Node]) -> list[Node]:
        total = TreeSum(self._n_shards)
        for nodes in (one, other):
            if nodes is not self._made:
                self.received += size_of(nodes)
            for node in nodes:
                total.add_node(node)
        self.seconds += total.seconds
        self._made = total.nodes()
        return self._made

    def __reduce__(self) -> tuple[Callable[[int], Addition], tuple[int]]:
        return Addition, (self._n_shards,)  # elsewhere it begins anew


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
