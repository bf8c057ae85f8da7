"""Resident workers on a real Spark: the same bits as in this process, and nothing left behind."""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit
from tests.engines.spark.runs import (
    N_SHARDS,
    OPTIONS,
    assert_same_bits,
    frame_of,
    solve_here,
)

import dfwtrace as dt
from dfwtrace.engines.resident import connections


@pytest.mark.parametrize("n_workers", [1, 2])
@pytest.mark.parametrize("lmo", ["power-log", "sva"])
def test_arrays_give_the_same_bits_as_in_this_process(
    spark: Any, tidy: None, classes: Any, n_workers: int, lmo: str
) -> None:
    engine = dt.SparkEngine(spark, N_SHARDS, n_workers)
    result = dt.solve(dt.Multinomial(), *classes, engine=engine, lmo=lmo, **OPTIONS)
    assert_same_bits(result, solve_here(dt.Multinomial(), *classes, lmo=lmo))


def test_the_accelerated_solver_with_intercept_and_weights_has_the_same_bits(
    spark: Any, tidy: None, classes: Any
) -> None:
    X, y = classes
    options: Any = {
        "radius": 3.0,
        "solver": "accelerated",
        "max_iter": 4,
        "tol": 0.0,
        "fit_intercept": True,
        "sample_weight": 1.0 + np.arange(len(y)) % 3,
        "verbose": False,
    }
    result = dt.solve(dt.Multinomial(), X, y, engine=dt.SparkEngine(spark, N_SHARDS), **options)
    here = dt.solve(dt.Multinomial(), X, y, engine=dt.LocalEngine(N_SHARDS), **options)
    assert_same_bits(result, here)
    assert result.intercept is not None
    assert here.intercept is not None
    assert result.intercept.tobytes() == here.intercept.tobytes()


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
    engine = dt.SparkEngine(spark, N_SHARDS, 2)
    result = dt.solve(dt.LeastSquares(), *targets, engine=engine, representation="gram", **OPTIONS)
    expected = solve_here(dt.LeastSquares(), *targets, representation="gram")
    assert_same_bits(result, expected)
    first, *rest = result.rounds
    assert (first["epoch"], first["method"]) == (0, "moments")
    # Each of the two workers sends one sum.
    assert first["bytes_on_wire"] > 2 * 8 * first["numbers_sent"] / N_SHARDS
    assert not any(record["bytes_on_wire"] for record in rest)
    for name in ("epoch", "method", "numbers_sent"):
        np.testing.assert_array_equal(result.rounds.column(name), expected.rounds.column(name))


@pytest.mark.parametrize("n_workers", [1, 2])
def test_a_data_frame_gives_the_same_bits_as_its_rows_in_this_process(
    spark: Any, tidy: None, classes: Any, n_workers: int
) -> None:
    # A sort leaves partitions of different lengths, and an order of its own.
    frame = frame_of(spark, *classes).repartition(5, "label")
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
    frame = frame_of(spark, X, y)
    result = dt.solve(
        dt.Multinomial(), frame, label="label", engine=dt.SparkEngine(spark, N_SHARDS), **OPTIONS
    )
    assert_same_bits(result, solve_here(dt.Multinomial(), X, y))


def test_columns_as_features_and_as_targets(spark: Any, tidy: None, targets: Any) -> None:
    X, Y = targets
    frame = frame_of(spark, X, Y)
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
    frame = frame_of(spark, *classes)
    result = dt.solve(dt.Multinomial(), frame, label="label", **OPTIONS)
    assert_same_bits(result, solve_here(dt.Multinomial(), *classes))
    plan = dt.plan(dt.Multinomial(), frame, label="label", solver="dfw", max_iter=5)
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
    frame = frame_of(spark, X, Y)
    labels = [f"y.{k}" for k in range(Y.shape[1])]
    result = dt.solve(MultiLabel(), frame, label=labels, engine=engine, **OPTIONS, **options)
    assert_same_bits(result, solve_here(MultiLabel(), X, Y, **options))


def test_empty_partitions_and_empty_shards(spark: Any, tidy: None) -> None:
    X, y, _ = dt.datasets.make_multiclass(n=5, d=4, m=3, rank=2, random_state=1)
    task = dt.Multinomial(n_classes=3)
    frame = frame_of(spark, X, y).repartition(7)
    here = frame.toPandas()
    X, y = np.stack(list(here["features"])), here["label"].to_numpy()
    result = dt.solve(task, frame, label="label", engine=dt.SparkEngine(spark, 8, 2), **OPTIONS)
    assert_same_bits(result, solve_here(task, X, y))


def test_rounds_tell_bytes_and_times(spark: Any, tidy: None, classes: Any) -> None:
    X, y = classes
    engine = dt.SparkEngine(spark, N_SHARDS, 2)
    result = dt.solve(
        dt.Multinomial(), X, y, engine=engine, solver="dfw", lmo="power-1", radius=10.0, max_iter=3
    )
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
                    connections.offer_handshake(caller, connections.new_secret())
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
