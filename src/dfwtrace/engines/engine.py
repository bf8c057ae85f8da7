"""What an engine is: shards somewhere, and rounds over them."""

from __future__ import annotations

from typing import Any, Protocol

from dfwtrace._typing import Array, FloatArray, Matrix


class Workers(Protocol):
    """Shards with a state each, and a program whose methods run on them by name.

    Before the first `build` a shard's state is the shard itself. Arguments are arrays and numbers,
    replies one float64 array each.
    """

    @property
    def shard_rows(self) -> list[int]:
        """Number of rows of every shard."""

    def build(self, method: str, *args: Array | float) -> None:
        """Make every shard's state anew: state ← program.method(shard, *args)."""

    def apply(self, method: str, *args: Array | float) -> None:
        """Change every shard's state: state ← program.method(state, *args)."""

    def sum(self, method: str, *args: Array | float) -> FloatArray:
        """Σ program.method(state, *args) along the fixed tree over the shards."""

    def gather(self, method: str, *args: Array | float) -> list[FloatArray]:
        """The replies of program.method(state, *args), in the order of the shards."""

    def close(self) -> None:
        """Let go of everything that the workers hold."""


class Engine(Protocol):
    """A place where shards can live."""

    @property
    def n_shards(self) -> int:
        """Number of logical shards that the rows are cut into."""

    def start(self, program: Any, X: Matrix, y: Array | None) -> Workers:
        """Cut the rows into shards and get ready for rounds."""
