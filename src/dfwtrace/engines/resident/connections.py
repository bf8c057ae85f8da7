"""Connections between processes that know the same secret, and nobody else.

The listener sends a challenge; the caller answers it with an HMAC and a challenge of its own; the
listener answers that. All messages have a fixed length, and nothing else is read before both sides
have proven that they know the secret.
"""

from __future__ import annotations

import hmac
import os
import queue
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from typing import NamedTuple

from dfwtrace.data.shards import shard_bounds
from dfwtrace.engines.base import UnreachableError
from dfwtrace.engines.resident import wire
from dfwtrace.engines.resident.wire import Kind, PeerLostError, Value, hang_up, tune

#: What driver and workers must both have: others might not understand each other.
VERSION = version("dfwtrace")
#: The parent of the workers right below the driver.
DRIVER = -1
#: Seconds that a handshake may take.
HANDSHAKE_TIMEOUT = 10.0
_SIZE = 32  # bytes of a secret, a challenge and an answer
_LARGEST_HELLO = 4096
# Callers in the middle of a handshake. One more, and the oldest has to leave: workers take no time
# to prove what they know, and call again.
_MAX_PENDING = 64
_PAUSE = 0.05
_RETRY_SECONDS = 0.2


def new_secret() -> bytes:
    return os.urandom(_SIZE)


class JoinInfo(NamedTuple):
    """What a worker must know to join; it travels with Spark's own task."""

    host: str  # the driver's address, as workers reach it
    port: int
    secret: bytes  # of this launch only
    n_workers: int
    n_shards: int
    fan_in: int
    start_timeout: float  # seconds to join; a worker tries for a quarter of them
    largest_message: int  # bytes of a frame at the most

    def __repr__(self) -> str:  # the secret stays out of logs
        return f"JoinInfo({self.host}:{self.port}, {self.n_workers} workers)"

    def shards_of(self, worker: int) -> tuple[int, int]:
        return shard_bounds(self.n_shards, self.n_workers)[worker]


def parents(n_workers: int, fan_in: int) -> list[int]:
    """The parent of every worker, such as [-1, 0, 0, -1, 3, 3] for 6 workers and a fan-in of 2.

    A subtree is a contiguous range of workers, and so of shards: what it sends up are at most a few
    nodes of the fixed tree of sums.
    """
    parent = [DRIVER] * n_workers
    subtrees = [(0, n_workers, DRIVER)]
    while subtrees:
        first, last, above = subtrees.pop()
        for a, b in shard_bounds(last - first, min(fan_in, last - first)):
            parent[first + a] = above
            if b - a > 1:
                subtrees.append((first + a + 1, first + b, first + a))
    return parent


class AuthenticationError(ConnectionError):
    """The other side does not know the secret, or took too long."""


def accept_handshake(
    sock: socket.socket, secret: bytes, proven: Callable[[], object] = bool
) -> None:
    ours, deadline = new_secret(), time.monotonic() + HANDSHAKE_TIMEOUT
    sock.sendall(ours)
    both = ours + _receive(sock, deadline)
    _check(_receive(sock, deadline), secret, "caller", both)
    proven()
    sock.sendall(hmac.digest(secret, b"listener" + both, "sha256"))
    sock.settimeout(None)


def offer_handshake(sock: socket.socket, secret: bytes) -> None:
    ours, deadline = new_secret(), time.monotonic() + HANDSHAKE_TIMEOUT
    both = _receive(sock, deadline) + ours
    sock.sendall(ours + hmac.digest(secret, b"caller" + both, "sha256"))
    _check(_receive(sock, deadline), secret, "listener", both)
    sock.settimeout(None)


def _check(proof: bytes, secret: bytes, side: str, both: bytes) -> None:
    if not hmac.compare_digest(proof, hmac.digest(secret, side.encode() + both, "sha256")):
        raise AuthenticationError(f"the {side} does not know the secret")


def _receive(sock: socket.socket, deadline: float) -> bytes:
    """A message of the handshake before the deadline, also if its bytes come one by one."""
    received = b""
    while len(received) < _SIZE:
        sock.settimeout(max(1e-3, deadline - time.monotonic()))
        try:
            piece = sock.recv(_SIZE - len(received))
        except TimeoutError as error:
            raise AuthenticationError("the handshake took too long") from error
        if not piece:
            raise PeerLostError("the connection was closed during the handshake")
        received += piece
    return received


