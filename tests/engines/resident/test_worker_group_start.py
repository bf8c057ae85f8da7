"""A group's assembly: strangers, nonsense, losses; a group or a clear end, and never a hang."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from tests.engines.resident.groups import NoJob
from tests.engines.resident.machine import eventually, no_files_left
from tests.engines.resident.programs import Products, make_shards
from tests.engines.resident.roles import Impostor, Team, closed

from dfwtrace.data.shards import Shard
from dfwtrace.engines.base import WorkerError, WorkersLostError
from dfwtrace.engines.resident import links, worker
from dfwtrace.engines.resident.connections import VERSION
from dfwtrace.engines.resident.wire import HEADER, Kind, pack, receive, send, shard_payloads
from dfwtrace.engines.resident.worker_group import WorkerGroup


def test_a_group_knows_the_rows_of_its_shards(engine: Any) -> None:
    shards = make_shards(5)
    one = engine(n_shards=5, n_workers=3, fan_in=1)
    group = one.launch(Products(), shards)
    assert group.shard_rows == [shard.n_rows for shard in shards]
    assert group.digests == [shard.digest() for shard in shards]
    group.close()
    assert not one.jobs[0].cancelled
    assert one.jobs[0].errors == []


@pytest.mark.parametrize(
    "hello",
    [
        (-1, "host", 1, 0, VERSION),
        (2, "host", 1, 0, VERSION),
        (2**70, "host", 1, 0, VERSION),
        ("0", "host", 1, 0, VERSION),
        (0.0, "host", 1, 0, VERSION),
        (np.zeros(3), "host", 1, 0, VERSION),
        (0, 1, 1, 0, VERSION),
        (0, "host", 1.0, 0, VERSION),
        (0, "host", 1, "0", VERSION),
        (0, "host", 1, np.zeros(1), VERSION),
        (0, "host", 1, 0, 1.1),
        (0, "host", 1, 0),
        (0, "host", 1, 0, VERSION, 0),
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
    with Impostor(made.info) as stranger:
        assert closed(stranger.call(*hello))
        with Team(made) as team:
            assert isinstance(team.group, WorkerGroup)


def test_a_worker_with_a_number_of_its_process_beyond_all_is_a_worker(assembly: Any) -> None:
    made = assembly(n_shards=1, n_workers=1)
    with Impostor(made.info) as worker:
        worker.call(0, "a-host", 10**4000, 0, VERSION)
    error = made.result()
    assert isinstance(error, WorkersLostError)
    assert "worker 0 (a-host, process " in error.what
    assert len(error.what) < 200


def test_another_version_on_a_worker_is_told_with_both(assembly: Any) -> None:
    """They might not understand each other; a restart would not help."""
    made = assembly(n_shards=2, n_workers=2)
    with Impostor(made.info, 1) as worker:
        control = worker.call(1, "a-host", 4711, 0, "0.0.1")
        error = made.result()
        assert closed(control)
    assert isinstance(error, WorkerError)
    told = f"worker 1 (a-host, process 4711) has dfwtrace 0.0.1 and the driver {VERSION}"
    assert told in str(error)
    assert made.job.cancelled


def test_a_second_worker_of_the_same_index_is_dropped(assembly: Any) -> None:
    made = assembly(lambda index: [["a row"]] if index == 0 else [], n_shards=2, n_workers=2)
    with Impostor(made.info, 0) as first, Impostor(made.info, 0) as double:
        control = first.greet()
        assert receive(control, 1000).kind == Kind.ROWS  # it is known
        assert closed(double.greet())
        first.ready(control)
        with Impostor(made.info, 1) as second:
            second.join()
            assert receive(control, 1000).kind == Kind.TREE
            first.call(0)
            assert made.result().shard_rows == [1, 1]


def test_a_second_link_of_the_same_worker_is_dropped(assembly: Any) -> None:
    made = assembly(n_shards=2, n_workers=2)
    with Impostor(made.info, 0) as first, Impostor(made.info, 1) as second:
        controls = [worker.greet() for worker in (first, second)]
        for worker, control in zip((first, second), controls, strict=True):
            worker.ready(control)
        for control in controls:
            assert receive(control, 1000).kind == Kind.TREE
        links = [
            first.call(0),
            first.call(0),
        ]  # which of them is heard first is the system's to say
        (dropped,), _, _ = select.select(links, [], [], 10.0)
        assert closed(dropped)
        second.call(1)
        assert isinstance(made.result(), WorkerGroup)


def test_a_link_of_a_worker_that_hangs_below_another_is_dropped(assembly: Any) -> None:
    made = assembly(n_shards=2, n_workers=2, fan_in=1)
    with Impostor(made.info, 0) as first, Impostor(made.info, 1) as second:
        controls = [worker.greet(port=5) for worker in (first, second)]
        for worker, control in zip((first, second), controls, strict=True):
            worker.ready(control)
        told = [receive(control, 1000).values() for control in controls]
        assert told == [[made.info.host, made.info.port], ["127.0.0.1", 5]]
        assert closed(second.call(1))
        first.call(0)
        assert isinstance(made.result(), WorkerGroup)


# Those who do not come


def test_too_few_workers_are_counted(assembly: Any) -> None:
    made = assembly(n_shards=3, n_workers=3, start_timeout=0.3)
    with Impostor(made.info, 1) as worker:
        worker.greet()
        error = made.result()
        assert isinstance(error, WorkerError)
        assert "1 of 3 workers came within 0.3 s (start_timeout)" in str(error)
        assert f"can the executors reach 127.0.0.1:{made.info.port}?" in str(error)
    assert made.job.started
    assert made.job.cancelled


def test_workers_that_do_not_link_up_are_counted(assembly: Any) -> None:
    made = assembly(n_shards=2, n_workers=2, start_timeout=0.3)
    with Impostor(made.info, 0) as first, Impostor(made.info, 1) as second:
        for worker in (first, second):
            worker.ready(worker.greet())
        error = made.result()
    assert isinstance(error, WorkerError)
    assert "0 of 2 workers linked up" in str(error)


class Preparing(NoJob):
    """A job that has something to do before its workers can come."""

    def __init__(self) -> None:
        super().__init__()
        self.still_preparing = True


def test_a_job_may_prepare_for_as_long_as_it_takes(assembly: Any) -> None:
    made = assembly(job=Preparing, n_shards=1, n_workers=1, start_timeout=0.1)
    time.sleep(0.4)
    with Impostor(made.info) as worker:
        worker.join()
        assert isinstance(made.result(), WorkerGroup)


def test_the_time_to_come_begins_when_the_job_is_prepared(assembly: Any) -> None:
    made = assembly(job=Preparing, n_shards=1, n_workers=1, start_timeout=0.2)
    time.sleep(0.3)
    made.job.still_preparing = False
    error = made.result()
    assert isinstance(error, WorkerError)
    assert "0 of 1 workers came" in str(error)


def test_a_driver_that_has_no_files_left_for_workers_says_so(
    assembly: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []
    accept = socket.socket.accept

    def counted(listener: socket.socket) -> Any:
        tries.append(listener)
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", counted)
    made = assembly(n_shards=1, n_workers=1, start_timeout=0.5)
    with Impostor(made.info) as first, socket.socket() as caller:
        first.call()  # the door is open
        assert eventually(lambda: made.job.started)
        with no_files_left():
            caller.connect((made.info.host, made.info.port))
            error = made.result()
    assert isinstance(error, WorkerError)
    assert "0 of 1 workers came" in str(error)
    assert "the driver could not let more in ([Errno 24] Too many open files)" in str(error)
    assert len(tries) < 200  # it did not spin


# Those who go


def test_a_job_that_ends_before_everybody_came_tells_why(assembly: Any) -> None:
    made = assembly(n_shards=2, n_workers=2)
    made.job.ended = LookupError("no such table")
    error = made.result()
    assert isinstance(error, LookupError)
    assert made.job.cancelled


def test_a_workers_own_word_comes_before_the_jobs(assembly: Any) -> None:
    """It is on its way when the job's end is already known, perhaps in several pieces."""
    made = assembly(lambda index: [["a row"]], n_shards=2, n_workers=2)
    with Impostor(made.info) as worker:
        control = worker.greet()
        assert receive(control, 1000).kind == Kind.ROWS  # it is known
        words = b"".join(pack(Kind.FAILED, 0, ["LookupError: row 7"]))
        control.sendall(words[: HEADER.size])
        made.job.ended = RuntimeError("Job aborted due to stage failure")
        time.sleep(0.05)
        with suppress(OSError):
            control.sendall(words[HEADER.size :])
        error = made.result()
    assert isinstance(error, WorkersLostError)
    assert error.traceback == "LookupError: row 7"


