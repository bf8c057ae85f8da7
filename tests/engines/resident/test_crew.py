"""A crew from its assembly to its end: strangers, nonsense, losses; a failure and never a hang."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np
import pytest
from tests.engines.resident.crews import (
    CrewEngine,
    Impostor,
    NoJob,
    Products,
    closed,
    eventually,
    make_shards,
)

from dfwtrace.engines.failures import CrewLostError, WorkerError
from dfwtrace.engines.resident import crew as crew_module
from dfwtrace.engines.resident import service
from dfwtrace.engines.resident.crew import Crew
from dfwtrace.engines.resident.feeding import pieces
from dfwtrace.engines.resident.wire import HEADER, Kind, pack, receive, send
from dfwtrace.engines.tree import TreeSum
from dfwtrace.shards import Shard


class Assembly:
    """A crew that is put together beside the test, so that the test can play its workers."""

    def __init__(self, engine: CrewEngine, rows: Any = None) -> None:
        self.engine, self.job = engine, NoJob()
        self.reception = engine.open_door()
        self.invitation = engine.invitations[-1]
        self.outcome: Any = None

        def assemble() -> None:
            try:
                self.outcome = Crew(self.invitation, self.reception, self.job, rows)
            except BaseException as error:
                self.outcome = error

        self._thread = threading.Thread(target=assemble)
        self._thread.start()

    def result(self) -> Any:
        """The crew, or what was raised."""
        self._thread.join(30.0)
        assert not self._thread.is_alive(), "the crew hangs"
        return self.outcome

    def close(self) -> None:
        outcome = self.result()
        if isinstance(outcome, Crew):
            outcome.abandon()


@pytest.fixture
def assembly() -> Iterator[Callable[..., Assembly]]:
    with ExitStack() as stack:

        def make(rows: Any = None, **settings: Any) -> Assembly:
            made = Assembly(CrewEngine(**{"job": NoJob, **settings}), rows)
            stack.callback(made.close)
            return made

        yield make


@pytest.fixture
def joined(assembly: Any) -> Iterator[Any]:
    """A crew with one worker of one shard, which the test plays: (crew, control, link)."""
    made = assembly(n_shards=1, n_workers=1, largest_message=1000)
    with Impostor(made.invitation) as worker:
        control, link = worker.join()
        yield made.result(), control, link


def ask(crew: Crew, timeout: float | None = None) -> Any:
    return crew.round(Kind.SUM, "product", (np.ones(2),), timeout)


def answer(link: Any, *values: Any, sequence: int = 1, kind: Kind = Kind.REPLY) -> None:
    send(link, pack(kind, sequence, values))


# Assembly


def test_a_crew_knows_the_rows_of_its_shards(engine: Any) -> None:
    shards = make_shards(5)
    one = engine(n_shards=5, n_workers=3, fan_in=1)
    crew = one.launch(Products(), shards)
    assert crew.shard_rows == [shard.n_rows for shard in shards]
    assert crew.digests == [shard.digest() for shard in shards]
    crew.close()
    assert not one.jobs[0].cancelled
    assert one.jobs[0].errors == []


@pytest.mark.parametrize(
    "hello",
    [
        (-1, "host", 1, 0),
        (2, "host", 1, 0),
        (2**70, "host", 1, 0),
        ("0", "host", 1, 0),
        (0.0, "host", 1, 0),
        (np.zeros(3), "host", 1, 0),
        (0, "host", 1),
        (0, "host", 1, 0, 0),
        (0,),
        (7,),
        ("",),
    ],
    ids=str,
)
def test_a_stranger_who_knows_the_secret_and_says_nonsense_is_dropped(
    assembly: Any, hello: Any
) -> None:
    made = assembly(n_shards=2, n_workers=2)
    with Impostor(made.invitation) as stranger, ExitStack() as held:
        assert closed(stranger.call(*hello))
        team = [held.enter_context(Impostor(made.invitation, i)) for i in range(2)]
        threads = [threading.Thread(target=worker.join) for worker in team]
        for thread in threads:
            thread.start()
        assert isinstance(made.result(), Crew)
        for thread in threads:
            thread.join()


def test_a_second_worker_of_the_same_index_is_dropped(assembly: Any) -> None:
    made = assembly(n_shards=2, n_workers=2)
    with Impostor(made.invitation, 0) as first, Impostor(made.invitation, 0) as double:
        control = first.call(0, "host", 1, 0)
        assert not control.settimeout(0.1)
        assert closed(double.call(0, "another host", 2, 0))
        first.ready(control)
        with Impostor(made.invitation, 1) as second:
            second.join()
            control.settimeout(10.0)
            assert receive(control, 1000).kind == Kind.TREE
            first.call(0)
            assert made.result().shard_rows == [1, 1]


def test_a_second_link_of_the_same_worker_is_dropped(assembly: Any) -> None:
    made = assembly(n_shards=2, n_workers=2)
    with Impostor(made.invitation, 0) as first, Impostor(made.invitation, 1) as second:
        controls = [worker.call(worker.index, "host", 1, 0) for worker in (first, second)]
        for worker, control in zip((first, second), controls, strict=True):
            worker.ready(control)
        for control in controls:
            assert receive(control, 1000).kind == Kind.TREE
        first.call(0)
        assert closed(first.call(0))
        second.call(1)
        assert isinstance(made.result(), Crew)


def test_a_link_of_a_worker_that_hangs_below_another_is_dropped(assembly: Any) -> None:
    made = assembly(n_shards=2, n_workers=2, fan_in=1)
    with Impostor(made.invitation, 0) as first, Impostor(made.invitation, 1) as second:
        controls = [worker.call(worker.index, "host", 1, 5) for worker in (first, second)]
        for worker, control in zip((first, second), controls, strict=True):
            worker.ready(control)
        told = [receive(control, 1000).values() for control in controls]
        assert told == [[made.invitation.host, made.invitation.port], ["127.0.0.1", 5]]
        assert closed(second.call(1))
        first.call(0)
        assert isinstance(made.result(), Crew)


def test_too_few_workers_are_counted(assembly: Any) -> None:
    made = assembly(n_shards=3, n_workers=3, start_timeout=0.5)
    with Impostor(made.invitation, 1) as worker:
        worker.call(1, "host", 1, 0)
        error = made.result()
        assert isinstance(error, WorkerError)
        assert "1 of 3 workers came within 0.5 s (start_timeout)" in str(error)
        assert f":{made.invitation.port}" in str(error)
    assert made.job.cancelled


def test_workers_that_do_not_link_up_are_counted(assembly: Any) -> None:
    made = assembly(n_shards=2, n_workers=2, start_timeout=0.5)
    with Impostor(made.invitation, 0) as first, Impostor(made.invitation, 1) as second:
        for worker in (first, second):
            worker.ready(worker.call(worker.index, "host", 1, 0))
        error = made.result()
    assert isinstance(error, WorkerError)
    assert "0 of 2 workers linked up" in str(error)


def test_a_job_that_ends_before_everybody_came_tells_why(assembly: Any) -> None:
    made = assembly(n_shards=2, n_workers=2)
    made.job.ended = LookupError("no such table")
    error = made.result()
    assert isinstance(error, LookupError)
    assert made.job.cancelled


def test_a_workers_own_word_comes_before_the_jobs(assembly: Any) -> None:
    """It is on its way when the job's end is already known, perhaps in several pieces."""
    made = assembly(n_shards=2, n_workers=2)
    with Impostor(made.invitation) as worker:
        control = worker.call(0, "host", 1, 0)
        assert eventually(lambda: made.reception.callers.empty())
        words = b"".join(pack(Kind.FAILED, 0, ["LookupError: row 7"]))
        control.sendall(words[: HEADER.size])
        made.job.ended = RuntimeError("Job aborted due to stage failure")
        time.sleep(0.05)
        with suppress(OSError):
            control.sendall(words[HEADER.size :])
        error = made.result()
    assert isinstance(error, CrewLostError)
    assert error.traceback == "LookupError: row 7"


