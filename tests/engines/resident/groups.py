"""Groups of real workers over real sockets, in threads or in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dfwtrace.data.shards import Shard, shard_bounds, split_rows
from dfwtrace.engines.base import Engine, WorkersLostError
from dfwtrace.engines.resident import worker
from dfwtrace.engines.resident.connections import JoinInfo, Listener, new_secret
from dfwtrace.engines.resident.wire import Frame, receive_shards, shard_payloads
from dfwtrace.engines.resident.worker_group import ResidentWorkers, WorkerGroup

HOST = "127.0.0.1"
# A server process that has everything imported: a worker is then a fork away.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    ["dfwtrace", "tests.engines.resident.groups", "tests.engines.resident.programs"]
)


def serve_rows(info: JoinInfo, index: int, program: Any, heartbeat: float, cores: int = 1) -> None:
    """Be a worker that gets its rows from the driver."""
    first, last = shard_bounds(info.n_shards, info.n_workers)[index]
    worker.INTERVAL = heartbeat

    def load(next_frame: Callable[[], Frame]) -> list[Shard]:
        if hasattr(program, "load"):
            program.load(first)
        return receive_shards(next_frame, last - first)

    worker.serve(info, index, program, load, cores)


def serve_in_silence(*args: Any) -> None:
    """The same; what it raises is the driver's to tell."""
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # until the end of the process
    serve_rows(*args)


class ThreadJob:
    """Workers in threads. What they raise is kept."""

    def __init__(self, info: JoinInfo, program: Any, heartbeat: float) -> None:
        self.errors: list[BaseException] = []
        self.cancelled = False

        def run(index: int) -> None:
            try:
                serve_rows(info, index, program, heartbeat)
            except BaseException as error:
                self.errors.append(error)

        self._threads = [
            threading.Thread(target=run, args=(i,), name=f"dfwtrace-worker-{i}", daemon=True)
            for i in range(info.n_workers)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def preparing(self) -> bool:
        return False

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

    def __init__(self, info: JoinInfo, program: Any, heartbeat: float) -> None:
        self.cancelled = False
        self.processes = [
            PROCESSES.Process(
                target=serve_in_silence, args=(info, i, program, heartbeat), daemon=True
            )
            for i in range(info.n_workers)
        ]

    def start(self) -> None:
        for process in self.processes:
            process.start()

    def preparing(self) -> bool:
        return False

    def failure(self) -> Exception | None:
        ended = [process.exitcode for process in self.processes if process.exitcode]
        return WorkersLostError(f"the job has ended with {ended}") if ended else None

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
        self.started = self.cancelled = self.still_preparing = False
        self.ended: Exception | None = None

    def start(self) -> None:
        self.started = True

    def preparing(self) -> bool:
        return self.still_preparing

    def failure(self) -> Exception | None:
        return self.ended

    def cancel(self) -> None:
        self.cancelled = True

    def join(self, timeout: float) -> bool:
        return True


@dataclass
class GroupEngine(Engine):
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
    infos: list[JoinInfo] = field(default_factory=list)
    groups: list[WorkerGroup] = field(default_factory=list)

    def start(self, program: Any, rows: Any) -> ResidentWorkers:
        shards = split_rows(rows.X, rows.y, self.n_shards)
        return self.workers(program, lambda: shards)

    def workers(self, program: Any, shards: Callable[[], list[Shard]]) -> ResidentWorkers:
        def launch() -> WorkerGroup:
            return self.launch(program, shards())

        return ResidentWorkers(launch, self.max_restarts, self.round_timeout)

    def launch(self, program: Any, shards: list[Shard]) -> WorkerGroup:
        bounds = shard_bounds(self.n_shards, self.n_workers)

        def rows(index: int) -> Any:
            first, last = bounds[index]
            return shard_payloads(shards[first:last], self.largest_message)

        listener = self.open_door()
        job = self.job(self.infos[-1], program, self.heartbeat)
        self.jobs.append(job)
        group = WorkerGroup(self.infos[-1], listener, job, rows)
        self.groups.append(group)
        return group

    def open_door(self) -> Listener:
        secret = new_secret()
        listener = Listener(HOST, 0, secret)
        self.infos.append(
            JoinInfo(
                HOST,
                listener.port,
                secret,
                self.n_workers,
                self.n_shards,
                self.fan_in,
                self.start_timeout,
                self.largest_message,
            )
        )
        return listener
