"""A resident worker: joins the driver, holds its shards, and answers rounds until it must stop."""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any, Self, cast

import numpy as np

from dfwtrace.data.shards import Shard
from dfwtrace.engines.base import Args
from dfwtrace.engines.local import ShardStates, threads_for
from dfwtrace.engines.resident import wire
from dfwtrace.engines.resident.connections import VERSION, JoinInfo, Listener, connect, parents
from dfwtrace.engines.resident.wire import Frame, Kind, PeerLostError, ProtocolError, pack, send
from dfwtrace.engines.tree import Node, TreeSum

#: Seconds between two signs of life.
INTERVAL = 1.0
# Seconds of processor time that count as progress; the heartbeat itself uses far less.
_PROGRESS = 0.05
# A longer traceback is cut: its end says most.
_LONGEST_TRACEBACK = 20_000
_POLL = 0.2

#: Gets the worker's shards into memory.
Load = Callable[[wire.NextFrame], list[Shard]]


class Heartbeat:
    """Calls `send` once in a while, in a thread of its own.

    It is given the seconds for which the worker has been at work without using the processor: a
    thread that sleeps, or waits for a lock or for data, for ever.
    """

    def __init__(self, send: Callable[[float], None]) -> None:
        self._send = send
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="dfwtrace-heartbeat", daemon=True)
        self._working = False
        self._progress = (0.0, 0.0)  # the clock, and the processor time, when there last was some

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Mark the block as work; a worker that waits for others is not stalled."""
        self._progress = (time.monotonic(), time.process_time())
        self._working = True
        try:
            yield
        finally:
            self._working = False

    def stalled(self) -> float:
        if not self._working:
            return 0.0
        now, used = time.monotonic(), time.process_time()
        since, used_then = self._progress
        if used - used_then > _PROGRESS:
            self._progress = (now, used)
            return 0.0
        return now - since

    def _beat(self) -> None:
        with suppress(OSError):
            while not self._end.wait(INTERVAL):
                self._send(self.stalled())


def serve(info: JoinInfo, index: int, program: object, load: Load, n_jobs: int) -> None:
    """Be worker `index`, with `n_jobs` threads, until the driver says stop or goes away."""
    with ExitStack() as resources:
        worker = _Worker(info, index, resources)
        try:
            worker.work(program, load, n_jobs)
        except PeerLostError as lost:  # of ours: a program's own lost connections are errors
            with suppress(OSError):  # the driver itself may be gone, or has dropped this worker
                worker.say(Kind.CUT_OFF, str(lost))
        except BaseException:
            with suppress(OSError):
                worker.say(Kind.FAILED, traceback.format_exc()[-_LONGEST_TRACEBACK:])
            raise


class _Worker:
    def __init__(self, info: JoinInfo, index: int, resources: ExitStack) -> None:
        self._info, self._index, self._resources = info, index, resources
        self._control = self._connect(info.host, info.port)
        self._lock = threading.Lock()
        above = parents(info.n_workers, info.fan_in)
        self._expected = {i for i, parent in enumerate(above) if parent == index}
        self._children: list[socket.socket] = []
        self._heartbeat = Heartbeat(lambda stalled: self.say(Kind.ALIVE, stalled))

    def _connect(self, host: str, port: int) -> socket.socket:
        # A quarter of the driver's patience, so that it still hears why nobody came: workers take
        # their time to start, and Spark takes it again to say how they ended.
        timeout = 0.25 * self._info.start_timeout
        sock = connect(host, port, self._info.secret, timeout)
        return self._resources.enter_context(sock)

    def say(self, kind: Kind, *values: wire.Value) -> None:
        """Send the driver what is no reply to a round."""
        with self._lock:
            send(self._control, pack(kind, 0, values))

    def _receive(self, sock: socket.socket) -> Frame:
        return wire.receive(sock, self._info.largest_message)

    def work(self, program: object, load: Load, n_jobs: int) -> None:
        listener, port = None, 0
        if self._expected:
            here = self._control.getsockname()[0]  # the interface that leads to the driver
            listener = Listener(here, 0, self._info.secret)
            self._resources.callback(listener.close)
            port = listener.port
        self.say(Kind.HELLO, self._index, socket.gethostname(), os.getpid(), port, VERSION)
        self._resources.enter_context(self._heartbeat)
        with self._heartbeat.at_work():
            shards = load(lambda: self._receive(self._control))
            digests = np.frombuffer(b"".join(shard.digest() for shard in shards), np.uint8)
        self.say(Kind.READY, np.array([shard.n_rows for shard in shards], np.int64), digests)
        up = self._link_up()
        if listener is not None:
            self._accept_children(listener)
        first, _ = self._info.shards_of(self._index)
        threads = threads_for(sum(shard.n_bytes for shard in shards), n_jobs)
        with closing(ShardStates(program, shards, threads, first, self._info.n_shards)) as states:
            self._answer_rounds(up, states)

    def _link_up(self) -> socket.socket:
        frame = self._receive(self._control)
        if frame.kind != Kind.TREE:
            raise ProtocolError(f"{frame.kind.name} where the tree should come")
        up = self._connect(*cast(tuple[str, int], frame.values()))
        send(up, pack(Kind.HELLO, 0, [self._index]))
        return up

    def _accept_children(self, listener: Listener) -> None:
        deadline = time.monotonic() + self._info.start_timeout
        while self._expected:
            try:
                caller = listener.callers.get(timeout=_POLL)
            except queue.Empty:
                self._check_driver()
                if time.monotonic() > deadline:
                    late = f"workers {sorted(self._expected)} did not link up within"
                    limit = f"{self._info.start_timeout:g} s (start_timeout)"
                    raise TimeoutError(f"{late} {limit}.") from None
                continue
            child = self._resources.enter_context(caller.sock)
            if len(caller.hello) == 1 and caller.hello[0] in self._expected:
                self._expected.remove(cast(int, caller.hello[0]))
                self._children.append(child)
            else:
                child.close()
        listener.close()

    def _check_driver(self) -> None:
        """Nothing is to come from the driver now, but for the end of the connection."""
        with suppress(BlockingIOError):
            if not self._control.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                raise PeerLostError("the driver has hung up")

    def _answer_rounds(self, up: socket.socket, states: ShardStates) -> None:
        sequence = 0
        while True:
            request = self._receive(up)
            sequence += 1
            if request.sequence != sequence:
                raise ProtocolError(f"round {request.sequence} where {sequence} should come")
            # Before the own work, so that they work meanwhile.
            below = sum(send(child, wire.repack(request)) for child in self._children)
            if request.kind == Kind.STOP:
                return
            send(up, pack(Kind.REPLY, sequence, self._reply(request, states, below)))

    def _reply(self, request: Frame, states: ShardStates, below: int) -> list[wire.Value]:
        """[seconds of the slowest, bytes on the wires below, then level, index, sum of nodes]."""
        began = time.perf_counter()
        kind = request.kind
        method, *values = request.values()
        if not isinstance(method, str) or method.startswith("_"):
            raise ProtocolError("no method is named")
        args = cast(Args, tuple(values))
        nodes: list[Node] = []
        with self._heartbeat.at_work():
            if kind in (Kind.BUILD, Kind.APPLY):
                states.change(method, args, build=kind == Kind.BUILD)
            elif kind in (Kind.SUM, Kind.GATHER):
                nodes = states.replies(method, args, add=kind == Kind.SUM)
            else:
                raise ProtocolError(f"{kind.name} where a round should come")
        seconds = time.perf_counter() - began
        for child in self._children:
            slowest, size, theirs = unpack_reply(self._receive(child), request.sequence)
            seconds, below = max(seconds, slowest), below + size
            nodes += theirs
        if kind == Kind.SUM and self._children:
            nodes = TreeSum(self._info.n_shards, nodes).nodes()
        return [seconds, below, *(value for node in nodes for value in node)]


def unpack_reply(frame: Frame, sequence: int) -> tuple[float, int, list[Node]]:
    """Seconds of the slowest worker, bytes on the wires up to here, and the nodes."""
    if frame.kind != Kind.REPLY or frame.sequence != sequence:
        raise ProtocolError(f"{frame.kind.name} {frame.sequence} where reply {sequence} is due")
    values = cast(list[Any], frame.values())
    kinds = [float, int] + [int, int, np.ndarray] * (len(values) // 3)
    if len(values) != len(kinds) or not all(map(isinstance, values, kinds)):
        raise ProtocolError("a reply that makes no sense")
    seconds, below, *flat = values
    nodes = [Node(*flat[i : i + 3]) for i in range(0, len(flat), 3)]
    return seconds, below + wire.HEADER.size + len(frame.payload), nodes
