"""What an engine is: shards somewhere, rounds over them, and an account of every round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from dfwtrace._typing import Array, FloatArray

#: Arguments of a round, which every shard is given.
Args = tuple[Array | float, ...]
#: The name of a program's method, and its arguments.
Call = tuple[str, Args]


class WorkerError(RuntimeError):
    """A worker failed and the run cannot go on; the message ends with the worker's own traceback.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> issubclass(dt.WorkerError, RuntimeError)
    True
    """


class RowsChangedError(RuntimeError):
    """The rows of a DataFrame were not the same when Spark computed them again.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> issubclass(dt.RowsChangedError, RuntimeError)
    True
    """


class Cost(NamedTuple):
    """What a round took: bytes on all wires, and seconds.

    `compute` is the slowest worker's, `reduce` what the driver spent on adding up, `wait` the rest
    of the round.
    """

    bytes: int = 0
    compute: float = 0.0
    wait: float = 0.0
    reduce: float = 0.0

    @classmethod
    def total(cls, costs: Iterable[Cost]) -> Cost:
        """Sum the costs of several rounds."""
        return cls(*map(sum, zip(*costs, strict=True)))


class Traffic(NamedTuple):
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


class Workers(ABC):
    """Shards with a state each, and a program whose methods run on them by name.

    Before the first `build` a shard's state is the shard itself. Arguments are arrays and numbers,
    replies one float64 array each. What has made the states, the last `build` and the calls of
    `apply` after it, is logged, for checkpoints and for workers that are lost.

    Rounds are counted as in the paper's Table 1, as if each shard were a worker: the arrays
    broadcast to N shards and their N replies. Scalars among the arguments are not counted. The
    oracle's rounds are kept apart from all others.

    Parameters
    ----------
    shard_rows : list of int
        Rows of the N shards that are counted. There are fewer states than shards where the shards'
        statistics were summed onto the driver.

    Attributes
    ----------
    shard_rows : list of int
    cost : Cost
        Of the last round.
    rounds : list of Round
        All rounds; those of epoch 0 were for the setup.
    """

    def __init__(self, shard_rows: list[int]) -> None:
        self.shard_rows = shard_rows
        self.cost = Cost()
        self._log: list[Call] = []
        self.rounds: list[Round] = []
        self._epoch, self._taken = 0, 0  # rounds that `take` has returned
        self._for_oracle = False

    @property
    def n_shards(self) -> int:
        return len(self.shard_rows)

    def build(self, method: str, *args: Array | float) -> None:
        """Make every shard's state: state ← program.method(shard, *args).

        Where the program has a true attribute ``reuses_memory``, it may also be given the state
        that there was, as ``old``, whose memory it may take. The new state is the same without it.
        """
        args = _in_order(args)
        self._logged_build(method, args)
        self._count(method, args, 0)

    def apply(self, method: str, *args: Array | float) -> None:
        """Change every shard's state: state ← program.method(state, *args)."""
        args = _in_order(args)
        self._logged_apply(method, args)
        self._count(method, args, 0)

    def sum(self, method: str, *args: Array | float) -> FloatArray:
        """Σ program.method(state, *args) along the fixed tree over the shards."""
        args = _in_order(args)
        total = self._sum(method, args)
        self._count(method, args, total.size)
        return total

    def gather(self, method: str, *args: Array | float) -> list[FloatArray]:
        """The replies of program.method(state, *args), in the order of the shards."""
        args = _in_order(args)
        replies = self._gather(method, args)
        self._count(method, args, replies[0].size)
        return replies

    def count_for_oracle(self, active: bool) -> None:
        """Count the rounds from now on as the oracle's, or as others."""
        self._for_oracle = active

    def take(self) -> tuple[Traffic, Traffic, Cost]:
        """End an epoch: the oracle's and the other traffic since the last call, and its cost."""
        since = self.rounds[self._taken :]
        oracle, other = (
            Traffic(len(numbers), sum(numbers))
            for numbers in (
                [made.numbers for made in since if made.oracle == active]
                for active in (True, False)
            )
        )
        self._for_oracle = False
        self._taken = len(self.rounds)
        self._epoch += 1
        return oracle, other, Cost.total(made.cost for made in since)

    def reset_accounting(self) -> None:
        """Forget all rounds, for another run on the same workers."""
        self.rounds = []
        self._epoch, self._taken, self._for_oracle = 0, 0, False

    def continue_from(self, workers: Workers) -> Self:
        """Go on with the account of other workers, which are closed."""
        self.shard_rows, self.rounds = workers.shard_rows, workers.rounds
        self._epoch, self._taken = workers._epoch, workers._taken
        self._for_oracle = workers._for_oracle
        workers.close()
        return self

    def memory(self) -> dict[str, Any]:
        """For a checkpoint: the rounds so far, and what has made the shards' states."""
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
            "changes": list(self._log),
        }

    def restore(self, memory: dict[str, Any]) -> None:
        """Bring the shards' states, and the account, to where they were."""
        (method, args), *changes = memory["changes"]
        self._logged_build(method, args)
        for method, args in changes:
            self._logged_apply(method, args)
        methods = memory["methods"]
        self.rounds = [
            Round(int(epoch), bool(oracle), methods[int(k)], int(n), Cost(int(size), *seconds))
            for epoch, oracle, k, n, size, *seconds in memory["rounds"].tolist()
        ]
        self._epoch, self._taken, self._for_oracle = memory["epoch"], len(self.rounds), False

    @abstractmethod
    def close(self) -> None:
        """Release everything that the workers hold."""

    # Rounds as an engine makes them; each sets `cost`.

    @abstractmethod
    def _build(self, method: str, args: Args) -> None: ...

    @abstractmethod
    def _apply(self, method: str, args: Args) -> None: ...

    @abstractmethod
    def _sum(self, method: str, args: Args) -> FloatArray: ...

    @abstractmethod
    def _gather(self, method: str, args: Args) -> list[FloatArray]: ...

    def _logged_build(self, method: str, args: Args) -> None:
        self._build(method, args)
        self._log = [(method, _copied(args))]

    def _logged_apply(self, method: str, args: Args) -> None:
        self._apply(method, args)
        self._log.append((method, _copied(args)))

    def _count(self, method: str, args: Args, reply_size: int) -> None:
        sent = sum(argument.size for argument in args if isinstance(argument, np.ndarray))
        numbers = self.n_shards * (sent + reply_size)
        self.rounds.append(Round(self._epoch, self._for_oracle, method, numbers, self.cost))


class Engine(Protocol):
    """A place where shards can live."""

    @property
    def n_shards(self) -> int:
        """Number of logical shards that the rows are cut into."""

    def start(self, program: object, rows: Any) -> Workers:
        """Cut the rows (`ArrayRows`, or what the engine's own `survey` returned) into shards."""


def _in_order(args: Args) -> Args:
    """Arrays without gaps, row by row or column by column as they are.

    BLAS may round differently for another layout: every engine must see what a wire can carry.
    """
    return tuple(
        np.ascontiguousarray(argument)
        if isinstance(argument, np.ndarray) and not argument.flags.forc
        else argument
        for argument in args
    )


def _copied(args: Args) -> Args:
    """Arguments that nobody else can change."""
    return tuple(arg.copy(order="K") if isinstance(arg, np.ndarray) else arg for arg in args)
