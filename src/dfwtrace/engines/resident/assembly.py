"""From an invitation to a crew: workers come, get their rows, and link up to a tree."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol, cast

from dfwtrace.data.shards import shard_bounds
from dfwtrace.engines.failures import CrewLostError, WorkerError
from dfwtrace.engines.resident.invitation import VERSION, Invitation
from dfwtrace.engines.resident.lines import GRACE, Lines, Link, Member
from dfwtrace.engines.resident.reception import Caller, Reception
from dfwtrace.engines.resident.topology import DRIVER, parents
from dfwtrace.engines.resident.wire import FrameReader, Kind, Value, pack, send

_POLL = 0.02
# Seconds for a worker to be heard that had not even been let in when the job ended.
_GRACE_FOR_NOBODY = 0.5
# Part of `start_timeout` after which a job is asked again whether it is preparing something.
_ASK = 0.1


class Job(Protocol):
    """What runs the workers: on Spark, a barrier job."""

    def start(self) -> None:
        """Begin; to be called once."""

    def failure(self) -> Exception | None:
        """What to raise if the job has ended before everybody came."""

    def preparing(self) -> bool:
        """Whether something must still be done before workers can come, and is being done."""

    def cancel(self) -> None:
        """End the job, or see that it never begins. May be called again."""

    def join(self, timeout: float) -> bool:
        """Wait for its end; whether it has ended."""


#: Gives, for a worker's index, the payloads of the frames that carry its rows.
Rows = Callable[[int], Iterable[list[Value]]]


class Assembly:
    """Lets the workers in, until all of them are linked up on `lines`."""

    def __init__(
        self,
        invitation: Invitation,
        reception: Reception,
        job: Job,
        rows: Rows | None,
        lines: Lines,
    ) -> None:
        self._invitation, self._reception, self._job = invitation, reception, job
        self._rows, self._lines = rows, lines
        self._above = parents(invitation.n_workers, invitation.fan_in)
        self._feeders: list[threading.Thread] = []
        self._feeding_error: BaseException | None = None

    def run(self) -> None:
        """Wait for the workers, for their rows to be in memory, and for the tree."""
        members, links, n_workers = self._lines.members, self._lines.links, len(self._above)
        self._job.start()
        self._wait(lambda: len(members) == n_workers, f"of {n_workers} workers came")
        # From here on heartbeats tell: loading may take as long as it takes.
        self._wait(lambda: all(member.rows is not None for member in members.values()))
        for member in members.values():
            self._tell_parent(member)
        expected = self._above.count(DRIVER)
        self._wait(lambda: len(links) == expected, f"of {expected} workers linked up")
        for feeder in self._feeders:
            feeder.join()
        links.sort(key=lambda link: link.index)
        self._reception.close()

    def close(self) -> None:
        """Let nobody in any more. The lines must have been hung up: feeders wait on them."""
        self._reception.close()
        for feeder in self._feeders:
            if feeder.ident is not None:  # Ctrl-C may come before it is started
                feeder.join()

    def _wait(self, enough: Callable[[], bool], wanted: str | None = None) -> None:
        """Let callers in until there are enough; in `start_timeout`, if something is wanted."""
        patience = self._invitation.start_timeout
        prepared = asked = time.monotonic()
        self._lines.start_clocks()
        while not enough():
            with suppress(queue.Empty):
                self._welcome(self._reception.callers.get(timeout=_POLL))
            self._lines.listen(0.0)
            self._lines.check()
            if self._feeding_error is not None:
                raise self._feeding_error
            failure = self._job.failure()
            if failure is not None:
                self._hear_out()
                raise failure
            now = time.monotonic()
            if wanted is None or now < asked + _ASK * patience:
                continue
            asked = now
            if self._job.preparing():
                prepared = now
            elif now > prepared + patience:
                self._give_up(wanted)

    def _hear_out(self) -> None:
        """The job has ended. A worker's own word comes first, and may be on its way still."""
        end = time.monotonic() + (GRACE if self._lines.members else _GRACE_FOR_NOBODY)
        while time.monotonic() < end:
            with suppress(queue.Empty):
                self._welcome(self._reception.callers.get(timeout=_POLL))
            try:
                self._lines.listen(0.0)
            except CrewLostError as lost:
                if lost.traceback is not None:
                    raise
            if self._lines.members and not self._lines.anybody:
                return

    def _give_up(self, wanted: str) -> None:
        """Trying again would take as long and end the same."""
        members, links = self._lines.members, self._lines.links
        count = len(members if len(members) < len(self._above) else links)
        trouble = self._reception.trouble
        raise WorkerError(
            f"{count} {wanted} within {self._invitation.start_timeout:g} s (start_timeout): "
            + (
                f"the driver could not let more in ({trouble})."
                if trouble is not None
                else "are there so many free slots in the cluster, and can the executors reach "
                f"{self._invitation.host}:{self._invitation.port}?"
            )
        )

    def _welcome(self, caller: Caller) -> None:
        """Know a caller as a worker, or as the link of one that is known; hang up on others."""
        reader = FrameReader(self._invitation.largest_message)
        index = caller.hello[0] if caller.hello else None
        if not isinstance(index, int) or not 0 <= index < self._invitation.n_workers:
            caller.sock.close()
        elif [type(said) for said in caller.hello[1:]] == [str, int, int, str] and (
            index not in self._lines.members
        ):
            self._admit(index, caller, reader)
        elif len(caller.hello) == 1 and self._may_link(index):
            self._lines.add_link(Link(index, caller.sock, reader))
        else:
            caller.sock.close()

    def _admit(self, index: int, caller: Caller, reader: FrameReader) -> None:
        _, host, pid, port, version = caller.hello
        where = f"worker {index} ({host}, process {cast(int, pid) % 2**32})"
        first, last = shard_bounds(self._invitation.n_shards, self._invitation.n_workers)[index]
        n_shards, now = last - first, time.monotonic()
        self._lines.add_member(
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
            self._feed(caller, self._rows(index))

    def _may_link(self, index: int) -> bool:
        """Whether a worker hangs below the driver itself and does not yet."""
        return (
            index in self._lines.members
            and self._above[index] == DRIVER
            and all(link.index != index for link in self._lines.links)
        )

    def _feed(self, caller: Caller, payloads: Iterable[list[Value]]) -> None:
        """Send a worker its rows, beside all others."""

        def run() -> None:
            try:
                for payload in payloads:
                    send(caller.sock, pack(Kind.ROWS, 0, payload))
            except OSError:
                pass  # the worker's end of the line tells why
            except BaseException as error:
                self._feeding_error = error

        feeder = threading.Thread(target=run, name="dfwtrace-feed", daemon=True)
        self._feeders.append(feeder)
        feeder.start()

    def _tell_parent(self, member: Member) -> None:
        boss = self._lines.members.get(self._above[member.index])
        here = (self._invitation.host, self._invitation.port)
        host, port = here if boss is None else (boss.address, boss.port)
        try:
            send(member.control, pack(Kind.TREE, 0, [host, port]))
        except OSError as error:
            raise CrewLostError(f"{member.where} is gone: {error}") from error
