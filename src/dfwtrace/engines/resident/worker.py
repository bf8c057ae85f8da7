"""A resident worker: joins the driver, holds its shards, and answers rounds until it must stop."""

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

from dfwtrace.data.shards import Shard
from dfwtrace.engines.base import Args
from dfwtrace.engines.local import ShardStates, threads_for
from dfwtrace.engines.resident.connections import Listener, connect
from dfwtrace.engines.resident.heartbeat import Heartbeat
from dfwtrace.engines.resident.topology import VERSION, JoinInfo, parents
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
)
from dfwtrace.engines.tree import Node, TreeSum

# A longer traceback is cut: its end says most.
_LONGEST_TRACEBACK = 20_000
_POLL = 0.2
_UNREACHABLE_DRIVER = (
    "the driver must be reachable from the executors; see the settings host, bind and port"
)
_UNREACHABLE_PARENT = (
    "executors must reach each other on any port where there are more workers than fan_in"
)

#: Gets the worker's shards into memory; its argument reads the next frame from the driver.
Load = Callable[[Callable[[], Frame]], list[Shard]]


def serve(info: JoinInfo, index: int, program: object, load: Load, n_jobs: int) -> None:
    """Be worker `index`, with `n_jobs` threads, until the driver says stop or goes away."""
    with ExitStack() as resources:
        control = _connect(info, info.host, info.port, resources)
        lock = threading.Lock()

        def say(kind: Kind, *values: Value) -> None:
            """Send the driver what is no reply to a round."""
            with lock:
                send(control, pack(kind, 0, values))

        try:
            _Worker(info, index, control, say, resources).work(program, load, n_jobs)
        except PeerLostError as lost:  # of ours: a program's own lost connections are errors
            with suppress(OSError):  # the driver itself may be gone, or has dropped this worker
                say(Kind.CUT_OFF, str(lost))
        except BaseException:
            with suppress(OSError):
                say(Kind.FAILED, traceback.format_exc()[-_LONGEST_TRACEBACK:])
            raise


def _connect(info: JoinInfo, host: str, port: int, resources: ExitStack) -> socket.socket:
    """A connection to the driver or to a parent."""
    advice = _UNREACHABLE_PARENT
    if (host, port) == (info.host, info.port):
        advice = _UNREACHABLE_DRIVER
    # A quarter of the driver's patience, so that it still hears why nobody came: workers take their
    # time to start, and Spark takes it again to say how they ended.
    timeout = 0.25 * info.start_timeout
    return resources.enter_context(connect(host, port, info.secret, timeout, advice))


class _Worker:
    """One worker in the tree, from its hello to its end."""

    def __init__(
        self,
        info: JoinInfo,
        index: int,
        control: socket.socket,
        say: Callable[..., None],
        resources: ExitStack,
    ) -> None:
        self._info, self._index = info, index
        self._control, self._say, self._resources = control, say, resources
        above = parents(info.n_workers, info.fan_in)
        self._expected = {i for i, parent in enumerate(above) if parent == index}
        self._children: list[socket.socket] = []
        self._wire = 0  # bytes to and from the children in this round
        self._heartbeat = Heartbeat(lambda stalled: say(Kind.ALIVE, stalled))

    def work(self, program: object, load: Load, n_jobs: int) -> None:
        listener, port = None, 0
        if self._expected:
            here = self._control.getsockname()[0]  # the interface that leads to the driver
            listener = Listener(here, 0, self._info.secret)
            self._resources.callback(listener.close)
            port = listener.port
        self._say(Kind.HELLO, self._index, socket.gethostname(), os.getpid(), port, VERSION)
        self._resources.enter_context(self._heartbeat)
        with self._heartbeat.at_work():
            shards = load(lambda: receive(self._control, self._info.largest_message))
            digests = np.frombuffer(b"".join(shard.digest() for shard in shards), np.uint8)
        rows = np.array([shard.n_rows for shard in shards], np.int64)
        self._say(Kind.READY, rows, digests)
        up = self._link_up()
        if listener is not None:
            self._accept_children(listener)
        first, _ = self._info.shards_of(self._index)
        threads = threads_for(sum(shard.n_bytes for shard in shards), n_jobs)
        states = ShardStates(program, shards, threads, first, self._info.n_shards)
        try:
            self._answer_rounds(up, states)
        finally:
            states.close()

    def _link_up(self) -> socket.socket:
        """Connect to the parent."""
        frame = receive(self._control, self._info.largest_message)
        if frame.kind != Kind.TREE:
            raise ProtocolError(f"{frame.kind.name} where the tree should come")
        host, port = frame.values()
        up = _connect(self._info, cast(str, host), cast(int, port), self._resources)
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
                    raise TimeoutError(
                        f"workers {sorted(self._expected)} did not link up within "
                        f"{self._info.start_timeout:g} s (start_timeout)."
                    ) from None
                continue
            child = self._resources.enter_context(caller.sock)
            if len(caller.hello) != 1 or caller.hello[0] not in self._expected:
                child.close()
                continue
            self._expected.remove(cast(int, caller.hello[0]))
            self._children.append(child)
        listener.close()

    def _check_driver(self) -> None:
        """Nothing is to come from the driver now, but for the end of the connection."""
        with suppress(BlockingIOError):
            if not self._control.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                raise PeerLostError("the driver has hung up")

    def _answer_rounds(self, up: socket.socket, states: ShardStates) -> None:
        sequence = 0
        while True:
            request = receive(up, self._info.largest_message)
            sequence += 1
            if request.sequence != sequence:
                raise ProtocolError(f"round {request.sequence} where {sequence} should come")
            self._wire = 0
            for child in self._children:  # before the own work, so that they work meanwhile
                self._wire += send(child, repack(request))
            if request.kind == Kind.STOP:
                return
            send(up, pack(Kind.REPLY, sequence, self._reply(request, states)))

    def _reply(self, request: Frame, states: ShardStates) -> list[Value]:
        """[seconds of the slowest, bytes on the wires below, then level, index, sum of nodes]."""
        began = time.perf_counter()
        method, *values = request.values()
        if not isinstance(method, str) or method.startswith("_"):
            raise ProtocolError("no method is named")
        args = cast(Args, tuple(values))
        total, gathered = TreeSum(self._info.n_shards), list[Node]()
        with self._heartbeat.at_work():
            if request.kind == Kind.BUILD:
                states.build(method, args)
            elif request.kind == Kind.APPLY:
                states.apply(method, args)
            elif request.kind == Kind.SUM:
                total = states.partial_sum(method, args)
            elif request.kind == Kind.GATHER:
                replies = states.gather(method, args)
                gathered = [Node(0, states.first + j, reply) for j, reply in enumerate(replies)]
            else:
                raise ProtocolError(f"{request.kind.name} where a round should come")
        seconds = time.perf_counter() - began
        for child in self._children:
            reply = receive(child, self._info.largest_message)
            slowest, wire, nodes = unpack_reply(reply, request.sequence)
            seconds, self._wire = max(seconds, slowest), self._wire + wire
            for node in nodes:
                if request.kind == Kind.SUM:
                    total.add_node(node)
                else:
                    gathered.append(node)
        nodes = total.nodes() + gathered
        return [seconds, self._wire, *(value for node in nodes for value in node)]


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
