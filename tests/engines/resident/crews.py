"""Crews of real workers over real sockets, in threads or in processes of their own."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dfwtrace.engines.failures import CrewLostError
from dfwtrace.engines.resident import handshake, service
from dfwtrace.engines.resident.crew import Crew
from dfwtrace.engines.resident.feeding import pieces, receive_shards
from dfwtrace.engines.resident.handshake import fresh_secret
from dfwtrace.engines.resident.invitation import Invitation
from dfwtrace.engines.resident.reception import Reception
from dfwtrace.engines.resident.wire import Frame, Kind, Value, pack, receive, send
from dfwtrace.engines.resident.workers import ResidentWorkers
from dfwtrace.shards import Shard, shard_bounds, split_rows

HOST = "127.0.0.1"
# A server process that has everything imported: a worker is then a fork away.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["dfwtrace", "tests.engines.resident.crews"])


def serve_rows(
    invitation: Invitation, index: int, program: Any, heartbeat: float, cores: int = 1
) -> None:
    """Be a worker that gets its rows from the driver."""
    first, last = shard_bounds(invitation.n_shards, invitation.n_workers)[index]
    service.HEARTBEAT = heartbeat

    def load(next_frame: Callable[[], Frame]) -> list[Shard]:
        if hasattr(program, "load"):
            program.load(first)
        return receive_shards(next_frame, last - first)

    service.serve(invitation, index, program, load, cores)


def serve_in_silence(*args: Any) -> None:
    """The same; what it raises is the driver's to tell."""
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # until the end of the process
    serve_rows(*args)


class ThreadJob:
    """Workers in threads. What they raise is kept."""

    def __init__(self, invitation: Invitation, program: Any, heartbeat: float) -> None:
        self.errors: list[BaseException] = []
        self.cancelled = False

        def run(index: int) -> None:
            try:
                serve_rows(invitation, index, program, heartbeat)
            except BaseException as error:
                self.errors.append(error)

        self._threads = [
            threading.Thread(target=run, args=(i,), name=f"dfwtrace-worker-{i}", daemon=True)
            for i in range(invitation.n_workers)
        ]
        for thread in self._threads:
            thread.start()

    def failure(self) -> Exception | None:
        return None

    def cancel(self) -> None:
        self.cancelled = True

    def join(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)


