"""What the model of scaling is fed with and checked against, all measured at once.

Epochs with one resident worker at several numbers of rows give the compute time of every round, the
cost of an empty round, and what the master does between rounds. What a parent spends on a child's
messages is timed by itself, on a connection of this process with itself.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import dfwtrace as dt
from benchmarks import spark_session
from benchmarks.harness import Scale
from benchmarks.provenance import OtherWork
from benchmarks.scaling_model import Compute, Costs, Exchange, FloatArray, exchanges
from dfwtrace.engines import Node, TreeSum
from dfwtrace.engines.resident.wire import Kind, pack, receive, send, tune
from dfwtrace.engines.resident.worker import unpack_reply

ITERATIONS = 2
FAN_IN = 16

_RADIUS = 50.0
_EPOCHS = 12
# The first ones still touch new memory; the last one is not told apart from the certificate.
_COUNTED = slice(2, _EPOCHS - 1)
_MESSAGES = 300
# Numbers in a long message: what a socket takes without anybody reading at the other end.
_LONG = 4000


@dataclass(frozen=True)
class Sizes:
    """What is measured.

    Attributes
    ----------
    d, m : int
    rows : tuple of int
        Of one worker, increasing; between them the model interpolates.
    rows_in_check : int
        Of each worker in the check, between those that the model has seen.
    workers_in_check : int
    """

    d: int
    m: int
    rows: tuple[int, ...]
    rows_in_check: int
    workers_in_check: int


@dataclass(frozen=True)
class Epochs:
    """What epochs really took: medians, in seconds, and bytes."""

    n: int
    seconds: float
    compute: float
    bytes: float


@dataclass(frozen=True)
class Measured:
    """The costs, and what to check the model against.

    Attributes
    ----------
    d, m : int
    costs : Costs
    checks : dict
        Of 1, 2, … workers.
    """

    d: int
    m: int
    costs: Costs
    checks: dict[int, Epochs]


_MOST_TURNS = 3
_SIZES = {
    "toy": Sizes(40, 30, (20, 60, 120), 90, spark_session.WORKERS),
    # The rows that 4096, 256 and 64 workers would hold of the paper's data, about.
    "full": Sizes(2048, 1000, (313, 5000, 20_000), 10_000, spark_session.WORKERS),
}


@cache
def measure(scale: Scale, repeat: int) -> tuple[Measured, float]:
    """Measure once for all benchmarks that ask; also return the share of other work."""
    with OtherWork() as others:
        measured = measure_on(
            spark_session.session(), _SIZES[scale], turns=min(repeat, _MOST_TURNS)
        )
    return measured, others.share


def measure_on(spark: Any, sizes: Sizes, turns: int) -> Measured:
    """Measure everything `turns` times in turn.

    Parameters
    ----------
    spark : SparkSession
        With as many cores as the check has workers.
    sizes : Sizes
    turns : int
    """
    d, m = sizes.d, sizes.m
    workers = range(1, sizes.workers_in_check + 1)
    most = max(sizes.rows[-1], sizes.workers_in_check * sizes.rows_in_check)
    X, y, _ = dt.datasets.make_multiclass(most, d, m, rank=10, random_state=0, dtype=np.float32)

    def run(rows: int, n_workers: int) -> dt.Result:
        result = dt.solve(
            dt.Multinomial(n_classes=m),
            X[:rows],
            y[:rows],
            radius=_RADIUS,
            solver="dfw",
            lmo=f"power-{ITERATIONS}",
            step="harmonic",
            max_iter=_EPOCHS,
            representation="implicit",
            engine=dt.SparkEngine(spark, n_workers, n_workers, fan_in=FAN_IN),
            verbose=False,
        )
        if result.status == "interrupted":
            raise KeyboardInterrupt
        return result

    cases = [(rows, 1) for rows in sizes.rows]
    cases += [(n * sizes.rows_in_check, n) for n in workers]
    runs = [[run(*case) for case in cases] for _ in range(turns)]
    message, byte = message_seconds()
    results = dict(zip(cases, zip(*runs, strict=True), strict=True))
    alone = [results[rows, 1] for rows in sizes.rows]
    rounds = exchanges(d, m, ITERATIONS)
    empty = np.concatenate([_overheads(result, rounds)[:, -1] for result in alone[0]])
    masters = np.concatenate([_masters(result, rounds) for result in alone[0]])
    costs = Costs(
        Compute(
            np.array(sizes.rows),
            np.array([np.median(_all_compute(same, rounds), axis=0) for same in alone]),
        ),
        hop=max(float(np.median(empty)) - message, 0.0),
        message=message,
        byte=byte,
        master=float(np.median(masters)),
    )
    checks = {
        n_workers: _epochs(results[n, n_workers], rounds, n)
        for n, n_workers in cases[len(sizes.rows) :]
    }
    return Measured(d, m, costs, checks)


def message_seconds() -> tuple[float, float]:
    """What a parent spends on a child's request and reply: in any case, and for each byte."""
    with ExitStack() as held:
        listener = held.enter_context(socket.create_server(("127.0.0.1", 0)))
        parent = held.enter_context(socket.create_connection(listener.getsockname()))
        child = held.enter_context(listener.accept()[0])
        tune(parent)
        tune(child)
        short, long = (
            np.median([_one_message(parent, child, size) for _ in range(_MESSAGES)])
            for size in (1, _LONG)
        )
    byte = max(float(long - short), 0.0) / (2 * 8 * (_LONG - 1))  # there and back
    return float(short), byte


