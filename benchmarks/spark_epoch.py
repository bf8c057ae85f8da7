"""A multinomial epoch on Spark against the same epoch in one process, on as many cores.

The shards, and so the bits, are the same. What Spark may add is the rounds; what it must not add is
anything that grows with the data. The map-reduce engine, which reads and writes all states in every
round, is beside it for information.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

import dfwtrace as dt
from benchmarks import spark_session
from benchmarks.harness import Row, Scale, epoch_seconds, in_turn
from dfwtrace.engines import Engine

RATIO = "epoch / epoch"
TIMED = True
TARGET = 1.3

_SIZES = {"toy": (400, 50, 40), "full": (20_000, 1000, 1000)}
_SHARDS = {"toy": 2, "full": 8}
_ITERATIONS = 2
_RADIUS = 50.0
_EPOCHS = 12
_SLOW_EPOCHS = {"toy": 3, "full": 4}
_PARTS = ("compute_seconds", "wait_seconds", "reduce_seconds")


def run(scale: Scale, repeat: int) -> list[Row]:
    spark = spark_session.session()
    n, d, m = _SIZES[scale]
    sizes = {"n": n, "d": d, "m": m}
    cores = spark_session.WORKERS
    X, y, _ = dt.datasets.make_multiclass(n, d, m, rank=10, random_state=0, dtype=np.float32)

    def epoch(engine: Engine, epochs: int = _EPOCHS) -> list[float]:
        """Seconds of the median epoch, and what the rounds of the median epoch are made of."""
        result = dt.solve(
            dt.Multinomial(n_classes=m),
            X,
            y,
            radius=_RADIUS,
            solver="dfw",
            lmo=f"power-{_ITERATIONS}",
            step="harmonic",
            max_iter=epochs,
            representation="implicit",
            engine=engine,
            verbose=False,
        )
        parts = [np.median(result.history.column(part)[1:]) for part in _PARTS]
        return [float(np.median(epoch_seconds(result))), *map(float, parts)]

    resident = partial(epoch, dt.SparkEngine(spark, n_shards=_SHARDS[scale], n_workers=cores))
    local = partial(epoch, dt.LocalEngine(n_shards=_SHARDS[scale], n_jobs=cores))
    seen = in_turn(repeat, {"resident": resident, "local": local})
    # One run tells enough of a ratio that is far from any limit, and takes as long as all others.
    once: dict[str, Callable[[], list[float]]] = {
        "map-reduce": partial(
            epoch, dt.SparkMapReduceEngine(spark, n_shards=_SHARDS[scale]), _SLOW_EPOCHS[scale]
        ),
        "resident": resident,
    }
    slow = {name: np.array(measure())[:, np.newaxis] for name, measure in once.items()}
    return [
        _row("resident / local", sizes, seen, "resident", "local", TARGET),
        _row("map-reduce / resident", sizes, slow, "map-reduce", "resident", None),
    ]


def _row(
    case: str,
    sizes: dict[str, int],
    seen: dict[str, np.ndarray],
    ours: str,
    theirs: str,
    target: float | None,
) -> Row:
    """Of either side a column for each run: its median epoch first, then the parts of it."""
    parts = np.median(seen[ours][1:], axis=1)
    return Row(
        "spark_epoch",
        case,
        sizes,
        float(np.median(seen[ours][0] / seen[theirs][0])),
        target,
        {
            "epoch": float(np.median(seen[ours][0])),
            "against": float(np.median(seen[theirs][0])),
            **{name.partition("_")[0]: float(t) for name, t in zip(_PARTS, parts, strict=True)},
        },
        {"least / least": float(seen[ours][0].min() / seen[theirs][0].min())},
    )
