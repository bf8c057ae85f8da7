"""Rounds with resident workers; lost workers are launched again and brought to where they were."""

from __future__ import annotations

import time
from collections.abc import Callable

from dfwtrace._typing import FloatArray
from dfwtrace.engines.base import Args, Cost, Workers
from dfwtrace.engines.recovery import Restarts, check_same_rows
from dfwtrace.engines.resident.wire import Kind
from dfwtrace.engines.resident.worker_group import WorkerGroup
from dfwtrace.engines.tree import Node, TreeSum


class ResidentWorkers(Workers):
    """Rounds with resident workers, whatever becomes of them; `launch` starts a group.

    After a loss the new workers repeat the logged calls, so their states have the bits that the old
    ones had, which states built from the present W would not.
    """

    def __init__(
        self,
        launch: Callable[[], WorkerGroup],
        max_restarts: int,
        round_timeout: float | None,
    ) -> None:
        super().__init__([])
        self._launch, self._round_timeout = launch, round_timeout
        self._closed = False
        self._restarts = Restarts(max_restarts, self._abandon)
        self._group: WorkerGroup | None = None
        self._digests: list[bytes] | None = None
        self.shard_rows = self._restarts.retry(self._ready_group).shard_rows

    @property
    def restarts(self) -> int:
        """How often workers were lost and launched again."""
        return self._restarts.count

    def close(self) -> None:
        group, self._group = self._group, None
        self._closed = True
        if group is not None:
            group.close()

    def _build(self, method: str, args: Args) -> None:
        self._round(Kind.BUILD, method, args)

    def _apply(self, method: str, args: Args) -> None:
        self._round(Kind.APPLY, method, args)

    def _sum(self, method: str, args: Args) -> FloatArray:
        total = TreeSum(self.n_shards, self._round(Kind.SUM, method, args))
        self.cost = self.cost._replace(reduce=self.cost.reduce + total.seconds)
        return total.result()

    def _gather(self, method: str, args: Args) -> list[FloatArray]:
        nodes = self._round(Kind.GATHER, method, args)
        return [node.partial for node in sorted(nodes, key=lambda node: node.place)]

    def _round(self, kind: Kind, method: str, args: Args) -> list[Node]:
        began, self.cost = time.perf_counter(), Cost()
        nodes = self._restarts.retry(lambda: self._ask(self._ready_group(), kind, method, args))
        # Whatever else it took, such as to start workers again, was spent waiting.
        elapsed = time.perf_counter() - began
        wait = max(0.0, elapsed - self.cost.compute - self.cost.reduce)
        self.cost = self.cost._replace(wait=wait)
        return nodes

    def _ask(self, group: WorkerGroup, kind: Kind, method: str, args: Args) -> list[Node]:
        nodes, cost = group.round(kind, method, args, self._round_timeout)
        self.cost = Cost.total([self.cost, cost])
        return nodes

    def _ready_group(self) -> WorkerGroup:
        """The group, or a new one in the state of the one that was lost."""
        if self._closed:
            raise RuntimeError("the workers have been closed.")
        if self._group is None:
            self._group = self._launch()
            self._digests = self._digests or self._group.digests
            check_same_rows(self._group.digests, self._digests)
            for k, (method, args) in enumerate(self._log):
                self._ask(self._group, Kind.APPLY if k else Kind.BUILD, method, args)
        return self._group

    def _abandon(self) -> None:
        group, self._group = self._group, None
        if group is not None:
            group.abandon()
