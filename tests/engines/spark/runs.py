"""Runs that are compared bit for bit, data frames for them, and what a run may not leave behind."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import dfwtrace as dt
from dfwtrace.data.shards import Examined, Shard

N_SHARDS = 8
OPTIONS: dict[str, Any] = {"radius": 10.0, "solver": "dfw", "max_iter": 5, "certify_every": 2}
TIMES_AND_BYTES = {
    "seconds",
    "bytes_on_wire",
    "compute_seconds",
    "wait_seconds",
    "reduce_seconds",
}


def solve_here(task: Any, X: Any, y: Any, **options: Any) -> dt.Result:
    return dt.solve(task, X, y, engine=dt.LocalEngine(N_SHARDS), **{**OPTIONS, **options})


def assert_same_bits(result: dt.Result, expected: dt.Result) -> None:
    assert result.status == expected.status
    for name in ("U", "s", "V"):
        np.testing.assert_array_equal(getattr(result.W, name), getattr(expected.W, name), name)
    assert (result.objective, result.gap) == (expected.objective, expected.gap)
    assert result.history.columns == expected.history.columns
    for name in set(expected.history.columns) - TIMES_AND_BYTES:
        np.testing.assert_array_equal(
            result.history.column(name), expected.history.column(name), name
        )


def assert_same_shards(found: list[Shard], expected: list[Shard]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.index == other.index
        assert_same_array(one.y, other.y)
        if sp.issparse(other.X):
            assert isinstance(one.X, sp.csr_array)
            assert one.X.shape == other.X.shape
            for part in ("data", "indices", "indptr"):
                assert_same_array(getattr(one.X, part), getattr(other.X, part))
        else:
            assert_same_array(one.X, other.X)
            assert one.X.flags.c_contiguous
        assert one.digest() == other.digest()


def assert_same_array(one: Any, other: Any) -> None:
    if other is None:
        assert one is None
        return
    assert one.dtype == other.dtype
    assert one.shape == other.shape
    assert one.tobytes() == other.tobytes()


def as_they_are(X: Any, y: Any) -> Examined:
    return Examined(X, y, (int(X.shape[1]), 1))


def frame_of(spark: Any, X: Any, y: Any) -> Any:
    """Columns "features" and "label", or "y.0", "y.1", … where there are several targets."""
    import pandas as pd

    if sp.issparse(X):
        from pyspark.ml.linalg import Vectors

        rows = [
            (Vectors.sparse(X.shape[1], row.indices, row.data), label.item())
            for row, label in zip((X[[i]] for i in range(X.shape[0])), y, strict=True)
        ]
        return spark.createDataFrame(rows, ["features", "label"])
    features = pd.DataFrame({"features": list(X)})
    columns = ["label"] if y.ndim == 1 else [f"y.{k}" for k in range(y.shape[1])]
    return spark.createDataFrame(features.join(pd.DataFrame(y, columns=columns)))


def marking(frame: Any, mark: Path) -> Any:
    """The same frame; whoever reads it leaves a mark."""

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        mark.touch()
        yield from batches

    return frame.mapInArrow(read, frame.schema)


@contextlib.contextmanager
def with_settings(spark: Any, settings: dict[str, str]) -> Iterator[None]:
    """Let a session say that it has been started with these settings."""
    conf = spark.sparkContext._conf
    for name, value in settings.items():
        assert not conf.contains(name)
        conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            conf._jconf.remove(name)


@contextlib.contextmanager
def ctrl_c(when: Callable[[], bool], delay: float = 0.0) -> Iterator[None]:
    """Press Ctrl-C as soon as something is so, or so many seconds later."""
    over = threading.Event()

    def press() -> None:
        while not when():
            if over.wait(0.001):
                return
        if not over.wait(delay):
            os.kill(os.getpid(), signal.SIGINT)

    impatient = threading.Thread(target=press)
    impatient.start()
    try:
        yield
    finally:
        over.set()
        impatient.join()


def our_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("dfwtrace")]


def active_jobs(spark: Any) -> list[int]:
    return list(spark.sparkContext.statusTracker().getActiveJobsIds())


def persisted(spark: Any) -> int:
    return int(spark.sparkContext._jsc.getPersistentRDDs().size())


def broadcast_files(spark: Any) -> set[str]:
    return set(os.listdir(spark.sparkContext._temp_dir))


def our_sockets() -> set[tuple[str, str]]:
    """Sockets that are open in this process, but for PySpark's own: descriptors and inodes."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway.gateway_parameters.port
    accumulators = SparkContext._active_spark_context._accumulatorServer.server_address[1]
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # it has been closed meanwhile
            inode = os.readlink(f"/proc/self/fd/{descriptor}")
            if inode.startswith("socket:"):
                with socket.socket(fileno=os.dup(int(descriptor))) as sock:
                    if not {gateway, accumulators} & ports_of(sock):
                        found.add((descriptor, inode))
    return found


def ports_of(sock: socket.socket) -> set[int]:
    ports = {sock.getsockname()[1]} if sock.getsockname()[1:] else set()
    with contextlib.suppress(OSError):
        ports.add(sock.getpeername()[1])
    return ports


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)
