"""Standardised features of a DataFrame: the same bits as in this process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from tests.engines.spark.runs import N_SHARDS, assert_same_bits, frame_of

import dfwtrace as dt


@pytest.mark.parametrize(
    ("engine", "layout", "options"),
    [
        (dt.SparkEngine, np.asarray, {"solver": "accelerated", "max_iter": 3, "tol": 0.0}),
        (dt.SparkEngine, sp.csr_array, {"solver": "dfw", "lmo": "sva", "max_iter": 3}),
        (
            dt.SparkMapReduceEngine,  # a job for each round: few of them
            np.asarray,
            {"solver": "dfw", "max_iter": 1, "fit_intercept": False},
        ),
    ],
    ids=["accelerated", "sparse", "mapreduce"],
)
def test_a_frame_has_the_bits_of_this_process(
    spark: Any, tidy: None, classes: Any, engine: Any, layout: Any, options: Any
) -> None:
    X, y = classes
    X = layout(np.where(np.abs(X) > 0.3, X, 0.0) * np.geomspace(1e-6, 1e8, X.shape[1]))
    frame = frame_of(spark, X, y).coalesce(1)
    call = {"radius": 3.0, "fit_intercept": True, "standardize": True, **options}
    result = dt.solve(
        dt.Multinomial(), frame, label="label", engine=engine(spark, N_SHARDS), **call
    )
    here = dt.solve(dt.Multinomial(), X, y, engine=dt.LocalEngine(N_SHARDS), **call)
    assert_same_bits(result, here)
    assert result.scale is not None
    assert here.scale is not None
    assert result.scale.tobytes() == here.scale.tobytes()
    dense = X.toarray() if sp.issparse(X) else X
    np.testing.assert_allclose(result.scale, dense.std(axis=0), rtol=1e-12)


def test_an_estimator_on_a_frame_is_that_on_arrays(spark: Any, tidy: None, classes: Any) -> None:
    X, y = classes
    X = X * np.geomspace(1e-6, 1e8, X.shape[1])
    frame = frame_of(spark, X, y).coalesce(1)
    options: Any = {"radius": 3.0, "standardize": True, "tol": 1e-3}
    engine = dt.SparkEngine(spark, N_SHARDS)
    model = dt.TraceNormClassifier(engine=engine, **options).fit(frame, "label")
    here = dt.TraceNormClassifier(n_shards=N_SHARDS, **options).fit(X, y)
    np.testing.assert_array_equal(model.scale_, here.scale_)
    np.testing.assert_array_equal(model.coef_, here.coef_)
