"""A worker's own side: what it tells the driver, and whom it lets in below it."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.engines.resident.groups import GroupEngine
from tests.engines.resident.programs import Products, make_shards
from tests.engines.resident.roles import Host, Impostor, closed

from dfwtrace.engines.resident import worker
from dfwtrace.engines.resident.connections import VERSION
from dfwtrace.engines.resident.wire import HEADER, Kind, pack, receive, send


@pytest.fixture
def host() -> Iterator[Host]:
    made = Host(GroupEngine(n_shards=1, n_workers=1, largest_message=1000))
    yield made
    made.close()


BAD_REQUESTS = {
    "another sequence number": (pack(Kind.SUM, 2, ["product"]), "round 2 where 1 should come"),
    "no method": (pack(Kind.SUM, 1, [3.0]), "no method is named"),
    "a private method": (pack(Kind.SUM, 1, ["__init__"]), "no method is named"),
    "an unknown method": (pack(Kind.SUM, 1, ["fly"]), "has no attribute 'fly'"),
    "no round": (pack(Kind.READY, 1, ["product"]), "READY where a round should come"),
    "too long": (
        pack(Kind.SUM, 1, ["product", np.zeros(1000)]),
        "largest_message = 1000",
    ),
    "nonsense": ([memoryview(HEADER.pack(5, 1, Kind.SUM) + b"what?")], "makes no sense"),
}


@pytest.mark.parametrize("kind", BAD_REQUESTS)
def test_a_worker_tells_what_was_wrong_with_a_request(host: Host, kind: str) -> None:
    request, expected = BAD_REQUESTS[kind]
    host.employ()
    control, link = host.lead()
    send(link, request)
    (told,) = host.next(control, Kind.FAILED).values()
    assert expected in told
    assert closed(control)


def test_a_worker_asks_for_the_tree_and_nothing_else(host: Host) -> None:
    host.employ()
    control, _ = host.meet()
    host.next(control, Kind.READY)
    send(control, pack(Kind.SUM, 0, ["product"]))
    (told,) = host.next(control, Kind.FAILED).values()
    assert "SUM where the tree should come" in told


def test_a_worker_whose_driver_goes_away_ends_quietly(host: Host) -> None:
    errors = host.employ()
    control, link = host.lead()
    link.close()
    assert "connection was closed" in host.next(control, Kind.CUT_OFF).values()[0]
    assert closed(control)
    assert errors == []


def test_a_worker_says_that_it_is_alive_until_its_end(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "INTERVAL", 0.02)
    errors = host.employ()
    control, link = host.lead()
    beats = [receive(control, 100) for _ in range(5)]
    assert [beat.kind for beat in beats] == [Kind.ALIVE] * 5
    assert [beat.values() for beat in beats] == [[0.0]] * 5  # it waits, and is not stalled
    send(link, pack(Kind.STOP, 1))
    assert closed(link)
    assert closed(control)
    assert errors == []


def beats_until_stalled(control: Any) -> None:
    """Read signs of life until one tells of work that gets nowhere."""
    while True:
        beat = receive(control, 1000)
        assert beat.kind == Kind.ALIVE
        if beat.values()[0] > 0.0:
            return


def test_a_worker_tells_that_its_loading_gets_nowhere(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "INTERVAL", 0.02)
    go_on = threading.Event()

    def load(_: Any) -> Any:
        go_on.wait(30.0)
        return make_shards(1)

    host.employ(load=load)
    control, hello = host.meet()
    assert hello[2:] == [os.getpid(), 0, VERSION]
    beats_until_stalled(control)
    go_on.set()
    host.next(control, Kind.READY)
    while receive(control, 100).values() != [0.0]:  # it waits for the driver now
        pass


def test_a_worker_tells_that_its_work_gets_nowhere(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "INTERVAL", 0.02)
    go_on = threading.Event()

    class Waits(Products):
        def begin(self, shard: Any, W: Any) -> Any:
            go_on.wait(30.0)
            return super().begin(shard, W)

    host.employ(Waits())
    control, link = host.lead()
    send(link, pack(Kind.BUILD, 1, ["begin", np.ones(6)]))
    beats_until_stalled(control)
    go_on.set()
    assert receive(link, 1000).kind == Kind.REPLY
    send(link, pack(Kind.STOP, 2))
    assert closed(control)


def test_an_error_that_looks_like_a_lost_connection_is_told_as_what_it_is(host: Host) -> None:
    """A task's own, from a database perhaps: the driver must hear the traceback."""

    class Reads:
        def begin(self, shard: Any) -> Any:
            raise ConnectionResetError("the database hung up")

    host.employ(Reads())
    control, link = host.lead()
    send(link, pack(Kind.BUILD, 1, ["begin"]))
    (told,) = host.next(control, Kind.FAILED).values()
    assert "ConnectionResetError: the database hung up" in told


def test_a_worker_that_cannot_reach_the_driver_says_where_it_tried() -> None:
    engine = GroupEngine(start_timeout=0.3)
    engine.open_door().close()
    info = engine.infos[-1]
    with pytest.raises(ConnectionError, match=f"to 127.0.0.1:{info.port} .*host, bind"):
        worker.serve(info, 0, Products(), lambda _: [], 1)


