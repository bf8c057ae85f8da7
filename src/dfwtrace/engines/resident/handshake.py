"""Both sides prove that they know the secret before either reads anything else.

The listener sends a challenge; the caller answers it with an HMAC and a challenge of its own; the
listener answers that. All of fixed length, so that a stranger has nothing to play with.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import time

from dfwtrace.engines.resident.wire import PeerLostError

_SIZE = 32
#: Seconds that a caller has for it.
TIME = 10.0


class StrangerError(ConnectionError):
    """The other side does not know the secret, or took too long."""


def fresh_secret() -> bytes:
    """A new secret, for one launch only."""
    return os.urandom(_SIZE)


def admit(sock: socket.socket, secret: bytes) -> None:
    """The listener's side."""
    ours = os.urandom(_SIZE)
    deadline = time.monotonic() + TIME
    sock.settimeout(TIME)
    sock.sendall(ours)
    theirs = _receive(sock, _SIZE, deadline)
    answer = _receive(sock, _SIZE, deadline)
    if not hmac.compare_digest(answer, _proof(secret, b"caller", ours, theirs)):
        raise StrangerError("the caller does not know the secret")
    sock.sendall(_proof(secret, b"listener", ours, theirs))
    sock.settimeout(None)


def introduce(sock: socket.socket, secret: bytes) -> None:
    """The caller's side."""
    ours = os.urandom(_SIZE)
    deadline = time.monotonic() + TIME
    sock.settimeout(TIME)
    theirs = _receive(sock, _SIZE, deadline)
    sock.sendall(ours + _proof(secret, b"caller", theirs, ours))
    answer = _receive(sock, _SIZE, deadline)
    if not hmac.compare_digest(answer, _proof(secret, b"listener", theirs, ours)):
        raise StrangerError("the listener does not know the secret")
    sock.settimeout(None)


def _proof(secret: bytes, side: bytes, listener: bytes, caller: bytes) -> bytes:
    return hmac.new(secret, side + listener + caller, hashlib.sha256).digest()


def _receive(sock: socket.socket, size: int, deadline: float) -> bytes:
    """So many bytes before the deadline, also if they come one by one."""
    received = b""
    while len(received) < size:
        left = deadline - time.monotonic()
        if left <= 0.0:
            raise StrangerError("the handshake took too long")
        sock.settimeout(left)
        try:
            piece = sock.recv(size - len(received))
        except TimeoutError as error:
            raise StrangerError("the handshake took too long") from error
        if not piece:
            raise PeerLostError("the connection was closed during the handshake")
        received += piece
    return received
