"""The driver's side: workers join, get their rows, link up to a tree, and answer rounds.

Lost workers are launched again and brought to where they were.
"""

from __future__ import annotations

import queue
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Protocol, cast

from dfwtrace.engines.base import Args, Cost, RecoveringWorkers, WorkerError, WorkersLostError
from dfwtrace.engines.resident import connections, links, wire, worker
from dfwtrace.engines.resident.connections import DRIVER, Caller, JoinInfo, Listener
from dfwtrace.engines.resident.links import Links, Member
from dfwtrace.engines.resident.wire import Kind, Value, pack, send
from dfwtrace.engines.resident.worker import unpack_reply
from dfwtrace.engines.tree import Node
from dfwtrace.threads import DeferredInterrupt

_POLL = 0.02
# Part of `start_timeout` after which a job is asked again whether it is preparing something.
_ASK = 0.1
# Seconds for workers to stop, and for a job that was cancelled to end.
_FAREWELL = 10.0
# Seconds after which a job is cancelled again: Spark can cancel only a job that it knows already.
_CANCEL_AGAIN = 0.1

#: Gives, for a worker's index, the payloads of the frames that carry its rows.
Rows = Callable[[int], Iterable[list[Value]]]


class Job(Protocol):
    """What runs the workers: on Spark, a barrier job."""

    def start(self) -> None: ...

    def failure(self) -> Exception | None:
        """What to raise if the job has ended before all workers joined."""

    def preparing(self) -> bool:
        """Whether something that must be done before workers can join is being done."""

    def cancel(self) -> None:
        """End the job, or see that it never begins. May be called again."""

    def join(self, timeout: float) -> bool: ...


class ResidentWorkers(RecoveringWorkers):
    """Rounds with resident workers, whatever becomes of them; `launch` starts a group.

    After a loss new workers repeat the logged calls: states built from W would have other bits.
    """

    def __init__(
        self, launch: Callable[[], WorkerGroup], max_restarts: int, round_timeout: float | None
    ) -> None:
        super().__init__([], max_restarts)
        self._launch, self._round_timeout = launch, round_timeout
        self._closed = False
        self._group: WorkerGroup | None = None
        self.shard_rows = self._recover(self._ready_group).shard_rows

    def close(self) -> None:
        group, self._group, self._closed = self._group, None, True
        if group is not None:
            group.close()

    def _change(self, method: str, args: Args, build: bool) -> None:
        self._round(Kind.BUILD if build else Kind.APPLY, method, args)

    def _replies(self, method: str, args: Args, add: bool) -> list[Node]:
        return self._round(Kind.SUM if add else Kind.GATHER, method, args)

    def _round(self, kind: Kind, method: str, args: Args) -> list[Node]:
        began, self.cost = time.perf_counter(), Cost()
        nodes = self._recover(lambda: self._ask(self._ready_group(), kind, method, args))
        # Whatever else it took, such as to start workers again, was spent waiting.
        wait = time.perf_counter() - began - self.cost.compute - self.cost.reduce
        self.cost = self.cost._replace(wait=max(0.0, wait))
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
            self._check_digests(self._group.digests)
            for k, (method, args) in enumerate(self._log):
                self._ask(self._group, Kind.APPLY if k else Kind.BUILD, method, args)
        return self._group

    def _abandon(self) -> None:
        group, self._group = self._group, None
        if group is not None:
            group.abandon()


