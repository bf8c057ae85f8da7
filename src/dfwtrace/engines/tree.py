"""Sums along one fixed binary tree over the shard indices.

The tree's leaves are the shards 0 … N-1; two neighbours (2i, 2i+1) of a level are added to node i
of the next, and a last one without a neighbour goes up as it is. Each node is one addition of two
given operands, so threads, workers and the driver may form any of them, in any order of arrival,
and the sum has the same bits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from dfwtrace._typing import FloatArray


class Node(NamedTuple):
    """A sum over the shards below one node of the tree; level 0 are the shards themselves."""

    level: int
    place: int
    partial: FloatArray


class TreeSum:
    """Takes replies in any order and adds them along the tree as soon as neighbours have met.

    Examples
    --------
    >>> import numpy as np
    >>> total = TreeSum(3)
    >>> for shard in (2, 0, 1):
    ...     total.add(Node(0, shard, np.array([float(shard)])))
    >>> total.result()
    array([3.])
    """

    def __init__(self, n_shards: int, nodes: Iterable[Node] = ()) -> None:
        self._widths = [n_shards]
        while self._widths[-1] > 1:
            self._widths.append((self._widths[-1] + 1) // 2)
        self._waiting: dict[tuple[int, int], FloatArray] = {}
        self._lock = threading.Lock()
        self.seconds = 0.0  # spent on adding
        for node in nodes:
            self.add(node)

    def add(self, node: Node) -> None:
        """Put in a shard's reply, or a sum formed elsewhere, which is kept and never changed."""
        (level, index, partial), ours = node, False
        while level < len(self._widths) - 1:
            sibling = index ^ 1
            if sibling < self._widths[level]:
                with self._lock:
                    other = self._waiting.pop((level, sibling), None)
                    if other is None:
                        self._waiting[level, index] = partial
                        return
                began = time.perf_counter()
                partial = np.add(partial, other, out=partial if ours else None)
                ours = True  # so that the next sum needs no fresh memory
                self.seconds += time.perf_counter() - began
            level, index = level + 1, index // 2
        with self._lock:
            self._waiting[level, 0] = partial

    def nodes(self) -> list[Node]:
        """The sums that have no neighbour yet: one, once every shard has answered."""
        return [Node(level, index, partial) for (level, index), partial in self._waiting.items()]

    def result(self) -> FloatArray:
        """The sum, once every shard has answered."""
        return self._waiting[len(self._widths) - 1, 0]
