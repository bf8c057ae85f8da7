"""What every test of resident workers is held to: nothing is left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.engines.resident.groups import PROCESSES, GroupEngine, NoJob
from tests.engines.resident.machine import eventually, open_sockets, our_threads
from tests.engines.resident.programs import make_shards
from tests.engines.resident.roles import Assembly, Impostor

from dfwtrace.engines.resident import connections, links, worker


@pytest.fixture(scope="session", autouse=True)
def process_server() -> None:
    """Start the server that workers are forked from, so that its sockets are no test's."""
    process = PROCESSES.Process(target=make_shards, args=(1,))
    process.start()
    process.join()


@pytest.fixture(autouse=True)
def nothing_left_behind(process_server: None) -> Iterator[None]:
    """No thread, no socket, no process, whether the test's run ended well or not."""
    before = open_sockets()
    yield
    assert eventually(lambda: not our_threads()), our_threads()
    assert eventually(lambda: open_sockets() <= before)
    assert PROCESSES.active_children() == []


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same behaviour sooner: no test asserts how long anything took."""
    monkeypatch.setattr(worker, "INTERVAL", 0.1)
    monkeypatch.setattr(links, "GRACE", 1.0)


@pytest.fixture
def hasty_handshakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HANDSHAKE_TIMEOUT", 0.5)


@pytest.fixture
def engine() -> Iterator[Any]:
    """Makes engines; what they have launched is ended with the test."""
    made: list[GroupEngine] = []

    def make(**settings: Any) -> GroupEngine:
        made.append(GroupEngine(**settings))
        return made[-1]

    yield make
    for one in made:
        for lost in one.groups:
            lost.abandon()
        for job in one.jobs:
            job.cancel()
            job.join(10.0)


@pytest.fixture
def assembly() -> Iterator[Callable[..., Assembly]]:
    with ExitStack() as stack:

        def make(rows: Any = None, **settings: Any) -> Assembly:
            made = Assembly(GroupEngine(**{"job": NoJob, **settings}), rows)
            stack.callback(made.close)
            return made

        yield make


@pytest.fixture
def joined(assembly: Any) -> Iterator[Any]:
    """A group with one worker of one shard, which the test plays: (group, control, link)."""
    made = assembly(n_shards=1, n_workers=1, largest_message=1000)
    with Impostor(made.info) as worker:
        control, link = worker.join()
        yield made.result(), control, link
