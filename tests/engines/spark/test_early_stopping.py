"""Early stopping with shards on Spark: rows are left out where they are, the same as here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.engines.spark.runs import assert_same_bits, frame_of

import dfwtrace as dt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHARDS = 3
HOW: Any = {"early_stopping": True, "validation_fraction": 0.2, "n_iter_no_change": 3}


@pytest.fixture(scope="module")
def noisy() -> tuple[Any, Any]:
    X, y, _ = dt.datasets.make_multiclass(n=150, d=8, m=3, rank=2, random_state=3)
    rng = np.random.default_rng(0)
    return X, np.where(rng.random(150) < 0.2, rng.integers(0, 3, 150), y)


@pytest.mark.parametrize("radius", [300.0, "auto"])
def test_a_classifier_on_a_frame_is_the_one_of_this_process(
    radius: Any, spark: SparkSession, noisy: tuple[Any, Any]
) -> None:
    near = dt.TraceNormClassifier(radius, engine=dt.LocalEngine(SHARDS), **HOW).fit(*noisy)
    if radius != "auto":  # with a radius that was found, the first epoch may be the last
        assert near.validation_scores_.argmax() < near.n_iter_ - 1  # not the last epoch is kept
    engine = dt.SparkEngine(spark, SHARDS, n_workers=2)
    far = dt.TraceNormClassifier(radius, engine=engine, **HOW)
    far.fit(frame_of(spark, *noisy), "label")
    assert np.array_equal(far.validation_scores_, near.validation_scores_)
    assert_same_bits(far.result_, near.result_)
    assert np.array_equal(far.intercept_, near.intercept_)


@pytest.mark.parametrize("form", ["gram", "implicit"])
def test_a_regressor_on_a_frame_is_the_one_of_this_process(form: str, spark: SparkSession) -> None:
    X, Y, _ = dt.datasets.make_multitask(n=90, d=20, m=4, rank=2, noise=0.5, random_state=0)
    how: Any = HOW | {"radius": 6.0, "solver": "dfw", "representation": form, "tol": None}
    near = dt.TraceNormRegressor(engine=dt.LocalEngine(SHARDS), **how).fit(X, Y)
    far = dt.TraceNormRegressor(engine=dt.SparkEngine(spark, SHARDS, n_workers=2), **how)
    frame = frame_of(spark, X, Y)
    far.fit(frame, [f"y.{k}" for k in range(4)], features="features")
    assert near.status_ == "early_stopping"
    assert_same_bits(far.result_, near.result_)


def test_map_reduce_leaves_out_the_same_rows(
    spark: SparkSession, noisy: tuple[Any, Any], nothing_left: None
) -> None:
    weights = np.arange(150) % 3
    how: Any = HOW | {"radius": 300.0, "solver": "dfw", "max_iter": 1, "tol": None}
    near, far = (
        dt.TraceNormClassifier(engine=engine, fit_intercept=False, **how).fit(*noisy, weights)
        for engine in (dt.LocalEngine(2), dt.SparkMapReduceEngine(spark, n_shards=2))
    )
    assert_same_bits(far.result_, near.result_)
    assert np.array_equal(far.validation_scores_, near.validation_scores_)
