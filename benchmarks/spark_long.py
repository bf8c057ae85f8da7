"""300 epochs of map-reduce: the last ones must take no longer than the first.

Each epoch is several Spark jobs on states that came from the epoch before. If their history were
kept, every epoch would be slower than the last.
"""

from __future__ import annotations

import numpy as np

import dfwtrace as dt
from benchmarks import spark_session
from benchmarks.harness import Row, Scale, epoch_seconds

RATIO = "late epochs / early epochs"
TIMED = True
TARGET = 1.2

_EPOCHS = {"toy": 8, "full": 300}
# Epochs that Java takes to compile what is run in each of them, and that are left out.
_WARM_UP = {"toy": 1, "full": 50}


def run(scale: Scale, repeat: int) -> list[Row]:
    spark = spark_session.session()
    n, d, m = 200, 10, 8
    X, Y, _ = dt.datasets.make_multitask(n, d, m, rank=3, noise=0.1, random_state=0)
    result = dt.solve(
        dt.LeastSquares(),
        X,
        Y,
        radius=1.0,
        solver="dfw",
        lmo="power-1",
        step="harmonic",
        max_iter=_EPOCHS[scale],
        representation="implicit",
        engine=dt.SparkMapReduceEngine(spark, n_shards=2),
        verbose=False,
    )
    seconds = epoch_seconds(result)[_WARM_UP[scale] :]
    early, late = np.array_split(seconds, [len(seconds) // 3, -(len(seconds) // 3)])[::2]
    return [
        Row(
            "spark_long",
            f"map-reduce, {_EPOCHS[scale]} epochs",
            {"n": n, "d": d, "m": m},
            float(np.median(late) / np.median(early)),
            TARGET,
            {"early": float(np.median(early)), "late": float(np.median(late))},
        )
    ]