@pytest.mark.parametrize("when", ["before ready", "after ready"])
def test_a_worker_that_goes_during_assembly_is_named(assembly: Any, when: str) -> None:
    made = assembly(n_shards=2, n_workers=2)
    with Impostor(made.invitation, 1) as worker:
        control = worker.call(1, "a-host", 4711, 0)
        if when == "after ready":
            worker.ready(control)
    error = made.result()
    assert isinstance(error, CrewLostError)
    assert "worker 1 (a-host, process 4711) is gone" in error.what


def test_a_worker_that_falls_silent_during_assembly_is_named(
    assembly: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crew_module, "SILENCE", 0.3)
    made = assembly(n_shards=2, n_workers=2)
    with Impostor(made.invitation, 1) as worker:
        worker.call(1, "a-host", 4711, 0)
        error = made.result()
    assert isinstance(error, CrewLostError)
    assert "worker 1 (a-host, process 4711) has given no sign of life" in error.what


def test_loading_may_take_as_long_as_there_are_signs_of_life(
    assembly: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crew_module, "SILENCE", 0.5)
    made = assembly(n_shards=1, n_workers=1, start_timeout=0.5)
    with Impostor(made.invitation) as worker:
        control = worker.call(0, "host", 1, 0)
        for _ in range(15):
            time.sleep(0.1)
            send(control, pack(Kind.ALIVE, 0))
        worker.ready(control)
        assert receive(control, 1000).kind == Kind.TREE
        worker.call(0)
        assert isinstance(made.result(), Crew)


