"""The driver's side: workers join, get their rows, link up to a tree, and answer rounds."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Protocol, cast

from dfwtrace.engines.base import Args, Cost, WorkerError
from dfwtrace.engines.local import DeferredInterrupt
from dfwtrace.engines.recovery import WorkersLostError
from dfwtrace.engines.resident import heartbeat, links
from dfwtrace.engines.resident.connections import Caller, Listener
from dfwtrace.engines.resident.links import Link, Links, Member
from dfwtrace.engines.resident.topology import DRIVER, VERSION, JoinInfo, parents
from dfwtrace.engines.resident.wire import (
    Frame,
    FrameReader,
    Kind,
    ProtocolError,
    Value,
    pack,
    send,
)
from dfwtrace.engines.resident.worker import unpack_reply
from dfwtrace.engines.tree import Node

_POLL = 0.02
# Seconds for a worker to be heard that had not even been let in when the job ended.
_GRACE_FOR_NOBODY = 0.5
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

    def start(self) -> None:
        """Begin; called once."""

    def failure(self) -> Exception | None:
        """What to raise if the job has ended before all workers joined."""

    def preparing(self) -> bool:
        """Whether something that must be done before workers can join is being done."""

    def cancel(self) -> None:
        """End the job, or see that it never begins. May be called again."""

    def join(self, timeout: float) -> bool:
        """Wait for its end; whether it has ended."""


class WorkerGroup:
    """Workers that have joined. Any failure ends the whole group: `abandon` it, launch another.

    The job is started here, and the listener closed as soon as all workers have joined. Without
    `rows`, workers get theirs elsewhere.
    """

    def __init__(
        self, info: JoinInfo, listener: Listener, job: Job, rows: Rows | None = None
    ) -> None:
        self._info, self._listener, self._job, self._rows = info, listener, job, rows
        self._above = parents(info.n_workers, info.fan_in)
        self._links = Links()
        self._senders: list[threading.Thread] = []
        self._sending_error: BaseException | None = None
        self._sequence = 0
        self._busy = False  # in the middle of a round
        try:
            self._assemble()
        except BaseException:
            self.abandon()
            raise

    @property
    def shard_rows(self) -> list[int]:
        members = self._links.members
        return [n for i in sorted(members) for n in members[i].rows or []]

    @property
    def digests(self) -> list[bytes]:
        """A checksum for each shard."""
        members = self._links.members
        return [digest for i in sorted(members) for digest in members[i].digests]

    # How the workers join.

    def _assemble(self) -> None:
        members, tree, n_workers = self._links.members, self._links.links, len(self._above)
        self._job.start()
        self._wait(lambda: len(members) == n_workers, f"of {n_workers} workers came")
        # From here on there are heartbeats: loading may take as long as it takes.
        self._wait(lambda: all(member.rows is not None for member in members.values()))
        for member in members.values():
            self._send_parent(member)
        expected = self._above.count(DRIVER)
        self._wait(lambda: len(tree) == expected, f"of {expected} workers linked up")
        for sender in self._senders:
            sender.join()
        tree.sort(key=lambda link: link.index)
        self._listener.close()

    def _wait(self, enough: Callable[[], bool], wanted: str | None = None) -> None:
        """Let callers in until there are enough; in `start_timeout`, if something is wanted."""
        patience = self._info.start_timeout
        prepared = asked = time.monotonic()
        self._links.restart_clocks()
        while not enough():
            self._let_in()
            self._links.listen(0.0)
            self._links.check()
            if self._sending_error is not None:
                raise self._sending_error
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
        end = time.monotonic() + (links.GRACE if self._links.members else _GRACE_FOR_NOBODY)
        while time.monotonic() < end:
            self._let_in()
            try:
                self._links.listen(0.0)
            except WorkersLostError as lost:
                if lost.traceback is not None:
                    raise
            if self._links.members and not self._links.any_open:
                return

    def _time_out(self, wanted: str) -> None:
        """Trying again would take as long and end the same."""
        members, tree = self._links.members, self._links.links
        count = len(members if len(members) < len(self._above) else tree)
        trouble = self._listener.trouble
        raise WorkerError(
            f"{count} {wanted} within {self._info.start_timeout:g} s (start_timeout): "
            + (
                f"the driver could not let more in ({trouble})."
                if trouble is not None
                else f"has the cluster {self._info.n_workers} free slots, and can the executors "
                f"reach {self._info.host}:{self._info.port}?"
            )
        )

    def _let_in(self) -> None:
        with DeferredInterrupt(), suppress(queue.Empty):  # Ctrl-C must not lose a caller
            self._welcome(self._listener.callers.get(timeout=_POLL))

    def _welcome(self, caller: Caller) -> None:
        """Know a caller as a worker, or as the link of one that is known; drop all others."""
        reader = FrameReader(self._info.largest_message)
        index = caller.hello[0] if caller.hello else None
        if not isinstance(index, int) or not 0 <= index < self._info.n_workers:
            caller.sock.close()
        elif [type(said) for said in caller.hello[1:]] == [str, int, int, str] and (
            index not in self._links.members
        ):
            self._admit(index, caller, reader)
        elif len(caller.hello) == 1 and self._may_link(index):
            self._links.add_link(Link(index, caller.sock, reader))
        else:
            caller.sock.close()

    def _admit(self, index: int, caller: Caller, reader: FrameReader) -> None:
        _, host, pid, port, version = caller.hello
        where = f"worker {index} ({host}, process {cast(int, pid) % 2**32})"
        first, last = self._info.shards_of(index)
        n_shards, now = last - first, time.monotonic()
        self._links.add_member(
            Member(
                index, where, caller.address, cast(int, port), n_shards, caller.sock, reader, now
            )
        )
        if version != VERSION:  # they might not understand each other
            raise WorkerError(
                f"{where} has dfwtrace {version} and the driver {VERSION}: install the same "
                "version on the cluster."
            )
        if self._rows is not None:
            self._send_rows(caller, self._rows(index))

    def _may_link(self, index: int) -> bool:
        """Whether a worker is right below the driver and has no link yet."""
        return (
            index in self._links.members
            and self._above[index] == DRIVER
            and all(link.index != index for link in self._links.links)
        )

    def _send_rows(self, caller: Caller, payloads: Iterable[list[Value]]) -> None:
        """Send a worker its rows, in a thread of its own."""

        def run() -> None:
            try:
                for payload in payloads:
                    send(caller.sock, pack(Kind.ROWS, 0, payload))
            except OSError:
                pass  # the worker's end of the connection says why
            except BaseException as error:
                self._sending_error = error

        sender = threading.Thread(target=run, name="dfwtrace-rows", daemon=True)
        self._senders.append(sender)
        sender.start()

    def _send_parent(self, member: Member) -> None:
        """Say where a worker's parent listens."""
        parent = self._links.members.get(self._above[member.index])
        here = (self._info.host, self._info.port)
        host, port = here if parent is None else (parent.address, parent.port)
        try:
            send(member.control, pack(Kind.TREE, 0, [host, port]))
        except OSError as error:
            raise WorkersLostError(f"{member.where} is gone: {error}") from error

    # Rounds.

    def round(
        self, kind: Kind, method: str, args: Args, timeout: float | None
    ) -> tuple[list[Node], Cost]:
        """Ask all workers; the nodes that they answer with, in the order of arrival."""
        began = time.perf_counter()
        request = pack(kind, self._sequence + 1, [method, *args])
        size = sum(len(buffer) for buffer in request)
        if size > self._info.largest_message:
            raise ValueError(
                f"largest_message must be at least {size} bytes for the arguments of {method}, "
                f"got {self._info.largest_message}."
            )
        self._sequence += 1
        self._busy = True
        wire = len(self._links.links) * size
        for link in self._links.links:
            self._links.ask(link, request)
        compute = reduce = 0.0
        nodes: list[Node] = []
        for link, reply in self._replies(method, timeout):
            at = time.perf_counter()
            try:
                slowest, below, theirs = unpack_reply(reply, self._sequence)
            except ProtocolError as error:
                raise WorkersLostError(f"{self._links.where(link)} sent {error}") from error
            compute, wire = max(compute, slowest), wire + below
            nodes += theirs
            reduce += time.perf_counter() - at
        self._busy = False
        elapsed = time.perf_counter() - began
        return nodes, Cost(wire, compute, max(0.0, elapsed - compute - reduce), reduce)

    def _replies(self, method: str, timeout: float | None) -> Iterator[tuple[Link, Frame]]:
        due = set(self._links.links)
        self._links.restart_clocks()
        deadline = None if timeout is None else time.monotonic() + timeout
        while due:
            for link, frame in self._links.listen(heartbeat.INTERVAL):
                if link not in due:
                    where = self._links.where(link)
                    raise WorkersLostError(f"{where} sent a reply that nobody asked for")
                due.remove(link)
                yield link, frame
            self._links.check()
            if due and deadline is not None and time.monotonic() > deadline:
                late = ", ".join(sorted(self._links.where(link) for link in due))
                raise WorkersLostError(
                    f"{late}, or workers below: no answer to {method} within {timeout:g} s "
                    "(round_timeout)"
                )

    # The end.

    def close(self) -> None:
        """Stop the workers, and see that they do."""
        try:
            if not self._busy and self._stop():
                self._disconnect()
                return
        except BaseException:
            self.abandon()
            raise
        self.abandon()

    def _stop(self) -> bool:
        self._sequence += 1
        for link in self._links.links:
            with suppress(OSError):
                link.sock.settimeout(_FAREWELL)
                send(link.sock, pack(Kind.STOP, self._sequence))
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
        for sender in self._senders:  # the connections that they send on are closed
            if sender.ident is not None:  # Ctrl-C may come before it is started
                sender.join()
