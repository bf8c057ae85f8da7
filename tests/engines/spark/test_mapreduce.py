"""A job a round: the same bits as in one process, along any tree, flat over many epochs."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from tests.engines.spark.programs import (
    RowSums,
    assert_same_rounds,
    labelled,
    labelled_frame,
    some_rows,
)
from tests.engines.spark.runs import assert_same_bits, broadcast_files, persisted

import dfwtrace as dt
from dfwtrace.engines import Engine
from dfwtrace.engines.spark.mapreduce import add_along_tree, tree_levels
from dfwtrace.engines.tree import Node, TreeSum

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(
    ("n_shards", "depth", "layout"),
    [(1, 2, np.float32), (5, 1, np.asfortranarray), (8, 3, sp.csr_array)],
)
def test_arrays_give_the_bits_of_one_process(
    spark: SparkSession, n_shards: int, depth: int, layout: Callable[[Any], Any]
) -> None:
    X, y = labelled(83)
    X[X < -0.3] = 0.0
    engine = dt.SparkMapReduceEngine(spark, n_shards, depth)
    assert_same_rounds(dt.Multinomial(), engine, None, layout(X), y)


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(("n", "dtype"), [(50, np.float64), (4, np.float32)])
def test_a_frame_gives_the_bits_of_one_process(spark: SparkSession, n: int, dtype: Any) -> None:
    X, y = labelled(n, dtype)
    task, engine = dt.Multinomial(), dt.SparkMapReduceEngine(spark, n_shards=5)
    rows = engine.survey(labelled_frame(spark, X, y), "features", "label", task.examine)
    assert_same_rounds(task, engine, rows, X, y)


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(
    ("lmo", "representation"),
    [("sva", "gram"), ("naive", "factored"), ("power-log", "implicit"), ("lanczos", "gram")],
)
def test_a_run_gives_the_bits_of_one_process(
    spark: SparkSession, multitask: Any, lmo: str, representation: str
) -> None:
    def run(engine: Engine) -> dt.Result:
        return dt.solve(
            dt.LeastSquares(),
            *multitask,
            radius=1.0,
            solver="dfw",
            lmo=lmo,
            representation=representation,
            max_iter=2,
            engine=engine,
            verbose=False,
        )

    found, expected = run(dt.SparkMapReduceEngine(spark, 3)), run(dt.LocalEngine(3))
    for one, other in ((found.W.U, expected.W.U), (found.W.s, expected.W.s)):
        np.testing.assert_array_equal(one, other)
    assert (found.objective, found.gap) == (expected.objective, expected.gap)

    def counted(result: dt.Result) -> list[dict[str, Any]]:
        return [
            {name: value for name, value in record.items() if not re.search("seconds|bytes", name)}
            for record in result.history
        ]

    assert counted(found) == counted(expected)


@pytest.mark.usefixtures("nothing_left")
def test_the_accelerated_solver_gives_the_bits_of_one_process(spark: Any) -> None:
    X, Y, _ = dt.datasets.make_multitask(n=40, d=5, m=4, rank=2, noise=0.3, random_state=0)
    options: Any = {
        "radius": 0.5,
        "solver": "accelerated",
        "max_iter": 1,
        "tol": 0.0,
        "representation": "implicit",
    }
    far = dt.solve(dt.LeastSquares(), X, Y, engine=dt.SparkMapReduceEngine(spark, 2), **options)
    near = dt.solve(dt.LeastSquares(), X, Y, engine=dt.LocalEngine(2), **options)
    assert_same_bits(far, near)


def test_many_epochs_leave_lineage_and_storage_flat(spark: SparkSession) -> None:
    rows, n = some_rows(), 60
    here = dt.LocalEngine(1).start(RowSums(), rows)
    there = dt.SparkMapReduceEngine(spark, n_shards=1).start(RowSums(), rows)
    before = broadcast_files(spark)
    for workers in (here, there):
        workers.build("build", 1.0)
    lineage = [len(there._states.toDebugString())]
    for epoch in range(n):
        for workers in (here, there):
            workers.apply("add", 0.1 * epoch)
        if epoch % 15 == 14:
            np.testing.assert_array_equal(there.sum("tell"), here.sum("tell"))
            lineage.append(len(there._states.toDebugString()))
            assert persisted(spark) == 2
            assert broadcast_files(spark) == before
    assert max(lineage) <= lineage[0] + 20  # numbers of RDDs and sizes have more digits
    for workers in (here, there):
        workers.close()


@pytest.mark.usefixtures("nothing_left")
def test_before_the_first_build_rounds_are_on_the_shards(spark: SparkSession) -> None:
    workers = dt.SparkMapReduceEngine(spark, n_shards=5).start(RowSums(), some_rows(3))
    assert workers.shard_rows == [0, 1, 0, 1, 1]
    np.testing.assert_array_equal(workers.sum("rows"), [3.0])
    assert workers.cost.compute > 0.0
    assert workers.cost.wait > workers.cost.compute
    assert 8 <= workers.cost.bytes < 1000
    assert len(workers.gather("rows")) == 5
    workers.close()


# The tree.


@given(st.integers(1, 5000), st.integers(1, 5))
def test_the_driver_gets_about_the_root_of_the_shards(n_shards: int, depth: int) -> None:
    levels = [n_shards, *tree_levels(n_shards, depth)[1]]
    assert len(levels) <= depth
    assert levels == sorted(set(levels), reverse=True)
    assert levels[-1] <= max(4.0, 2.5 * n_shards ** (1 / depth))


def vector(index: int, nothing: Any) -> Any:
    """A shard's reply, of numbers whose sum depends on the order in which they are added."""
    yield [Node(0, index, np.random.default_rng(index).standard_normal(50) * 10.0 ** (index % 7))]