def test_rows_that_cannot_be_sent_are_an_error(assembly: Any) -> None:
    def rows(index: int) -> Iterator[list[Any]]:
        yield ["fine"]
        raise LookupError("no such file")

    made = assembly(rows, n_shards=1, n_workers=1)
    with Impostor(made.invitation) as worker:
        worker.call(0, "host", 1, 0)
        assert isinstance(made.result(), LookupError)


def test_a_worker_that_fails_amid_its_rows_still_tells_why(assembly: Any) -> None:
    """There are more rows on the line than anybody reads."""
    shards = [Shard(0, np.ones((4_000_000, 4)), None)]
    made = assembly(lambda index: pieces(shards), n_shards=1, n_workers=1)

    def load(next_frame: Callable[[], Any]) -> list[Shard]:
        for _ in range(4):
            next_frame()
        raise LookupError("this row is bad")

    with pytest.raises(LookupError):
        service.serve(made.invitation, 0, Products(), load, 1)
    error = made.result()
    assert isinstance(error, CrewLostError)
    assert "LookupError: this row is bad" in str(error.traceback)


SAID_ON_THE_SIDE = {
    "nonsense": HEADER.pack(5, 0, Kind.READY) + b"what?",
    "too few values": b"".join(pack(Kind.READY, 0, [np.ones(1, np.int64)])),
    "no arrays": b"".join(pack(Kind.READY, 0, ["rows", "digests"])),
    "half a digest": b"".join(pack(Kind.READY, 0, [np.ones(1, np.int64), np.ones(9, np.uint8)])),
    "no traceback": b"".join(pack(Kind.FAILED, 0)),
    "no reason": b"".join(pack(Kind.CUT_OFF, 0)),
    "unknown kind": HEADER.pack(0, 0, 99),
    "over the cap": HEADER.pack(2**40, 0, Kind.READY),
}


@pytest.mark.parametrize("kind", SAID_ON_THE_SIDE)
def test_nonsense_on_the_side_ends_the_crew_by_name(assembly: Any, kind: str) -> None:
    """As from a worker with another version of this package."""
    made = assembly(n_shards=1, n_workers=1, largest_message=1 << 20)
    with Impostor(made.invitation) as worker:
        control = worker.call(0, "a-host", 4711, 0)
        control.sendall(SAID_ON_THE_SIDE[kind])
        error = made.result()
    assert isinstance(error, CrewLostError), repr(error)
    assert "worker 0 (a-host, process 4711)" in error.what


# Rounds


