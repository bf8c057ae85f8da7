"""What an engine is: shards somewhere, rounds over them, and an account of every round."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Self, TypeVar

import numpy as np

from dfwtrace._typing import Array, Data, FloatArray, Memory
from dfwtrace.data.shards import Examine
from dfwtrace.engines.tree import Node, TreeSum
from dfwtrace.threads import usable_cores
from dfwtrace.validation import describe

Outcome = TypeVar("Outcome")
#: Arguments of a round, which every shard is given.
Args = tuple[Array | float, ...]
#: The name of a program's method, and its arguments.
Call = tuple[str, Args]

_log = logging.getLogger("dfwtrace")


class WorkerError(RuntimeError):
    """A worker failed and the run cannot go on; the message ends with the worker's traceback."""


class RowsChangedError(RuntimeError):
    """The rows of a DataFrame were not the same when Spark computed them again."""


class WorkersLostError(Exception):
    """A worker raised (`traceback`), vanished, fell silent or took too long: start all again."""

    def __init__(self, what: str, traceback: str | None = None) -> None:
        super().__init__(what)
        self.what, self.traceback = what, traceback


class UnreachableError(ConnectionError):
    """A worker could not reach the driver, or its parent in the tree."""


class Cost(NamedTuple):
    """What a round took: bytes on all wires, and seconds."""

    bytes: int = 0
    compute: float = 0.0  # of the slowest worker
    wait: float = 0.0  # the rest of the round
    reduce: float = 0.0  # of the driver, to add up

    @classmethod
    def total(cls, costs: Iterable[Cost]) -> Cost:
        return cls(*map(sum, zip(*costs, strict=True)))


class Round(NamedTuple):
    """One round: who asked for what, and what it took."""

    epoch: int  # 0 for the setup
    oracle: bool
    method: str
    numbers: int  # as the paper counts them
    cost: Cost


class Workers(ABC):
    """Shards with a state each, and a program whose methods run on them by name.

    Before the first `build` a shard's state is the shard itself. The last `build` and the calls of
    `apply` after it are logged, for checkpoints and for workers that are lost. Rounds are counted
    as in the paper's Table 1, as if each shard were a worker: arrays broadcast and replies, but not
    scalars. `cost` is the last round's. There are fewer states than shards where the shards'
    statistics were summed onto the driver.
    """

    def __init__(self, shard_rows: list[int]) -> None:
        self.shard_rows = shard_rows
        self.cost = Cost()
        self._log: list[Call] = []
        self.reset_accounting()

    def reset_accounting(self) -> None:
        """Forget all rounds, for another run on the same workers."""
        self.rounds: list[Round] = []
        self._epoch = self._taken = 0  # the latter: rounds that `take` has returned
        self._for_oracle = False

    @property
    def n_shards(self) -> int:
        return len(self.shard_rows)

    def build(self, method: str, *args: Array | float) -> None:
        """Make every shard's state: state ← program.method(shard, *args).

        A program that ``reuses_memory`` is also given the last state, as ``old``.
        """
        self._logged_change(method, _in_order(args), build=True)
        self._count(method, args, 0)

    def apply(self, method: str, *args: Array | float) -> None:
        """Change every shard's state: state ← program.method(state, *args)."""
        self._logged_change(method, _in_order(args), build=False)
        self._count(method, args, 0)

    def sum(self, method: str, *args: Array | float) -> FloatArray:
        """Σ program.method(state, *args) along the fixed tree over the shards."""
        nodes = self._replies(method, _in_order(args), add=True)
        total = nodes[0].partial
        if len(nodes) > 1:
            tree = TreeSum(self.n_shards, nodes)
            total = tree.result()
            self.cost = self.cost._replace(reduce=self.cost.reduce + tree.seconds)
        self._count(method, args, total.size)
        return total

    def gather(self, method: str, *args: Array | float) -> list[FloatArray]:
        """The replies of program.method(state, *args), in the order of the shards."""
        nodes = self._replies(method, _in_order(args), add=False)
        self._count(method, args, nodes[0].partial.size)
        return [node.partial for node in sorted(nodes, key=lambda node: node.place)]

    def count_for_oracle(self, active: bool) -> None:
        """Count the rounds from now on as the oracle's, or as others."""
        self._for_oracle = active

    def take(self) -> tuple[int, int, int, int, Cost]:
        """End an epoch: the oracle's rounds and numbers since the last call, others', the cost."""
        since = self.rounds[self._taken :]
        oracle, other = ([made.numbers for made in since if made.oracle == of] for of in (1, 0))
        self._epoch, self._taken, self._for_oracle = self._epoch + 1, len(self.rounds), False
        cost = Cost.total(made.cost for made in since)
        return len(oracle), sum(oracle), len(other), sum(other), cost

    def continue_from(self, workers: Workers) -> Self:
        """Go on with the account of other workers, which are closed."""
        self.shard_rows, self.rounds = workers.shard_rows, workers.rounds
        self._epoch, self._taken = workers._epoch, workers._taken
        self._for_oracle = workers._for_oracle
        workers.close()
        return self

    def memory(self) -> Memory:
        """For a checkpoint: the rounds so far, and what has made the shards' states."""
        methods = list(dict.fromkeys(made.method for made in self.rounds))
        rounds = [
            [made.epoch, made.oracle, methods.index(made.method), made.numbers, *made.cost]
            for made in self.rounds
        ]
        return {
            "epoch": self._epoch,
            "methods": methods,
            "rounds": np.array(rounds),
            "changes": list(self._log),
        }

    def restore(self, memory: Memory) -> None:
        """Bring the shards' states, and the account, to where they were."""
        for k, (method, args) in enumerate(memory["changes"]):
            self._logged_change(method, args, build=k == 0)
        methods = memory["methods"]
        self.rounds = [
            Round(int(epoch), bool(oracle), methods[int(k)], int(n), Cost(int(size), *seconds))
            for epoch, oracle, k, n, size, *seconds in memory["rounds"].tolist()
        ]
        self._epoch, self._taken, self._for_oracle = memory["epoch"], len(self.rounds), False

    @abstractmethod
    def close(self) -> None: ...

    # Rounds as an engine makes them; each sets `cost`.

    @abstractmethod
    def _change(self, method: str, args: Args, build: bool) -> None: ...

    @abstractmethod
    def _replies(self, method: str, args: Args, add: bool) -> list[Node]:
        """The replies in any order; if they are to `add`, as far added as they are elsewhere."""

    def _logged_change(self, method: str, args: Args, build: bool) -> None:
        self._change(method, args, build)
        # A copy, which nobody else can change.
        kept = tuple(arg.copy(order="K") if isinstance(arg, np.ndarray) else arg for arg in args)
        if build:
            self._log = []
        self._log.append((method, kept))

    def _count(self, method: str, args: Args, reply_size: int) -> None:
        sent = sum(argument.size for argument in args if isinstance(argument, np.ndarray))
        numbers = self.n_shards * (sent + reply_size)
        self.rounds.append(Round(self._epoch, self._for_oracle, method, numbers, self.cost))