@pytest.mark.parametrize(("n_shards", "depth"), [(5, 3), (13, 2), (33, 3)])
def test_any_tree_gives_the_bits_of_the_fixed_one(
    spark: SparkSession, n_shards: int, depth: int
) -> None:
    replies = spark.sparkContext.parallelize(range(n_shards), n_shards)
    sums = add_along_tree(replies.mapPartitionsWithIndex(vector), n_shards, depth).collect()
    assert len(sums) == tree_levels(n_shards, depth)[1][-1]
    expected, total = TreeSum(n_shards), TreeSum(n_shards)
    for index in range(n_shards):
        expected.add(next(vector(index, None))[0])
    for nodes in sums:
        for node in nodes:
            total.add(node)
    np.testing.assert_array_equal(total.result(), expected.result())


@pytest.mark.usefixtures("nothing_left")
def test_sums_are_added_up_before_they_come_to_the_driver(spark: SparkSession) -> None:
    rows, bytes_of_a_reply = some_rows(40), 2 * 8
    here = dt.LocalEngine(16).start(RowSums(), rows)
    there = dt.SparkMapReduceEngine(spark, n_shards=16, depth=2).start(RowSums(), rows)
    for workers in (here, there):
        workers.build("build", 0.1)
    np.testing.assert_array_equal(there.sum("tell"), here.sum("tell"))
    # Four sums and the request, which is smaller than the other twelve.
    assert 4 * bytes_of_a_reply < there.cost.bytes < 16 * bytes_of_a_reply
    for workers in (here, there):
        workers.close()


# Refusals.


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"n_shards": 0}, "n_shards must be a whole number of at least 1, got 0."),
        ({"depth": 0}, "depth must be a whole number of at least 1, got 0."),
        ({"max_restarts": -1}, "max_restarts must be a whole number of at least 0, got -1."),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=re.escape(error)):
        dt.SparkMapReduceEngine(None, **arguments)


def test_spark_connect_is_refused() -> None:
    methods = dict.fromkeys(("range", "createDataFrame"), lambda self: None)
    remote = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session", **methods})
    with pytest.raises(TypeError, match=r"spark must be a classic .* take SparkEngine"):
        dt.SparkMapReduceEngine(remote())


def test_a_program_that_cannot_be_pickled_is_refused_at_once(spark: SparkSession) -> None:
    class Locked(RowSums):
        def __init__(self) -> None:
            self.lock = threading.Lock()

    with pytest.raises(TypeError, match=r"cannot pickle '_thread.lock'"):
        dt.SparkMapReduceEngine(spark, 2).start(Locked(), some_rows())
    assert persisted(spark) == 0
