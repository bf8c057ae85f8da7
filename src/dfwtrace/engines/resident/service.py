"""A resident worker: joins the driver, holds its shards, and answers rounds until told to stop."""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, cast

import numpy as np

from dfwtrace.data.shards import Shard, shard_bounds
from dfwtrace.engines.failures import UnreachableError
from dfwtrace.engines.local import LocalWorkers, threads_for
from dfwtrace.engines.resident import handshake
from dfwtrace.engines.resident.invitation import VERSION, Invitation
from dfwtrace.engines.resident.pulse import Pulse
from dfwtrace.engines.resident.reception import Reception
from dfwtrace.engines.resident.topology import parents
from dfwtrace.engines.resident.wire import (
    HEADER,
    Frame,
    Kind,
    PeerLostError,
    ProtocolError,
    Value,
    pack,
    receive,
    repack,
    send,
    tune,
)
from dfwtrace.engines.tree import Node, TreeSum

# A traceback is cut to so many characters: the end of it tells most.
_LONGEST_TRACEBACK = 20_000
_RETRY_SECONDS = 0.2
_UNREACHABLE_DRIVER = (
    "the driver must be reachable from the executors; see the settings host, bind and port"
)
_UNREACHABLE_PARENT = (
    "executors must reach each other on any port where there are more workers than fan_in"
)

#: Gets the worker's shards into memory; what it is given reads the next frame from the driver.
Load = Callable[[Callable[[], Frame]], list[Shard]]


def serve(invitation: Invitation, index: int, program: Any, load: Load, n_jobs: int) -> None:
    """Be worker `index` until the driver says stop or goes away.

    Parameters
    ----------
    invitation : Invitation
    index : int
        From 0; tells which shards are this worker's.
    program : object
        Its methods run on the shards by name.
    load : callable
    n_jobs : int
        Threads that shards may be worked on with.
    """
    with ExitStack() as held:
        control = held.enter_context(
            _call(invitation, invitation.host, invitation.port, _UNREACHABLE_DRIVER)
        )
        voice = _Voice(control)
        try:
            _Member(invitation, index, control, voice, held).work(program, load, n_jobs)
        except PeerLostError as lost:  # of ours: a program's own lost connections are errors
            with suppress(OSError):  # the driver itself may be gone, or has let go of this worker
                voice.say(Kind.CUT_OFF, str(lost))
        except BaseException:
            with suppress(OSError):
                voice.say(Kind.FAILED, traceback.format_exc()[-_LONGEST_TRACEBACK:])
            raise


def _call(invitation: Invitation, host: str, port: int, advice: str) -> socket.socket:
    """A connection to the driver or to a parent, both sides proven; tries until the time is up."""
    # A quarter of the driver's patience, so that it still hears why nobody came: workers take their
    # time to start, and Spark takes it again to tell how they ended.
    deadline = time.monotonic() + 0.25 * invitation.start_timeout
    while True:
        try:
            sock = socket.create_connection((host, port), timeout=handshake.TIME)
            try:
                handshake.introduce(sock, invitation.secret)
            except BaseException:
                sock.close()
                raise
            tune(sock)
            return sock
        except handshake.StrangerError:
            raise
        except OSError as error:
            if time.monotonic() > deadline:
                raise UnreachableError(
                    f"no way from {socket.gethostname()} to {host}:{port} ({error}): {advice}."
                ) from error
            time.sleep(_RETRY_SECONDS)


