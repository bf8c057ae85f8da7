"""A multinomial epoch against the time that its bytes need to come from memory.

An epoch with K power iterations must read X twice for each (G v, then Gᵀ u), and the residual R
as often, but for the very first product of an epoch, which can be made while the update before it
has R at hand. The update reads and writes the scores S and writes R. With K = 2 that is
4 passes over X, 3 + 1 over R and 2 over S. The floor is these bytes over the bandwidth that the
same number of threads reach just before and after the epochs.
"""

from __future__ import annotations

from functools import partial

import numpy as np

import dfwtrace as dt
from benchmarks.bandwidth import StreamingRead
from benchmarks.harness import Row, Scale, epoch_seconds, in_turn

RATIO = "epoch / floor"
TIMED = True
TARGET = 1.6

_SIZES = {"toy": (400, 50, 40), "full": (20_000, 1000, 1000)}
_THREADS = 2
_ITERATIONS = 2
_RADIUS = 50.0
_EPOCHS = 12
# Tries of the bandwidth on either side of the epochs, and float32 numbers a thread reads in each.
_READS = 5
_READ_NUMBERS = {"toy": 1_000_000, "full": 24_000_000}


def run(scale: Scale, repeat: int) -> list[Row]:
    n, d, m = _SIZES[scale]
    X, y, _ = dt.datasets.make_multiclass(n, d, m, rank=10, random_state=0, dtype=np.float32)

    fastest: list[float] = []

    def epoch() -> float:
        result = dt.solve(
            dt.Multinomial(n_classes=m),
            X,
            y,
            radius=_RADIUS,
            solver="dfw",
            lmo=f"power-{_ITERATIONS}",
            step="harmonic",
            max_iter=_EPOCHS,
            representation="implicit",
            engine=dt.LocalEngine(n_jobs=_THREADS),
            verbose=False,
        )
        seconds = epoch_seconds(result)
        fastest.append(float(seconds.min()))
        return float(np.median(seconds))

    with StreamingRead(_THREADS, _READ_NUMBERS[scale]) as reading:
        read = partial(reading.best, _READS)
        seen = in_turn(repeat, {"before": read, "epoch": epoch, "after": read})
    bandwidths = np.maximum(seen["before"], seen["after"])
    floors = bytes_to_move(n, d, m, _ITERATIONS, X.dtype.itemsize) / bandwidths
    return [
        Row(
            "epoch_floor",
            f"float32, K={_ITERATIONS}, {_THREADS} threads",
            {"n": n, "d": d, "m": m},
            float(np.median(seen["epoch"] / floors)),
            TARGET,
            {
                "epoch": float(np.median(seen["epoch"])),
                "least epoch": min(fastest),
                "floor": float(np.median(floors)),
            },
            {"least / least": min(fastest) / floors.min(), "GB/s": bandwidths.max() / 1e9},
        )
    ]


def bytes_to_move(n: int, d: int, m: int, iterations: int, itemsize: int) -> int:
    """Bytes that no implementation with scores and residual in memory can do without."""
    products = 2 * iterations
    features = products * n * d
    residual = (products - 1) * n * m + n * m  # read by all products but the first; written
    scores = 2 * n * m  # read and written
    return (features + residual + scores) * itemsize
