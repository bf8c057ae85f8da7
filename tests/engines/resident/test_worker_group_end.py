"""The end of a group: the workers stop, or the job is ended, and nothing is left either way."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.engines.resident.groups import NoJob, ProcessJob, ThreadJob
from tests.engines.resident.machine import eventually, our_threads
from tests.engines.resident.programs import Products, Trouble, make_shards
from tests.engines.resident.roles import Impostor, closed

from dfwtrace.engines.resident import worker_group
from dfwtrace.engines.resident.wire import Kind


@pytest.mark.parametrize("job", [ThreadJob, ProcessJob])
def test_closing_leaves_nothing_and_may_be_done_twice(engine: Any, job: Any) -> None:
    one = engine(n_shards=4, n_workers=4, fan_in=2, job=job)
    workers = one.workers(Products(), lambda: make_shards(4))
    workers.build("begin", np.ones(6))
    workers.close()
    assert our_threads() == []
    assert not one.jobs[0].cancelled  # they stopped by themselves
    workers.close()
    one.groups[0].abandon()  # even this does no harm


class WatchedJob(ProcessJob):
    """Keeps what was asked of it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.asked: list[str] = []

    def cancel(self) -> None:
        self.asked.append("cancel")
        super().cancel()

    def join(self, timeout: float) -> bool:
        self.asked.append("join")
        return super().join(timeout)


def test_closing_after_an_interrupted_round_ends_the_job(engine: Any, tmp_path: Path) -> None:
    """Workers that are still busy would not hear the stop."""
    one = engine(n_shards=2, n_workers=2, job=WatchedJob)
    trouble = Trouble("begin", 1, "hang", tmp_path)
    group = one.launch(Products(trouble), make_shards(2))

    def interrupt() -> None:
        assert eventually(lambda: bool(list(tmp_path.iterdir())))
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        group.round(Kind.BUILD, "begin", (np.ones(6),), None)
    thread.join()
    assert one.jobs[0].asked == []
    group.close()
    assert one.jobs[0].asked[0] == "cancel"  # it was not waited for
    assert not any(process.is_alive() for process in one.jobs[0].processes)


class InterruptedJob(ProcessJob):
    """Ctrl-C comes while its end is waited for."""

    def join(self, timeout: float) -> bool:
        if not self.cancelled:
            signal.raise_signal(signal.SIGINT)
        return super().join(timeout)


def test_an_interrupt_while_the_workers_stop_ends_everything(engine: Any) -> None:
    one = engine(n_shards=2, n_workers=2, job=InterruptedJob)
    group = one.launch(Products(), make_shards(2))
    os.kill(one.jobs[0].processes[1].pid, signal.SIGSTOP)
    with pytest.raises(KeyboardInterrupt):
        group.close()
    assert one.jobs[0].cancelled
    assert not any(process.is_alive() for process in one.jobs[0].processes)


def test_an_interrupt_while_the_workers_come_ends_everything(engine: Any, tmp_path: Path) -> None:
    one = engine(n_shards=2, n_workers=2, job=ProcessJob)
    trouble = Trouble("load", 1, "hang", tmp_path)

    def interrupt() -> None:
        assert eventually(lambda: bool(list(tmp_path.iterdir())))
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        one.launch(Products(trouble), make_shards(2))
    thread.join()
    assert one.jobs[0].cancelled
    assert not any(process.is_alive() for process in one.jobs[0].processes)


def test_a_job_that_does_not_end_is_cancelled(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_group, "_FAREWELL", 0.3)
    one = engine(n_shards=2, n_workers=2, job=ProcessJob)
    workers = one.workers(Products(), lambda: make_shards(2))
    os.kill(one.jobs[0].processes[1].pid, signal.SIGSTOP)
    workers.close()
    assert one.jobs[0].cancelled
    assert all(process.exitcode is not None for process in one.jobs[0].processes)


def test_closing_tells_all_workers_even_if_one_is_gone(engine: Any) -> None:
    one = engine(n_shards=3, n_workers=3, job=ProcessJob)
    workers = one.workers(Products(), lambda: make_shards(3))
    victim = one.jobs[0].processes[0]
    victim.kill()
    victim.join()
    workers.close()
    assert not one.jobs[0].cancelled  # the two others heard the stop


class DeafJob(NoJob):
    """Heeds only the last of so many cancellations, as Spark before it knows the job."""

    heeds = 4

    def __init__(self) -> None:
        super().__init__()
        self.times = 0

    def cancel(self) -> None:
        self.times += 1

    def join(self, timeout: float) -> bool:
        return self.times >= self.heeds


class DeafForEverJob(DeafJob):
    heeds = 1 << 60


def test_a_job_is_cancelled_until_it_has_ended(assembly: Any) -> None:
    made = assembly(n_shards=1, n_workers=1, job=DeafJob)
    with Impostor(made.info) as worker:
        control, link = worker.join()
        made.result().abandon()
        assert closed(control)
        assert closed(link)
    assert made.job.times == 4


def test_a_job_that_never_ends_is_not_waited_for_for_ever(
    assembly: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_group, "_FAREWELL", 0.2)
    made = assembly(n_shards=1, n_workers=1, job=DeafForEverJob)
    with Impostor(made.info) as worker:
        worker.join()
        made.result().abandon()
    assert made.job.times > 4
