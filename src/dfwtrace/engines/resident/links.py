"""The driver's connections to its workers: what comes in, and what that says about the workers."""

from __future__ import annotations

import selectors
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from dfwtrace._typing import Array
from dfwtrace.engines.base import WorkersLostError
from dfwtrace.engines.resident import wire
from dfwtrace.engines.resident.wire import Frame, FrameReader, Kind, ProtocolError

#: Seconds without a heartbeat after which a worker counts as lost.
SILENCE = 15.0
#: Seconds without use of the processor at work after which it counts as hung, as for Spark itself.
STALL = 120.0
#: After a connection broke, seconds to wait for the traceback of the worker that broke it.
GRACE = 2.0
_POLL = 0.02


@dataclass(eq=False)
class Member:
    """A worker as the driver knows it.

    `control` is for all that is no round. A worker right below the driver also has a `link`, for
    rounds: over one connection, a round of 100,000 numbers takes 1.5 times as long.
    """

    index: int
    where: str
    address: str
    port: int
    n_shards: int
    control: FrameReader
    heard: float
    rows: list[int] | None = None
    digests: list[bytes] = field(default_factory=list)
    cut_off: bool = False
    link: FrameReader | None = None
    unsent: list[memoryview] = field(default_factory=list)


class Links:
    """All connections of a group of workers, listened to at once."""

    def __init__(self) -> None:
        self.members: dict[int, Member] = {}
        self._selector = selectors.DefaultSelector()
        self._symptom: tuple[float, WorkersLostError] | None = None  # to be raised at that time

    @property
    def linked(self) -> list[Member]:
        """The workers right below the driver, in their order."""
        return [member for _, member in sorted(self.members.items()) if member.link is not None]

    def add(self, member: Member, reader: FrameReader) -> None:
        """Listen to a member's `control`, or to its `link`."""
        self.members[member.index] = member
        self._selector.register(reader.sock, selectors.EVENT_READ, (member, reader))

    def ask(self, request: list[memoryview]) -> list[Member]:
        """Send all a request as far as their sockets take it; `listen` sends the rest."""
        asked = self.linked
        for member in asked:
            member.unsent = request
            self._push(member)
        return asked

    def listen(self, timeout: float) -> list[tuple[Member, Frame]]:
        """Replies that have come in; what else workers say is taken in, and what they do not."""
        replies = []
        if self._symptom is not None:
            timeout = min(timeout, _POLL)
        for key, events in self._selector.select(timeout):
            member, reader = key.data
            if events & selectors.EVENT_WRITE:
                self._push(member)
            if events & selectors.EVENT_READ and (frame := self._read(member, reader)) is not None:
                if reader is member.link:
                    replies.append((member, frame))
                else:
                    self._hear(member, frame)
        now = time.monotonic()
        if self._symptom is not None and now > self._symptom[0]:
            raise self._symptom[1]
        for member in self.members.values():
            if now - member.heard > SILENCE:
                raise WorkersLostError(
                    f"{member.where} has given no sign of life for {SILENCE:g} s"
                )
        return replies

    def restart_clocks(self) -> None:
        """Between rounds nobody listened: silence counts from now."""
        now = time.monotonic()
        for member in self.members.values():
            member.heard = now

    @property
    def all_lost(self) -> bool:
        return bool(self.members) and not self._selector.get_map()

    def close(self) -> None:
        """Close every connection; also wakes a thread that is sending on one."""
        for member in self.members.values():
            for reader in (member.control, member.link):
                if reader is not None:
                    wire.hang_up(reader.sock)
                    reader.sock.close()
        self._selector.close()

    def _push(self, member: Member) -> None:
        assert member.link is not None
        try:
            member.unsent = wire.push(member.link.sock, member.unsent)
        except OSError as error:
            self._lose(member, member.link, error)
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if member.unsent else 0)
        self._selector.modify(member.link.sock, events, (member, member.link))

    def _read(self, member: Member, reader: FrameReader) -> Frame | None:
        try:
            frame = reader.read()
            # A header, most often with all of its payload behind it.
            frame = reader.read(socket.MSG_DONTWAIT) if frame is None else frame
        except BlockingIOError:
            frame = None
        except (OSError, ProtocolError) as error:
            self._lose(member, reader, error)
            return None
        member.heard = time.monotonic()
        return frame

    def _lose(self, member: Member, reader: FrameReader, error: Exception) -> None:
        with suppress(KeyError):  # lost before
            self._selector.unregister(reader.sock)
        what = f"{member.where} is gone: {error}"
        if reader is member.link:
            self._suspect(what)
        elif not member.cut_off:
            raise WorkersLostError(what)

    def _hear(self, member: Member, frame: Frame) -> None:
        try:
            self._take_in(member, frame)
        except (ProtocolError, ValueError, TypeError, IndexError, OverflowError) as error:
            raise WorkersLostError(
                f"{member.where} sent a {frame.kind.name} that makes no sense ({error})"
            ) from error

    def _take_in(self, member: Member, frame: Frame) -> None:
        values = frame.values()
        if frame.kind == Kind.ALIVE:
            if (stalled := float(cast(float, values[0]))) > STALL:
                idle = f"it is at work and has used no processor for {stalled:.0f} s"
                raise WorkersLostError(f"{member.where} hangs: {idle}")
        elif frame.kind == Kind.READY:
            rows, digests = (cast(Array, value) for value in values)
            member.digests = [row.tobytes() for row in np.reshape(digests, (-1, 16))]
            if not len(rows) == len(member.digests) == member.n_shards:
                raise ProtocolError(f"{len(rows)} shards where {member.n_shards} are due")
            member.rows = [int(n) for n in rows]
        elif frame.kind == Kind.FAILED:
            raise WorkersLostError(f"{member.where} raised", str(values[0]))
        elif frame.kind == Kind.CUT_OFF:  # it has lost its parent or a child in the tree
            self._suspect(f"{member.where} lost its connection: {values[0]}")
            member.cut_off = True
        else:
            raise ProtocolError("that is the driver's to send")

    def _suspect(self, symptom: str) -> None:
        """A connection broke. The worker that is to blame has a little time to say why."""
        if self._symptom is None:
            self._symptom = (time.monotonic() + GRACE, WorkersLostError(symptom))
