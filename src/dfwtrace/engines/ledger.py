"""Counts what every round sends, as if each shard were a worker of the paper, and what it took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dfwtrace._typing import Array, FloatArray
from dfwtrace.engines.engine import Cost, Workers


@dataclass
class Traffic:
    """Rounds, and numbers sent in them in both directions."""

    rounds: int = 0
    numbers: int = 0


class Round(NamedTuple):
    """One round: who asked for what, how many numbers the paper would count, what it took."""

    epoch: int
    oracle: bool
    method: str
    numbers: int
    cost: Cost


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

    Attributes
    ----------
    rounds : list of Round
        All of them. Epoch 0 is what it took to set up.
    """

    def __init__(self, workers: Workers, shard_rows: list[int]) -> None:
        self._workers = workers
        self.shard_rows = shard_rows
        self.rounds: list[Round] = []
        self.oracle = Traffic()
        self.other = Traffic()
        self._epoch = 0
        self._taken = 0  # rounds that `take` has told about
        self._current = self.other
        # What has made the shards' states what they are: a build, and changes after it.
        self._changes: list[tuple[str, tuple[Array | float, ...]]] = []

    @property
    def n_shards(self) -> int:
        return len(self.shard_rows)

    def count_for_oracle(self, active: bool) -> None:
        """Whether the rounds from now on are the oracle's."""
        self._current = self.oracle if active else self.other

    def take(self) -> tuple[Traffic, Traffic, Cost]:
        """The oracle's and the other traffic since the last call, and what it took in all."""
        costs = [made.cost for made in self.rounds[self._taken :]]
        taken = self.oracle, self.other, Cost.total(costs)
        self.oracle, self.other = Traffic(), Traffic()
        self._current = self.other
        self._taken = len(self.rounds)
        self._epoch += 1
        return taken

    def build(self, method: str, *args: Array | float) -> None:
        args = _in_order(args)
        self._workers.build(method, *args)
        self._changes = [(method, args)]
        self._count(method, args, 0)

    def apply(self, method: str, *args: Array | float) -> None:
        args = _in_order(args)
        self._workers.apply(method, *args)
        self._changes.append((method, args))
        self._count(method, args, 0)

    def sum(self, method: str, *args: Array | float) -> FloatArray:
        args = _in_order(args)
        total = self._workers.sum(method, *args)
        self._count(method, args, total.size)
        return total

    def gather(self, method: str, *args: Array | float) -> list[FloatArray]:
        args = _in_order(args)
        replies = self._workers.gather(method, *args)
        self._count(method, args, replies[0].size)
        return replies

    def memory(self) -> dict[str, Any]:
        """What has been counted, and how the shards' states came about."""
        methods = list(dict.fromkeys(made.method for made in self.rounds))
        number_of = {method: number for number, method in enumerate(methods)}
        return {
            "epoch": self._epoch,
            "methods": methods,
            "rounds": np.array(
                [
                    [*made[:2], number_of[made.method], made.numbers, *made.cost]
                    for made in self.rounds
                ]
            ),
            "changes": list(self._changes),
        }

    def restore(self, memory: dict[str, Any]) -> None:
        """Bring the shards' states, and the counts, to where they were."""
        (method, args), *changes = memory["changes"]
        self._workers.build(method, *args)
        for method, args in changes:
            self._workers.apply(method, *args)
        self._changes = memory["changes"]
        methods = memory["methods"]
        self.rounds = [
            Round(int(epoch), bool(oracle), methods[int(k)], int(n), Cost(int(size), *seconds))
            for epoch, oracle, k, n, size, *seconds in memory["rounds"].tolist()
        ]
        self.oracle, self.other = Traffic(), Traffic()
        self._current = self.other
        self._epoch, self._taken = memory["epoch"], len(self.rounds)

    def anew(self) -> Ledger:
        """The same workers, for another run: nothing is counted yet."""
        return Ledger(self._workers, self.shard_rows)

    def hand_over(self, workers: Workers) -> None:
        """Let others make the rounds from now on, for as many shards."""
        before, self._workers = self._workers, workers
        before.close()

    def close(self) -> None:
        self._workers.close()

    def _count(self, method: str, args: tuple[Array | float, ...], reply_size: int) -> None:
        sent = sum(argument.size for argument in args if isinstance(argument, np.ndarray))
        numbers = self.n_shards * (sent + reply_size)
        self._current.rounds += 1
        self._current.numbers += numbers
        oracle = self._current is self.oracle
        self.rounds.append(Round(self._epoch, oracle, method, numbers, self._workers.cost))


def _in_order(args: tuple[Array | float, ...]) -> tuple[Array | float, ...]:
    """Arrays without gaps, row by row or column by column as they are.

    BLAS may round differently for another layout: every engine shall see what a wire can carry.
    """
    return tuple(
        np.ascontiguousarray(argument)
        if isinstance(argument, np.ndarray) and not argument.flags.forc
        else argument
        for argument in args
    )