def connect(host: str, port: int, secret: bytes, timeout: float) -> socket.socket:
    """Call a listener until it answers, for `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            sock = socket.create_connection((host, port), timeout=HANDSHAKE_TIMEOUT)
            try:
                offer_handshake(sock, secret)
            except BaseException:
                sock.close()
                raise
            tune(sock)
            return sock
        except AuthenticationError:
            raise
        except OSError as error:
            if time.monotonic() > deadline:
                raise UnreachableError(
                    f"no way from {socket.gethostname()} to {host}:{port} ({error}): executors "
                    "must reach the driver (settings host, bind and port), and each other on any "
                    "port where there are more workers than fan_in."
                ) from error
            time.sleep(_RETRY_SECONDS)


class Caller(NamedTuple):
    """A process that has proven to know the secret, and its hello."""

    sock: socket.socket
    address: str
    hello: list[Value]


class Listener:
    """Listens while workers join, and puts callers that know the secret into `callers`.

    Every caller has a thread of its own until it is known, so one that says nothing, or garbage,
    holds nobody up. `trouble` is why a caller could not be let in.
    """

    def __init__(self, bind: str, port: int, secret: bytes) -> None:
        self._secret = secret
        family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        try:
            self._listener = socket.create_server((bind, port), family=family, backlog=1024)
        except OSError as error:
            raise OSError(f"bind: cannot listen at {bind}, port {port} ({error}).") from error
        self.port: int = self._listener.getsockname()[1]
        self._listener.settimeout(_RETRY_SECONDS)  # in case that `hang_up` does not wake it
        self.callers: queue.SimpleQueue[Caller] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._pending: dict[socket.socket, threading.Thread] = {}
        self._proven: dict[socket.socket, threading.Thread] = {}  # nobody turns them away
        self._closed = False
        self._ended = threading.Event()  # Ctrl-C in a thread's `join` would end all waiting for it
        self.trouble: OSError | None = None
        self._thread = threading.Thread(target=self._listen, name="dfwtrace-listener", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while not self._closed:
            try:
                self._let_in(*self._listener.accept())
            except TimeoutError:
                continue
            except OSError as error:  # it may have hung up already, or files have run out
                self.trouble = error
                time.sleep(0.0 if self._closed else _PAUSE)
        self._ended.set()

    def _let_in(self, sock: socket.socket, address: tuple[str, int]) -> None:
        thread = threading.Thread(
            target=self._admit, args=(sock, address[0]), name="dfwtrace-listener", daemon=True
        )
        with self._lock:
            if len(self._pending) >= _MAX_PENDING:
                oldest = next(iter(self._pending))
                hang_up(oldest)  # its thread ends
                self._pending[oldest] = self._pending.pop(oldest)
            self._pending[sock] = thread
            thread.start()

    def _admit(self, sock: socket.socket, address: str) -> None:
        caller: Caller | None = None
        with suppress(OSError, wire.ProtocolError):
            accept_handshake(sock, self._secret, lambda: self._keep(sock))
            sock.settimeout(HANDSHAKE_TIMEOUT)
            frame = wire.receive(sock, _LARGEST_HELLO)
            if frame.kind == Kind.HELLO:
                caller = Caller(sock, address, frame.values())
            sock.settimeout(None)
            tune(sock)
        with self._lock:
            self._pending.pop(sock, None)
            self._proven.pop(sock, None)
            if caller is not None and not self._closed:
                self.callers.put(caller)
                return
        sock.close()

    def _keep(self, sock: socket.socket) -> None:
        with self._lock:  # one who is turned away before does not hear our proof, and calls again
            self._proven[sock] = self._pending.pop(sock)

    def close(self) -> None:
        """Drop all callers, and let nobody in any more; may be called again."""
        self._closed = True
        hang_up(self._listener)
        self._ended.wait()
        self._thread.join()  # a moment, if at all
        with self._lock:  # only now nobody is added any more
            pending = self._pending | self._proven
        for sock, thread in pending.items():
            hang_up(sock)
            thread.join()
        self._listener.close()
        while not self.callers.empty():
            self.callers.get().sock.close()
