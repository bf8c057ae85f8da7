"""Rows of a DataFrame on their way to the workers, through Spark's own shuffle."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from tests.engines.spark.runs import as_they_are, assert_same_shards

from dfwtrace.data.shards import Shard, split_rows
from dfwtrace.engines.spark.packing import keys_for, shuffled, survey

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def as_partitions(spark: SparkSession, X: Any, y: Any, sizes: list[int]) -> DataFrame:
    """A DataFrame of columns x and y whose partitions have these numbers of rows."""
    rows = [(row.tolist(), target.item()) for row, target in zip(X, y, strict=True)]
    cuts = np.cumsum([0, *sizes])
    pieces = [rows[a:b] for a, b in pairwise(cuts)]
    split = spark.sparkContext.parallelize(pieces, len(pieces)).flatMap(lambda piece: piece)
    return spark.createDataFrame(split, "x array<double>, y bigint")


def through_spark(frame: DataFrame, n_groups: int, n_shards: int) -> list[Shard]:
    """The shards that n_groups tasks make of a DataFrame, group i in partition i."""
    rows = survey(frame, "x", "y", as_they_are)
    sent, load = shuffled(rows, n_shards, n_groups)

    def task(batches: Iterator[Any]) -> Iterator[Any]:
        import pickle

        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        group = context.partitionId()
        shards = load(group, batches)
        yield pa.record_batch({"group": [group], "shards": [pickle.dumps(shards)]})

    found = sent.mapInArrow(task, "group long, shards binary").collect()
    return unpickled(sorted((row["group"], bytes(row["shards"])) for row in found), n_groups)


def unpickled(found: list[tuple[int, bytes]], n_groups: int) -> list[Shard]:
    import pickle

    assert [group for group, _ in found] == list(range(n_groups))
    return [shard for _, shards in found for shard in pickle.loads(shards)]


@pytest.mark.parametrize(
    ("sizes", "n_groups", "n_shards"),
    [([20, 0, 13, 7, 0], 1, 4), ([20, 0, 13, 7, 0], 3, 7), ([1, 1, 0, 1], 4, 4), ([40], 2, 2)],
)
def test_a_data_frame_becomes_the_shards_of_its_rows(
    spark: SparkSession, sizes: list[int], n_groups: int, n_shards: int
) -> None:
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((sum(sizes), 3)), np.arange(sum(sizes))
    frame = as_partitions(spark, X, y, sizes)
    assert_same_shards(through_spark(frame, n_groups, n_shards), split_rows(X, y, n_shards))


def test_other_settings_of_spark_change_nothing(spark: SparkSession) -> None:
    rng = np.random.default_rng(2)
    X, y = rng.standard_normal((40, 3)), np.arange(40)
    frame = as_partitions(spark, X, y, [25, 15])
    settings = {
        "spark.sql.execution.arrow.maxRecordsPerBatch": "4",
        "spark.sql.execution.arrow.useLargeVarTypes": "true",
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": "1g",
    }
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        found = through_spark(frame, 4, 5)
    finally:
        for name, old in before.items():
            spark.conf.set(name, str(old))
    assert_same_shards(found, split_rows(X, y, 5))


def test_sparse_rows_through_spark(spark: SparkSession) -> None:
    from pyspark.ml.linalg import Vectors

    rows = [(Vectors.dense(1.0, 0.0, 2.0), 0), (Vectors.sparse(3, [0, 2], [0.0, 4.0]), 1)]
    rows += [(Vectors.sparse(3, [], []), 2), (Vectors.dense(5.0, 6.0, 0.0), 3)]
    frame = spark.createDataFrame(spark.sparkContext.parallelize(rows, 4), ["x", "y"])
    data = np.array([1.0, 2.0, 0.0, 4.0, 5.0, 6.0])
    columns, bounds = np.array([0, 2, 0, 2, 0, 1], "i4"), np.array([0, 2, 4, 4, 6], "i4")
    X = sp.csr_array((data, columns, bounds), shape=(4, 3))
    assert_same_shards(through_spark(frame, 2, 3), split_rows(X, np.arange(4), 3))


def test_rows_that_change_between_two_looks_are_noticed(spark: SparkSession, tmp_path: Any) -> None:
    from pyspark.errors import PythonException

    looked = str(tmp_path / "looked")

    def fewer_each_time(batches: Iterator[Any]) -> Iterator[Any]:
        import os

        for batch in batches:
            again = os.path.exists(looked)
            open(looked, "w").close()
            yield batch.slice(0, batch.num_rows - again)

    frame = as_partitions(spark, np.ones((6, 2)), np.arange(6), [6])
    changing = frame.mapInArrow(fewer_each_time, frame.schema)
    with pytest.raises(
        PythonException, match=r"RowsChangedError: .* had 6 rows and now has 5: pers"
    ):
        through_spark(changing, 2, 2)


@pytest.mark.parametrize("n", [1, 2, 3, 64, 4096])
def test_every_key_hashes_to_its_own_partition(spark: SparkSession, n: int) -> None:
    keys = keys_for(spark, n)
    assert len(keys) == n
    frame = spark.createDataFrame([(key,) for key in keys], "key int")
    places = frame.selectExpr("key", f"pmod(hash(key), {n}) as place").collect()
    assert {row["key"]: row["place"] for row in places} == {key: i for i, key in enumerate(keys)}
    if n <= 64:  # and not by our reckoning only
        from pyspark.sql.functions import spark_partition_id

        moved = frame.repartition(n, "key").select("key", spark_partition_id().alias("place"))
        assert sorted((r["place"], r["key"]) for r in moved.collect()) == list(enumerate(keys))
