"""Rounds that outlive their workers: the same bits after any loss, or a clear end."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from tests.engines.resident.crews import (
    KINDS,
    CrewEngine,
    ProcessJob,
    Products,
    ThreadJob,
    Trouble,
    make_shards,
    our_threads,
    story,
)

import dfwtrace as dt
from dfwtrace.engines import LocalWorkers
from dfwtrace.engines.failures import CrewLostError, RowsChangedError, WorkerError
from dfwtrace.engines.resident import crew as crew_module
from dfwtrace.engines.resident.workers import ResidentWorkers


def undisturbed(n_shards: int) -> list[bytes]:
    workers = LocalWorkers(Products(), make_shards(n_shards))
    try:
        return story(workers)
    finally:
        workers.close()


# The same bits


@pytest.mark.parametrize("fan_in", [1, 2, 16])
@pytest.mark.parametrize(("n_shards", "n_workers"), [(1, 1), (5, 2), (8, 8), (13, 4), (21, 11)])
def test_all_kinds_of_rounds_give_the_bits_of_the_local_engine(
    n_shards: int, n_workers: int, fan_in: int
) -> None:
    engine = CrewEngine(n_shards, n_workers, fan_in)
    shards = make_shards(n_shards)
    workers = engine.workers(Products(), lambda: shards)
    assert workers.shard_rows == [shard.n_rows for shard in shards]
    assert story(workers) == undisturbed(n_shards)
    workers.close()
    assert workers.restarts == 0


def bits(result: dt.Result) -> dict[str, Any]:
    """All that a run tells, but for the time it took and the bytes it sent."""
    told = [
        name
        for name in result.history.columns
        if not name.endswith("seconds") and name != "bytes_on_wire"
    ]
    columns = {name: result.history.column(name).tobytes() for name in told}
    factors = {"U": result.W.U, "s": result.W.s, "V": result.W.V}
    rounds = [(r["epoch"], r["oracle"], r["method"], r["numbers_sent"]) for r in result.rounds]
    return (
        columns
        | {name: factor.tobytes() for name, factor in factors.items()}
        | {
            "gap": np.float64(result.gap).tobytes(),
            "objective": np.float64(result.objective).tobytes(),
            "rounds": rounds,
        }
    )


def assert_same_bits(task: Any, X: Any, y: Any, engine: Any, **options: Any) -> dt.Result:
    call: dict[str, Any] = {"radius": 5.0, "epochs": 4, "certify_every": 2, **options}
    local = dt.solve(task, X, y, engine=dt.LocalEngine(engine.n_shards, n_jobs=1), **call)
    result = dt.solve(task, X, y, engine=engine, **call)
    assert bits(result) == bits(local)
    return result


LAYOUTS = {
    "by row": np.ascontiguousarray,
    "by column": np.asfortranarray,
    "float32": lambda X: X.astype(np.float32),
    "float32 by column": lambda X: np.asfortranarray(X, np.float32),
    "sparse": lambda X: sp.csr_array(np.where(np.abs(X) > 0.2, X, 0.0)),
    "sparse float32": lambda X: sp.csr_array(np.where(np.abs(X) > 0.2, X, 0.0).astype(np.float32)),
    "every other row": lambda X: np.repeat(X, 2, axis=0)[::2],
    "every other column": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "backwards": lambda X: X[::-1],
}
TASKS = {"least squares": dt.LeastSquares(), "multinomial": dt.Multinomial()}


@pytest.fixture(scope="module")
def data() -> dict[str, tuple[Any, Any]]:
    X, Y, _ = dt.datasets.make_multitask(n=400, d=23, m=6, rank=3, noise=0.5, seed=2)
    _, y, _ = dt.datasets.make_multiclass(n=400, d=23, m=6, rank=3, seed=2)
    return {"least squares": (X, Y), "multinomial": (X, y)}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("task", TASKS)
def test_a_run_has_the_bits_of_the_local_engine(task: str, layout: str, data: Any) -> None:
    X, y = data[task]
    for form in ("implicit", "dense", "factored"):
        engine = CrewEngine(n_shards=7, n_workers=3, fan_in=1)
        result = assert_same_bits(
            TASKS[task], LAYOUTS[layout](X), y, engine, representation=form, lmo="power-2"
        )
        assert np.all(result.history.column("bytes_on_wire") > 0)


@pytest.mark.parametrize("layout", ["by column", "float32 by column"])
@pytest.mark.parametrize("form", ["implicit", "dense"])
def test_bits_do_not_depend_on_where_rows_of_some_size_lie(layout: str, form: str) -> None:
    """Large enough for BLAS to go other ways for another layout, or for more threads."""
    X, y, _ = dt.datasets.make_multiclass(n=5003, d=37, m=12, rank=3, seed=0)
    engine = CrewEngine(n_shards=3, n_workers=2, fan_in=1, job=ProcessJob)
    assert_same_bits(
        dt.Multinomial(), LAYOUTS[layout](X), y, engine, representation=form, radius=20.0
    )


@pytest.mark.parametrize("lmo", ["naive", "power-log", "lanczos", "sva"])
@pytest.mark.parametrize(("n_workers", "fan_in"), [(1, 16), (2, 16), (11, 3), (12, 1)])
def test_every_oracle_has_the_bits_of_the_local_engine(
    lmo: str, n_workers: int, fan_in: int, data: Any
) -> None:
    engine = CrewEngine(12, n_workers, fan_in)
    assert_same_bits(dt.Multinomial(), *data["multinomial"], engine, lmo=lmo, seed=2**70)


@pytest.mark.parametrize("form", ["gram", "dense", "implicit"])
def test_workers_in_processes_have_the_bits_of_the_local_engine(form: str, data: Any) -> None:
    X, Y, _ = dt.datasets.make_multitask(n=3000, d=60, m=8, rank=3, noise=0.5, seed=2)
    engine = CrewEngine(n_shards=5, n_workers=2, job=ProcessJob)
    result = assert_same_bits(dt.LeastSquares(), X, Y, engine, representation=form)
    sent = result.rounds.column("bytes_on_wire")
    assert np.all(sent == 0) if form == "gram" else np.all(sent > 0)
    assert np.all(result.rounds.column("compute_seconds") > 0.0)


class Counts:
    """A task of one's own on whole numbers without targets: ½‖XW - 1‖² with a dense gradient."""

    def shape(self, X: Any, y: Any) -> tuple[int, int]:
        assert y is None
        return int(X.shape[1]), 3

    def stats(self, shard: dt.Shard, W: dt.LowRankMatrix) -> Any:
        assert shard.X.dtype == np.int16
        assert shard.y is None
        return self._state(shard, W.to_dense())

    def update(self, state: Any, atom: dt.RankOne, gamma: float) -> Any:
        S = atom.scale * np.outer(atom.u, atom.v)
        return self._state(state["shard"], (1.0 - gamma) * state["W"] + gamma * S)

    def loss(self, state: Any) -> float:
        return 0.5 * float(np.sum(state["R"] ** 2))

    def _state(self, shard: dt.Shard, W: Any) -> Any:
        R = shard.X @ W - 1.0
        return {"shard": shard, "W": W, "R": R, "grad": np.asfortranarray(shard.X.T @ R)}


