"""Rounds: every worker is asked, all that comes back is taken, and all that was sent is counted."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import numpy as np
import pytest
from tests.engines.resident.programs import Products, make_shards
from tests.engines.resident.roles import Impostor, Team, answer

from dfwtrace.engines.base import WorkerError
from dfwtrace.engines.resident import worker, worker_group
from dfwtrace.engines.resident.wire import HEADER, Kind, pack, receive
from dfwtrace.engines.resident.worker_group import ResidentWorkers


def test_replies_are_added_along_the_tree_in_any_order_of_arrival(
    assembly: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [np.array([0.1]), np.array([0.2]), np.array([0.3])]
    assert (0.1 + 0.2) + 0.3 != 0.1 + (0.2 + 0.3)  # so the order matters
    arrived: list[tuple[int, ...]] = []
    with Team(assembly(n_shards=3, n_workers=3)) as team:
        ask_all = team.group.round

        def overheard(*args: Any) -> Any:
            nodes, cost = ask_all(*args)
            assert cost.compute == 0.25
            arrived.append(tuple(node.place for node in nodes))
            return nodes, cost

        def reply(order: tuple[int, ...], sequence: int) -> None:
            for link in team.links:
                assert receive(link, 1000).sequence == sequence
            for i in order:
                answer(team.links[i], 0.25, 0, 0, i, parts[i], sequence=sequence)
                time.sleep(0.03)

        monkeypatch.setattr(team.group, "round", overheard)
        workers = ResidentWorkers(lambda: team.group, 0, None)
        orders = list(itertools.permutations(range(3)))
        for sequence, order in enumerate(orders, start=1):
            thread = threading.Thread(target=reply, args=(order, sequence))
            thread.start()
            total = workers.sum("product", np.ones(2))
            thread.join()
            assert total[0] == (0.1 + 0.2) + 0.3, order
    assert arrived == orders


def test_a_request_is_what_the_worker_gets(joined: Any) -> None:
    group, _, link = joined
    answer(link, 0.5, 0, 0, 0, np.array([3.0]))
    nodes, cost = group.round(Kind.GATHER, "norms", (np.arange(3.0), 2.5, 2**70), None)
    request = receive(link, 1000)
    assert (request.kind, request.sequence) == (Kind.GATHER, 1)
    method, vector, number, seed = request.values()
    assert (method, number, seed) == ("norms", 2.5, 2**70)
    np.testing.assert_array_equal(vector, np.arange(3.0))
    assert nodes[0].partial == 3.0
    assert cost.compute == 0.5
    reply = sum(len(part) for part in pack(Kind.REPLY, 1, [0.5, 0, 0, 0, np.array([3.0])]))
    assert cost.bytes == HEADER.size + len(request.payload) + reply


def test_a_request_waits_for_a_worker_that_reads_slowly(assembly: Any) -> None:
    made = assembly(n_shards=1, n_workers=1)
    large = np.arange(2_000_000.0)
    got: list[Any] = []

    def read(link: Any) -> None:
        time.sleep(0.2)
        got.append(receive(link, 1 << 30))
        answer(link, 0.0, 0)

    with Impostor(made.info) as worker:
        _, link = worker.join()
        thread = threading.Thread(target=read, args=(link,))
        thread.start()
        made.result().round(Kind.APPLY, "move", (large,), None)
        thread.join()
    np.testing.assert_array_equal(got[0].values()[1], large)


def test_a_request_over_the_cap_is_refused_before_anything_is_sent(joined: Any) -> None:
    group, _, link = joined
    overhead = sum(len(part) for part in pack(Kind.SUM, 1, ["product", np.zeros(100)])) - 800
    fits = (1000 - overhead) // 8
    refused = overhead + 8 * (fits + 1)
    with pytest.raises(ValueError, match=rf"largest_message must be at least {refused} bytes"):
        group.round(Kind.SUM, "product", (np.ones(fits + 1),), None)
    answer(link, 0.0, 0, 0, 0, np.ones(1))
    group.round(Kind.SUM, "product", (np.ones(fits),), None)
    assert receive(link, 1000).sequence == 1  # nothing came before it


class Wide(Products):
    """Answers with more than it was asked."""

    def wide(self, shard: Any, size: int) -> Any:
        return np.ones(size)


@pytest.mark.parametrize("fan_in", [1, 16])
def test_a_reply_over_the_cap_names_the_setting(engine: Any, fan_in: int) -> None:
    one = engine(n_shards=2, n_workers=2, fan_in=fan_in, largest_message=4096)
    workers = one.workers(Wide(), lambda: make_shards(2))
    workers.sum("wide", 500)
    with pytest.raises(WorkerError, match=r"a message of \d+ bytes, where largest_message = 4096"):
        workers.sum("wide", 512)
    workers.close()


def test_large_requests_and_replies_pass(engine: Any) -> None:
    """More than all buffers hold, both ways at once, and in a tree."""

    class Echo(Products):
        def echo(self, shard: Any, v: Any) -> Any:
            return v * 1.0

    group = engine(n_shards=6, n_workers=6, fan_in=2).launch(Echo(), make_shards(6))
    v = np.random.default_rng(0).standard_normal(1_000_000)
    nodes, cost = group.round(Kind.GATHER, "echo", (v,), None)
    assert sorted(node.place for node in nodes) == list(range(6))
    assert all(node.partial.tobytes() == v.tobytes() for node in nodes)
    assert cost.bytes > 12 * v.nbytes
    group.close()


@pytest.mark.parametrize("fan_in", [1, 2, 3, 16])
def test_the_driver_gets_at_most_fan_in_replies(
    engine: Any, monkeypatch: pytest.MonkeyPatch, fan_in: int
) -> None:
    """And all bytes on all wires are counted, wherever they went."""
    sent: list[int] = []
    passed_on = [0]
    unpack, say = worker_group.unpack_reply, worker.send
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

    monkeypatch.setattr(worker_group, "unpack_reply", counted_reply)
    monkeypatch.setattr(worker, "send", counted_send)
    group = engine(n_shards=12, n_workers=12, fan_in=fan_in).launch(Products(), make_shards(12))
    group.round(Kind.BUILD, "begin", (np.ones(6),), None)
    sent.clear()
    passed_on[0] = 0
    _, cost = group.round(Kind.SUM, "product", (np.ones(6),), None)
    assert len(sent) == min(fan_in, 12)
    request = sum(len(part) for part in pack(Kind.SUM, 2, ["product", np.ones(6)]))
    assert cost.bytes == passed_on[0] + len(sent) * request
    assert cost.bytes > 12 * (request + 6 * 8)
    if fan_in == 1:  # the driver gets the one sum over all shards
        assert sent[0] < request + 100
    group.close()