def _one_message(parent: socket.socket, child: socket.socket, size: int) -> float:
    """Seconds at the parent. All that the child does happens while the clock stands."""
    vector = np.zeros(size)
    began = time.perf_counter()
    send(parent, pack(Kind.SUM, 1, ["matvec", vector]))
    seconds = time.perf_counter() - began
    receive(child, 1 << 20)
    send(child, pack(Kind.REPLY, 1, [0.0, 0, 0, 0, vector]))
    began = time.perf_counter()
    _, _, (node,) = unpack_reply(receive(parent, 1 << 20), 1)
    total = TreeSum(2)
    total.add(Node(0, 1, vector))
    total.add(node)
    total.result()
    return seconds + time.perf_counter() - began


def _epochs(results: Sequence[dt.Result], rounds: Sequence[Exchange], n: int) -> Epochs:
    return Epochs(
        n,
        float(np.median([_epoch_seconds(result) for result in results])),
        float(np.median(_all_compute(results, rounds).sum(axis=1))),
        float(np.median([_by_round(r, rounds, "bytes_on_wire").sum(axis=1) for r in results])),
    )


def _all_compute(results: Sequence[dt.Result], rounds: Sequence[Exchange]) -> FloatArray:
    """Compute seconds by epoch, of all runs, and round."""
    return np.concatenate([_by_round(result, rounds, "compute_seconds") for result in results])


def _overheads(result: dt.Result, rounds: Sequence[Exchange]) -> FloatArray:
    """All but the compute seconds, by epoch and round."""
    parts = ("wait_seconds", "reduce_seconds")
    total: FloatArray = np.sum([_by_round(result, rounds, part) for part in parts], axis=0)
    return total


def _masters(result: dt.Result, rounds: Sequence[Exchange]) -> FloatArray:
    """Seconds of every epoch that belong to none of its rounds."""
    in_rounds = _overheads(result, rounds) + _by_round(result, rounds, "compute_seconds")
    left: FloatArray = _epoch_seconds(result) - in_rounds.sum(axis=1)
    return left


def _epoch_seconds(result: dt.Result) -> FloatArray:
    seconds = np.diff(result.history.column("seconds"), prepend=np.nan)
    counted: FloatArray = seconds[_COUNTED]
    return counted


def _by_round(result: dt.Result, rounds: Sequence[Exchange], name: str) -> FloatArray:
    """One column of the record of rounds, by epoch and round; refused if the model knows others."""
    kept = [
        [record for record in result.rounds if record["epoch"] == epoch + 1]
        for epoch in range(_EPOCHS)[_COUNTED]
    ]
    for made in kept:
        if [record["method"] for record in made] != [exchange.method for exchange in rounds]:
            raise RuntimeError(f"an epoch made the rounds {[r['method'] for r in made]}.")
    return np.array([[record[name] for record in made] for made in kept])