def test_an_own_task_on_whole_numbers_without_targets() -> None:
    X = np.random.default_rng(0).integers(-5, 5, (50, 7)).astype(np.int16)
    for n_shards, n_workers in ((1, 1), (5, 3)):
        engine = CrewEngine(n_shards, n_workers, fan_in=1)
        assert_same_bits(Counts(), X, None, engine, step="harmonic", lmo="naive")


class Single:
    """An own task in float32: a step that is a NumPy number would make it float64."""

    def stats(self, shard: dt.Shard, W: dt.LowRankMatrix) -> Any:
        return self._state(shard, W.to_dense().astype(np.float32))

    def update(self, state: Any, atom: dt.RankOne, gamma: float) -> Any:
        S = (atom.scale * np.outer(atom.u, atom.v)).astype(np.float32)
        return self._state(state["shard"], (1.0 - gamma) * state["W"] + gamma * S)

    def _state(self, shard: dt.Shard, W: Any) -> Any:
        return {"shard": shard, "W": W, "grad": shard.X.T @ (shard.X @ W - shard.y)}


def test_numbers_are_the_same_kind_of_numbers_on_every_engine(data: Any) -> None:
    X, Y = (array.astype(np.float32) for array in data["least squares"])
    engine = CrewEngine(4, 2)
    assert_same_bits(Single(), X, Y, engine, step=lambda t: np.float64(1.0 / (t + 2.0)))
    assert_same_bits(Single(), X, Y, engine, step="harmonic", radius=np.float64(3.0))


