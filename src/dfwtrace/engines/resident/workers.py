"""Workers that outlive a crew: a lost crew is launched anew and brought to where it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dfwtrace._typing import Array, FloatArray
from dfwtrace.engines.engine import Cost
from dfwtrace.engines.recovery import Change, Restarts, check_same_rows
from dfwtrace.engines.resident.crew import Crew
from dfwtrace.engines.resident.wire import Kind
from dfwtrace.engines.tree import Node, TreeSum


class ResidentWorkers:
    """Rounds with resident workers, whatever becomes of them.

    All that has changed the shards' states since they were last built from W is kept: W, and the
    atoms since. After a loss the new crew goes through it again, so that its states have the bits
    that the old ones had, which a state built from the present W would not.

    Parameters
    ----------
    launch : callable
        Starts a crew.
    n_shards : int
    max_restarts : int
        Crews that may be lost in a run.
    round_timeout : float or None
        Seconds that a round may take.
    """

    def __init__(
        self,
        launch: Callable[[], Crew],
        n_shards: int,
        max_restarts: int,
        round_timeout: float | None,
    ) -> None:
        self._launch, self._n_shards = launch, n_shards
        self._round_timeout = round_timeout
        self.cost = Cost()
        self._restarts = Restarts(max_restarts, self._abandon)
        self._changes: list[tuple[Kind, Change]] = []
        self._crew: Crew | None = None
        self._digests: list[bytes] | None = None
        self.shard_rows: list[int] = self._restarts.until_it_works(self._ready_crew).shard_rows

    @property
    def restarts(self) -> int:
        """How often a crew was lost and launched again."""
        return self._restarts.count

    def build(self, method: str, *args: Array | float) -> None:
        self._round(Kind.BUILD, method, args)
        self._changes = [(Kind.BUILD, Change.kept(method, args))]

    def apply(self, method: str, *args: Array | float) -> None:
        self._round(Kind.APPLY, method, args)
        self._changes.append((Kind.APPLY, Change.kept(method, args)))

    def sum(self, method: str, *args: Array | float) -> FloatArray:
        total = TreeSum(self._n_shards)
        for node in self._round(Kind.SUM, method, args):
            total.add_node(node)
        self.cost = self.cost._replace(reduce=self.cost.reduce + total.seconds)
        return total.result()

    def gather(self, method: str, *args: Array | float) -> list[FloatArray]:
        nodes = self._round(Kind.GATHER, method, args)
        return [node.partial for node in sorted(nodes, key=lambda node: node.place)]

    def close(self) -> None:
        crew, self._crew = self._crew, None
        self._changes = []
        if crew is not None:
            crew.close()

    def _round(self, kind: Kind, method: str, args: tuple[Any, ...]) -> list[Node]:
        def ask() -> list[Node]:
            crew = self._ready_crew()
            nodes, self.cost = crew.round(kind, method, args, self._round_timeout)
            return nodes

        return self._restarts.until_it_works(ask)

    def _ready_crew(self) -> Crew:
        """The crew, or a new one in the state of the one that was lost."""
        if self._crew is None:
            self._crew = self._launch()
            self._digests = self._digests or self._crew.digests
            check_same_rows(self._crew.digests, self._digests)
            for kind, (method, args) in self._changes:
                self._crew.round(kind, method, args, self._round_timeout)
        return self._crew

    def _abandon(self) -> None:
        crew, self._crew = self._crew, None
        if crew is not None:
            crew.abandon()
