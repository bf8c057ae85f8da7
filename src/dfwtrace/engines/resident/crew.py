"""The driver's side: a crew of workers from its assembly to its end, and rounds with it."""

from __future__ import annotations

import queue
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import numpy as np

from dfwtrace._typing import Array
from dfwtrace.engines.engine import Cost
from dfwtrace.engines.failures import CrewLostError, WorkerError
from dfwtrace.engines.resident.invitation import Invitation
from dfwtrace.engines.resident.reception import Caller, Reception
from dfwtrace.engines.resident.service import HEARTBEAT, unpack_reply
from dfwtrace.engines.resident.topology import DRIVER, parents
from dfwtrace.engines.resident.wire import (
    Frame,
    FrameReader,
    Kind,
    ProtocolError,
    Value,
    drop,
    pack,
    send,
)
from dfwtrace.engines.tree import Node

#: Seconds without a sign of life after which a worker counts as lost.
SILENCE = 15.0 * HEARTBEAT
# After a connection broke, seconds to wait for the word of the worker that broke it.
_GRACE = 2.0
# Seconds for workers that were told to stop to do so.
_FAREWELL = 10.0
_POLL = 0.02


class Job(Protocol):
    """What runs the workers: on Spark, a barrier job."""

    def failure(self) -> Exception | None:
        """What to raise if the job has ended before everybody came."""

    def cancel(self) -> None:
        """End the job now."""

    def join(self, timeout: float) -> bool:
        """Wait for its end; whether it has ended."""


@dataclass
class _Member:
    """A worker as the driver knows it."""

    index: int
    where: str
    address: str
    port: int
    control: socket.socket
    reader: FrameReader
    heard: float
    rows: list[int] | None = None
    digests: list[bytes] = field(default_factory=list)
    cut_off: bool = False


@dataclass(eq=False)
class _Link:
    """A way down to a worker right below the driver: requests out, replies in."""

    index: int
    sock: socket.socket
    reader: FrameReader
    unsent: list[memoryview] = field(default_factory=list)


