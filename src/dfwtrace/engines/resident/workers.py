"""Workers that outlive a crew: a lost crew is launched anew and brought to where it was."""

from __future__ import annotations

import time
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
        self._closed = False
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
        self._closed = True
        if crew is not None:
            crew.close()

    def _round(self, kind: Kind, method: str, args: tuple[Any, ...]) -> list[Node]:
        began, self.cost = time.perf_counter(), Cost()

        def ask() -> list[Node]:
            return self._counted(self._ready_crew(), kind, method, args)

        nodes = self._restarts.until_it_works(ask)
        # Whatever else it took, such as to start workers again, was spent waiting.
        _, compute, _, reduce = self.cost
        elapsed = time.perf_counter() - began
        self.cost = self.cost._replace(wait=max(0.0, elapsed - compute - reduce))
        return nodes

    def _counted(self, crew: Crew, kind: Kind, method: str, args: tuple[Any, ...]) -> list[Node]:
        nodes, cost = crew.round(kind, method, args, self._round_timeout)
        self.cost = Cost.total([self.cost, cost])
        return nodes

    def _ready_crew(self) -> Crew:
        """The crew, or a new one in the state of the one that was lost."""
        if self._closed:
            raise RuntimeError("the workers have been closed.")
        if self._crew is None:
            self._crew = self._launch()
            self._digests = self._digests or self._crew.digests
            check_same_rows(self._crew.digests, self._digests)
            for kind, (method, args) in self._changes:
                self._counted(self._crew, kind, method, args)
        return self._crew

    def _abandon(self) -> None:
        crew, self._crew = self._crew, None
        if crew is not None:
            crew.abandon()
