"""A run begun in this process goes on on a cluster, and the other way round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.files.checkpointed import StopAfter, StopError, assert_same_run, every_epoch

import dfwtrace as dt

N_SHARDS = 4


@pytest.mark.parametrize(
    ("task", "options"),
    [
        (dt.Multinomial(), {"representation": "implicit", "certify_every": 3}),
        (dt.LeastSquares(), {"representation": "gram", "fit_intercept": True, "lmo": "lanczos"}),
        (
            dt.Multinomial(),
            {"representation": "implicit", "solver": "accelerated", "fit_intercept": True},
        ),
    ],
    ids=["dfw", "gram", "accelerated"],
)
def test_the_engine_may_change(
    spark: Any, task: Any, options: dict[str, Any], tmp_path: Path
) -> None:
    make = dt.datasets.make_multitask if options["representation"] == "gram" else None
    if make is not None:
        X, y, _ = make(n=120, d=9, m=5, rank=3, noise=0.2, random_state=3)
    else:
        X, y, _ = dt.datasets.make_multiclass(n=120, d=9, m=5, rank=3, random_state=3)
    here, there = dt.LocalEngine(N_SHARDS, 1), dt.SparkEngine(spark, N_SHARDS, 2)
    options = {"radius": 10.0, "solver": "dfw", "max_iter": 7, **options}
    expected = dt.solve(task, X, y, engine=here, **options)
    for k, (first, second) in enumerate([(here, there), (there, here)]):
        checkpoint = every_epoch(tmp_path / f"{k}.ckpt")
        with pytest.raises(StopError):
            dt.solve(
                task, X, y, engine=first, checkpoint=checkpoint, callback=StopAfter(4), **options
            )
        result = dt.solve(task, X, y, engine=second, checkpoint=checkpoint, **options)
        assert [record["epoch"] for record in result.history] == list(range(1, 8))
        assert_same_run(result, expected)