def test_replies_are_taken_in_any_order_of_arrival(assembly: Any) -> None:
    made = assembly(n_shards=3, n_workers=3)
    parts = [np.array([1.0]), np.array([1e-17]), np.array([-1.0])]
    with ExitStack() as held:
        team = [held.enter_context(Impostor(made.invitation, i)) for i in range(3)]
        links: list[Any] = [None] * 3
        joining = [
            threading.Thread(target=lambda w=worker: links.__setitem__(w.index, w.join()[1]))
            for worker in team
        ]
        for thread in joining:
            thread.start()
        crew = made.result()
        for thread in joining:
            thread.join()
        sums = set()
        for sequence, order in enumerate([(0, 1, 2), (2, 1, 0), (1, 2, 0)], start=1):

            def reply(order: Any = order, sequence: int = sequence) -> None:
                for i in range(3):
                    assert receive(links[i], 1000).sequence == sequence
                for i in order:
                    answer(links[i], 0.25, 0, 0, i, parts[i], sequence=sequence)
                    time.sleep(0.05)

            thread = threading.Thread(target=reply)
            thread.start()
            nodes, cost = ask(crew)
            thread.join()
            assert [node.place for node in nodes] == list(order)
            assert cost.compute == 0.25
            total = TreeSum(3)
            for node in nodes:
                total.add_node(node)
            sums.add(total.result().tobytes())
        assert len(sums) == 1


def test_a_request_is_what_the_worker_gets(joined: Any) -> None:
    crew, _, link = joined
    answer(link, 0.5, 0, 0, 0, np.array([3.0]))
    nodes, cost = crew.round(Kind.GATHER, "norms", (np.arange(3.0), 2.5, 2**70), None)
    request = receive(link, 1000)
    assert (request.kind, request.sequence) == (Kind.GATHER, 1)
    method, vector, number, seed = request.values()
    assert (method, number, seed) == ("norms", 2.5, 2**70)
    np.testing.assert_array_equal(vector, np.arange(3.0))
    assert nodes[0].partial == 3.0
    assert cost.compute == 0.5
    reply = sum(len(part) for part in pack(Kind.REPLY, 1, [0.5, 0, 0, 0, np.array([3.0])]))
    assert cost.bytes == HEADER.size + len(request.payload) + reply


BAD_REPLIES = {
    "another sequence number": b"".join(pack(Kind.REPLY, 2, [0.0, 0])),
    "the number of no round": b"".join(pack(Kind.REPLY, 0, [0.0, 0])),
    "another kind": b"".join(pack(Kind.SUM, 1, [0.0, 0])),
    "nothing": b"".join(pack(Kind.REPLY, 1)),
    "no seconds": b"".join(pack(Kind.REPLY, 1, ["fast", 0])),
    "no bytes": b"".join(pack(Kind.REPLY, 1, [0.0, "few"])),
    "half a node": b"".join(pack(Kind.REPLY, 1, [0.0, 0, 0, 0])),
    "a node of words": b"".join(pack(Kind.REPLY, 1, [0.0, 0, "a", "b", "c"])),
    "nonsense": HEADER.pack(5, 1, Kind.REPLY) + b"what?",
    "unknown kind": HEADER.pack(0, 1, 99),
    "over the cap": HEADER.pack(1001, 1, Kind.REPLY) + bytes(1001),
    "far over the cap": HEADER.pack(2**63, 1, Kind.REPLY),
}


@pytest.mark.parametrize("kind", BAD_REPLIES)
def test_a_bad_reply_ends_the_crew_by_name(joined: Any, kind: str) -> None:
    crew, _, link = joined
    link.sendall(BAD_REPLIES[kind])
    with pytest.raises(CrewLostError) as caught:
        ask(crew)
    assert "worker 0 (somewhere, process 4711)" in caught.value.what


def test_a_reply_that_comes_twice_is_not_added_twice(assembly: Any) -> None:
    made = assembly(n_shards=2, n_workers=2)
    with Impostor(made.invitation, 0) as first, Impostor(made.invitation, 1) as second:
        links: list[Any] = [None, None]
        thread = threading.Thread(target=lambda: links.__setitem__(1, second.join()[1]))
        thread.start()
        links[0] = first.join()[1]
        thread.join()
        crew = made.result()
        answer(links[0], 0.0, 0, 0, 0, np.ones(1))
        answer(links[0], 0.0, 0, 0, 0, np.ones(1))
        later = threading.Timer(0.3, answer, (links[1], 0.0, 0, 0, 1, np.ones(1)))
        later.start()
        try:
            with pytest.raises(CrewLostError):
                ask(crew)
        finally:
            later.join()