# Losses


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew_module, "SILENCE", 1.5)


ACTIONS = ["raise", "leave", "exit", "kill", "stop", "hang"]


@pytest.mark.parametrize("method", ["load", *KINDS])
@pytest.mark.parametrize("action", ACTIONS)
def test_a_lost_worker_changes_nothing(
    tmp_path: Path, impatient: None, action: str, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Shard 3 is the first of worker 1, which hangs below worker 0."""
    if (action, method) == ("hang", "load"):
        pytest.skip("loading takes as long as it takes")
    engine = CrewEngine(6, 2, fan_in=1, job=ProcessJob, round_timeout=1.5)
    trouble = Trouble(method, 3, action, tmp_path)
    shards = make_shards(6)
    with caplog.at_level(logging.WARNING, logger="dfwtrace"):
        workers = engine.workers(Products(trouble), lambda: shards)
        told = story(workers)
        workers.close()
    assert list(tmp_path.iterdir())  # it did happen
    assert told == undisturbed(6)
    assert workers.restarts == 1
    assert len(engine.jobs) == 2
    assert engine.jobs[0].cancelled
    assert not engine.jobs[1].cancelled
    assert "starting the workers again (1 of 3 restarts)" in caplog.text
    pid = engine.jobs[0].processes[1].pid
    # Nobody but the worker itself could tell who it is that hangs; and of one that is gone before
    # it could say a word, the job may tell first.
    if action != "hang" and (method != "load" or action in ("raise", "leave", "stop")):
        assert f"worker 1 ({os.uname().nodename}, process {pid})" in caplog.text


@pytest.mark.parametrize("fan_in", [1, 2, 16])
@pytest.mark.parametrize("action", ["raise", "kill", "stop"])
@pytest.mark.parametrize("victim", [0, 4])
def test_a_lost_worker_is_named_wherever_it_hangs(
    tmp_path: Path, impatient: None, fan_in: int, action: str, victim: int
) -> None:
    engine = CrewEngine(5, 5, fan_in, job=ProcessJob, max_restarts=0)
    trouble = Trouble("product", victim, action, tmp_path)
    workers = engine.workers(Products(trouble), lambda: make_shards(5))
    workers.build("begin", np.ones(6))
    with pytest.raises(WorkerError) as caught:
        workers.sum("product", np.ones(6))
    pid = engine.jobs[0].processes[victim].pid
    assert f"worker {victim} ({os.uname().nodename}, process {pid})" in str(caught.value)
    if action == "raise":
        assert f"LookupError: shard {victim} is broken" in str(caught.value)
    workers.close()


@pytest.mark.parametrize("method", ["load", *KINDS])
def test_an_error_that_comes_again_is_the_users(tmp_path: Path, method: str) -> None:
    """Fresh workers fail in the same way: it would be in vain to go on."""
    engine = CrewEngine(4, 2, fan_in=1)
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
    engine = CrewEngine(4, 2)
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
    engine = CrewEngine(2, 2, job=ProcessJob, max_restarts=max_restarts)
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
    workers = CrewEngine(4, 2).workers(program, lambda: next(given))
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
    engine = CrewEngine(2, 1)
    with pytest.raises(RowsChangedError, match=r"^the rows of shard 7 have changed: persist"):
        engine.workers(Notices(), lambda: make_shards(2))
    assert len(engine.jobs) == 1


def test_what_was_sent_may_be_changed_afterwards(tmp_path: Path) -> None:
    """After a loss the states are made again from what was sent, not from what became of it."""
    results = []
    for trouble in (None, Trouble("norms", 2, "raise", tmp_path)):
        workers = CrewEngine(4, 2).workers(Products(trouble), lambda: make_shards(4))
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

    workers = CrewEngine(4, 2).workers(Twice(), lambda: make_shards(4))
    workers.build("begin", np.ones(6))
    workers.sum("product", np.ones(6))
    assert workers.restarts == 2
    workers.close()


def test_an_interrupted_round_ends_the_crew() -> None:
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

    engine = CrewEngine(2, 2, fan_in=1)
    workers = engine.workers(Slow(), lambda: make_shards(2))
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        workers.build("begin", np.ones(6))
    thread.join()
    assert engine.jobs[0].cancelled
    workers.close()
    assert len(engine.jobs) == 1


@pytest.mark.parametrize("job", [ThreadJob, ProcessJob])
def test_closing_leaves_nothing_and_may_be_done_twice(job: Any) -> None:
    engine = CrewEngine(4, 4, fan_in=2, job=job)
    workers = engine.workers(Products(), lambda: make_shards(4))
    workers.build("begin", np.ones(6))
    workers.close()
    assert our_threads() == []
    assert not engine.jobs[0].cancelled  # they stopped by themselves
    workers.close()
    engine.crews[0].abandon()  # even this does no harm


def test_closing_in_the_middle_of_a_round_ends_the_job() -> None:
    """An error in the driver itself while replies come in, such as one of memory."""
    engine = CrewEngine(2, 2, job=ProcessJob)
    workers = engine.workers(Products(), lambda: make_shards(2))
    crew = engine.crews[0]
    replies = crew._replies("product", None)
    crew._busy = True
    del replies
    workers.close()
    assert engine.jobs[0].cancelled


def test_a_job_that_does_not_end_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew_module, "_FAREWELL", 0.3)
    engine = CrewEngine(2, 2, job=ProcessJob)
    workers = engine.workers(Products(), lambda: make_shards(2))
    victim = engine.jobs[0].processes[1]
    os.kill(victim.pid, signal.SIGSTOP)
    workers.close()
    assert engine.jobs[0].cancelled
    assert all(process.exitcode is not None for process in engine.jobs[0].processes)


def test_closing_tells_all_workers_even_if_one_is_gone() -> None:
    engine = CrewEngine(3, 3, job=ProcessJob)
    workers = engine.workers(Products(), lambda: make_shards(3))
    victim = engine.jobs[0].processes[0]
    victim.kill()
    victim.join()
    workers.close()
    assert not engine.jobs[0].cancelled  # the two others heard the stop


def test_an_error_that_is_no_workers_is_not_tried_again() -> None:
    calls = []

    def launch() -> Any:
        calls.append(1)
        raise LookupError("no such cluster")

    with pytest.raises(LookupError):
        ResidentWorkers(launch, 2, 3, None)
    assert calls == [1]


def test_a_launch_that_is_lost_is_tried_again_and_not_for_ever() -> None:
    calls = []

    def launch() -> Any:
        calls.append(1)
        raise CrewLostError("worker 0 is gone")

    with pytest.raises(WorkerError, match=r"^worker 0 is gone, after 2 restarts \(max_restarts\)"):
        ResidentWorkers(launch, 2, 2, None)
    assert len(calls) == 3


def test_costs_are_told_for_every_round() -> None:
    workers = CrewEngine(4, 2).workers(Products(), lambda: make_shards(4))
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
