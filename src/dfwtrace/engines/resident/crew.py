"""The driver's side: rounds with a crew of workers, from its assembly to its end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from dfwtrace.engines.engine import Cost
from dfwtrace.engines.failures import CrewLostError
from dfwtrace.engines.resident.assembly import Assembly, Job, Rows
from dfwtrace.engines.resident.invitation import Invitation
from dfwtrace.engines.resident.lines import Lines, Link
from dfwtrace.engines.resident.pulse import HEARTBEAT
from dfwtrace.engines.resident.reception import Reception
from dfwtrace.engines.resident.service import unpack_reply
from dfwtrace.engines.resident.wire import Frame, Kind, ProtocolError, pack, send
from dfwtrace.engines.tree import Node

# Seconds for workers that were told to stop to do so, and for a job that was cancelled to end.
_FAREWELL = 10.0
# Seconds after which a job is cancelled again: Spark heeds it only once the job is known to it.
_AGAIN = 0.1


class Crew:
    """Workers that have joined. Any failure ends the whole crew: `abandon` it and launch another.

    Parameters
    ----------
    invitation : Invitation
    reception : Reception
        Closed as soon as everybody is in.
    job : Job
        Started here.
    rows : callable, optional
        Gives, for a worker's index, the payloads of the frames that carry its rows; without it,
        workers get their rows elsewhere.
    """

    def __init__(
        self, invitation: Invitation, reception: Reception, job: Job, rows: Rows | None = None
    ) -> None:
        self._largest, self._job = invitation.largest_message, job
        self._lines = Lines()
        self._sequence = 0
        self._busy = False  # in the middle of a round
        self._assembly = Assembly(invitation, reception, job, rows, self._lines)
        try:
            self._assembly.run()
        except BaseException:
            self.abandon()
            raise

    @property
    def shard_rows(self) -> list[int]:
        members = self._lines.members
        return [n for i in sorted(members) for n in members[i].rows or []]

    @property
    def digests(self) -> list[bytes]:
        """A checksum for each shard."""
        members = self._lines.members
        return [digest for i in sorted(members) for digest in members[i].digests]

    def round(
        self, kind: Kind, method: str, args: tuple[Any, ...], timeout: float | None
    ) -> tuple[list[Node], Cost]:
        """Ask all workers; the nodes that they answer with, in the order of arrival."""
        began = time.perf_counter()
        request = pack(kind, self._sequence + 1, [method, *args])
        size = sum(len(buffer) for buffer in request)
        if size > self._largest:
            raise ValueError(
                f"largest_message must be at least {size} bytes for the arguments of {method}, "
                f"got {self._largest}."
            )
        self._sequence += 1
        self._busy = True
        wire = len(self._lines.links) * size
        for link in self._lines.links:
            self._lines.ask(link, request)
        compute = reduce = 0.0
        nodes: list[Node] = []
        for link, reply in self._replies(method, timeout):
            at = time.perf_counter()
            try:
                slowest, below, theirs = unpack_reply(reply, self._sequence)
            except ProtocolError as error:
                raise CrewLostError(f"{self._lines.where(link)} sent {error}") from error
            compute, wire = max(compute, slowest), wire + below
            nodes += theirs
            reduce += time.perf_counter() - at
        self._busy = False
        elapsed = time.perf_counter() - began
        return nodes, Cost(wire, compute, max(0.0, elapsed - compute - reduce), reduce)

    def _replies(self, method: str, timeout: float | None) -> Iterator[tuple[Link, Frame]]:
        due = set(self._lines.links)
        self._lines.start_clocks()
        deadline = None if timeout is None else time.monotonic() + timeout
        while due:
            for link, frame in self._lines.listen(HEARTBEAT):
                if link not in due:
                    where = self._lines.where(link)
                    raise CrewLostError(f"{where} sent a reply that nobody asked for")
                due.remove(link)
                yield link, frame
            self._lines.check()
            if due and deadline is not None and time.monotonic() > deadline:
                late = ", ".join(sorted(self._lines.where(link) for link in due))
                raise CrewLostError(
                    f"{late}, or workers below: no answer to {method} within {timeout:g} s "
                    "(round_timeout)"
                )

    def close(self) -> None:
        """Tell the workers to stop, and see that they do."""
        try:
            if not self._busy and self._stop():
                self._lines.hang_up()
                self._assembly.close()
                return
        except BaseException:
            self.abandon()
            raise
        self.abandon()

    def _stop(self) -> bool:
        self._sequence += 1
        for link in self._lines.links:
            with suppress(OSError):
                link.sock.settimeout(_FAREWELL)
                send(link.sock, pack(Kind.STOP, self._sequence))
        return self._job.join(_FAREWELL)

    def abandon(self) -> None:
        """End the job and close all connections, whatever the workers are doing."""
        self._job.cancel()
        self._lines.hang_up()
        self._assembly.close()
        deadline = time.monotonic() + _FAREWELL
        while not self._job.join(_AGAIN) and time.monotonic() < deadline:
            self._job.cancel()
