"""A pass of the accelerated solver at the size of ImageNet, features in a memory map.

n = 1 281 167, d = 2048, m = 1000, float32, scores as factors: the scores alone would take 5 GB, the
features take 10.5. Synthetic features: what is measured is a pass over them, and the memory of the
process. The ratio is that of its peak resident memory, with the pages of the map that happen to be
in it, to 20 GiB.
"""

from __future__ import annotations

import resource
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import dfwtrace as dt
from benchmarks.harness import Row, Scale

RATIO = "peak memory / 20 GiB"
TIMED = False
TARGET = 1.0

_SIZES = {"toy": (2000, 64, 20), "full": (1_281_167, 2048, 1000)}
_RADIUS = 30.0
_EPOCHS = 3
_ROWS_AT_ONCE = 1 << 14


def run(scale: Scale, repeat: int) -> list[Row]:
    n, d, m = _SIZES[scale]
    folder = Path(tempfile.mkdtemp(prefix="dfwtrace-"))
    try:
        X, y = _features(folder / "X.npy", n, d, m)
        result = dt.solve(
            dt.Multinomial(n_classes=m),
            X,
            y,
            radius=_RADIUS,
            solver="accelerated",
            callback=_end,
            representation="factored",
            verbose=False,
        )
        del X
    finally:
        shutil.rmtree(folder)
    peak = 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = {}
    for method in ("stats", "tangent"):
        made = [record for record in result.rounds if record["method"] == method]
        parts = [
            record["compute_seconds"] + record["wait_seconds"] + record["reduce_seconds"]
            for record in made[1:]
        ]
        seconds[method] = float(np.median(parts))
    seconds["pass"] = sum(seconds.values())
    return [
        Row(
            "imagenet_size",
            "float32, factored, a pass",
            {"n": n, "d": d, "m": m},
            peak / (20 << 30),
            TARGET,
            seconds,
            {
                "rank": float(result.W.rank),
                "objective / F(0)": result.objective / result.objective_at_zero,
            },
        )
    ]


def _end(W: dt.LowRankMatrix, record: Mapping[str, Any]) -> None:
    """As Ctrl-C would end it: without a certificate, which takes more passes than the epochs do."""
    if record["epoch"] == _EPOCHS:
        raise KeyboardInterrupt


def _features(path: Path, n: int, d: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """A memory map of features and their labels, made some rows at a time."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((m, d)).astype(np.float32)
    y = rng.integers(0, m, n)
    X = np.lib.format.open_memmap(path, "w+", np.float32, (n, d))
    for start in range(0, n, _ROWS_AT_ONCE):
        rows = slice(start, min(n, start + _ROWS_AT_ONCE))
        noise = rng.standard_normal((rows.stop - rows.start, d), dtype=np.float32)
        X[rows] = (noise + 0.3 * centres[y[rows]]) / np.float32(np.sqrt(d))
    X.flush()
    del X
    return np.load(path, mmap_mode="r"), y
