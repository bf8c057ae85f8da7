"""From a DataFrame to shards on the workers, against reading the same Parquet with pyarrow.

Spark goes through the file twice: once to check all rows and count them (the survey), and once to
bring them to the workers, whose start is part of it. What it takes to start workers that get no
rows to speak of is measured beside it.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

import dfwtrace as dt
from benchmarks import spark_rounds, spark_session
from benchmarks.harness import Row, Scale, in_turn, stopwatch

RATIO = "(survey and start) / pyarrow"
TIMED = True

_SIZES = {"toy": (200, 20, 10), "full": (20_000, 1000, 1000)}
_SHARDS = 8
_FILES = 4
_GROUPS_IN_FILE = 2


def run(scale: Scale, repeat: int) -> list[Row]:
    spark = spark_session.session()
    spark_session.send_by_value(spark_rounds.__name__)
    n, d, m = _SIZES[scale]
    X, y, _ = dt.datasets.make_multiclass(n, d, m, rank=10, random_state=0, dtype=np.float32)
    engine = dt.SparkEngine(spark, n_shards=_SHARDS, n_workers=spark_session.WORKERS)
    examine = dt.Multinomial(n_classes=m).examine

    def load() -> list[float]:
        """Seconds of the survey, and of the start until all workers are ready."""
        began = time.perf_counter()
        frame = spark.read.parquet(str(folder))
        rows = engine.survey(frame, "features", "label", examine)
        surveyed = time.perf_counter()
        return [surveyed - began, start(rows)]

    def start(rows: Any) -> float:
        began = time.perf_counter()
        with closing(engine.start(spark_rounds.Echo(), rows)) as workers:
            ready = time.perf_counter()
            if sum(workers.shard_rows) != rows.facts.n_rows:
                raise RuntimeError("the workers do not hold all rows.")
        return ready - began

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write(folder, X, y)
        if not all(map(np.array_equal, read(folder), (X, y))):
            raise RuntimeError("pyarrow did not read what was written.")
        seen = in_turn(
            repeat,
            {
                "Spark": load,
                "pyarrow": stopwatch(lambda: read(folder)),
                "workers alone": lambda: start(spark_rounds.tiny_rows()),
            },
        )
    whole = seen["Spark"].sum(axis=0)
    return [
        Row(
            "spark_loading",
            f"array<float>, {_FILES} files",
            {"n": n, "d": d, "m": m},
            float(np.median(whole / seen["pyarrow"])),
            None,
            {
                "survey": float(np.median(seen["Spark"][0])),
                "start": float(np.median(seen["Spark"][1])),
                "workers alone": float(np.median(seen["workers alone"])),
                "pyarrow": float(np.median(seen["pyarrow"])),
            },
            {
                "MB": X.nbytes / 1e6,
                "least / least": float(whole.min() / seen["pyarrow"].min()),
            },
        )
    ]


def write(folder: Path, X: np.ndarray, y: np.ndarray) -> None:
    """Rows as Parquet: an array of float and a label, in several files of several row groups."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for k, rows in enumerate(np.array_split(np.arange(len(X)), _FILES)):
        offsets = np.arange(len(rows) + 1, dtype=np.int32) * X.shape[1]
        features = pa.ListArray.from_arrays(offsets, X[rows].ravel())
        table = pa.table({"features": features, "label": y[rows]})
        group = -(-len(rows) // _GROUPS_IN_FILE)
        pq.write_table(table, folder / f"part-{k}.parquet", row_group_size=group)


def read(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """The same rows in this process: a matrix without gaps and the labels."""
    import pyarrow.parquet as pq

    table = pq.read_table(folder)
    chunks = table["features"].chunks
    numbers = np.concatenate([chunk.flatten().to_numpy() for chunk in chunks])
    return numbers.reshape(table.num_rows, -1), table["label"].to_numpy()