class ProcessJob:
    """Workers in processes: a job that fails as soon as one of them does, as Spark's would."""

    def __init__(self, invitation: Invitation, program: Any, heartbeat: float) -> None:
        self.cancelled = False
        self.processes = [
            PROCESSES.Process(
                target=serve_in_silence, args=(invitation, i, program, heartbeat), daemon=True
            )
            for i in range(invitation.n_workers)
        ]
        for process in self.processes:
            process.start()

    def failure(self) -> Exception | None:
        ended = [process.exitcode for process in self.processes if process.exitcode]
        return CrewLostError(f"the job has ended with {ended}") if ended else None

    def cancel(self) -> None:
        self.cancelled = True
        for process in self.processes:
            process.kill()

    def join(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        for process in self.processes:
            process.join(max(0.0, deadline - time.monotonic()))
        return all(process.exitcode is not None for process in self.processes)


class NoJob:
    """Workers that somebody else runs."""

    def __init__(self, *_: Any) -> None:
        self.cancelled = False
        self.ended: Exception | None = None

    def failure(self) -> Exception | None:
        return self.ended

    def cancel(self) -> None:
        self.cancelled = True

    def join(self, timeout: float) -> bool:
        return True


@dataclass
class CrewEngine:
    """An engine whose workers are threads or processes; all that it has launched is kept."""

    n_shards: int = 4
    n_workers: int = 2
    fan_in: int = 16
    job: Any = ThreadJob
    max_restarts: int = 3
    round_timeout: float | None = None
    start_timeout: float = 20.0
    largest_message: int = 1 << 30
    heartbeat: float = 0.1
    n_jobs: int = 1
    jobs: list[Any] = field(default_factory=list)
    invitations: list[Invitation] = field(default_factory=list)
    crews: list[Crew] = field(default_factory=list)

    def start(self, program: Any, rows: Any) -> ResidentWorkers:
        shards = split_rows(rows.X, rows.y, self.n_shards)
        return self.workers(program, lambda: shards)

    def workers(self, program: Any, shards: Callable[[], list[Shard]]) -> ResidentWorkers:
        def launch() -> Crew:
            return self.launch(program, shards())

        return ResidentWorkers(launch, self.n_shards, self.max_restarts, self.round_timeout)

    def launch(self, program: Any, shards: list[Shard]) -> Crew:
        bounds = shard_bounds(self.n_shards, self.n_workers)

        def rows(index: int) -> Any:
            first, last = bounds[index]
            return pieces(shards[first:last])

        reception = self.open_door()
        job = self.job(self.invitations[-1], program, self.heartbeat)
        self.jobs.append(job)
        crew = Crew(self.invitations[-1], reception, job, rows)
        self.crews.append(crew)
        return crew

    def open_door(self) -> Reception:
        secret = fresh_secret()
        reception = Reception(HOST, 0, secret)
        self.invitations.append(
            Invitation(
                HOST,
                reception.port,
                secret,
                self.n_workers,
                self.n_shards,
                self.fan_in,
                self.start_timeout,
                self.largest_message,
            )
        )
        return reception


@dataclass
class Trouble:
    """What befalls one shard's worker in one method, as often as there are tries."""

    method: str
    shard: int
    action: str
    flags: Path
    times: int = 1

    def strike(self, method: str, shard: int) -> None:
        if (method, shard) != (self.method, self.shard):
            return
        for k in range(self.times):
            with contextlib.suppress(FileExistsError):
                (self.flags / f"struck-{k}").touch(exist_ok=False)
                self._act()
                return

    def _act(self) -> None:
        if self.action == "raise":
            raise LookupError(f"shard {self.shard} is broken")
        if self.action == "leave":
            sys.exit(3)
        if self.action == "exit":
            os._exit(3)
        if self.action == "hang":
            time.sleep(600.0)
        os.kill(os.getpid(), {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[self.action])


@dataclass(frozen=True)
class Held:
    """A shard's state."""

    index: int
    X: Any
    W: Any


@dataclass
class Products:
    """A program of a few lines whose bits depend on every step that came before."""

    trouble: Trouble | None = None

    def load(self, first: int) -> None:
        self._strike("load", first)

    def begin(self, shard: Shard, W: Any) -> Held:
        self._strike("begin", shard.index)
        return Held(shard.index, shard.X, W)

    def move(self, held: Held, u: Any, gamma: float) -> Held:
        self._strike("move", held.index)
        return Held(held.index, held.X, (1.0 - gamma) * held.W + gamma * u)

    def product(self, held: Held, v: Any) -> Any:
        self._strike("product", held.index)
        return held.X.T @ (held.X @ (held.W * v))

    def norms(self, held: Held) -> Any:
        self._strike("norms", held.index)
        return np.array([float(held.index), float(np.linalg.norm(held.X @ held.W))])

    def _strike(self, method: str, shard: int) -> None:
        if self.trouble is not None:
            self.trouble.strike(method, shard)


KINDS = {"begin": "build", "move": "apply", "product": "sum", "norms": "gather"}


def make_shards(n_shards: int, n: int = 90, d: int = 6, seed: int = 0) -> list[Shard]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * 10.0 ** rng.integers(-8, 8, (n, 1))
    return split_rows(X, rng.standard_normal(n), n_shards)


def story(workers: Any, d: int = 6) -> list[bytes]:
    """Rounds of all kinds, twice around; the bits of every reply."""
    rng = np.random.default_rng(7)
    told: list[bytes] = []
    for _ in range(2):
        workers.build("begin", rng.standard_normal(d))
        for _ in range(2):
            told.append(workers.sum("product", rng.standard_normal(d)).tobytes())
            workers.apply("move", rng.standard_normal(d), float(rng.random()))
            told += [reply.tobytes() for reply in workers.gather("norms")]
    told.append(workers.sum("product", rng.standard_normal(d)).tobytes())
    return told


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
        sock.settimeout(10.0)
        if hello:
            send(sock, pack(Kind.HELLO, 0, hello))
        return sock

    def join(self, rows: int = 1, port: int = 0) -> tuple[Any, Any]:
        """Be a worker with so many shards up to the first round: (control, link)."""
        control = self.call(self.index, "somewhere", 4711, port)
        self.ready(control, rows)
        host, port = receive(control, 4096).values()  # type: ignore[assignment]
        return control, self.call(self.index, host=str(host), port=port)

    def ready(self, control: Any, rows: int = 1) -> None:
        digests = np.zeros(16 * rows, np.uint8)
        send(control, pack(Kind.READY, 0, [np.ones(rows, np.int64), digests]))


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


def open_sockets() -> set[str]:
    """Sockets of this process, as the system knows them."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{name}")
            if target.startswith("socket:"):
                found.add(target)
    return found


def our_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("dfwtrace")]


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Whether it comes true; what is true at once costs no time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
