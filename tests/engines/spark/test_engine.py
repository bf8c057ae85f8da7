"""Resident workers on a real Spark: the same bits as in this process, and nothing left behind."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit
from tests.clusters import Sessions

import dfwtrace as dt
from dfwtrace.engines.resident import handshake

N_SHARDS = 8
TIMES_AND_BYTES = {
    "seconds",
    "bytes_on_wire",
    "compute_seconds",
    "wait_seconds",
    "reduce_seconds",
}


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


def our_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("dfwtrace")]


def our_sockets() -> list[socket.socket]:
    """Sockets that are open in this process, but for PySpark's own."""
    from pyspark import SparkContext

    gc.collect()
    found = [thing for thing in gc.get_objects() if type(thing) is socket.socket]
    gateway = SparkContext._gateway.gateway_parameters.port
    accumulators = SparkContext._active_spark_context._accumulatorServer.server_address[1]
    return [
        sock
        for sock in found
        if sock.fileno() >= 0 and not {gateway, accumulators} & ports_of(sock)
    ]


def ports_of(sock: socket.socket) -> set[int]:
    ports = {sock.getsockname()[1]} if sock.getsockname()[1:] else set()
    with contextlib.suppress(OSError):
        ports.add(sock.getpeername()[1])
    return ports


@pytest.fixture
def tidy(spark: Any) -> Iterator[None]:
    """A test that uses this leaves no thread, socket or job, and a session that works."""
    settings = settings_of(spark)
    spark.range(1).count()
    sockets = our_sockets()
    yield
    assert our_threads() == []
    assert our_sockets() == sockets
    tracker = spark.sparkContext.statusTracker()
    wait_until(lambda: list(tracker.getActiveJobsIds()) == [])
    wait_until(lambda: list(tracker.getActiveStageIds()) == [])
    assert spark.sparkContext._jsc.getPersistentRDDs().isEmpty()
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None
    assert settings_of(spark) == settings
    assert spark.range(10).count() == 10


def settings_of(spark: Any) -> dict[str, str]:
    settings = dict(spark.sparkContext.getConf().getAll())
    settings.pop("spark.sql.warehouse.dir")  # Spark itself spells it out at its first query
    return settings