@pytest.mark.parametrize("where", ["control", "link"])
def test_a_line_that_breaks_in_a_round_is_noticed(joined: Any, where: str) -> None:
    crew, control, link = joined
    (control if where == "control" else link).shutdown(socket.SHUT_RDWR)
    with pytest.raises(CrewLostError, match=r"worker 0 \(somewhere, process 4711\) is gone"):
        ask(crew)


def test_a_line_that_was_reset_before_a_round_is_noticed(joined: Any) -> None:
    crew, _, link = joined
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    link.close()
    with pytest.raises(CrewLostError, match=r"worker 0 \(somewhere, process 4711\) is gone"):
        ask(crew)


def test_a_request_waits_for_a_worker_that_reads_slowly(joined: Any) -> None:
    crew, _, link = joined
    large = np.arange(2_000_000.0)
    got: list[Any] = []

    def read() -> None:
        time.sleep(0.2)
        got.append(receive(link, 1 << 30))
        answer(link, 0.0, 0)

    thread = threading.Thread(target=read)
    thread.start()
    crew.round(Kind.APPLY, "move", (large,), None)
    thread.join()
    np.testing.assert_array_equal(got[0].values()[1], large)


def test_one_to_blame_has_time_to_say_so(joined: Any) -> None:
    """Its link broke, and its traceback comes a moment later."""
    crew, control, link = joined
    link.close()
    later = threading.Timer(
        0.3, send, (control, pack(Kind.FAILED, 0, ["LookupError: shard 0 is broken"]))
    )
    later.start()
    with pytest.raises(CrewLostError) as caught:
        ask(crew)
    later.join()
    assert caught.value.traceback == "LookupError: shard 0 is broken"


def test_one_that_was_cut_off_is_not_to_blame_at_once(joined: Any) -> None:
    crew, control, _ = joined
    send(control, pack(Kind.CUT_OFF, 0, ["the connection was closed"]))
    control.shutdown(socket.SHUT_RDWR)
    with pytest.raises(CrewLostError, match="lost its connection: the connection was closed"):
        ask(crew)


def test_a_round_that_takes_too_long_is_ended(joined: Any) -> None:
    crew, control, _ = joined
    ended = threading.Event()

    def live() -> None:
        while not ended.wait(0.05):
            send(control, pack(Kind.ALIVE, 0))

    alive = threading.Thread(target=live)
    alive.start()
    with pytest.raises(
        CrewLostError, match=r"no answer to product within 0\.5 s \(round_timeout\)"
    ):
        ask(crew, timeout=0.5)
    ended.set()
    alive.join()


def test_silence_in_a_round_is_noticed(joined: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew_module, "SILENCE", 0.3)
    time.sleep(0.4)  # silence between rounds does not count
    crew, _, link = joined
    answer(link, 0.0, 0)
    ask(crew)
    with pytest.raises(CrewLostError, match=r"no sign of life for 0\.3 s"):
        ask(crew)


def test_large_requests_and_replies_pass(engine: Any) -> None:
    """More than all buffers hold, both ways at once, and in a tree."""

    class Echo(Products):
        def echo(self, shard: Any, v: Any) -> Any:
            return v * 1.0

    crew = engine(n_shards=6, n_workers=6, fan_in=2).launch(Echo(), make_shards(6))
    v = np.random.default_rng(0).standard_normal(1_000_000)
    nodes, cost = crew.round(Kind.GATHER, "echo", (v,), None)
    assert sorted(node.place for node in nodes) == list(range(6))
    assert all(node.partial.tobytes() == v.tobytes() for node in nodes)
    assert cost.bytes > 12 * v.nbytes
    crew.close()


