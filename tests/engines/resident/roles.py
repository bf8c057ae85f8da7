"""Roles that a test plays by hand: a worker, a driver, and a group put together beside it."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack
from typing import Any

import numpy as np
from tests.engines.resident.groups import GroupEngine
from tests.engines.resident.programs import Products, make_shards

from dfwtrace.engines.resident import connections, worker
from dfwtrace.engines.resident.connections import VERSION, JoinInfo
from dfwtrace.engines.resident.wire import Kind, Value, pack, receive, send, tune
from dfwtrace.engines.resident.worker_group import WorkerGroup


class Impostor:
    """One who speaks with the driver by hand; knows the secret or believes to."""

    def __init__(self, info: JoinInfo, index: int = 0) -> None:
        self.info, self.index = info, index
        self.sockets: list[socket.socket] = []

    def __enter__(self) -> Impostor:
        return self

    def __exit__(self, *_: object) -> None:
        for sock in self.sockets:
            sock.close()

    def call(self, *hello: Value, host: str | None = None, port: int | None = None) -> Any:
        """A line to the driver; without words, one on which no hello was said."""
        inv = self.info
        sock = socket.create_connection((host or inv.host, port or inv.port), timeout=10.0)
        self.sockets.append(sock)
        connections.offer_handshake(sock, inv.secret)
        tune(sock)
        sock.settimeout(10.0)
        if hello:
            send(sock, pack(Kind.HELLO, 0, hello))
        return sock

    def greet(self, port: int = 0) -> Any:
        """Be a worker up to its hello, from `a-host` with process 4711."""
        return self.call(self.index, "a-host", 4711, port, VERSION)

    def ready(self, control: Any, rows: int = 1) -> None:
        digests = np.zeros(16 * rows, np.uint8)
        send(control, pack(Kind.READY, 0, [np.ones(rows, np.int64), digests]))

    def join(self, rows: int = 1) -> tuple[Any, Any]:
        """Be a worker with so many shards up to the first round: (control, link)."""
        control = self.greet()
        self.ready(control, rows)
        host, port = receive(control, 4096).values()
        assert isinstance(port, int)
        return control, self.call(self.index, host=str(host), port=port)


class Team:
    """All workers of a group, one shard each."""

    def __init__(self, assembly: Assembly) -> None:
        self._held = ExitStack()
        info = assembly.info
        self.links: list[Any] = [None] * info.n_workers
        self.controls: list[Any] = [None] * info.n_workers

        def join(worker: Impostor) -> None:
            self.controls[worker.index], self.links[worker.index] = worker.join()

        threads = []
        for index in range(info.n_workers):
            worker = self._held.enter_context(Impostor(info, index))
            threads.append(threading.Thread(target=join, args=(worker,)))
            threads[-1].start()
        self.group = assembly.result()
        for thread in threads:
            thread.join()

    def __enter__(self) -> Team:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()


def closed(sock: socket.socket) -> bool:
    """Whether the other side has hung up; waits for it."""
    sock.settimeout(10.0)
    try:
        while sock.recv(4096):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


class Assembly:
    """A group that is put together beside the test, so that the test can play its workers."""

    def __init__(self, engine: GroupEngine, rows: Any = None) -> None:
        self.engine, self.job = engine, engine.job()
        self.listener = engine.open_door()
        self.info = engine.infos[-1]
        self.outcome: Any = None

        def assemble() -> None:
            try:
                self.outcome = WorkerGroup(self.info, self.listener, self.job, rows)
            except BaseException as error:
                self.outcome = error

        self._thread = threading.Thread(target=assemble)
        self._thread.start()

    def result(self) -> Any:
        """The group, or what was raised."""
        self._thread.join(30.0)
        assert not self._thread.is_alive(), "the group hangs"
        return self.outcome

    def close(self) -> None:
        outcome = self.result()
        if isinstance(outcome, WorkerGroup):
            outcome.abandon()


def ask(group: WorkerGroup, timeout: float | None = None) -> Any:
    return group.round(Kind.SUM, "product", (np.ones(2),), timeout)


def answer(link: Any, *values: Any, sequence: int = 1, kind: Kind = Kind.REPLY) -> None:
    send(link, pack(kind, sequence, values))


class Host:
    """The driver's side of worker 0, played by hand."""

    def __init__(self, engine: GroupEngine) -> None:
        self.listener = engine.open_door()
        self.info = engine.infos[-1]
        self.sockets: list[Any] = []

    def employ(self, program: Any = None, load: Any = None) -> list[BaseException]:
        """Start a real worker with one shard of its own; what it raises is in the list."""
        errors: list[BaseException] = []
        program, load = program or Products(), load or (lambda _: make_shards(1))

        def run() -> None:
            try:
                worker.serve(self.info, 0, program, load, 1)
            except BaseException as error:
                errors.append(error)

        threading.Thread(target=run, name="dfwtrace-worker", daemon=True).start()
        return errors

    def meet(self) -> Any:
        sock, _, hello = self.listener.callers.get(timeout=10.0)
        sock.settimeout(10.0)
        self.sockets.append(sock)
        return sock, hello

    def lead(self) -> tuple[Any, Any]:
        """Bring the worker up to its first round: (control, link)."""
        control, hello = self.meet()
        assert hello[0] == 0
        self.next(control, Kind.READY)
        send(control, pack(Kind.TREE, 0, [self.info.host, self.info.port]))
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
        self.listener.close()
        for sock in self.sockets:
            sock.close()
