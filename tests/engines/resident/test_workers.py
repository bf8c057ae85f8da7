"""Rounds that outlive their workers: the same bits after any loss, or a clear end."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.engines.resident.groups import GroupEngine, ProcessJob
from tests.engines.resident.programs import (
    KINDS,
    Products,
    Trouble,
    make_shards,
    story,
)

from dfwtrace.engines import Cost
from dfwtrace.engines.base import RowsChangedError, WorkerError, WorkersLostError
from dfwtrace.engines.resident.worker_group import ResidentWorkers


@pytest.mark.parametrize("method", ["load", *KINDS])
def test_an_error_that_comes_again_is_the_users(tmp_path: Path, method: str) -> None:
    """Fresh workers fail in the same way: it would be in vain to go on."""
    engine = GroupEngine(4, 2, fan_in=1)
    program = Products(Trouble(method, 2, "raise", tmp_path, times=100))

    def run() -> None:
        workers = engine.workers(program, lambda: make_shards(4))
        try:
            story(workers)
        finally:
            workers.close()

    with pytest.raises(WorkerError) as caught:
        run()
    message = str(caught.value)
    assert message.startswith("worker 1 (")
    assert "twice in the same way" in message
    assert "Traceback (most recent call last)" in message
    assert "in _strike" in message
    assert message.endswith("LookupError: shard 2 is broken")
    assert len(engine.jobs) == 2


def test_an_error_of_each_round_is_told_once_only(tmp_path: Path) -> None:
    """Once in a while is no reason to give up, whatever it was the last time."""
    engine = GroupEngine(4, 2)
    program = Products(Trouble("product", 2, "raise", tmp_path))
    workers = engine.workers(program, lambda: make_shards(4))
    workers.build("begin", np.ones(6))
    for restarts in (1, 2, 3):
        workers.sum("product", np.ones(6))
        assert workers.restarts == restarts
        for flag in tmp_path.iterdir():
            flag.unlink()
    with pytest.raises(WorkerError, match=r"after 3 restarts \(max_restarts\)"):
        workers.sum("product", np.ones(6))
    workers.close()


@pytest.mark.parametrize("max_restarts", [0, 2])
def test_restarts_are_bounded(tmp_path: Path, max_restarts: int) -> None:
    engine = GroupEngine(2, 2, job=ProcessJob, max_restarts=max_restarts)
    program = Products(Trouble("begin", 1, "kill", tmp_path, times=100))
    workers = engine.workers(program, lambda: make_shards(2))
    with pytest.raises(WorkerError, match=rf"is gone.*after {max_restarts} restarts"):
        workers.build("begin", np.ones(6))
    assert len(engine.jobs) == 1 + max_restarts
    assert workers.restarts == max_restarts
    workers.close()


def test_rows_that_come_back_different_are_noticed(tmp_path: Path) -> None:
    given = iter([make_shards(4, seed=0), make_shards(4, seed=0), make_shards(4, seed=1)])
    program = Products(Trouble("product", 1, "raise", tmp_path))
    workers = GroupEngine(4, 2).workers(program, lambda: next(given))
    workers.build("begin", np.ones(6))
    workers.sum("product", np.ones(6))  # the same rows came again
    for flag in tmp_path.iterdir():
        flag.unlink()
    with pytest.raises(RowsChangedError, match="the rows of shard 0 came back different"):
        workers.sum("product", np.ones(6))
    workers.close()


class Notices:
    """A worker that finds out by itself."""

    def load(self, first: int) -> None:
        raise RowsChangedError("the rows of shard 7 have changed: persist the DataFrame.")


def test_rows_that_a_worker_finds_different_are_the_users_to_know() -> None:
    engine = GroupEngine(2, 1)
    with pytest.raises(RowsChangedError, match=r"^the rows of shard 7 have changed: persist"):
        engine.workers(Notices(), lambda: make_shards(2))
    assert len(engine.jobs) == 1


def test_what_was_sent_may_be_changed_afterwards(tmp_path: Path) -> None:
    """After a loss the states are made again from what was sent, not from what became of it."""
    results = []
    for trouble in (None, Trouble("norms", 2, "raise", tmp_path)):
        workers = GroupEngine(4, 2).workers(Products(trouble), lambda: make_shards(4))
        W, u = np.ones(6), np.arange(6.0)
        workers.build("begin", W)
        W[:] = np.nan
        workers.apply("move", u, 0.25)
        u[:] = np.nan
        results.append([reply.tobytes() for reply in workers.gather("norms")])
        workers.close()
    assert results[0] == results[1]


def test_a_loss_while_the_states_are_made_again_is_one_more(tmp_path: Path) -> None:
    flags = [tmp_path / name for name in ("one", "two")]
    for flag in flags:
        flag.mkdir()

    class Twice(Products):
        def product(self, held: Any, v: Any) -> Any:
            Trouble("product", 1, "raise", flags[0]).strike("product", held.index)
            return super().product(held, v)

        def begin(self, shard: Any, W: Any) -> Any:
            if list(flags[0].iterdir()):  # only when it is made again
                Trouble("begin", 3, "raise", flags[1]).strike("begin", shard.index)
            return super().begin(shard, W)

    workers = GroupEngine(4, 2).workers(Twice(), lambda: make_shards(4))
    workers.build("begin", np.ones(6))
    workers.sum("product", np.ones(6))
    assert workers.restarts == 2
    workers.close()


def test_an_interrupted_round_ends_the_group() -> None:
    """Ctrl-C while workers compute: nothing is left, and nothing is started again by itself."""
    began, go_on = threading.Event(), threading.Event()

    class Slow(Products):
        def begin(self, shard: Any, W: Any) -> Any:
            began.set()
            go_on.wait(30.0)
            return super().begin(shard, W)

    def interrupt() -> None:
        began.wait(30.0)
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)
        go_on.set()

    engine = GroupEngine(2, 2, fan_in=1)
    workers = engine.workers(Slow(), lambda: make_shards(2))
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        workers.build("begin", np.ones(6))
    thread.join()
    assert engine.jobs[0].cancelled
    workers.close()
    assert len(engine.jobs) == 1


def test_an_error_that_is_no_workers_is_not_tried_again() -> None:
    calls = []

    def launch() -> Any:
        calls.append(1)
        raise LookupError("no such cluster")

    with pytest.raises(LookupError):
        ResidentWorkers(launch, 3, None)
    assert calls == [1]


def test_a_launch_that_is_lost_is_tried_again_and_not_for_ever() -> None:
    calls = []

    def launch() -> Any:
        calls.append(1)
        raise WorkersLostError("worker 0 is gone")

    with pytest.raises(WorkerError, match=r"^worker 0 is gone, after 2 restarts \(max_restarts\)"):
        ResidentWorkers(launch, 2, None)
    assert len(calls) == 3


def test_costs_are_told_for_every_round() -> None:
    workers = GroupEngine(4, 2).workers(Products(), lambda: make_shards(4))
    workers.build("begin", np.ones(6))
    costs = [workers.cost]
    workers.sum("product", np.ones(6))
    costs.append(workers.cost)
    workers.close()
    for cost in costs:
        assert cost.bytes > 2 * 6 * 8
        assert cost.compute > 0.0
        assert cost.wait >= 0.0
    assert costs[1].reduce > 0.0


def test_a_round_after_the_end_is_refused() -> None:
    engine = GroupEngine(2, 2)
    workers = engine.workers(Products(), lambda: make_shards(2))
    workers.build("begin", np.ones(6))
    workers.close()
    for kind, method in (("build", "begin"), ("sum", "product"), ("gather", "norms")):
        with pytest.raises(RuntimeError, match="the workers have been closed"):
            getattr(workers, kind)(method, np.ones(6))
    with pytest.raises(RuntimeError, match="the workers have been closed"):
        workers.apply("move", np.ones(6), 0.5)
    assert len(engine.jobs) == 1  # nothing was started for it


def test_a_round_that_was_lost_costs_what_was_done_again(tmp_path: Path) -> None:
    """All bytes of the rounds that were gone through again; the new start is time spent waiting."""
    bytes_of: list[list[int]] = []
    for trouble in (None, Trouble("product", 2, "raise", tmp_path)):
        engine = GroupEngine(4, 2)

        def rows(engine: GroupEngine = engine) -> Any:
            time.sleep(0.3 if engine.groups else 0.0)  # the second time
            return make_shards(4)

        workers = engine.workers(Products(trouble), rows)
        costs: list[Cost] = []
        for kind, *call in (
            ("build", "begin", np.ones(6)),
            ("apply", "move", np.ones(6), 0.25),
            ("sum", "product", np.ones(6)),
            ("sum", "product", np.ones(6)),
        ):
            getattr(workers, str(kind))(*call)
            costs.append(workers.cost)
        workers.close()
        bytes_of.append([cost.bytes for cost in costs])
    build, move, product, last = bytes_of[0]
    assert bytes_of[1] == [build, move, build + move + product, last]
    assert costs[2].wait >= 0.3