@pytest.mark.parametrize("fan_in", [1, 2, 3, 16])
def test_the_driver_gets_at_most_fan_in_replies(
    engine: Any, monkeypatch: pytest.MonkeyPatch, fan_in: int
) -> None:
    """And all bytes on all wires are counted, wherever they went."""
    sent: list[int] = []
    passed_on = [0]
    unpack, say = crew_module.unpack_reply, service.send
    lock = threading.Lock()

    def counted_reply(frame: Any, sequence: int) -> Any:
        sent.append(HEADER.size + len(frame.payload))
        return unpack(frame, sequence)

    def counted_send(sock: Any, buffers: Any) -> int:
        kind = HEADER.unpack(buffers[0][: HEADER.size])[2]
        if kind in (Kind.SUM, Kind.REPLY):
            with lock:
                passed_on[0] += sum(len(buffer) for buffer in buffers)
        return say(sock, buffers)

    monkeypatch.setattr(crew_module, "unpack_reply", counted_reply)
    monkeypatch.setattr(service, "send", counted_send)
    crew = engine(n_shards=12, n_workers=12, fan_in=fan_in).launch(Products(), make_shards(12))
    crew.round(Kind.BUILD, "begin", (np.ones(6),), None)
    sent.clear()
    passed_on[0] = 0
    _, cost = crew.round(Kind.SUM, "product", (np.ones(6),), None)
    assert len(sent) == min(fan_in, 12)
    request = sum(len(part) for part in pack(Kind.SUM, 2, ["product", np.ones(6)]))
    assert cost.bytes == passed_on[0] + len(sent) * request
    assert cost.bytes > 12 * (request + 6 * 8)
    if fan_in == 1:  # the driver gets the one sum over all shards
        assert sent[0] < request + 100
    crew.close()


# A worker's own side


def worker_thread(made: Any, program: Any = None, load: Any = None) -> list[BaseException]:
    """A real worker 0 with no rows of its own; what it raised is in the list when it has ended."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            service.serve(
                made.invitation, 0, program or Products(), load or (lambda _: make_shards(1)), 1
            )
        except BaseException as error:
            errors.append(error)

    threading.Thread(target=run, name="dfwtrace-worker", daemon=True).start()
    return errors


class Host:
    """The driver's side of one worker, played by hand."""

    def __init__(self, engine: CrewEngine) -> None:
        self.reception = engine.open_door()
        self.invitation = engine.invitations[-1]
        self.sockets: list[Any] = []

    def meet(self) -> Any:
        sock, _, hello = self.reception.callers.get(timeout=10.0)
        sock.settimeout(10.0)
        self.sockets.append(sock)
        return sock, hello

    def lead(self) -> tuple[Any, Any]:
        """Bring the worker up to its first round: (control, link)."""
        control, hello = self.meet()
        assert hello[0] == 0
        self.next(control, Kind.READY)
        send(control, pack(Kind.TREE, 0, [self.invitation.host, self.invitation.port]))
        link, hello = self.meet()
        assert hello == [0]
        return control, link

    @staticmethod
    def next(control: Any, kind: Kind) -> Any:
        while True:
            frame = receive(control, 1 << 20)
            if frame.kind != Kind.ALIVE:
                assert frame.kind == kind, frame
                return frame

    def close(self) -> None:
        self.reception.close()
        for sock in self.sockets:
            sock.close()


@pytest.fixture
def host() -> Iterator[Host]:
    made = Host(CrewEngine(n_shards=1, n_workers=1, largest_message=1000))
    yield made
    made.close()


BAD_REQUESTS = {
    "another sequence number": (pack(Kind.SUM, 2, ["product"]), "round 2 where 1 should come"),
    "no method": (pack(Kind.SUM, 1, [3.0]), "no method is named"),
    "a private method": (pack(Kind.SUM, 1, ["__init__"]), "no method is named"),
    "an unknown method": (pack(Kind.SUM, 1, ["fly"]), "has no attribute 'fly'"),
    "no round": (pack(Kind.READY, 1, ["product"]), "READY where a round should come"),
    "too long": (pack(Kind.SUM, 1, ["product", np.zeros(1000)]), "where 1000 is the most"),
    "nonsense": ([memoryview(HEADER.pack(5, 1, Kind.SUM) + b"what?")], "makes no sense"),
}


