"""A first look through a DataFrame: what is known of it then, and what is refused."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from pyspark.ml.linalg import Vectors
from pyspark.sql.types import ArrayType, DoubleType, LongType, StructField, StructType

import dfwtrace as dt
from dfwtrace.data.shards import ArrayRows, Examined, Facts
from dfwtrace.engines.spark.dataframe import BadRowsError, choose_columns
from dfwtrace.engines.spark.packing import merge, survey, survey_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

READING, REAL_LABELS = (
    choose_columns(
        StructType([StructField("x", ArrayType(DoubleType())), StructField("y", label)]), "x", "y"
    )
    for label in (LongType(), DoubleType())
)


def as_they_are(X: Any, y: Any) -> Examined:
    return Examined(X, y, (int(X.shape[1]), 1 if y is None else int(y.max()) + 1))


def batch_of(X: Any, y: Any, label: Any = None) -> Any:
    kinds = [pa.list_(pa.float64()), label or pa.int64()]
    return pa.record_batch([pa.array(c, k) for c, k in zip((X, y), kinds, strict=True)], ["x", "y"])


def survey_here(
    partitions: list[list[Any]], examine: Any = as_they_are, reading: Any = READING
) -> Any:
    """What `survey` finds in partitions of batches, with nothing but the job left out."""
    reports = {
        partition: survey_batches(iter(batches), reading, examine, partition)
        for partition, batches in enumerate(partitions)
    }
    return merge(pickle.loads(pickle.dumps(reports)), reading)


def test_facts_of_all_batches_and_partitions() -> None:
    facts, counts = survey_here(
        [
            [],
            [
                batch_of([[1, 2, 0]], [3]),
                batch_of([], []),
                batch_of([[4, 5, 6], [7, 8, 9]], [8, 0]),
            ],
            [batch_of([], [])],
            [batch_of([[0, 0, 0]], [1])],
            [],
        ]
    )
    assert counts == (0, 3, 0, 1, 0)
    assert facts == Facts(
        n_rows=4,
        n_columns=3,
        stored=12,
        sparse=False,
        dtype=np.dtype(np.float64),
        shape=(3, 9),
        targets=np.dtype(np.int64),
    )


def sparse_if_it_holds_a_seven(X: Any, y: Any) -> Examined:
    columns = np.column_stack([y, y]).astype(np.int32 if 7 in X else np.float64)
    return Examined(sp.csr_array(X.astype(np.float32)) if 7 in X else X, columns, (3, 2))


def test_batches_of_both_kinds_count_what_is_stored() -> None:
    facts, _ = survey_here(
        [[batch_of([[1, 0, 0], [0, 2, 3]], [1, 2]), batch_of([[7, 0, 0]], [3])]],
        sparse_if_it_holds_a_seven,
    )
    assert facts.sparse
    assert facts.stored == 4
    assert facts.dtype == np.float64  # float32 and float64
    assert facts.targets == np.dtype((np.float64, (2,)))


def test_no_rows_are_refused() -> None:
    for partitions in ([], [[]], [[batch_of([], [])], []]):
        with pytest.raises(ValueError, match="X must have at least one row, but the DataFrame has"):
            survey_here(partitions)


def test_uneven_rows_are_told_by_their_places() -> None:
    one, two = batch_of([[1], [2]], [1, 2]), batch_of([[3, 4]], [3])
    with pytest.raises(
        BadRowsError,
        match=r"column 'x' has 1 in row 0 of partition 0 and 2 in row 2 of partition 0",
    ):
        survey_here([[one, two]])
    with pytest.raises(
        BadRowsError,
        match=r"column 'x' has 1 in row 0 of partition 1 and 2 in row 0 of partition 2",
    ):
        survey_here([[], [one], [two]])


def wider_for_larger(X: Any, y: Any) -> Examined:
    return Examined(np.ones((len(X), int(X.max()))), y, (1, 1))


def taller_for_larger(X: Any, y: Any) -> Examined:
    return Examined(X, np.ones((len(X), int(X.max()))), (1, 1))


def without_for_larger(X: Any, y: Any) -> Examined:
    return Examined(X, y if X.max() < 5 else None, (1, 1))


@pytest.mark.parametrize(
    ("examine", "name"),
    [(wider_for_larger, "features"), (taller_for_larger, "label"), (without_for_larger, "label")],
)
def test_a_task_that_makes_rows_uneven_is_refused(examine: Any, name: str) -> None:
    batches = [batch_of([[1]], [1]), batch_of([[6]], [1])]
    with pytest.raises(BadRowsError, match=f"{name} must have as many numbers in every row"):
        survey_here([batches], examine)


def test_a_tasks_own_refusal_keeps_its_type_and_gets_the_column() -> None:
    labels = dt.Multinomial().examine
    good, bad = batch_of([[1]], [1]), batch_of([[1]], [-3])
    message = r"^y must hold class labels as integers from 0, got -3 \(column 'y'\)\.$"
    with pytest.raises(ValueError, match=message):
        survey_here([[good], [good, bad]], labels)

    def refuse(X: Any, y: Any) -> Examined:
        raise TypeError("Only some rows will do.")

    with pytest.raises(TypeError, match=r"^Only some rows will do\.$"):
        survey_here([[good]], refuse)


def test_the_first_partition_with_bad_rows_is_heard() -> None:
    good, null, uneven = (batch_of([row], [1]) for row in ([1.0], None, [1.0, 2.0]))
    with pytest.raises(BadRowsError, match="holds one in row 1 of partition 1"):
        survey_here([[good], [good, null], [uneven], [null]])
    with pytest.raises(BadRowsError, match="2 in row 0 of partition 1"):
        survey_here([[good], [uneven], [null]])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ((None, 1.0), "features must hold no nulls, but column 'x' holds one in row 1 of part"),
        (([1.0, None], 1.0), "features must hold no nulls, but column 'x' holds one in row 1 of"),
        (([1.0, float("nan")], 1.0), "features must be finite, but column 'x' holds NaN or inf"),
        (([1.0], 1.0), "features must have as many numbers in every row, but column 'x' has 2"),
        (([1.0, 2.0], None), "label must hold no nulls, but column 'y' holds one in row 1 of"),
        (([1.0, 2.0], float("inf")), "label must be finite, but column 'y' holds NaN or infinit"),
    ],
)
def test_bad_rows_are_refused_by_column_and_place(bad: tuple[Any, Any], message: str) -> None:
    X, y = bad
    good = batch_of([[1.0, 2.0]] * 2, [1.0, 1.0], pa.float64())
    spoilt = batch_of([[1.0, 2.0], X], [1.0, y], pa.float64())
    with pytest.raises(BadRowsError, match=message) as caught:
        survey_here([[good], [spoilt]], reading=REAL_LABELS)
    assert "partition 1" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_error_that_is_no_refusal_is_not_hidden() -> None:
    def broken(X: Any, y: Any) -> Examined:
        raise ZeroDivisionError("a mistake in a task")

    with pytest.raises(ZeroDivisionError):
        survey_here([[batch_of([[1]], [1])]], broken)


# With Spark.


def frame_of(spark: SparkSession, rows: list[Any], schema: Any, n_partitions: int) -> DataFrame:
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, n_partitions), schema)


def test_a_data_frame_is_known_as_its_arrays_are(spark: SparkSession) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 4)).astype(np.float32), rng.integers(0, 5, 30)
    rows = [(row.tolist(), int(label), "unused") for row, label in zip(X, y, strict=True)]
    frame = frame_of(spark, rows, "features array<float>, label int, more string", 4)
    found = survey(frame, None, "label", dt.Multinomial().examine)
    expected = ArrayRows.examined(X, y, dt.Multinomial().examine).facts
    assert asdict(found.facts) == asdict(expected)
    assert sum(found.counts) == 30
    assert len(found.counts) == 4
    assert len(found.frame.columns) == 2


def test_it_is_one_job(spark: SparkSession) -> None:
    frame = frame_of(spark, [(float(i),) for i in range(9)], "x double", 3)
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup(None))
    survey(frame, "x", None, as_they_are)
    assert len(set(tracker.getJobIdsForGroup(None)) - before) == 1


def test_more_partitions_than_rows(spark: SparkSession) -> None:
    frame = frame_of(spark, [(1.0, 2.0), (3.0, 4.0)], "a double, b double", 7)
    found = survey(frame, ["a", "b"], None, as_they_are)
    assert found.facts.n_rows == sum(found.counts) == 2
    assert found.facts.targets is None
    assert len(found.counts) <= 7


def test_any_name_will_do(spark: SparkSession) -> None:
    odd = ["a.b", "a b", "a`b", "`", "ü", "A'\"", "select"]
    labels = [name.swapcase() + "?" for name in odd]
    names = ["other", *(n for name in odd for n in (name, name + ".")), *labels]
    schema = StructType([StructField(name, DoubleType()) for name in names])
    frame = frame_of(spark, [tuple(map(float, range(len(names))))] * 3, schema, 2)
    features = [n for name in reversed(odd) for n in (name + ".", name)]
    found = survey(frame, features, labels, lambda X, y: Examined(X, y, (len(features), 7)))
    expected = tuple(float(names.index(name)) for name in [*features, *labels])
    assert [tuple(row) for row in found.frame.collect()] == [expected] * 3


def test_names_that_differ_in_case_only(spark: SparkSession) -> None:
    schema = StructType([StructField("x", DoubleType()), StructField("X", DoubleType())])
    frame = frame_of(spark, [(1.0, 2.0)], schema, 1)
    found = survey(frame, "X", "x", as_they_are)
    assert [tuple(row) for row in found.frame.collect()] == [(2.0, 1.0)]


def test_vectors_of_both_kinds_in_different_partitions(spark: SparkSession) -> None:
    rows = [(Vectors.dense(1.0, 0.0), 0), (Vectors.sparse(2, [1], [0.0]), 1)]
    rows += [(Vectors.dense(0.0, 0.0), 1), (Vectors.dense(1.0, 1.0), 1)]
    found = survey(frame_of(spark, rows, ["v", "y"], 4), "v", "y", as_they_are)
    assert found.facts.sparse
    assert found.facts.stored == 4  # a zero that is stored counts, one in a dense vector does not
    assert found.counts == (1, 1, 1, 1)


def test_bad_rows_are_refused_and_not_wrapped(spark: SparkSession) -> None:
    rows = [([1.0, 2.0], 1.0)] * 3 + [([1.0, 2.0], float("inf"))]
    frame = frame_of(spark, rows, "x array<double>, y double", 2)
    message = "label must be finite, but column 'y' holds NaN or infinity in row 1 of partition 1"
    with pytest.raises(BadRowsError, match=message) as caught:
        survey(frame, "x", "y", as_they_are)
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_partition_with_bad_rows_is_left_early(spark: SparkSession) -> None:
    """The rest of a partition of many batches is not read; Spark must not mind."""
    frame = spark.range(0, 50_000, 1, 1).selectExpr("if(id = 3, null, cast(id as double)) as x")
    with pytest.raises(BadRowsError, match="row 3 of partition 0"):
        survey(frame, "x", None, as_they_are)
    assert spark.range(3).count() == 3


def test_rows_are_counted_in_the_order_of_collect(spark: SparkSession) -> None:
    frame = spark.range(0, 1000, 1, 5).selectExpr("id", "cast(hash(id) as double) as x")
    rows = survey(frame.repartition(3, "id"), "x", None, as_they_are)
    facts, counts = rows.facts, rows.counts

    def places(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        place = sum(counts[: context.partitionId()])
        for batch in batches:
            numbers = np.arange(place, place + batch.num_rows)
            place += batch.num_rows
            yield pa.record_batch({"place": numbers, "x": batch.column(0)})

    found = rows.frame.mapInArrow(places, "place long, x double").toPandas().sort_values("place")
    assert found["place"].tolist() == list(range(facts.n_rows))
    assert found["x"].tolist() == rows.frame.toPandas()["c0"].tolist()
