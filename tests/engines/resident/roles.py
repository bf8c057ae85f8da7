"""Roles that a test plays by hand: a worker, a driver, and a crew put together beside it."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack
from typing import Any

import numpy as np
from tests.engines.resident.crews import CrewEngine
from tests.engines.resident.programs import Products, make_shards

from dfwtrace.engines.resident import handshake, service
from dfwtrace.engines.resident.crew import Crew
from dfwtrace.engines.resident.invitation import VERSION, Invitation
from dfwtrace.engines.resident.wire import Kind, Value, pack, receive, send, tune


class Impostor:
    """One who speaks with the driver by hand; knows the secret or believes to."""

    def __init__(self, invitation: Invitation, index: int = 0) -> None:
        self.invitation, self.index = invitation, index
        self.sockets: list[socket.socket] = []

    def __enter__(self) -> Impostor:
        return self

    def __exit__(self, *_: object) -> None:
        for sock in self.sockets:
            sock.close()

    def call(self, *hello: Value, host: str | None = None, port: int | None = None) -> Any:
        """A line to the driver; without words, one on which no hello was said."""
        inv = self.invitation
        sock = socket.create_connection((host or inv.host, port or inv.port), timeout=10.0)
        self.sockets.append(sock)
        handshake.introduce(sock, inv.secret)
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
    """All workers of a crew, one shard each."""

    def __init__(self, assembly: Assembly) -> None:
        self._held = ExitStack()
        invitation = assembly.invitation
        self.links: list[Any] = [None] * invitation.n_workers
        self.controls: list[Any] = [None] * invitation.n_workers

        def join(worker: Impostor) -> None:
            self.controls[worker.index], self.links[worker.index] = worker.join()

        threads = []
        for index in range(invitation.n_workers):
            worker = self._held.enter_context(Impostor(invitation, index))
            threads.append(threading.Thread(target=join, args=(worker,)))
            threads[-1].start()
        self.crew = assembly.result()
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
    """A crew that is put together beside the test, so that the test can play its workers."""

    def __init__(self, engine: CrewEngine, rows: Any = None) -> None:
        self.engine, self.job = engine, engine.job()
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


def ask(crew: Crew, timeout: float | None = None) -> Any:
    return crew.round(Kind.SUM, "product", (np.ones(2),), timeout)


def answer(link: Any, *values: Any, sequence: int = 1, kind: Kind = Kind.REPLY) -> None:
    send(link, pack(kind, sequence, values))


class Host:
    """The driver's side of worker 0, played by hand."""

    def __init__(self, engine: CrewEngine) -> None:
        self.reception = engine.open_door()
        self.invitation = engine.invitations[-1]
        self.sockets: list[Any] = []

    def employ(self, program: Any = None, load: Any = None) -> list[BaseException]:
        """Start a real worker with one shard of its own; what it raises is in the list."""
        errors: list[BaseException] = []
        program, load = program or Products(), load or (lambda _: make_shards(1))

        def run() -> None:
            try:
                service.serve(self.invitation, 0, program, load, 1)
            except BaseException as error:
                errors.append(error)

        threading.Thread(target=run, name="dfwtrace-worker", daemon=True).start()
        return errors

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