@pytest.mark.parametrize("when", ["before ready", "after ready"])
def test_a_worker_that_goes_during_assembly_is_named(assembly: Any, when: str) -> None:
    made = assembly(n_shards=2, n_workers=2)
    with Impostor(made.info, 1) as worker:
        control = worker.greet()
        if when == "after ready":
            worker.ready(control)
    error = made.result()
    assert isinstance(error, WorkersLostError)
    assert "worker 1 (a-host, process 4711) is gone" in error.what


def test_a_worker_that_goes_before_it_is_told_its_parent_is_named(assembly: Any) -> None:
    """All are ready, and when the tree is to be sent, one has been reset."""
    made = assembly(n_shards=1, n_workers=1)
    with Impostor(made.info) as worker:
        control = worker.greet()
        worker.ready(control)
        control.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    error = made.result()
    assert isinstance(error, WorkersLostError), repr(error)
    assert "worker 0 (a-host, process 4711) is gone" in error.what


def test_a_worker_that_falls_silent_during_assembly_is_named(
    assembly: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "SILENCE", 0.3)
    made = assembly(n_shards=2, n_workers=2)
    with Impostor(made.info, 1) as worker:
        worker.greet()
        error = made.result()
    assert isinstance(error, WorkersLostError)
    assert "worker 1 (a-host, process 4711) has given no sign of life" in error.what