@pytest.mark.parametrize("kind", BAD_REQUESTS)
def test_a_worker_tells_what_was_wrong_with_a_request(host: Host, kind: str) -> None:
    request, expected = BAD_REQUESTS[kind]
    worker_thread(host)
    control, link = host.lead()
    send(link, request)
    (told,) = host.next(control, Kind.FAILED).values()
    assert expected in told
    assert closed(control)


def test_a_worker_asks_for_the_tree_and_nothing_else(host: Host) -> None:
    worker_thread(host)
    control, _ = host.meet()
    host.next(control, Kind.READY)
    send(control, pack(Kind.SUM, 0, ["product"]))
    (told,) = host.next(control, Kind.FAILED).values()
    assert "SUM where the tree should come" in told


def test_a_worker_whose_driver_goes_away_ends_quietly(host: Host) -> None:
    errors = worker_thread(host)
    control, link = host.lead()
    link.close()
    assert "connection was closed" in host.next(control, Kind.CUT_OFF).values()[0]
    assert closed(control)
    assert errors == []


def test_a_worker_says_that_it_is_alive_until_its_end(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "HEARTBEAT", 0.02)
    errors = worker_thread(host)
    control, link = host.lead()
    assert [receive(control, 100).kind for _ in range(5)] == [Kind.ALIVE] * 5
    send(link, pack(Kind.STOP, 1))
    assert closed(link)
    assert closed(control)
    assert errors == []


def test_an_error_that_looks_like_a_lost_connection_is_told_as_what_it_is(host: Host) -> None:
    """A task's own, from a database perhaps: the driver must hear the traceback."""

    class Reads:
        def begin(self, shard: Any) -> Any:
            raise ConnectionResetError("the database hung up")

    worker_thread(host, Reads())
    control, link = host.lead()
    send(link, pack(Kind.BUILD, 1, ["begin"]))
    (told,) = host.next(control, Kind.FAILED).values()
    assert "ConnectionResetError: the database hung up" in told


def test_a_worker_that_cannot_reach_the_driver_says_where_it_tried() -> None:
    engine = CrewEngine(start_timeout=0.3)
    engine.open_door().close()
    invitation = engine.invitations[-1]
    with pytest.raises(ConnectionError, match=f"to 127.0.0.1:{invitation.port} .*host, bind"):
        service.serve(invitation, 0, Products(), lambda _: [], 1)


def test_a_worker_turns_from_a_driver_that_does_not_know_the_secret() -> None:
    engine = CrewEngine(start_timeout=5.0)
    reception = engine.open_door()
    guess = engine.invitations[-1]._replace(secret=b"g" * 32)
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
            service.serve(trap_at, 0, Products(), lambda _: [], 1)
        thread.join()
    reception.close()


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
        crew = one.launch(Products(), make_shards(3))
        assert len(strangers) == 2 * crowd
        crew.round(Kind.BUILD, "begin", (np.ones(6),), None)
        crew.close()
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
    crew = one.launch(Products(), make_shards(3))
    crew.round(Kind.BUILD, "begin", (np.ones(6),), None)
    crew.close()
    assert len(strangers) == 2
    assert all(closed(stranger) for stranger in strangers)
    for stranger in strangers:
        stranger.close()


@pytest.fixture
def parent() -> Iterator[Any]:
    """Plays the driver of a worker that waits for worker 1 below it."""
    made: list[Host] = []

    def make(start_timeout: float = 20.0) -> Host:
        made.append(Host(CrewEngine(2, 2, fan_in=1, start_timeout=start_timeout)))
        worker_thread(made[-1])
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
    send(control, pack(Kind.TREE, 0, [host.invitation.host, host.invitation.port]))
    link, _ = host.meet()
    with Impostor(host.invitation) as other:
        for words in ((0,), (2,), ("1",), (1, "host", 1, 0)):
            assert closed(other.call(*words, port=port))
        child = other.call(1, port=port)
        send(link, pack(Kind.STOP, 1))
        assert receive(child, 1000).kind == Kind.STOP
