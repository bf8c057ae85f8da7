"""The door: whoever does not know the secret gets nowhere, and keeps nobody out."""

from __future__ import annotations

import queue
import selectors
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any, cast

import numpy as np
import pytest
from tests.engines.resident.groups import HOST, GroupEngine, ProcessJob
from tests.engines.resident.machine import eventually, no_files_left, open_sockets, our_threads
from tests.engines.resident.programs import Products, make_shards
from tests.engines.resident.roles import Impostor, closed

from dfwtrace.engines.resident import connections
from dfwtrace.engines.resident.connections import Listener
from dfwtrace.engines.resident.wire import HEADER, Kind, pack, send


@pytest.fixture
def door() -> Iterator[tuple[GroupEngine, Listener]]:
    engine = GroupEngine()
    listener = engine.open_door()
    yield engine, listener
    listener.close()


def visitor(door: tuple[GroupEngine, Listener]) -> Impostor:
    return Impostor(door[0].infos[-1])


def plain(listener: Listener) -> socket.socket:
    return socket.create_connection((HOST, listener.port), timeout=10.0)


def test_a_caller_who_knows_the_secret_is_handed_over(door: Any) -> None:
    with visitor(door) as caller:
        line = caller.call(3, "host", 12, 0)
        heard, address, hello = door[1].callers.get(timeout=10.0)
        assert hello == [3, "host", 12, 0]
        assert address == HOST
        assert heard.gettimeout() is None
        assert heard.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        heard.sendall(b"welcome")
        assert line.recv(100) == b"welcome"
        heard.close()


GARBAGE = {
    "http": b"GET / HTTP/1.1\r\nHost: driver\r\n\r\n",
    "zeros": bytes(10_000),
    "a frame": HEADER.pack(8, 0, Kind.HELLO) + bytes(8),
    "pickle": b"\x80\x04\x95" + bytes(200),
    "random": np.random.default_rng(0).bytes(100_000),
    "nothing": b"",
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_is_dropped(door: Any, kind: str) -> None:
    with plain(door[1]) as line:
        try:
            line.sendall(GARBAGE[kind])
            line.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it was quick to hang up
        assert closed(line)
    with pytest.raises(queue.Empty):
        door[1].callers.get(timeout=0.05)
    assert eventually(lambda: our_threads() == ["dfwtrace-listener"])


def test_a_wrong_secret_is_dropped(door: Any) -> None:
    guess = door[0].infos[-1]._replace(secret=b"g" * 32)
    with Impostor(guess) as caller:
        with pytest.raises(ConnectionError):
            caller.call(0, "host", 12, 0)
        assert closed(caller.sockets[0])
    with pytest.raises(queue.Empty):
        door[1].callers.get(timeout=0.05)


NO_HELLO = {
    "another kind": b"".join(pack(Kind.REPLY, 0, [0])),
    "unknown kind": HEADER.pack(0, 0, 77),
    "too long": HEADER.pack(4097, 0, Kind.HELLO),
    "far too long": HEADER.pack(2**60, 0, Kind.HELLO),
    "nonsense": HEADER.pack(4, 0, Kind.HELLO) + b"what",
    "a huge array": HEADER.pack(12, 0, Kind.HELLO) + b"a\x00\x00\x01" + b"\xff" * 8,
    "half": HEADER.pack(100, 0, Kind.HELLO) + b"i",
}


@pytest.mark.parametrize("kind", NO_HELLO)
def test_one_who_knows_the_secret_and_says_no_hello_is_dropped(door: Any, kind: str) -> None:
    with visitor(door) as caller:
        line = caller.call()
        line.sendall(NO_HELLO[kind])
        line.shutdown(socket.SHUT_WR)
        assert closed(line)
    with pytest.raises(queue.Empty):
        door[1].callers.get(timeout=0.05)
    assert eventually(lambda: our_threads() == ["dfwtrace-listener"])


def test_one_who_says_nothing_is_dropped(door: Any, hasty_handshakes: None) -> None:
    with plain(door[1]) as stranger, visitor(door) as caller:
        silent = caller.call()  # knows the secret, but then says nothing either
        assert closed(stranger)
        assert closed(silent)


def test_strangers_hold_nobody_up(door: Any) -> None:
    with ExitStack() as held, visitor(door) as caller:
        for _ in range(20):
            held.enter_context(plain(door[1]))
        caller.call(1)
        sock, _, hello = door[1].callers.get(timeout=10.0)
        assert hello == [1]
        sock.close()


class Crowd:
    """Callers who say nothing; whoever is turned away is replaced by another, again and again."""

    def __init__(self, port: int, size: int) -> None:
        self._port, self._size = port, size
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._besiege)
        self.turned_away = 0

    def __enter__(self) -> Crowd:
        self._thread.start()
        assert eventually(lambda: self.turned_away > 0)
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _besiege(self) -> None:
        with ExitStack() as held, selectors.DefaultSelector() as waiting:
            while not self._end.is_set():
                while len(waiting.get_map()) < self._size:
                    with suppress(OSError):  # the door has been closed
                        stranger = socket.create_connection((HOST, self._port), timeout=10.0)
                        waiting.register(held.enter_context(stranger), selectors.EVENT_READ)
                    if self._end.is_set():
                        return
                for key, _ in waiting.select(0.01):
                    stranger = cast(socket.socket, key.fileobj)
                    with suppress(OSError):
                        if stranger.recv(64):  # the challenge
                            continue
                    waiting.unregister(stranger)
                    stranger.close()
                    self.turned_away += 1


