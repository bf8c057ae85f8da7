"""The time of an epoch on N workers, predicted from what was measured on one.

Every round of an epoch is followed through the tree of workers that the engine would really form,
message by message; the driver with all N workers right below it (a star) is the tree whose fan-in
is N. What is assumed:

- Rows and time are spread evenly: one shard and one core for each worker, and for each the memory
  bandwidth that a single worker has here. No stragglers.
- A message is sent once all of it has come in (store and forward). A node serves its children one
  after another, both in sending and in receiving, and does so while nobody else uses its link:
  links are full duplex, and there is no congestion between them.
- A message of b bytes takes b / bandwidth on the wire, and `Costs.byte`·b at either end; the two do
  not overlap. A parent spends `Costs.message` on each child in a round.
- Each level of the tree costs `Costs.hop`, which is what a round of an empty message takes here
  beyond the above, and the network's latency there and back.
- A worker passes a request on before it works on it. It sends as many vectors up as there are nodes
  in the fixed tree of sums that its subtree covers, which may be more than one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dfwtrace.engines import Node, TreeSum
from dfwtrace.engines.resident.connections import DRIVER, parents

FloatArray = npt.NDArray[np.float64]
_BYTES_IN_NUMBER = 8


@dataclass(frozen=True)
class Exchange:
    """A round: the method, and the numbers that go to every worker and come from each shard."""

    method: str
    down: int
    up: int


def exchanges(d: int, m: int, iterations: int) -> list[Exchange]:
    """The rounds of an epoch: K power iterations, the update, the value of F."""
    products = [Exchange("matvec", m, d), Exchange("rmatvec", d, m)] * iterations
    return [*products, Exchange("update", d + m, 0), Exchange("report", 0, 2)]


@dataclass(frozen=True)
class Compute:
    """Seconds that a worker computes in each round of an epoch, for some numbers of rows.

    Parameters
    ----------
    rows : array of shape (k,)
        Increasing.
    seconds : array of shape (k, rounds)
    """

    rows: FloatArray
    seconds: FloatArray

    def at(self, rows: float) -> FloatArray:
        """Between what was measured, in a straight line; beyond the most rows, in proportion."""
        if rows > self.rows[-1]:
            grown: FloatArray = self.seconds[-1] * (rows / self.rows[-1])
            return grown
        return np.array([np.interp(rows, self.rows, column) for column in self.seconds.T])


@dataclass(frozen=True)
class Costs:
    """What was measured, in seconds.

    Attributes
    ----------
    compute : Compute
    hop : float
        Of a round with an empty message to one worker, without `message`.
    message : float
        That a parent spends on one child's request and reply, whatever their length.
    byte : float
        That either end spends on a byte.
    master : float
        That the master spends between the rounds of an epoch.
    """

    compute: Compute
    hop: float
    message: float
    byte: float
    master: float


@dataclass(frozen=True)
class Network:
    """Bytes a second on every link, and seconds there and back."""

    bandwidth: float
    latency: float


#: No wire at all: what bytes cost there is in `Costs.byte`.
LOOPBACK = Network(np.inf, 0.0)


class Topology:
    """N workers of one shard each, and who hangs below whom."""

    def __init__(self, n_workers: int, fan_in: int) -> None:
        self.n_workers = n_workers
        self._children: dict[int, list[int]] = {}
        for worker, parent in enumerate(parents(n_workers, fan_in)):
            self._children.setdefault(parent, []).append(worker)

    def below(self, node: int) -> Sequence[int]:
        return self._children.get(node, ())

    @property
    def levels(self) -> int:
        """Messages from the driver to the worker that is farthest away."""

        def height(node: int) -> int:
            return 1 + max(map(height, self.below(node)), default=-1)

        return height(DRIVER)

    @cached_property
    def vectors_up(self) -> list[int]:
        """How many partial sums every worker sends up."""
        return [self._partial_sums(worker) for worker in range(self.n_workers)]

    def _partial_sums(self, worker: int) -> int:
        total = TreeSum(self.n_workers)
        for member in self._subtree(worker):
            total.add(Node(0, member, np.zeros(0)))
        return len(total.nodes())

    def _subtree(self, worker: int) -> Iterator[int]:
        yield worker
        for child in self.below(worker):
            yield from self._subtree(child)


def bytes_on_wire(topology: Topology, rounds: Sequence[Exchange]) -> int:
    """Bytes of numbers in an epoch, on all links together."""
    vectors = sum(topology.vectors_up)
    numbers = sum(topology.n_workers * r.down + vectors * r.up for r in rounds)
    return _BYTES_IN_NUMBER * numbers


def round_seconds(
    topology: Topology, exchange: Exchange, compute: float, costs: Costs, network: Network
) -> float:
    """From the driver's first byte to its sum."""
    request = _BYTES_IN_NUMBER * exchange.down
    way = 0.5 * (costs.hop + network.latency)

    def handle(size: int) -> float:
        """A message at a parent, until it may turn to the next one."""
        return 0.5 * costs.message + size * (costs.byte + 1.0 / network.bandwidth)

    def answer(node: int, asked: float, work: float) -> float:
        """When a node has the sum of its subtree, if it has the request at `asked`."""
        below = topology.below(node)
        now = asked
        ready = []
        for child in below:
            now += handle(request)
            ready.append(answer(child, now + way + request * costs.byte, compute))
        now += work
        for child, at in zip(below, ready, strict=True):
            reply = _BYTES_IN_NUMBER * exchange.up * topology.vectors_up[child]
            now = max(now, at + reply * costs.byte + way) + handle(reply)
        return now

    return answer(DRIVER, 0.0, 0.0)


def epoch_seconds(
    n: int, topology: Topology, rounds: Sequence[Exchange], costs: Costs, network: Network
) -> float:
    """All rounds of an epoch, one after another, and what the master does in between."""
    compute = costs.compute.at(n / topology.n_workers)
    return costs.master + sum(
        round_seconds(topology, exchange, float(work), costs, network)
        for exchange, work in zip(rounds, compute, strict=True)
    )
