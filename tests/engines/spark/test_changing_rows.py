"""Rows that are not the same when Spark computes them again: an error, and never a result."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engines.spark.programs import RowSums, plain

import dfwtrace as dt
from dfwtrace.tasks.program import ShardProgram

pytestmark = pytest.mark.usefixtures("tidy")


@pytest.mark.parametrize("engine_of", [dt.SparkEngine, dt.SparkMapReduceEngine])
def test_labels_that_grow_after_the_first_look_are_noticed(
    spark: Any, engine_of: Any, tmp_path: Path
) -> None:
    """There are as many rows as before, of the same length: only the labels have no column in W."""
    grown = tmp_path / "grown"

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            ids = batch.column("id").to_numpy()
            labels = ids % 3 + (4000 if grown.exists() else 0)
            yield pa.RecordBatch.from_pydict({"x": ids.astype(float), "label": labels})

    frame = spark.range(0, 12, 1, 2).mapInArrow(read, "x double, label long")
    engine, task = engine_of(spark, 4), dt.Multinomial()
    rows = engine.survey(frame, "x", "label", task.examine)
    assert rows.facts.shape == (1, 3)
    grown.touch()
    with pytest.raises(dt.RowsChangedError, match="differ in kind from those"):
        engine.start(ShardProgram(task.represent("implicit"), (1, 3)), rows)


def test_a_sort_whose_cuts_move_is_refused(spark: Any) -> None:
    """Spark draws a sample each time to see where the partitions of a sort begin."""
    name = "spark.sql.adaptive.coalescePartitions.enabled"
    rows = spark.range(0, 20_000, 1, 2).selectExpr("double(hash(id)) AS x").orderBy("x")
    spark.conf.set(name, "false")  # so few rows would be put into one partition
    try:
        engine = dt.SparkEngine(spark, 4)
        looked_through = engine.survey(rows, "x", None, plain)
        assert len(looked_through.counts) == 2
        with pytest.raises(dt.RowsChangedError, match=r"partition \d had \d+ rows and now has"):
            engine.start(RowSums(), looked_through)
    finally:
        spark.conf.unset(name)


def test_rows_that_get_fewer_are_noticed(spark: Any, tmp_path: Path) -> None:
    fewer = tmp_path / "fewer"

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch.slice(int(fewer.exists()))

    engine = dt.SparkEngine(spark, 4)
    frame = spark.range(0, 12, 1, 2).mapInArrow(read, "id long")
    rows = engine.survey(frame, "id", None, plain)
    fewer.touch()
    with pytest.raises(dt.RowsChangedError, match="had 6 rows and now has 5: persist the DataF"):
        engine.start(RowSums(), rows)