def wait_until(condition: Any, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def classes() -> tuple[Any, Any]:
    X, y, _ = dt.datasets.make_multiclass(n=211, d=17, m=9, rank=3, seed=3)
    return X, y


@pytest.fixture(scope="module")
def targets() -> tuple[Any, Any]:
    X, Y, _ = dt.datasets.make_multitask(n=211, d=17, m=9, rank=3, noise=0.2, seed=3)
    return X, Y


OPTIONS: dict[str, Any] = {"radius": 10.0, "epochs": 5, "certify_every": 2}


def solve_here(task: Any, X: Any, y: Any, **options: Any) -> dt.Result:
    return dt.solve(task, X, y, engine=dt.LocalEngine(N_SHARDS), **{**OPTIONS, **options})


@pytest.mark.parametrize("n_workers", [1, 2])
@pytest.mark.parametrize("lmo", ["power-log", "sva"])
def test_arrays_give_the_same_bits_as_in_this_process(
    spark: Any, tidy: None, classes: Any, n_workers: int, lmo: str
) -> None:
    engine = dt.SparkEngine(spark, N_SHARDS, n_workers)
    result = dt.solve(dt.Multinomial(), *classes, engine=engine, lmo=lmo, **OPTIONS)
    assert_same_bits(result, solve_here(dt.Multinomial(), *classes, lmo=lmo))


@pytest.mark.parametrize("fan_in", [1, 2, 16])
def test_a_tree_of_four_workers_gives_the_same_bits(
    sessions: Sessions, classes: Any, fan_in: int
) -> None:
    engine = dt.SparkEngine(sessions.on("local[4]"), N_SHARDS, 4, fan_in=fan_in)
    result = dt.solve(dt.Multinomial(), *classes, engine=engine, **OPTIONS)
    assert_same_bits(result, solve_here(dt.Multinomial(), *classes))


def variants(X: Any) -> dict[str, Any]:
    return {
        "float32": X.astype(np.float32),
        "column by column": np.asfortranarray(X),
        "sparse": sp.csr_array(np.where(np.abs(X) > 0.5, X, 0.0)),
        "integers": np.round(3 * X).astype(np.int32),
    }


@pytest.mark.parametrize("kind", ["float32", "column by column", "sparse", "integers"])
def test_arrays_of_every_kind_give_the_same_bits(
    spark: Any, tidy: None, targets: Any, kind: str
) -> None:
    X, Y = variants(targets[0])[kind], targets[1]
    form = {"representation": "factored" if kind == "sparse" else "implicit"}
    result = dt.solve(
        dt.LeastSquares(), X, Y, engine=dt.SparkEngine(spark, N_SHARDS), **OPTIONS, **form
    )
    assert_same_bits(result, solve_here(dt.LeastSquares(), X, Y, **form))


def test_gram_sums_the_moments_on_the_cluster_once(spark: Any, tidy: None, targets: Any) -> None:
    engine = dt.SparkEngine(spark, N_SHARDS)
    result = dt.solve(dt.LeastSquares(), *targets, engine=engine, representation="gram", **OPTIONS)
    assert_same_bits(result, solve_here(dt.LeastSquares(), *targets, representation="gram"))
    assert (result.history.column("bytes_on_wire") == 0).all()


def frame_of(spark: Any, X: Any, y: Any, n_partitions: int) -> Any:
    import pandas as pd

    if sp.issparse(X):
        from pyspark.ml.linalg import Vectors

        rows = [
            (Vectors.sparse(X.shape[1], row.indices, row.data), label.item())
            for row, label in zip((X[[i]] for i in range(X.shape[0])), y, strict=True)
        ]
        frame = spark.createDataFrame(rows, ["features", "label"])
    elif y.ndim == 1:
        frame = spark.createDataFrame(pd.DataFrame({"features": list(X), "label": y}))
    else:
        columns = [f"y.{k}" for k in range(y.shape[1])]
        frame = spark.createDataFrame(
            pd.DataFrame({"features": list(X)}).join(pd.DataFrame(y, columns=columns))
        )
    return frame.repartitionByRange(n_partitions, "features") if n_partitions else frame


@pytest.mark.parametrize("n_workers", [1, 2])
def test_a_data_frame_gives_the_same_bits_as_its_rows_in_this_process(
    spark: Any, tidy: None, classes: Any, n_workers: int
) -> None:
    # A sort leaves partitions of different lengths, and an order of its own.
    frame = frame_of(spark, *classes, n_partitions=0).repartition(5, "label")
    here = frame.toPandas()
    X, y = np.stack(list(here["features"])), here["label"].to_numpy()
    assert not np.array_equal(X, classes[0])
    engine = dt.SparkEngine(spark, N_SHARDS, n_workers)
    result = dt.solve(
        dt.Multinomial(), frame, None, features="features", label="label", engine=engine, **OPTIONS
    )
    assert_same_bits(result, solve_here(dt.Multinomial(), X, y))


def test_sparse_vectors_give_the_same_bits_as_a_sparse_matrix(
    spark: Any, tidy: None, classes: Any
) -> None:
    X, y = variants(classes[0])["sparse"], classes[1]
    frame = frame_of(spark, X, y, n_partitions=0)
    result = dt.solve(
        dt.Multinomial(), frame, label="label", engine=dt.SparkEngine(spark, N_SHARDS), **OPTIONS
    )
    assert_same_bits(result, solve_here(dt.Multinomial(), X, y))


def test_columns_as_features_and_as_targets(spark: Any, tidy: None, targets: Any) -> None:
    X, Y = targets
    frame = frame_of(spark, X, Y, n_partitions=0)
    labels = [f"y.{k}" for k in range(Y.shape[1])]
    engine = dt.SparkEngine(spark, N_SHARDS)
    result = dt.solve(
        dt.LeastSquares(),
        frame,
        features=labels[:3],
        label=labels[3:],
        engine=engine,
        representation="implicit",
        **OPTIONS,
    )
    expected = solve_here(dt.LeastSquares(), Y[:, :3], Y[:, 3:], representation="implicit")
    assert_same_bits(result, expected)


def test_a_data_frame_needs_no_engine(spark: Any, tidy: None, classes: Any) -> None:
    frame = frame_of(spark, *classes, n_partitions=0)
    result = dt.solve(dt.Multinomial(), frame, label="label", **OPTIONS)
    assert_same_bits(result, solve_here(dt.Multinomial(), *classes))
    plan = dt.plan(dt.Multinomial(), frame, label="label", epochs=5)
    assert (plan.workload.n, plan.workload.d, plan.workload.m) == (211, 17, 9)


class MultiLabel:
    """A task of one's own with a dense gradient."""

    def stats(self, shard: dt.Shard, W: dt.LowRankMatrix) -> dict[str, Any]:
        return self._state(shard.X, shard.targets, shard.X @ W)

    def update(self, state: dict[str, Any], atom: dt.RankOne, gamma: float) -> dict[str, Any]:
        moved = np.outer(state["X"] @ (atom.scale * atom.u), atom.v)
        return self._state(state["X"], state["y"], (1 - gamma) * state["S"] + gamma * moved)

    def loss(self, state: dict[str, Any]) -> float:
        return float(np.sum(np.logaddexp(0, state["S"]) - state["y"] * state["S"]))

    def _state(self, X: Any, y: Any, S: Any) -> dict[str, Any]:
        return {"X": X, "y": y, "S": S, "grad": X.T @ (expit(S) - y)}


def test_a_task_of_ones_own_needs_no_spark_knowledge(spark: Any, tidy: None, targets: Any) -> None:
    X, Y = targets[0], (targets[1] > 0).astype(float)
    options = {"step": "harmonic", "lmo": "power-2"}
    engine = dt.SparkEngine(spark, N_SHARDS)
    result = dt.solve(MultiLabel(), X, Y, engine=engine, **OPTIONS, **options)
    assert_same_bits(result, solve_here(MultiLabel(), X, Y, **options))
    frame = frame_of(spark, X, Y, n_partitions=0)
    labels = [f"y.{k}" for k in range(Y.shape[1])]
    result = dt.solve(MultiLabel(), frame, label=labels, engine=engine, **OPTIONS, **options)
    assert_same_bits(result, solve_here(MultiLabel(), X, Y, **options))


def test_empty_partitions_and_empty_shards(spark: Any, tidy: None) -> None:
    X, y, _ = dt.datasets.make_multiclass(n=5, d=4, m=3, rank=2, seed=1)
    task = dt.Multinomial(n_classes=3)
    frame = frame_of(spark, X, y, n_partitions=0).repartition(7)
    here = frame.toPandas()
    X, y = np.stack(list(here["features"])), here["label"].to_numpy()
    result = dt.solve(task, frame, label="label", engine=dt.SparkEngine(spark, 8, 2), **OPTIONS)
    assert_same_bits(result, solve_here(task, X, y))


def test_rounds_tell_bytes_and_times(spark: Any, tidy: None, classes: Any) -> None:
    X, y = classes
    engine = dt.SparkEngine(spark, N_SHARDS, 2)
    result = dt.solve(dt.Multinomial(), X, y, engine=engine, lmo="power-1", radius=10.0, epochs=3)
    products = [record for record in result.rounds if record["oracle"]]
    assert [record["method"] for record in products] == ["matvec", "rmatvec"] * 3
    for record in products:
        # Two workers: each is sent one vector, and sends one back, with little around them.
        assert 2 * 8 * (17 + 9) < record["bytes_on_wire"] < 2 * 8 * (17 + 9) + 500
        assert record["numbers_sent"] == N_SHARDS * (17 + 9)
        for part in ("compute_seconds", "wait_seconds", "reduce_seconds"):
            assert record[part] > 0.0
    epochs = result.rounds.column("epoch")
    for record in result.history:
        mine = result.rounds.column("bytes_on_wire")[epochs == record["epoch"]]
        if record["epoch"] < 3:  # the certificate at the end is in no record
            assert record["bytes_on_wire"] == mine.sum()
    assert set(epochs) == {0, 1, 2, 3}


def test_an_interrupt_returns_the_best_so_far_and_cleans_up(
    spark: Any, tidy: None, classes: Any
) -> None:
    def interrupt(W: Any, record: dict[str, Any]) -> None:
        if record["epoch"] == 3:
            timer.start()

    # It arrives in the middle of some later round, as Ctrl-C does.
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    engine = dt.SparkEngine(spark, N_SHARDS)
    result = dt.solve(
        dt.Multinomial(), *classes, radius=10.0, epochs=10**6, engine=engine, callback=interrupt
    )
    assert result.status == "interrupted"
    assert len(result.history) >= 3


def test_an_error_in_the_callback_cleans_up(spark: Any, tidy: None, classes: Any) -> None:
    def fail(W: Any, record: dict[str, Any]) -> None:
        raise LookupError("no such test set")

    engine = dt.SparkEngine(spark, N_SHARDS)
    with pytest.raises(LookupError, match="no such test set"):
        dt.solve(dt.Multinomial(), *classes, radius=10.0, engine=engine, callback=fail)


def test_the_users_job_group_is_left_alone(spark: Any, classes: Any) -> None:
    spark.sparkContext.setJobGroup("mine", "my own work")
    try:
        dt.solve(dt.Multinomial(), *classes, engine=dt.SparkEngine(spark), radius=1.0, epochs=1)
        assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") == "mine"
    finally:
        spark.sparkContext._jsc.clearJobGroup()


def test_garbage_and_wrong_secrets_at_the_port_disturb_nothing(
    spark: Any, tidy: None, classes: Any
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    over, dropped = threading.Event(), [0]

    def pester() -> None:
        """Call again and again: with garbage, in silence, with a secret of one's own."""
        open_calls = []
        while not over.is_set():
            try:
                caller = socket.create_connection(("127.0.0.1", port), timeout=5.0)
            except OSError:  # the door is not open yet, or no longer
                time.sleep(0.001)
                continue
            open_calls.append(caller)
            kind = len(open_calls) % 3
            try:
                if kind == 0:
                    caller.sendall(os.urandom(4096))
                elif kind == 1:
                    handshake.introduce(caller, handshake.fresh_secret())
            except OSError:
                dropped[0] += 1
            time.sleep(0.01)
        for caller in open_calls:
            caller.close()

    stranger = threading.Thread(target=pester)
    stranger.start()
    try:
        engine = dt.SparkEngine(spark, N_SHARDS, 2, port=port)
        result = dt.solve(dt.Multinomial(), *classes, engine=engine, **OPTIONS)
    finally:
        over.set()
        stranger.join()
    assert_same_bits(result, solve_here(dt.Multinomial(), *classes))
    assert dropped[0] > 0  # they were there, and were turned away


# Refusals


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_shards", 0),
        ("n_workers", 0),
        ("n_workers", 2.0),
        ("fan_in", 0),
        ("max_restarts", -1),
        ("host", 5),
        ("bind", ""),
        ("port", -1),
        ("port", 70_000),
        ("start_timeout", 0.0),
        ("round_timeout", -1.0),
        ("largest_message", 10),
    ],
)
def test_bad_settings_are_refused_by_name(spark: Any, name: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=name):
        dt.SparkEngine(spark, **{name: value})


