"""Searches for a radius with shards on Spark: folds are left out where the rows are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import dfwtrace as dt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHARDS = 3


@pytest.fixture
def rows() -> tuple[Any, Any]:
    X, y, _ = dt.datasets.make_multiclass(n=120, d=6, m=3, rank=2, random_state=3)
    noise = np.random.default_rng(0).random(120) < 0.15
    return X, np.where(noise, (y + 1) % 3, y)


@pytest.fixture
def frame(spark: SparkSession, rows: tuple[Any, Any]) -> DataFrame:
    table = [(x.tolist(), int(c)) for x, c in zip(*rows, strict=True)]
    return spark.createDataFrame(table, "features array<double>, label int").coalesce(1)


@pytest.mark.parametrize("radius", ["auto", None])
def test_the_bits_are_those_of_the_local_engine(
    radius: str | None, spark: SparkSession, rows: tuple[Any, Any]
) -> None:
    found = []
    for engine in (dt.LocalEngine(SHARDS), dt.SparkEngine(spark, SHARDS, n_workers=2)):
        how: Any = {"engine": engine, "fit_intercept": True}
        if radius is None:
            path = dt.path(dt.Multinomial(), *rows, radii=[1.0, 10.0], cv=3, **how)
            found.append((path.validation, path.results[path.best]))
        else:
            result = dt.solve(dt.Multinomial(), *rows, radius=radius, **how)
            assert result.search is not None
            found.append((result.search.validation, result))
    (here, near), (there, far) = found
    assert np.array_equal(here, there)
    assert near.radius == far.radius
    assert np.array_equal(near.W.to_dense(), far.W.to_dense())


def test_a_classifier_searches_on_a_frame(
    spark: SparkSession, frame: DataFrame, rows: tuple[Any, Any]
) -> None:
    engine = dt.SparkEngine(spark, SHARDS, n_workers=2)
    search = dt.TraceNormClassifierCV(radii=[0.3, 3.0, 30.0, 300.0], cv=3, engine=engine, tol=1e-4)
    search.fit(frame, "label")
    assert search.scores_.shape == (4, 3)
    assert search.radius_ in (3.0, 30.0)
    near = dt.TraceNormClassifier(radius=search.radius_, tol=1e-4).fit(*rows)
    np.testing.assert_allclose(
        search.predict_proba(rows[0]), near.predict_proba(rows[0]), atol=0.02
    )


def test_a_classifier_finds_a_radius_on_a_frame(
    spark: SparkSession, frame: DataFrame, rows: tuple[Any, Any]
) -> None:
    engine = dt.SparkEngine(spark, SHARDS, n_workers=2)
    model = dt.TraceNormClassifier(engine=engine).fit(frame, "label")
    assert model.result_.search is not None
    assert model.status_ == "optimal"
    assert model.score(*rows) > 0.7  # of labels, 15 % are wrong


def test_map_reduce_searches_too(spark: SparkSession, rows: tuple[Any, Any]) -> None:
    engine: Any = dt.SparkMapReduceEngine(spark, n_shards=2)
    how: Any = {"radii": [1.0], "cv": 2, "max_iter": 1, "tol": None}
    far = dt.path(dt.Multinomial(), *rows, engine=engine, **how)
    near = dt.path(dt.Multinomial(), *rows, engine=dt.LocalEngine(2), **how)
    assert np.array_equal(far.validation, near.validation)  # type: ignore[arg-type]