class Engine(ABC):
    """A place where shards can live: `n_shards` of them, on `n_jobs` processors."""

    n_shards: int

    @property
    def n_jobs(self) -> int:
        """Processors at work, for the estimate of times."""
        return 1

    @property
    def n_threads(self) -> int:
        """Threads of this process for the algebra outside the shards."""
        return usable_cores()

    def survey(self, frame: Data, features: object, label: object, examine: Examine) -> Data:
        """Check and measure the rows of a DataFrame where they are."""
        raise TypeError(
            "engine must be one for Spark, such as SparkEngine(spark), where X is a DataFrame, "
            f"got {describe(self)}."
        )

    @abstractmethod
    def start(self, program: object, rows: Data) -> Workers:
        """Cut the rows (`ArrayRows`, or what the engine's own `survey` returned) into shards."""


class RecoveringWorkers(Workers):
    """Workers that may be lost, and are then started again at most `max_restarts` times."""

    def __init__(self, shard_rows: list[int], max_restarts: int) -> None:
        super().__init__(shard_rows)
        self.restarts = 0
        self._max_restarts = max_restarts
        self._last_traceback: str | None = None
        self._digests: list[bytes] = []

    @abstractmethod
    def _abandon(self) -> None:
        """Release what is left after a loss, or after an error that ends the run."""

    def _recover(self, attempt: Callable[[], Outcome]) -> Outcome:
        """Make attempts until one raises no WorkersLostError."""
        while True:
            try:
                outcome = attempt()
            except WorkersLostError as lost:
                self._abandon()
                self._raise_if_hopeless(lost)
                self.restarts += 1
                count = f"{self.restarts} of {self._max_restarts} restarts"
                _log.warning("%s; starting the workers again (%s)", lost.what, count)
            except BaseException:
                self._abandon()
                raise
            else:
                self._last_traceback = None
                return outcome

    def _raise_if_hopeless(self, lost: WorkersLostError) -> None:
        for kind in (RowsChangedError, UnreachableError):  # a fresh start would end no better
            name = f"{kind.__name__}: "
            if lost.traceback and name in lost.traceback:
                raise kind(lost.traceback.rstrip().split(name)[-1]) from None
        details = f"\n\n{lost.traceback.rstrip()}" if lost.traceback else ""
        # The same error at the same place after a fresh start would come again.
        if lost.traceback and lost.traceback == self._last_traceback:
            raise WorkerError(f"{lost.what}, twice in the same way.{details}") from lost
        if self.restarts >= self._max_restarts:
            end = f"after {self.restarts} restarts (max_restarts)"
            raise WorkerError(f"{lost.what}, {end}.{details}") from lost
        self._last_traceback = lost.traceback

    def _check_digests(self, digests: list[bytes]) -> None:
        """Refuse shards that are not what they were when they were first read."""
        check_same_rows(digests, self._digests or digests)
        self._digests = digests


def check_same_rows(now: Sequence[bytes], then: Sequence[bytes], first: int = 0) -> None:
    """Refuse shards, from number `first` on, whose digests are not what they were."""
    for j, (digest, before) in enumerate(zip(now, then, strict=True), start=first):
        if digest != before:
            raise RowsChangedError(
                f"the rows of shard {j} came back different when they were read again: persist "
                "the DataFrame, or write it to a file and read that."
            )


def _in_order(args: Args) -> Args:
    """Arrays without gaps: BLAS may round differently, so all engines get what a wire carries."""
    return tuple(
        np.ascontiguousarray(argument)
        if isinstance(argument, np.ndarray) and not argument.flags.forc
        else argument
        for argument in args
    )
