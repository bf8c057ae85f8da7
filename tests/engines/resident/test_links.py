"""What comes in on the lines, and what does not: a failure by name, and never a hang."""

from __future__ import annotations

import socket
import struct
import threading
import time
from typing import Any

import numpy as np
import pytest
from tests.engines.resident.roles import Impostor, Team, answer, ask

from dfwtrace.engines.base import WorkersLostError
from dfwtrace.engines.resident import links
from dfwtrace.engines.resident.wire import HEADER, Kind, pack, send


@pytest.fixture(autouse=True)
def brief_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "GRACE", 0.4)


def said(kind: Kind, *values: Any, sequence: int = 0) -> bytes:
    return b"".join(pack(kind, sequence, values))


ROWS, DIGEST = np.ones(1, np.int64), np.zeros(16, np.uint8)
SAID_ON_THE_SIDE = {
    "nonsense": HEADER.pack(5, 0, Kind.READY) + b"what?",
    "too few values": said(Kind.READY, ROWS),
    "too many values": said(Kind.READY, ROWS, DIGEST, DIGEST),
    "no arrays": said(Kind.READY, "rows", "digests"),
    "a number for the rows": said(Kind.READY, 1, DIGEST),
    "a number for the digests": said(Kind.READY, ROWS, 7.0),
    "endless rows": said(Kind.READY, np.array([np.inf]), DIGEST),
    "half a digest": said(Kind.READY, ROWS, DIGEST[:9]),
    "no digest": said(Kind.READY, ROWS, DIGEST[:0]),
    "a shard too many": said(Kind.READY, np.ones(2, np.int64), np.zeros(32, np.uint8)),
    "a shard too few": said(Kind.READY, ROWS[:0], DIGEST[:0]),
    "no sign of work": said(Kind.ALIVE),
    "work in words": said(Kind.ALIVE, "hard"),
    "endless work": said(Kind.ALIVE, 10**400),
    "no traceback": said(Kind.FAILED),
    "no reason": said(Kind.CUT_OFF),
    "unknown kind": HEADER.pack(0, 0, 99),
    "over the cap": HEADER.pack(2**40, 0, Kind.READY),
}


@pytest.mark.parametrize("kind", SAID_ON_THE_SIDE)
def test_nonsense_on_the_side_ends_the_group_by_name(assembly: Any, kind: str) -> None:
    """As from a worker that has gone mad."""
    made = assembly(n_shards=1, n_workers=1, largest_message=1 << 20)
    with Impostor(made.info) as worker:
        worker.greet().sendall(SAID_ON_THE_SIDE[kind])
        error = made.result()
    assert isinstance(error, WorkersLostError), repr(error)
    assert "worker 0 (a-host, process 4711)" in error.what


def test_a_wrong_number_of_shards_is_told(assembly: Any) -> None:
    made = assembly(n_shards=3, n_workers=1)
    with Impostor(made.info) as worker:
        worker.ready(worker.greet(), rows=2)
        error = made.result()
    assert "sent a READY that makes no sense (2 shards where 3 are due)" in error.what


BAD_REPLIES = {
    "another sequence number": said(Kind.REPLY, 0.0, 0, sequence=2),
    "the number of no round": said(Kind.REPLY, 0.0, 0, sequence=0),
    "another kind": said(Kind.SUM, 0.0, 0, sequence=1),
    "nothing": said(Kind.REPLY, sequence=1),
    "no seconds": said(Kind.REPLY, "fast", 0, sequence=1),
    "no bytes": said(Kind.REPLY, 0.0, "few", sequence=1),
    "half a node": said(Kind.REPLY, 0.0, 0, 0, 0, sequence=1),
    "a node of words": said(Kind.REPLY, 0.0, 0, "a", "b", "c", sequence=1),
    "nonsense": HEADER.pack(5, 1, Kind.REPLY) + b"what?",
    "unknown kind": HEADER.pack(0, 1, 99),
}


@pytest.mark.parametrize("kind", BAD_REPLIES)
def test_a_bad_reply_ends_the_group_by_name(joined: Any, kind: str) -> None:
    group, _, link = joined
    link.sendall(BAD_REPLIES[kind])
    with pytest.raises(WorkersLostError) as caught:
        ask(group)
    assert "worker 0 (a-host, process 4711)" in caught.value.what