class Crew:
    """Workers that have joined. Any failure ends the whole crew: `abandon` it and launch another.

    Parameters
    ----------
    invitation : Invitation
    reception : Reception
        Closed as soon as everybody is in.
    job : Job
    rows : callable, optional
        Gives, for a worker's index, the payloads of the frames that carry its rows; without it,
        workers get their rows elsewhere.
    """

    def __init__(
        self,
        invitation: Invitation,
        reception: Reception,
        job: Job,
        rows: Callable[[int], Iterable[list[Value]]] | None = None,
    ) -> None:
        self._invitation, self._reception, self._job = invitation, reception, job
        self._members: dict[int, _Member] = {}
        self._links: list[_Link] = []
        self._rows = rows
        self._above = parents(invitation.n_workers, invitation.fan_in)
        self._selector = selectors.DefaultSelector()
        self._sequence = 0
        self._busy = False  # in the middle of a round
        self._symptom: tuple[float, CrewLostError] | None = None  # to be raised at that time
        self._feeders: list[threading.Thread] = []
        self._feeding_error: BaseException | None = None
        try:
            self._assemble()
        except BaseException:
            self.abandon()
            raise

    @property
    def shard_rows(self) -> list[int]:
        return [n for i in sorted(self._members) for n in self._members[i].rows or []]

    @property
    def digests(self) -> list[bytes]:
        """A checksum for each shard."""
        return [digest for i in sorted(self._members) for digest in self._members[i].digests]

    # Assembly

    def _assemble(self) -> None:
        deadline = time.monotonic() + self._invitation.start_timeout
        n_workers = self._invitation.n_workers
        self._wait(
            lambda: len(self._members) == n_workers,
            deadline,
            lambda: f"{len(self._members)} of {n_workers} workers came",
        )
        # From here on heartbeats tell: loading may take as long as it takes.
        self._wait(lambda: all(m.rows is not None for m in self._members.values()))
        for member in self._members.values():
            parent = self._above[member.index]
            here = (self._invitation.host, self._invitation.port)
            boss = self._members.get(parent)
            host, port = here if boss is None else (boss.address, boss.port)
            send(member.control, pack(Kind.TREE, 0, [host, port]))
        deadline = time.monotonic() + self._invitation.start_timeout
        expected = self._above.count(DRIVER)
        self._wait(
            lambda: len(self._links) == expected,
            deadline,
            lambda: f"{len(self._links)} of {expected} workers linked up",
        )
        for feeder in self._feeders:
            feeder.join()
        self._links.sort(key=lambda link: link.index)
        self._reception.close()

    def _wait(
        self,
        enough: Callable[[], bool],
        deadline: float | None = None,
        count: Callable[[], str] | None = None,
    ) -> None:
        self._hear_all()
        while not enough():
            with suppress(queue.Empty):
                self._welcome(self._reception.callers.get(timeout=_POLL))
            self._listen(0.0)
            self._check()
            if self._feeding_error is not None:
                raise self._feeding_error
            failure = self._job.failure()
            if failure is not None:
                self._hear_out()
                raise failure
            if deadline is not None and count is not None and time.monotonic() > deadline:
                raise WorkerError(  # trying again would take as long and end the same
                    f"{count()} within {self._invitation.start_timeout:g} s (start_timeout): are "
                    "there so many free slots in the cluster, and can the executors reach "
                    f"{self._invitation.host}:{self._invitation.port}?"
                )

    def _hear_out(self) -> None:
        """The job has ended. A worker's own word comes first, and may be on its way still."""
        end = time.monotonic() + _GRACE
        while self._selector.get_map() and time.monotonic() < end:
            try:
                self._listen(_POLL)
            except CrewLostError as lost:
                if lost.traceback is not None:
                    raise

    def _welcome(self, caller: Caller) -> None:
        """Know a caller as a worker, or as the link of one that is known; hang up on others."""
        reader = FrameReader(self._invitation.largest_message)
        index = caller.hello[0] if caller.hello else None
        if not isinstance(index, int) or not 0 <= index < self._invitation.n_workers:
            caller.sock.close()
            return
        if len(caller.hello) == 4 and index not in self._members:
            _, host, pid, port = caller.hello
            member = _Member(
                index,
                f"worker {index} ({host}, process {pid})",
                caller.address,
                cast(int, port),
                caller.sock,
                reader,
                time.monotonic(),
            )
            self._members[index] = member
            self._selector.register(caller.sock, selectors.EVENT_READ, member)
            if self._rows is not None:
                self._feed(member, self._rows(index))
        elif len(caller.hello) == 1 and self._may_link(index):
            link = _Link(index, caller.sock, reader)
            self._links.append(link)
            self._selector.register(caller.sock, selectors.EVENT_READ, link)
        else:
            caller.sock.close()

    def _may_link(self, index: int) -> bool:
        """Whether a worker hangs below the driver itself and does not yet."""
        return (
            index in self._members
            and self._above[index] == DRIVER
            and all(link.index != index for link in self._links)
        )

    def _feed(self, member: _Member, payloads: Iterable[list[Value]]) -> None:
        """Send a worker its rows, beside all others."""

        def run() -> None:
            try:
                for payload in payloads:
                    send(member.control, pack(Kind.ROWS, 0, payload))
            except OSError:
                pass  # the worker's end of the line tells why
            except BaseException as error:
                self._feeding_error = error

        feeder = threading.Thread(target=run, name="dfwtrace-feed", daemon=True)
        self._feeders.append(feeder)
        feeder.start()

    # Rounds

    def round(
        self, kind: Kind, method: str, args: tuple[Any, ...], timeout: float | None
    ) -> tuple[list[Node], Cost]:
        """Ask all workers; the nodes that they answer with, in the order of arrival."""
        began = time.perf_counter()
        self._sequence += 1
        self._busy = True
        request = pack(kind, self._sequence, [method, *args])
        wire = len(self._links) * sum(len(buffer) for buffer in request)
        for link in self._links:
            link.unsent = list(request)
            self._push(link)
        compute = reduce = 0.0
        nodes: list[Node] = []
        for link, reply in self._replies(method, timeout):
            at = time.perf_counter()
            try:
                slowest, below, theirs = unpack_reply(reply, self._sequence)
            except ProtocolError as error:
                raise CrewLostError(f"{self._members[link.index].where} sent {error}") from error
            compute, wire = max(compute, slowest), wire + below
            nodes += theirs
            reduce += time.perf_counter() - at
        self._busy = False
        elapsed = time.perf_counter() - began
        return nodes, Cost(wire, compute, max(0.0, elapsed - compute - reduce), reduce)

    def _replies(self, method: str, timeout: float | None) -> Iterator[tuple[_Link, Frame]]:
        due = set(self._links)
        self._hear_all()
        deadline = None if timeout is None else time.monotonic() + timeout
        while due:
            for link, frame in self._listen(HEARTBEAT if self._symptom is None else _POLL):
                if link not in due:
                    where = self._members[link.index].where
                    raise CrewLostError(f"{where} sent a reply that nobody asked for")
                due.remove(link)
                yield link, frame
            self._check()
            if due and deadline is not None and time.monotonic() > deadline:
                late = ", ".join(self._members[link.index].where for link in due)
                raise CrewLostError(
                    f"{late}: no answer to {method} within {timeout:g} s (round_timeout)"
                )

    def _push(self, link: _Link) -> None:
        """Send what the socket takes now, and the rest when it takes more."""
        try:
            sent = link.sock.sendmsg(link.unsent[:512], [], socket.MSG_DONTWAIT)
            link.unsent = drop(link.unsent, sent)
        except BlockingIOError:
            pass
        except OSError as error:
            self._lose(link, error)
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if link.unsent else 0)
        if self._selector.get_key(link.sock).events != events:
            self._selector.modify(link.sock, events, link)

    def _listen(self, timeout: float) -> list[tuple[_Link, Frame]]:
        """Replies that have come in; what workers say beside them is heeded."""
        replies = []
        for key, events in self._selector.select(timeout):
            peer = key.data
            if isinstance(peer, _Member):
                self._heed(peer)
                continue
            if events & selectors.EVENT_WRITE:
                self._push(peer)
            if events & selectors.EVENT_READ:
                frame = self._read(peer)
                if frame is not None:
                    replies.append((peer, frame))
        return replies

    def _read(self, link: _Link) -> Frame | None:
        try:
            frame = link.reader.read(link.sock)
            # A header, most often with all of its payload behind it.
            return link.reader.read(link.sock, socket.MSG_DONTWAIT) if frame is None else frame
        except BlockingIOError:
            return None
        except (OSError, ProtocolError) as error:
            self._lose(link, error)
            return None

    def _lose(self, link: _Link, error: Exception) -> None:
        self._forget(link.sock)
        self._suspect(CrewLostError(f"{self._members[link.index].where} is gone: {error}"))

    # What workers say beside their replies

    def _heed(self, member: _Member) -> None:
        try:
            frame = member.reader.read(member.control)
        except (OSError, ProtocolError) as error:
            self._forget(member.control)
            if not member.cut_off:
                raise CrewLostError(f"{member.where} is gone: {error}") from None
            return
        member.heard = time.monotonic()
        if frame is None or frame.kind == Kind.ALIVE:
            return
        try:
            self._take_in(member, frame)
        except (ProtocolError, ValueError, IndexError) as error:
            raise CrewLostError(
                f"{member.where} sent a {frame.kind.name} that makes no sense ({error})"
            ) from error

    def _take_in(self, member: _Member, frame: Frame) -> None:
        values = frame.values()
        if frame.kind == Kind.READY:
            rows, digests = (cast(Array, value) for value in values)
            member.digests = [row.tobytes() for row in np.reshape(digests, (-1, 16))]
            member.rows = [int(n) for n in rows]
        elif frame.kind == Kind.FAILED:
            raise CrewLostError(f"{member.where} raised", str(values[0]))
        elif frame.kind == Kind.CUT_OFF:
            member.cut_off = True
            self._suspect(CrewLostError(f"{member.where} lost its connection: {values[0]}"))

    def _suspect(self, symptom: CrewLostError) -> None:
        """A line broke. The worker that is to blame has a little time to say why."""
        if self._symptom is None:
            self._symptom = (time.monotonic() + _GRACE, symptom)

    def _forget(self, sock: socket.socket) -> None:
        with suppress(KeyError, ValueError):
            self._selector.unregister(sock)

    def _check(self) -> None:
        """Raise what has become certain."""
        now = time.monotonic()
        if self._symptom is not None and now > self._symptom[0]:
            raise self._symptom[1]
        for member in self._members.values():
            if now - member.heard > SILENCE:
                raise CrewLostError(f"{member.where} has given no sign of life for {SILENCE:g} s")

    def _hear_all(self) -> None:
        """Between rounds nobody listened: the clocks of silence start anew."""
        now = time.monotonic()
        for member in self._members.values():
            member.heard = now

    # The end

    def close(self) -> None:
        """Tell the workers to stop, and see that they do."""
        if self._busy:
            self.abandon()
            return
        self._sequence += 1
        for link in self._links:
            with suppress(OSError):
                link.sock.settimeout(_FAREWELL)
                send(link.sock, pack(Kind.STOP, self._sequence))
        ended = self._job.join(_FAREWELL)
        self._hang_up()
        if not ended:
            self._job.cancel()
            self._job.join(_FAREWELL)

    def abandon(self) -> None:
        """End the job and close all connections, whatever the workers are doing."""
        self._hang_up()
        self._job.cancel()
        self._job.join(_FAREWELL)

    def _hang_up(self) -> None:
        self._reception.close()
        peers = [link.sock for link in self._links]
        for sock in peers + [member.control for member in self._members.values()]:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)  # also wakes a feeder that is sending
            sock.close()
        for feeder in self._feeders:
            feeder.join()
        self._selector.close()