def test_a_worker_that_cannot_reach_its_parent_says_what_to_open() -> None:
    """It has reached the driver, and nothing that is said about that would help."""
    host = Host(GroupEngine(n_shards=1, n_workers=1, start_timeout=0.3))
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    try:
        host.employ()
        control, _ = host.meet()
        host.next(control, Kind.READY)
        send(control, pack(Kind.TREE, 0, ["127.0.0.1", port]))
        (told,) = host.next(control, Kind.FAILED).values()
    finally:
        host.close()
    assert f"UnreachableError: no way from {socket.gethostname()} to 127.0.0.1:{port}" in told
    assert "fan_in" in told


def test_a_worker_turns_from_a_driver_that_does_not_know_the_secret() -> None:
    engine = GroupEngine(start_timeout=5.0)
    listener = engine.open_door()
    guess = engine.infos[-1]._replace(secret=b"g" * 32)
    with socket.create_server(("127.0.0.1", 0)) as trap:
        trap_at = guess._replace(port=trap.getsockname()[1])

        def play() -> None:
            sock, _ = trap.accept()
            with sock:
                sock.sendall(bytes(64))  # a challenge, and an answer to whatever comes
                closed(sock)

        thread = threading.Thread(target=play)
        thread.start()
        with pytest.raises(ConnectionError, match="does not know the secret"):
            worker.serve(trap_at, 0, Products(), lambda _: [], 1)
        thread.join()
    listener.close()


@pytest.mark.parametrize("crowd", [1, 3, 20])
def test_silent_strangers_at_a_workers_own_door_disturb_nobody(
    engine: Any, monkeypatch: pytest.MonkeyPatch, hasty_handshakes: None, crowd: int
) -> None:
    """A worker with children listens too, from its hello on."""
    strangers: list[Any] = []
    listen = socket.create_server

    def crowded(*args: Any, **settings: Any) -> Any:
        listener = listen(*args, **settings)
        if threading.current_thread().name.startswith("dfwtrace-worker"):
            for _ in range(crowd):
                strangers.append(socket.create_connection(listener.getsockname(), timeout=10.0))
        return listener

    monkeypatch.setattr(socket, "create_server", crowded)
    one = engine(n_shards=3, n_workers=3, fan_in=1, start_timeout=5.0)
    try:
        group = one.launch(Products(), make_shards(3))
        assert len(strangers) == 2 * crowd
        group.round(Kind.BUILD, "begin", (np.ones(6),), None)
        group.close()
    finally:
        for stranger in strangers:
            stranger.close()


def test_garbage_at_a_workers_own_door_disturbs_nobody(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    strangers: list[Any] = []
    listen = socket.create_server

    def visited(*args: Any, **settings: Any) -> Any:
        listener = listen(*args, **settings)
        if threading.current_thread().name.startswith("dfwtrace-worker"):
            stranger = socket.create_connection(listener.getsockname(), timeout=10.0)
            stranger.sendall(bytes(64))
            strangers.append(stranger)
        return listener

    monkeypatch.setattr(socket, "create_server", visited)
    one = engine(n_shards=3, n_workers=3, fan_in=1)
    group = one.launch(Products(), make_shards(3))
    group.round(Kind.BUILD, "begin", (np.ones(6),), None)
    group.close()
    assert len(strangers) == 2
    assert all(closed(stranger) for stranger in strangers)
    for stranger in strangers:
        stranger.close()


@pytest.fixture
def parent() -> Iterator[Any]:
    """Plays the driver of a worker that waits for worker 1 below it."""
    made: list[Host] = []

    def make(start_timeout: float = 20.0) -> Host:
        made.append(Host(GroupEngine(2, 2, fan_in=1, start_timeout=start_timeout)))
        made[-1].employ()
        return made[-1]

    yield make
    for host in made:
        host.close()


def test_a_worker_whose_children_do_not_come_names_them(parent: Any) -> None:
    control, _ = parent(start_timeout=0.5).lead()
    (told,) = Host.next(control, Kind.FAILED).values()
    assert "workers [1] did not link up within 0.5 s (start_timeout)" in told


def test_a_worker_that_waits_for_its_children_notices_the_drivers_end(parent: Any) -> None:
    """It must not wait for them to the end of its time: nobody else would end it."""
    control, link = parent(start_timeout=600.0).lead()
    link.shutdown(socket.SHUT_RDWR)
    control.shutdown(socket.SHUT_WR)
    assert "hung up" in Host.next(control, Kind.CUT_OFF).values()[0]
    assert closed(control)


def test_a_worker_adopts_its_own_children_only(parent: Any) -> None:
    host = parent()
    control, hello = host.meet()
    port = hello[3]
    Host.next(control, Kind.READY)
    send(control, pack(Kind.TREE, 0, [host.info.host, host.info.port]))
    link, _ = host.meet()
    with Impostor(host.info) as other:
        for words in ((0,), (2,), ("1",), (1, "host", 1, 0, VERSION)):
            assert closed(other.call(*words, port=port))
        child = other.call(1, port=port)
        send(link, pack(Kind.STOP, 1))
        assert receive(child, 1000).kind == Kind.STOP
