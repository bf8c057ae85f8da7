"""What an engine is: shards somewhere, and rounds over them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from dfwtrace._typing import Array, FloatArray


class Cost(NamedTuple):
    """What a round took: bytes on all wires, and seconds.

    `compute` is the slowest worker's, `reduce` what the master spent on adding up, `wait` the rest
    of the round: the network, and the master with nothing to do.
    """

    bytes: int = 0
    compute: float = 0.0
    wait: float = 0.0
    reduce: float = 0.0

    @classmethod
    def total(cls, costs: Iterable[Cost]) -> Cost:
        """What several rounds took together."""
        return cls(*map(sum, zip(*costs, strict=True)))


class Workers(Protocol):
    """Shards with a state each, and a program whose methods run on them by name.

    Before the first `build` a shard's state is the shard itself. Arguments are arrays and numbers,
    replies one float64 array each.
    """

    @property
    def shard_rows(self) -> list[int]:
        """Number of rows of every shard."""

    def build(self, method: str, *args: Array | float) -> None:
        """Make every shard's state anew: state ← program.method(shard, *args).

        Where the program has a true attribute ``reuses_memory``, it may also be given the state
        that there was, as ``old``, whose memory it may take. The new state is the same without it.
        """

    def apply(self, method: str, *args: Array | float) -> None:
        """Change every shard's state: state ← program.method(state, *args)."""

    def sum(self, method: str, *args: Array | float) -> FloatArray:
        """Σ program.method(state, *args) along the fixed tree over the shards."""

    def gather(self, method: str, *args: Array | float) -> list[FloatArray]:
        """The replies of program.method(state, *args), in the order of the shards."""

    @property
    def cost(self) -> Cost:
        """What the last round took."""

    def close(self) -> None:
        """Let go of everything that the workers hold."""


class Engine(Protocol):
    """A place where shards can live."""

    @property
    def n_shards(self) -> int:
        """Number of logical shards that the rows are cut into."""

    def start(self, program: Any, rows: Any) -> Workers:
        """Cut the rows (`ArrayRows`, or what the engine's own `survey` gave) into shards."""
