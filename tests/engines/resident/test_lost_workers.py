"""Any worker lost in any way at any time: it is named, and the bits are the same after it."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import numpy as np
import pytest
from tests.engines.resident.groups import GroupEngine, ProcessJob
from tests.engines.resident.machine import side_by_side
from tests.engines.resident.programs import (
    KINDS,
    Products,
    Trouble,
    make_shards,
    story,
    undisturbed,
)

from dfwtrace.engines.base import WorkerError
from dfwtrace.engines.resident import links


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "SILENCE", 3.0)
    monkeypatch.setattr(links, "STALL", 2.0)


def name_of(engine: GroupEngine, index: int) -> str:
    """Worker `index` of the first group, as messages have it."""
    pid = engine.jobs[0].processes[index].pid
    return f"worker {index} ({os.uname().nodename}, process {pid})"


@pytest.mark.parametrize("action", ["raise", "leave", "exit", "kill", "stop", "hang"])
def test_a_lost_worker_changes_nothing(
    tmp_path: Path, impatient: None, action: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In any kind of round, and while it loads."""

    def lose(method: str) -> None:
        flags = tmp_path / method
        flags.mkdir()
        engine = GroupEngine(6, 2, fan_in=1, job=ProcessJob)
        # Shard 3 is the first of worker 1, which hangs below worker 0.
        program = Products(Trouble(method, 3, action, flags))
        workers = engine.workers(program, lambda: make_shards(6))
        told = story(workers)
        workers.close()
        assert list(flags.iterdir()), method  # it did happen
        assert told == undisturbed(6), method
        assert workers.restarts == 1, method
        assert [job.cancelled for job in engine.jobs] == [True, False], method
        # Of one that is gone before it could say a word, the job may tell first.
        if method != "load" or action not in ("exit", "kill"):
            assert name_of(engine, 1) in caplog.text, method

    with caplog.at_level(logging.WARNING, logger="dfwtrace"):
        side_by_side(lose, ["load", *KINDS])
    assert caplog.text.count("starting the workers again (1 of 3 restarts)") == 5
    assert caplog.text.count("hangs") == (5 if action == "hang" else 0)


# The last worker, the first, and leaves; those that are silent are waited for at the same time.
@pytest.mark.parametrize(
    "cases",
    [
        [("raise", 1, 4), ("raise", 2, 0), ("kill", 2, 4), ("kill", 16, 4)],
        [("stop", 1, 4), ("stop", 2, 0), ("hang", 2, 4), ("hang", 16, 4)],
    ],
    ids=["gone", "silent"],
)
def test_a_lost_worker_is_named_wherever_it_hangs(
    tmp_path: Path, impatient: None, cases: list[tuple[str, int, int]]
) -> None:
    def lose(case: tuple[str, int, int]) -> None:
        action, fan_in, victim = case
        flags = tmp_path / f"{fan_in}-{victim}"
        flags.mkdir()
        engine = GroupEngine(5, 5, fan_in, job=ProcessJob, max_restarts=0)
        program = Products(Trouble("product", victim, action, flags))
        workers = engine.workers(program, lambda: make_shards(5))
        workers.build("begin", np.ones(6))
        with pytest.raises(WorkerError) as caught:
            workers.sum("product", np.ones(6))
        assert name_of(engine, victim) in str(caught.value), case
        if action == "raise":
            assert f"LookupError: shard {victim} is broken" in str(caught.value)
        workers.close()

    side_by_side(lose, cases)


def test_one_who_computes_and_one_who_waits_for_it_are_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than a worker may be at work to no avail."""
    monkeypatch.setattr(links, "STALL", 1.8)

    def wait(method: str) -> None:
        flags = tmp_path / method
        flags.mkdir()
        engine = GroupEngine(2, 2, fan_in=1, job=ProcessJob)
        program = Products(Trouble(method, 1, "compute", flags))
        workers = engine.workers(program, lambda: make_shards(2))
        assert story(workers) == undisturbed(2)
        workers.close()
        assert list(flags.iterdir())
        assert workers.restarts == 0

    side_by_side(wait, ["load", "product"])


def test_a_round_that_takes_too_long_is_made_again(tmp_path: Path) -> None:
    engine = GroupEngine(2, 2, fan_in=1, job=ProcessJob, round_timeout=1.0)
    program = Products(Trouble("product", 1, "hang", tmp_path))
    workers = engine.workers(program, lambda: make_shards(2))
    assert story(workers) == undisturbed(2)
    workers.close()
    assert workers.restarts == 1
