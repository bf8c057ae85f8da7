"""Which workers there are, and who reports to whom: a tree of at most `fan_in` children each.

Workers hold contiguous shards in the order of their index, and a worker's subtree is a contiguous
range of workers, so what it sends up is the sum over a contiguous range of shards: at most a few
nodes of the fixed tree of sums, whatever the fan-in.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import NamedTuple

from dfwtrace.data.shards import shard_bounds

#: What driver and workers must both have: others might not understand each other.
VERSION = version("dfwtrace")
#: The parent of the workers right below the driver.
DRIVER = -1


class JoinInfo(NamedTuple):
    """What a worker must know to join; it travels with Spark's own task."""

    host: str  # the driver's address, as workers reach it
    port: int
    secret: bytes  # of this launch only
    n_workers: int
    n_shards: int
    fan_in: int
    start_timeout: float  # seconds to join; a worker tries for a quarter of them
    largest_message: int  # bytes of a frame at the most

    def __repr__(self) -> str:  # the secret stays out of logs
        return f"JoinInfo({self.host}:{self.port}, {self.n_workers} workers)"

    def shards_of(self, worker: int) -> tuple[int, int]:
        """The range of shards that a worker holds."""
        return shard_bounds(self.n_shards, self.n_workers)[worker]


def parents(n_workers: int, fan_in: int) -> list[int]:
    """The parent of every worker.

    Examples
    --------
    >>> parents(6, fan_in=2)
    [-1, 0, 0, -1, 3, 3]
    >>> parents(3, fan_in=8)
    [-1, -1, -1]
    """
    parent = [DRIVER] * n_workers
    subtrees = [(0, n_workers, DRIVER)]
    while subtrees:
        first, last, above = subtrees.pop()
        for a, b in shard_bounds(last - first, min(fan_in, last - first)):
            parent[first + a] = above
            if b - a > 1:
                subtrees.append((first + a + 1, first + b, first + a))
    return parent
