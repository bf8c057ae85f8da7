"""What is refused before a run begins, in words that name it, and before any row is read."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from tests.engines.spark.runs import N_SHARDS, frame_of, marking, with_settings

import dfwtrace as dt


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


def test_more_workers_than_shards_are_refused(spark: Any) -> None:
    with pytest.raises(ValueError, match="n_workers must be at most n_shards = 2, got 3"):
        dt.SparkEngine(spark, n_shards=2, n_workers=3)


def test_what_the_cluster_cannot_do_is_refused_before_the_rows_are_read(
    spark: Any, tidy: None, classes: Any, tmp_path: Path
) -> None:
    frame = marking(frame_of(spark, *classes), tmp_path / "read")
    options = {"label": "label", "radius": 1.0}
    many = dt.SparkEngine(spark, N_SHARDS, n_workers=5)
    for data in (classes, (frame, None)):
        columns = options if data[1] is None else {"radius": 1.0}
        with pytest.raises(ValueError, match="n_workers is 5, but the cluster can run only 2 task"):
            dt.solve(dt.Multinomial(), *data, engine=many, **columns)
        with (
            with_settings(spark, {"spark.dynamicAllocation.enabled": "true"}),
            pytest.raises(RuntimeError, match=r"spark\.dynamicAllocation\.enabled must be false"),
        ):
            dt.solve(dt.Multinomial(), *data, engine=dt.SparkEngine(spark), **columns)
    assert not (tmp_path / "read").exists()


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
    frame = frame_of(spark, *classes)
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
    frame = frame_of(spark, *classes).selectExpr(expression, "label")
    with pytest.raises(ValueError, match=f"(?s){column}.*{message}|{message}.*{column}"):
        dt.solve(dt.Multinomial(), frame, label="label", radius=1.0, engine=dt.SparkEngine(spark))