class _Voice:
    """The worker's line to the driver for all that is not a round."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._lock = threading.Lock()

    def say(self, kind: Kind, *values: Value) -> None:
        with self._lock:
            send(self._control, pack(kind, 0, values))


class _Member:
    """One worker in the tree, from its hello to its end."""

    def __init__(
        self,
        invitation: Invitation,
        index: int,
        control: socket.socket,
        voice: _Voice,
        held: ExitStack,
    ) -> None:
        self._invitation, self._index = invitation, index
        self._control, self._voice, self._held = control, voice, held
        above = parents(invitation.n_workers, invitation.fan_in)
        self._expected = {i for i, parent in enumerate(above) if parent == index}
        self._children: list[socket.socket] = []
        self._wire = 0  # bytes to and from the children in this round
        self._pulse = Pulse(lambda stalled: voice.say(Kind.ALIVE, stalled))

    def work(self, program: Any, load: Load, n_jobs: int) -> None:
        door, port = None, 0
        if self._expected:
            here = self._control.getsockname()[0]  # the interface that leads to the driver
            door = Reception(here, 0, self._invitation.secret)
            self._held.callback(door.close)
            port = door.port
        self._voice.say(Kind.HELLO, self._index, socket.gethostname(), os.getpid(), port, VERSION)
        self._held.enter_context(self._pulse)
        with self._pulse.at_work():
            shards = load(lambda: receive(self._control, self._invitation.largest_message))
            digests = np.frombuffer(b"".join(shard.digest() for shard in shards), np.uint8)
        rows = np.array([shard.n_rows for shard in shards], np.int64)
        self._voice.say(Kind.READY, rows, digests)
        up = self._join()
        if door is not None:
            self._adopt(door)
        first = shard_bounds(self._invitation.n_shards, self._invitation.n_workers)[self._index][0]
        n_bytes = sum(shard.n_bytes for shard in shards)
        threads = threads_for(n_bytes, n_jobs)
        workers = LocalWorkers(program, shards, threads, first, self._invitation.n_shards)
        try:
            self._answer_rounds(up, workers)
        finally:
            workers.close()

    def _join(self) -> socket.socket:
        frame = receive(self._control, self._invitation.largest_message)
        if frame.kind != Kind.TREE:
            raise ProtocolError(f"{frame.kind.name} where the tree should come")
        host, port = frame.values()
        here = (host, port) == (self._invitation.host, self._invitation.port)
        advice = _UNREACHABLE_DRIVER if here else _UNREACHABLE_PARENT
        up = self._held.enter_context(
            _call(self._invitation, cast(str, host), cast(int, port), advice)
        )
        send(up, pack(Kind.HELLO, 0, [self._index]))
        return up

    def _adopt(self, door: Reception) -> None:
        """Let the children in; then nobody can call any more."""
        deadline = time.monotonic() + self._invitation.start_timeout
        while self._expected:
            try:
                caller = door.callers.get(timeout=_RETRY_SECONDS)
            except queue.Empty:
                self._check_driver()
                if time.monotonic() > deadline:
                    raise TimeoutError(
                        f"workers {sorted(self._expected)} did not link up within "
                        f"{self._invitation.start_timeout:g} s (start_timeout)."
                    ) from None
                continue
            child = self._held.enter_context(caller.sock)
            if len(caller.hello) != 1 or caller.hello[0] not in self._expected:
                child.close()
                continue
            self._expected.remove(cast(int, caller.hello[0]))
            self._children.append(child)
        door.close()

    def _check_driver(self) -> None:
        """Nothing is to come from the driver now, but for the end of the connection."""
        with suppress(BlockingIOError):
            if not self._control.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                raise PeerLostError("the driver has hung up")

    def _answer_rounds(self, up: socket.socket, workers: LocalWorkers) -> None:
        sequence = 0
        while True:
            request = receive(up, self._invitation.largest_message)
            sequence += 1
            if request.sequence != sequence:
                raise ProtocolError(f"round {request.sequence} where {sequence} should come")
            self._wire = 0
            for child in self._children:  # before the own work, so that they work meanwhile
                self._wire += send(child, repack(request))
            if request.kind == Kind.STOP:
                return
            send(up, pack(Kind.REPLY, sequence, self._reply(request, workers)))

    def _reply(self, request: Frame, workers: LocalWorkers) -> list[Value]:
        """[seconds of the slowest, bytes on the wires below, then level, index, sum of nodes]."""
        began = time.perf_counter()
        method, *args = request.values()
        if not isinstance(method, str) or method.startswith("_"):
            raise ProtocolError("no method is named")
        with self._pulse.at_work():
            total, gathered = self._own_part(request.kind, method, cast(list[Any], args), workers)
        seconds = time.perf_counter() - began
        for child in self._children:
            reply = receive(child, self._invitation.largest_message)
            slowest, wire, nodes = unpack_reply(reply, request.sequence)
            seconds, self._wire = max(seconds, slowest), self._wire + wire
            for node in nodes:
                if request.kind == Kind.SUM:
                    total.add_node(node)
                else:
                    gathered.append(node)
        return [
            seconds,
            self._wire,
            *(value for node in total.nodes() + gathered for value in node),
        ]

    def _own_part(
        self, kind: Kind, method: str, args: list[Any], workers: LocalWorkers
    ) -> tuple[TreeSum, list[Node]]:
        """The sum over the shards that are here, or what each of them replies."""
        total = TreeSum(self._invitation.n_shards)
        if kind == Kind.BUILD:
            workers.build(method, *args)
        elif kind == Kind.APPLY:
            workers.apply(method, *args)
        elif kind == Kind.SUM:
            total = workers.partial_sum(method, *args)
        elif kind == Kind.GATHER:
            replies = workers.gather(method, *args)
            return total, [Node(0, workers.first + j, reply) for j, reply in enumerate(replies)]
        else:
            raise ProtocolError(f"{kind.name} where a round should come")
        return total, []


def unpack_reply(frame: Frame, sequence: int) -> tuple[float, int, list[Node]]:
    """Seconds of the slowest worker, bytes on the wires up to here, and the nodes."""
    if frame.kind != Kind.REPLY or frame.sequence != sequence:
        raise ProtocolError(f"{frame.kind.name} {frame.sequence} where reply {sequence} is due")
    values = cast(list[Any], frame.values())
    kinds = [float, int] + [int, int, np.ndarray] * (len(values) // 3)
    if len(values) != len(kinds) or not all(map(isinstance, values, kinds)):
        raise ProtocolError("a reply that makes no sense")
    seconds, wire, *flat = values
    nodes = [Node(*flat[i : i + 3]) for i in range(0, len(flat), 3)]
    return seconds, wire + HEADER.size + len(frame.payload), nodes
