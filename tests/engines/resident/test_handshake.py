"""Both sides prove that they know the secret; nobody else gets in, nor holds anybody up."""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dfwtrace.engines.resident import connections
from dfwtrace.engines.resident.connections import (
    AuthenticationError,
    accept_handshake,
    new_secret,
    offer_handshake,
)
from dfwtrace.engines.resident.wire import PeerLostError

SIZE = 32
SECRET = b"s" * SIZE

Line = tuple[socket.socket, socket.socket]


@pytest.fixture
def line() -> Iterator[Line]:
    """The listener's end and the caller's."""
    ends = socket.socketpair()
    for end in ends:
        end.settimeout(10.0)
    yield ends
    for end in ends:
        end.close()


@pytest.fixture
def beside() -> Iterator[Callable[..., list[Any]]]:
    """Runs something in a thread; what it returned or raised is in the list in the end."""
    threads = []

    def run(work: Callable[..., Any], *args: Any) -> list[Any]:
        outcome: list[Any] = []

        def target() -> None:
            try:
                outcome.append(work(*args))
            except Exception as error:
                outcome.append(error)

        thread = threading.Thread(target=target)
        thread.start()
        threads.append((thread, outcome))
        return outcome

    yield run
    for thread, _ in threads:
        thread.join()


def read(sock: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        piece = sock.recv(size - len(received))
        assert piece
        received += piece
    return received


def proof(side: bytes, listener: bytes, caller: bytes, secret: bytes = SECRET) -> bytes:
    return hmac.new(secret, side + listener + caller, hashlib.sha256).digest()


def test_secrets_are_fresh() -> None:
    secrets = {new_secret() for _ in range(100)}
    assert len(secrets) == 100
    assert {len(secret) for secret in secrets} == {SIZE}


def test_those_who_know_the_secret_meet(line: Line, beside: Any) -> None:
    listener, caller = line
    admitted = beside(accept_handshake, listener, SECRET)
    offer_handshake(caller, SECRET)
    while not admitted:
        time.sleep(0.001)
    assert admitted == [None]
    assert listener.gettimeout() is caller.gettimeout() is None
    caller.send(b"from now on")
    assert listener.recv(100) == b"from now on"  # nothing more was read or sent


@pytest.mark.parametrize("wrong", [b"t" * SIZE, b"", SECRET + b"s", SECRET[:-1]])
def test_a_caller_with_a_wrong_secret_is_refused(line: Line, beside: Any, wrong: bytes) -> None:
    listener, caller = line
    told = beside(offer_handshake, caller, wrong)
    with pytest.raises(AuthenticationError, match="the caller does not know"):
        accept_handshake(listener, SECRET)
    listener.close()
    while not told:
        time.sleep(0.001)
    assert isinstance(told[0], PeerLostError)  # and was told nothing


def test_a_listener_with_a_wrong_secret_is_refused(line: Line) -> None:
    """One that answers whatever the caller says, as it cannot check it."""
    listener, caller = line
    listener.send(os.urandom(SIZE) + os.urandom(SIZE))
    with pytest.raises(AuthenticationError, match="the listener does not know"):
        offer_handshake(caller, SECRET)


def test_an_answer_cannot_be_used_again(line: Line, beside: Any) -> None:
    """A whole good conversation is overheard; its words do not open the door a second time."""
    listener, caller = line
    admitted = beside(accept_handshake, listener, SECRET)
    challenge = read(caller, SIZE)
    ours = os.urandom(SIZE)
    overheard = ours + proof(b"caller", challenge, ours)
    caller.sendall(overheard)
    assert read(caller, SIZE) == proof(b"listener", challenge, ours)
    again, stranger = socket.socketpair()
    with again, stranger:
        stranger.sendall(overheard)
        with pytest.raises(AuthenticationError, match="the caller"):
            accept_handshake(again, SECRET)
    while not admitted:
        time.sleep(0.001)
    assert admitted == [None]


@pytest.mark.parametrize("reply", ["its own words", "a listener's proof", "two challenges"])
def test_a_listener_cannot_be_answered_with_its_own_words(line: Line, reply: str) -> None:
    listener, stranger = line

    def answer() -> None:
        challenge = read(stranger, SIZE)
        if reply == "its own words":
            stranger.sendall(challenge + challenge)
        elif reply == "two challenges":
            stranger.sendall(os.urandom(SIZE) + challenge)
        else:  # got from another listener, to whom the stranger posed as a caller
            stranger.sendall(challenge + proof(b"listener", challenge, challenge))

    thread = threading.Thread(target=answer)
    thread.start()
    with pytest.raises(AuthenticationError, match="the caller"):
        accept_handshake(listener, SECRET)
    thread.join()


def test_a_caller_cannot_be_answered_with_its_own_words(line: Line, beside: Any) -> None:
    stranger, caller = line
    told = beside(offer_handshake, caller, SECRET)
    stranger.sendall(os.urandom(SIZE))
    words = read(stranger, 2 * SIZE)
    stranger.sendall(words[SIZE:])  # the caller's own proof
    while not told:
        time.sleep(0.001)
    assert isinstance(told[0], AuthenticationError)


@pytest.mark.parametrize("side", [accept_handshake, offer_handshake])
@pytest.mark.parametrize("said", [0, 1, SIZE, 2 * SIZE - 1])
def test_one_who_falls_silent_is_not_waited_for(
    line: Line, monkeypatch: pytest.MonkeyPatch, side: Any, said: int
) -> None:
    monkeypatch.setattr(connections, "HANDSHAKE_TIMEOUT", 0.15)
    here, there = line
    there.sendall(bytes(said) if side is accept_handshake else bytes(min(said, SIZE)))
    with pytest.raises(AuthenticationError, match="took too long"):
        side(here, SECRET)


def test_one_who_speaks_a_byte_at_a_time_has_no_more_time(
    line: Line, monkeypatch: pytest.MonkeyPatch, beside: Any
) -> None:
    """Each byte comes soon after the one before, and yet the end of it all would be far away."""
    listener, stranger = line
    monkeypatch.setattr(connections, "HANDSHAKE_TIMEOUT", 0.3)
    ended = threading.Event()

    def drip() -> None:
        while not ended.wait(0.05):
            stranger.send(b"x")

    beside(drip)
    try:
        with pytest.raises(AuthenticationError, match="took too long"):
            accept_handshake(listener, SECRET)
    finally:
        ended.set()


def test_a_slow_line_is_no_hindrance(line: Line, beside: Any) -> None:
    listener, caller = line
    admitted = beside(accept_handshake, listener, SECRET)
    challenge, ours = read(caller, SIZE), os.urandom(SIZE)
    for byte in ours + proof(b"caller", challenge, ours):
        caller.send(bytes([byte]))
    assert read(caller, SIZE) == proof(b"listener", challenge, ours)
    while not admitted:
        time.sleep(0.001)
    assert admitted == [None]


@pytest.mark.parametrize("side", [accept_handshake, offer_handshake])
@pytest.mark.parametrize("said", [0, 5, SIZE])
def test_one_who_hangs_up_is_gone(line: Line, side: Any, said: int) -> None:
    here, there = line
    there.sendall(bytes(said))
    there.shutdown(socket.SHUT_WR)
    with pytest.raises(PeerLostError, match="during the handshake"):
        side(here, SECRET)
