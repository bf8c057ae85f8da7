"""Who hangs below whom: a tree of workers in which nobody has more than `fan_in` children.

Workers hold contiguous shards in the order of their index, and a worker's subtree is a contiguous
range of workers, so that what it sends up is the sum over a contiguous range of shards: a few nodes
of the fixed tree of sums at most, whatever the fan-in.
"""

from __future__ import annotations

from dfwtrace.data.shards import shard_bounds

#: The parent of those that hang below the driver itself.
DRIVER = -1


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
    hanging = [(0, n_workers, DRIVER)]
    while hanging:
        first, last, above = hanging.pop()
        for a, b in shard_bounds(last - first, min(fan_in, last - first)):
            parent[first + a] = above
            if b - a > 1:
                hanging.append((first + a + 1, first + b, first + a))
    return parent
