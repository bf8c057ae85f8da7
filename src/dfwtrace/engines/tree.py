"""Sums along one fixed binary tree over the shard indices.

The tree's leaves are the shards 0 … N-1; two neighbours (2i, 2i+1) of a level are added to node i
of the next, and a last one without a neighbour goes up as it is. Each node is one addition of two
given operands, so that threads, workers and the driver may form any of them, in any order of
arrival, and the sum has the same bits.
"""

from __future__ import annotations

import threading

from dfwtrace._typing import FloatArray


class TreeSum:
    """Takes replies in any order and adds them along the tree as soon as neighbours have met.

    Examples
    --------
    >>> import numpy as np
    >>> total = TreeSum(3)
    >>> for shard in (2, 0, 1):
    ...     total.add(shard, np.array([float(shard)]))
    >>> total.result()
    array([3.])
    """

    def __init__(self, n_shards: int) -> None:
        self._widths = [n_shards]
        while self._widths[-1] > 1:
            self._widths.append((self._widths[-1] + 1) // 2)
        self._waiting: dict[tuple[int, int], FloatArray] = {}
        self._lock = threading.Lock()

    def add(self, shard: int, reply: FloatArray) -> None:
        """Put in a shard's reply. It may be kept, and is never changed."""
        level, index, partial = 0, shard, reply
        while level < len(self._widths) - 1:
            sibling = index ^ 1
            if sibling < self._widths[level]:
                with self._lock:
                    other = self._waiting.pop((level, sibling), None)
                    if other is None:
                        self._waiting[level, index] = partial
                        return
                partial = partial + other
            level, index = level + 1, index // 2
        with self._lock:
            self._waiting[level, 0] = partial

    def result(self) -> FloatArray:
        """The sum, once every shard has answered."""
        return self._waiting[len(self._widths) - 1, 0]
