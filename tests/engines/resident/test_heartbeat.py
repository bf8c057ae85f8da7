"""A worker's sign of life: it tells of work that gets nowhere, and of no other."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from tests.engines.resident.machine import eventually, our_threads
from tests.engines.resident.programs import burn

from dfwtrace.engines.resident import worker
from dfwtrace.engines.resident.worker import Heartbeat


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "INTERVAL", 0.02)


def silent(stalled: float) -> None:
    pass


def test_it_beats_until_its_end() -> None:
    beats: list[float] = []
    with Heartbeat(beats.append):
        assert eventually(lambda: len(beats) >= 3)
    count = len(beats)
    assert our_threads() == []
    time.sleep(0.1)
    assert len(beats) == count
    assert set(beats) == {0.0}  # nobody was at work


def test_work_that_gets_nowhere_is_told_for_how_long() -> None:
    beats: list[float] = []
    with Heartbeat(beats.append) as one, one.at_work():
        assert eventually(lambda: bool(beats) and beats[-1] > 0.2)
    assert sorted(beats) == beats


def test_one_who_computes_gets_somewhere() -> None:
    one, began = Heartbeat(silent), time.monotonic()
    with one.at_work():
        time.sleep(0.1)
        assert one.stalled() >= 0.1
        burn(0.1)
        assert one.stalled() == 0.0
        time.sleep(0.05)
        assert 0.05 <= one.stalled() <= time.monotonic() - began - 0.2  # from then on


def test_another_thread_of_the_worker_may_be_the_one_who_computes() -> None:
    one = Heartbeat(silent)
    with one.at_work():
        thread = threading.Thread(target=burn, args=(0.1,))
        thread.start()
        thread.join()
        assert one.stalled() == 0.0


def test_a_little_of_the_processor_is_no_progress() -> None:
    """The heartbeat itself takes some."""
    one = Heartbeat(silent)
    with one.at_work():
        time.sleep(0.1)
        burn(0.005)
        assert one.stalled() >= 0.1


def test_one_who_waits_for_others_is_not_stalled() -> None:
    one = Heartbeat(silent)
    time.sleep(0.1)
    assert one.stalled() == 0.0
    with one.at_work():
        time.sleep(0.1)
    assert one.stalled() == 0.0
    again = time.monotonic()
    with one.at_work():
        assert one.stalled() <= time.monotonic() - again  # what came before is forgotten


def test_work_that_failed_is_at_an_end() -> None:
    one = Heartbeat(silent)
    with pytest.raises(LookupError), one.at_work():
        raise LookupError
    time.sleep(0.05)
    assert one.stalled() == 0.0


def test_a_line_that_broke_ends_it_without_a_word() -> None:
    def hung_up(stalled: float) -> Any:
        raise BrokenPipeError

    with Heartbeat(hung_up):
        assert eventually(lambda: our_threads() == [])
