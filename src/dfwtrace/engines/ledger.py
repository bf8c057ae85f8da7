"""Counts what every round sends, as if each shard were a worker of the paper."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dfwtrace._typing import Array, FloatArray
from dfwtrace.engines.engine import Workers


@dataclass
class Traffic:
    """Rounds, and numbers sent in them in both directions."""

    rounds: int = 0
    numbers: int = 0


class Ledger:
    """Workers whose rounds are counted: the vectors broadcast to N shards and their N replies.

    The oracle's rounds, which the paper's Table 1 is about, are kept apart from all others (step
    size, objective, update, certificate). Scalars among the arguments are control words and not
    counted.

    Parameters
    ----------
    workers : Workers
    shard_rows : list of int
        Rows n_j of the N shards that are counted. There are fewer states than shards where the
        shards' statistics were summed onto the master, and no number really travels any more.
    """

    def __init__(self, workers: Workers, shard_rows: list[int]) -> None:
        self._workers = workers
        self.shard_rows = shard_rows
        self.oracle = Traffic()
        self.other = Traffic()
        self._current = self.other

    @property
    def n_shards(self) -> int:
        return len(self.shard_rows)

    def count_for_oracle(self, active: bool) -> None:
        """Whether the rounds from now on are the oracle's."""
        self._current = self.oracle if active else self.other

    def take(self) -> tuple[Traffic, Traffic]:
        """The oracle's and the other traffic since the last call."""
        taken = self.oracle, self.other
        self.oracle, self.other = Traffic(), Traffic()
        self._current = self.other
        return taken

    def build(self, method: str, *args: Array | float) -> None:
        self._workers.build(method, *args)
        self._count(args, 0)

    def apply(self, method: str, *args: Array | float) -> None:
        self._workers.apply(method, *args)
        self._count(args, 0)

    def sum(self, method: str, *args: Array | float) -> FloatArray:
        total = self._workers.sum(method, *args)
        self._count(args, total.size)
        return total

    def gather(self, method: str, *args: Array | float) -> list[FloatArray]:
        replies = self._workers.gather(method, *args)
        self._count(args, replies[0].size)
        return replies

    def close(self) -> None:
        self._workers.close()

    def _count(self, args: tuple[Array | float, ...], reply_size: int) -> None:
        sent = sum(argument.size for argument in args if isinstance(argument, np.ndarray))
        self._current.rounds += 1
        self._current.numbers += self.n_shards * (sent + reply_size)
