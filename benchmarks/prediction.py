"""`predict` through the factors of W against a dense matrix of coefficients in NumPy.

A row costs r(d + m) multiplications through factors of rank r and dm through the dense matrix; what
both need beside it is the largest score of each row.
"""

from __future__ import annotations

import numpy as np

import dfwtrace as dt
from benchmarks.harness import Row, Scale, in_turn, stopwatch

RATIO = "factors / dense"
TIMED = True
TARGET = 1.0

_SIZES = {"toy": (200, 40, 20, 3), "full": (20_000, 2048, 1000, 30)}


def run(scale: Scale, repeat: int) -> list[Row]:
    n, d, m, rank = _SIZES[scale]
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d), dtype=np.float32)
    # A fit that ends at once, and factors at random: prediction does not care where they are from.
    model = dt.TraceNormClassifier(tol=None, max_iter=1).fit(X[: 2 * m], np.tile(np.arange(m), 2))
    left, right = rng.standard_normal((d, rank)), rng.standard_normal((m, rank))
    model.low_rank_ = W = dt.LowRankMatrix(left, np.ones(rank), right)
    dense, b = W.to_dense().astype(np.float32), model.intercept_.astype(np.float32)

    def by_dense() -> np.ndarray:
        return model.classes_[(X @ dense + b).argmax(axis=1)]

    measures = {
        "factors": stopwatch(lambda: model.predict(X)),
        "dense": stopwatch(by_dense),
    }
    times = in_turn(max(repeat, 3), measures)
    same = float(np.mean(model.predict(X) == by_dense()))
    return [
        Row(
            "prediction",
            f"float32, rank {rank}",
            {"n": n, "d": d, "m": m},
            float(np.median(times["factors"] / times["dense"])),
            TARGET,
            {name: float(np.median(seconds)) for name, seconds in times.items()},
            {
                "rows a second": n / float(np.median(times["factors"])),
                "equal predictions": same,
            },
        )
    ]