def test_a_crowd_of_silent_callers_does_not_keep_workers_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twice as many as fit in at once: the oldest has to leave for whoever comes."""
    # Workers try for a quarter of it: on a busy machine they may be turned away, too.
    engine = GroupEngine(n_shards=4, n_workers=4, job=ProcessJob, start_timeout=120.0)
    opened = engine.open_door
    with ExitStack() as held:
        crowds = []

        def crowded() -> Listener:
            listener = opened()
            crowds.append(held.enter_context(Crowd(listener.port, 128)))
            return listener

        monkeypatch.setattr(engine, "open_door", crowded)
        shards = make_shards(4)
        workers = engine.workers(Products(), lambda: shards)
        assert workers.shard_rows == [shard.n_rows for shard in shards]
        assert len(crowds) == 1
        workers.close()


def test_one_who_has_proven_to_know_the_secret_is_not_turned_away(door: Any) -> None:
    with visitor(door) as caller, ExitStack() as held:
        line = caller.call()  # without a hello, which comes after the crowd
        crowd = [held.enter_context(plain(door[1])) for _ in range(100)]
        assert all(closed(stranger) for stranger in crowd[:36])
        send(line, pack(Kind.HELLO, 0, [3]))
        heard, _, hello = door[1].callers.get(timeout=10.0)
        heard.close()
        assert hello == [3]


def test_of_a_crowd_beyond_what_fits_the_oldest_are_turned_away(door: Any) -> None:
    with ExitStack() as held:
        crowd = [held.enter_context(plain(door[1])) for _ in range(100)]
        assert all(closed(stranger) for stranger in crowd[:36])
        assert eventually(lambda: len(our_threads()) == 1 + 64)
        for stranger in crowd[36:]:
            assert len(stranger.recv(64)) == 32  # the challenge
            stranger.setblocking(False)
            with pytest.raises(BlockingIOError):
                stranger.recv(1)


def test_one_who_came_while_files_had_run_out_is_let_in_later(door: Any) -> None:
    listener = door[1]
    with plain(listener) as first, socket.socket() as caller:
        assert first.recv(1)  # the door is open
        with no_files_left():
            caller.connect((HOST, listener.port))
            assert eventually(lambda: listener.trouble is not None)
        caller.settimeout(10.0)
        assert len(caller.recv(64)) == 32  # the challenge
    assert "Too many open files" in str(listener.trouble)


def test_a_closed_door_leaves_no_thread_and_no_socket() -> None:
    before = open_sockets()
    engine = GroupEngine()
    listener = engine.open_door()
    with ExitStack() as held:
        for _ in range(5):
            held.enter_context(plain(listener))  # in the middle of a handshake
        caller = held.enter_context(Impostor(engine.infos[-1]))
        caller.call(0)  # known, but nobody asked for it
        half = caller.call()  # has not said hello
        assert eventually(lambda: not listener.callers.empty())
        listener.close()
        assert our_threads() == []
        assert closed(half)
        assert closed(caller.sockets[0])
        with pytest.raises(OSError):  # noqa: PT011  # refused or reset, as the system likes
            caller.call(1)
    assert open_sockets() == before
    listener.close()  # a second time does no harm


def test_one_who_comes_while_the_door_is_closing_is_turned_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Accepted just before the door closed, received just after: no thread may be left for it."""
    accepted, closing = threading.Event(), threading.Event()
    accept = socket.socket.accept

    def slowly(listening: socket.socket) -> Any:
        caller = accept(listening)
        accepted.set()
        closing.wait(10.0)
        return caller

    monkeypatch.setattr(socket.socket, "accept", slowly)
    listener = GroupEngine().open_door()
    with plain(listener) as stranger:
        assert accepted.wait(10.0)
        closer = threading.Thread(target=listener.close)
        closer.start()
        assert eventually(lambda: listener._closed)
        closing.set()
        closer.join()
        assert our_threads() == []
        assert closed(stranger)


def test_a_door_can_be_closed_after_closing_it_was_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = open_sockets()
    listener = GroupEngine().open_door()
    wait = listener._ended.wait

    def interrupted() -> None:
        monkeypatch.setattr(listener._ended, "wait", wait)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(listener._ended, "wait", interrupted)
    with plain(listener) as stranger:
        assert stranger.recv(1)
        with pytest.raises(KeyboardInterrupt):
            listener.close()
        listener.close()
        assert our_threads() == []
        assert closed(stranger)
    assert open_sockets() == before


def test_an_address_that_cannot_be_bound_is_named() -> None:
    with pytest.raises(OSError, match=r"bind: cannot listen at 192\.0\.2\.1, port 0"):
        Listener("192.0.2.1", 0, b"")
    first = Listener(HOST, 0, b"")
    try:
        with pytest.raises(OSError, match=f"bind: cannot listen at {HOST}, port {first.port}"):
            Listener(HOST, first.port, b"")
    finally:
        first.close()


def test_the_door_may_be_one_of_ipv6() -> None:
    try:
        listener = Listener("::1", 0, b"s" * 32)
    except OSError:
        pytest.skip("no IPv6 here")
    with socket.create_connection(("::1", listener.port), timeout=10.0) as line:
        connections.offer_handshake(line, b"s" * 32)
        send(line, pack(Kind.HELLO, 0, [1]))
        sock, _, hello = listener.callers.get(timeout=10.0)
        assert hello == [1]
        sock.close()
    listener.close()