def test_loading_may_take_as_long_as_there_are_signs_of_life(
    assembly: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "SILENCE", 0.8)
    made = assembly(n_shards=1, n_workers=1, start_timeout=1.0)
    with Impostor(made.info) as worker:
        control = worker.greet()
        for _ in range(30):
            time.sleep(0.05)
            send(control, pack(Kind.ALIVE, 0, [0.0]))
        worker.ready(control)
        assert receive(control, 1000).kind == Kind.TREE
        worker.call(0)
        assert isinstance(made.result(), WorkerGroup)


# Rows


def test_rows_that_cannot_be_sent_are_an_error(assembly: Any) -> None:
    def rows(index: int) -> Iterator[list[Any]]:
        yield ["fine"]
        raise LookupError("no such file")

    made = assembly(rows, n_shards=1, n_workers=1)
    with Impostor(made.info) as worker:
        worker.greet()
        assert isinstance(made.result(), LookupError)


def test_a_worker_that_fails_amid_its_rows_still_tells_why(assembly: Any) -> None:
    """There are more rows on the line than anybody reads."""
    shards = [Shard(0, np.ones((4_000_000, 4)), None)]
    made = assembly(lambda index: shard_payloads(shards, 1 << 30), n_shards=1, n_workers=1)

    def load(next_frame: Callable[[], Any]) -> list[Shard]:
        for _ in range(4):
            next_frame()
        raise LookupError("this row is bad")

    with pytest.raises(LookupError):
        worker.serve(made.info, 0, Products(), load, 1)
    error = made.result()
    assert isinstance(error, WorkersLostError)
    assert "LookupError: this row is bad" in str(error.traceback)