@pytest.mark.parametrize("length", [1001, 2**63])
def test_a_reply_over_the_cap_is_refused_by_name(joined: Any, length: int) -> None:
    group, _, link = joined
    link.sendall(HEADER.pack(length, 1, Kind.REPLY))
    with pytest.raises(WorkersLostError) as caught:
        ask(group)
    assert "worker 0 (a-host, process 4711)" in caught.value.what
    assert f"a message of {length} bytes, where largest_message = 1000" in caught.value.what


def test_a_reply_that_comes_twice_is_not_added_twice(assembly: Any) -> None:
    with Team(assembly(n_shards=2, n_workers=2)) as team:
        for _ in range(2):
            answer(team.links[0], 0.0, 0, 0, 0, np.ones(1))
        later = threading.Timer(0.1, answer, (team.links[1], 0.0, 0, 0, 1, np.ones(1)))
        later.start()
        try:
            with pytest.raises(WorkersLostError, match="a reply that nobody asked for"):
                ask(team.group)
        finally:
            later.join()


@pytest.mark.parametrize("where", ["control", "link"])
def test_a_line_that_breaks_in_a_round_is_noticed(joined: Any, where: str) -> None:
    group, control, link = joined
    (control if where == "control" else link).shutdown(socket.SHUT_RDWR)
    with pytest.raises(WorkersLostError, match=r"worker 0 \(a-host, process 4711\) is gone"):
        ask(group)


def test_a_line_that_was_reset_before_a_round_is_noticed(joined: Any) -> None:
    group, _, link = joined
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    link.close()
    with pytest.raises(WorkersLostError, match=r"worker 0 \(a-host, process 4711\) is gone"):
        ask(group)


def test_one_to_blame_has_time_to_say_so(joined: Any) -> None:
    """Its link broke, and its traceback comes a moment later."""
    group, control, link = joined
    link.close()
    later = threading.Timer(
        0.1, send, (control, pack(Kind.FAILED, 0, ["LookupError: shard 0 is broken"]))
    )
    later.start()
    with pytest.raises(WorkersLostError) as caught:
        ask(group)
    later.join()
    assert caught.value.traceback == "LookupError: shard 0 is broken"


def test_one_that_was_cut_off_is_not_to_blame_at_once(joined: Any) -> None:
    group, control, _ = joined
    send(control, pack(Kind.CUT_OFF, 0, ["the connection was closed"]))
    control.shutdown(socket.SHUT_RDWR)
    with pytest.raises(WorkersLostError, match="lost its connection: the connection was closed"):
        ask(group)


def test_a_round_that_takes_too_long_is_ended(joined: Any) -> None:
    group, control, _ = joined
    ended = threading.Event()

    def live() -> None:
        while not ended.wait(0.05):
            send(control, pack(Kind.ALIVE, 0, [0.0]))

    alive = threading.Thread(target=live)
    alive.start()
    with pytest.raises(
        WorkersLostError, match=r"no answer to product within 0\.3 s \(round_timeout\)"
    ):
        ask(group, timeout=0.3)
    ended.set()
    alive.join()


def test_silence_in_a_round_is_noticed(joined: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "SILENCE", 0.3)
    time.sleep(0.4)  # silence between rounds does not count
    group, _, link = joined
    answer(link, 0.0, 0)
    ask(group)
    with pytest.raises(WorkersLostError, match=r"no sign of life for 0\.3 s"):
        ask(group)


@pytest.mark.parametrize("stalled", [0.0, 120.0])
def test_a_worker_that_has_not_worked_in_vain_for_long_is_waited_for(
    joined: Any, stalled: float
) -> None:
    group, control, link = joined
    send(control, pack(Kind.ALIVE, 0, [stalled]))
    answered = threading.Timer(0.1, answer, (link, 0.0, 0))
    answered.start()
    ask(group)
    answered.join()


def test_a_worker_that_hangs_at_its_work_is_lost_by_name(joined: Any) -> None:
    group, control, _ = joined
    send(control, pack(Kind.ALIVE, 0, [120.4]))
    with pytest.raises(WorkersLostError) as caught:
        ask(group)
    assert caught.value.what == (
        "worker 0 (a-host, process 4711) hangs: it is at work and has used no processor for 120 s"
    )


def test_a_worker_that_hangs_while_it_loads_is_lost_by_name(assembly: Any) -> None:
    made = assembly(n_shards=1, n_workers=1)
    with Impostor(made.info) as worker:
        send(worker.greet(), pack(Kind.ALIVE, 0, [121.0]))
        error = made.result()
    assert isinstance(error, WorkersLostError)
    assert "worker 0 (a-host, process 4711) hangs" in error.what