def test_what_is_no_session_is_refused() -> None:
    pytest.importorskip("pyspark")
    with pytest.raises(TypeError, match="spark must be a SparkSession"):
        dt.SparkEngine(object())


def test_more_workers_than_shards_or_slots_are_refused_at_once(
    spark: Any, tidy: None, classes: Any
) -> None:
    with pytest.raises(ValueError, match="n_workers must be at most n_shards = 2, got 3"):
        dt.SparkEngine(spark, n_shards=2, n_workers=3)
    engine = dt.SparkEngine(spark, N_SHARDS, n_workers=5)
    with pytest.raises(ValueError, match="n_workers is 5, but the cluster can run only 2 tasks"):
        dt.solve(dt.Multinomial(), *classes, radius=1.0, engine=engine)


def test_a_port_that_is_taken_is_refused(spark: Any, tidy: None, classes: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        engine = dt.SparkEngine(spark, N_SHARDS, port=port)
        with pytest.raises(OSError, match=f"cannot listen at 127.0.0.1, port {port}"):
            dt.solve(dt.Multinomial(), *classes, radius=1.0, engine=engine)


def test_an_address_that_no_executor_can_reach_is_named(
    spark: Any, tidy: None, classes: Any
) -> None:
    engine = dt.SparkEngine(spark, N_SHARDS, host="127.0.0.1", bind="127.0.0.2", start_timeout=12)
    with pytest.raises(ConnectionError, match=r"no way from .* to 127\.0\.0\.1:.*host, bind"):
        dt.solve(dt.Multinomial(), *classes, radius=1.0, engine=engine)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": "features"}, "features names columns of a Spark DataFrame"),
        ({"label": "label"}, "label names columns of a Spark DataFrame"),
    ],
)
def test_columns_of_arrays_are_refused(
    spark: Any, classes: Any, options: dict[str, str], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        dt.solve(dt.Multinomial(), *classes, radius=1.0, engine=dt.SparkEngine(spark), **options)


def test_what_does_not_go_with_a_data_frame_is_refused(spark: Any, classes: Any) -> None:
    frame = frame_of(spark, *classes, n_partitions=0)
    engine = dt.SparkEngine(spark)
    with pytest.raises(TypeError, match="engine must be one for Spark"):
        dt.solve(dt.Multinomial(), frame, label="label", radius=1.0, engine=dt.LocalEngine())
    with pytest.raises(TypeError, match="y must be None"):
        dt.solve(dt.Multinomial(), frame, classes[1], label="label", radius=1.0, engine=engine)
    with pytest.raises(TypeError, match="label is missing"):
        dt.solve(dt.Multinomial(), frame, radius=1.0, engine=engine)
    with pytest.raises((TypeError, ValueError), match="nothing"):
        dt.solve(dt.Multinomial(), frame, label="nothing", radius=1.0, engine=engine)
    one = frame.selectExpr("features", "0 AS label")
    with pytest.raises(ValueError, match="at least two classes"):
        dt.solve(dt.Multinomial(), one, label="label", radius=1.0, engine=engine)
    gaps = frame.selectExpr("features", "label * 125000000 AS label")
    with pytest.raises(ValueError, match=r"label 1e\+09, far beyond"):
        dt.solve(dt.Multinomial(), gaps, label="label", radius=1.0, engine=engine)


@pytest.mark.parametrize(
    ("expression", "column", "message"),
    [
        ("IF(label = 3, NULL, features) AS features", "features", "null"),
        ("TRANSFORM(features, x -> IF(x > 2, DOUBLE('NaN'), x)) AS features", "features", "NaN"),
        ("IF(label = 3, SLICE(features, 1, 5), features) AS features", "features", "as many"),
    ],
)
def test_bad_rows_of_a_data_frame_are_refused_with_the_columns_name(
    spark: Any, tidy: None, classes: Any, expression: str, column: str, message: str
) -> None:
    frame = frame_of(spark, *classes, n_partitions=0).selectExpr(expression, "label")
    with pytest.raises(ValueError, match=f"(?s){column}.*{message}|{message}.*{column}"):
        dt.solve(dt.Multinomial(), frame, label="label", radius=1.0, engine=dt.SparkEngine(spark))


def test_dynamic_allocation_and_a_stopped_session_are_refused_at_once(
    sessions: Sessions, classes: Any
) -> None:
    settings = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    }
    engine = dt.SparkEngine(sessions.on("local[2]", settings), N_SHARDS)
    with pytest.raises(RuntimeError, match=r"spark\.dynamicAllocation\.enabled must be false"):
        dt.solve(dt.Multinomial(), *classes, radius=1.0, engine=engine)
    sessions.stop()
    with pytest.raises(RuntimeError, match="SparkContext has been stopped"):
        dt.solve(dt.Multinomial(), *classes, radius=1.0, engine=engine)
