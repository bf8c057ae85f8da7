"""All of `solve` on least squares against NumPy's XᵀX and XᵀY alone.

The second moments are all that least squares needs of the data, so a solver can hardly be quicker
than the two matrix products. Everything else (checks, 100 epochs, the certificate) is overhead.
"""

from __future__ import annotations

import numpy as np

import dfwtrace as dt
from benchmarks.harness import Row, Scale, in_turn, stopwatch

RATIO = "solve / (XᵀX and XᵀY)"
TIMED = True
TARGET = 1.3

_SIZES = {
    "toy": [(500, 30, 20)],
    "full": [(100_000, 300, 300), (50_000, 1000, 1000)],
}
_EPOCHS = 100
_RADIUS = 1.0


def run(scale: Scale, repeat: int) -> list[Row]:
    return [_compare(n, d, m, max(repeat, 3)) for n, d, m in _SIZES[scale]]


def _compare(n: int, d: int, m: int, repeat: int) -> Row:
    X, Y, _ = dt.datasets.make_multitask(n, d, m, rank=10, noise=0.1, random_state=0)

    def solve() -> None:
        dt.solve(
            dt.LeastSquares(), X, Y, radius=_RADIUS, solver="dfw", max_iter=_EPOCHS, verbose=False
        )

    def products() -> tuple[np.ndarray, np.ndarray]:
        return X.T @ X, X.T @ Y

    times = in_turn(repeat, {"solve": stopwatch(solve), "products": stopwatch(products)})
    ratios = times["solve"] / times["products"]
    return Row(
        "least_squares",
        f"float64, {_EPOCHS} epochs",
        {"n": n, "d": d, "m": m},
        float(np.median(ratios)),
        TARGET,
        {name: float(np.median(seconds)) for name, seconds in times.items()},
        {"least / least": float(times["solve"].min() / times["products"].min())},
    )
