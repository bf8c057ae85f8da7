"""Programs for workers, what may befall them, and the story of a run with them."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dfwtrace.data.shards import Shard, split_rows
from dfwtrace.engines import LocalWorkers


def burn(seconds: float) -> None:
    """Use the processor for so long."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


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
        if self.action == "compute":
            burn(2.5)
        if self.action in ("kill", "stop"):
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


def undisturbed(n_shards: int) -> list[bytes]:
    workers = LocalWorkers(Products(), make_shards(n_shards))
    try:
        return story(workers)
    finally:
        workers.close()