class WorkerGroup:
    """Workers that have joined. Any failure ends the whole group: `abandon` it, launch another.

    The job is started here, and the listener closed as soon as all workers have joined. Without
    `rows`, workers get theirs elsewhere.
    """

    def __init__(
        self, info: JoinInfo, listener: Listener, job: Job, rows: Rows | None = None
    ) -> None:
        self._info, self._listener, self._job, self._rows = info, listener, job, rows
        self._above = connections.parents(info.n_workers, info.fan_in)
        self._links = Links()
        self._pool = ThreadPoolExecutor(info.n_workers, "dfwtrace-rows")
        self._sent: list[Future[None]] = []  # once they are done, the rows of a worker each
        self._sequence = 0
        self._busy = False  # in the middle of a round
        try:
            self._assemble()
        except BaseException:
            self.abandon()
            raise
        members = [member for _, member in sorted(self._links.members.items())]
        self.shard_rows = [n for member in members for n in member.rows or []]
        self.digests = [digest for member in members for digest in member.digests]

    # How the workers join.

    def _assemble(self) -> None:
        members, n_workers = self._links.members, self._info.n_workers
        self._job.start()
        self._wait(lambda: len(members) == n_workers, f"of {n_workers} workers came")
        # From here on there are heartbeats: loading may take as long as it takes.
        self._wait(lambda: all(member.rows is not None for member in members.values()))
        for member in members.values():
            self._send_parent(member)
        expected = self._above.count(DRIVER)
        self._wait(lambda: len(self._links.linked) == expected, f"of {expected} workers linked up")
        self._pool.shutdown()
        self._listener.close()

    def _wait(self, enough: Callable[[], bool], wanted: str | None = None) -> None:
        """Let callers in until there are enough; in `start_timeout`, if something is wanted."""
        patience = self._info.start_timeout
        prepared = asked = time.monotonic()
        self._links.restart_clocks()
        while not enough():
            with DeferredInterrupt():  # Ctrl-C must not keep a lock that another thread waits for
                self._let_in()
                self._links.listen(0.0)
                for sent in self._sent:
                    if sent.done():
                        sent.result()
                failure = self._job.failure()
            if failure is not None:
                self._hear_last_words()
                raise failure
            now = time.monotonic()
            if wanted is None or now < asked + _ASK * patience:
                continue
            asked = now
            if self._job.preparing():
                prepared = now
            elif now > prepared + patience:
                self._time_out(wanted)

    def _hear_last_words(self) -> None:
        """The job has ended. A worker's own error comes first, and may be on its way still."""
        end = time.monotonic() + links.GRACE
        while time.monotonic() < end and not self._links.all_lost:
            self._let_in()
            try:
                self._links.listen(0.0)
            except WorkersLostError as lost:
                if lost.traceback is not None:
                    raise

    def _time_out(self, wanted: str) -> None:  # trying again would end the same
        info, members = self._info, self._links.members
        count = len(members if len(members) < info.n_workers else self._links.linked)
        why = (
            f"has the cluster {info.n_workers} free slots, and can the executors reach "
            f"{info.host}:{info.port}?"
        )
        if self._listener.trouble is not None:
            why = f"the driver could not let more in ({self._listener.trouble})."
        raise WorkerError(
            f"{count} {wanted} within {info.start_timeout:g} s (start_timeout): {why}"
        )

    def _let_in(self) -> None:
        with DeferredInterrupt(), suppress(queue.Empty):  # Ctrl-C must not lose a caller
            self._welcome(self._listener.callers.get(timeout=_POLL))

    def _welcome(self, caller: Caller) -> None:
        """Know a caller as a worker, or as the link of one that is known; drop all others."""
        index, *said = caller.hello or [-1]
        known = isinstance(index, int) and 0 <= index < self._info.n_workers
        member = self._links.members.get(cast(int, index)) if known else None
        reader = wire.FrameReader(caller.sock, self._info.largest_message)
        if known and member is None and [*map(type, said)] == [str, int, int, str]:
            self._admit(caller, reader)
        elif member and not said and member.link is None and self._above[member.index] == DRIVER:
            member.link = reader
            self._links.add(member, reader)
        else:
            caller.sock.close()

    def _admit(self, caller: Caller, reader: wire.FrameReader) -> None:
        index, host, pid, port, version = cast(tuple[int, str, int, int, str], caller.hello)
        where = f"worker {index} ({host}, process {pid % 2**32})"
        first, last = self._info.shards_of(index)
        now = time.monotonic()
        member = Member(index, where, caller.address, port, last - first, reader, now)
        self._links.add(member, reader)
        if version != (ours := connections.VERSION):
            both = f"{where} has dfwtrace {version} and the driver {ours}"
            raise WorkerError(f"{both}: install the same version on the cluster.")
        if self._rows is not None:
            self._sent.append(self._pool.submit(_send_rows, caller.sock, self._rows(index)))

    def _send_parent(self, member: Member) -> None:
        parent = self._links.members.get(self._above[member.index])
        here = (self._info.host, self._info.port)
        host, port = here if parent is None else (parent.address, parent.port)
        try:
            send(member.control.sock, pack(Kind.TREE, 0, [host, port]))
        except OSError as error:
            raise WorkersLostError(f"{member.where} is gone: {error}") from error

    # Rounds.

    def round(
        self, kind: Kind, method: str, args: Args, timeout: float | None
    ) -> tuple[list[Node], Cost]:
        """Ask all workers; what they answer in the order of arrival, and the cost but for waits."""
        request = pack(kind, self._sequence + 1, [method, *args])
        size = sum(map(len, request))
        if size > self._info.largest_message:
            raise ValueError(
                f"largest_message must be at least {size} bytes for the arguments of {method}, "
                f"got {self._info.largest_message}."
            )
        self._sequence += 1
        self._busy = True
        asked = self._links.ask(request)
        total, compute, reduce = len(asked) * size, 0.0, 0.0
        nodes: list[Node] = []
        for member, reply in self._replies(asked, method, timeout):
            at = time.perf_counter()
            try:
                slowest, below, theirs = unpack_reply(reply, self._sequence)
            except wire.ProtocolError as error:
                raise WorkersLostError(f"{member.where} sent {error}") from error
            compute, total = max(compute, slowest), total + below
            nodes += theirs
            reduce += time.perf_counter() - at
        self._busy = False
        return nodes, Cost(total, compute, reduce=reduce)

    def _replies(
        self, asked: list[Member], method: str, timeout: float | None
    ) -> Iterator[tuple[Member, wire.Frame]]:
        due = set(asked)
        self._links.restart_clocks()
        deadline = None if timeout is None else time.monotonic() + timeout
        while due:
            for member, frame in self._links.listen(worker.INTERVAL):
                if member not in due:
                    raise WorkersLostError(f"{member.where} sent a reply that nobody asked for")
                due.remove(member)
                yield member, frame
            if due and deadline is not None and time.monotonic() > deadline:
                late = ", ".join(sorted(member.where for member in due))
                missing = f"no answer to {method} within {timeout:g} s (round_timeout)"
                raise WorkersLostError(f"{late}, or workers below: {missing}")

    # The end.

    def close(self) -> None:
        """Let the workers stop by themselves; `abandon` those that are busy or do not."""
        stopped = False
        try:
            stopped = not self._busy and self._stop()
        finally:
            self._disconnect() if stopped else self.abandon()

    def _stop(self) -> bool:
        for member in self._links.linked:
            assert member.link is not None
            with suppress(OSError):
                member.link.sock.settimeout(_FAREWELL)
                send(member.link.sock, pack(Kind.STOP, self._sequence + 1))
        return self._job.join(_FAREWELL)

    def abandon(self) -> None:
        """End the job and close all connections, whatever the workers are doing."""
        self._job.cancel()
        self._disconnect()
        deadline = time.monotonic() + _FAREWELL
        while not self._job.join(_CANCEL_AGAIN) and time.monotonic() < deadline:
            self._job.cancel()

    def _disconnect(self) -> None:
        self._links.close()
        self._listener.close()
        self._pool.shutdown()  # the connections that rows are sent on are closed


def _send_rows(sock: socket.socket, payloads: Iterable[list[Value]]) -> None:
    with suppress(OSError):  # the worker's end of the connection says why
        for payload in payloads:
            send(sock, pack(Kind.ROWS, 0, payload))
