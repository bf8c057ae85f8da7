"""Least squares to a certified relative gap of 1e-6 against NumPy's XᵀX and XᵀY, and against Ridge.

Ridge solves another problem, without a bound on the rank, from the same two products.
"""

from __future__ import annotations

import numpy as np

import dfwtrace as dt
from benchmarks.harness import Row, Scale, in_turn, stopwatch

RATIO = "solve / other"
TIMED = True
TARGET = 1.3

_SIZES = {"toy": (500, 30, 20), "full": (50_000, 1000, 1000)}
_RADIUS = 1.0
_TOL = 1e-6


def run(scale: Scale, repeat: int) -> list[Row]:
    from sklearn.linear_model import Ridge

    n, d, m = _SIZES[scale]
    X, Y, _ = dt.datasets.make_multitask(n, d, m, rank=10, noise=0.5, random_state=0)
    found: list[dt.Result] = []

    def solve() -> None:
        found.append(
            dt.solve(
                dt.LeastSquares(),
                X,
                Y,
                radius=_RADIUS,
                solver="accelerated",
                tol=_TOL,
                verbose=False,
            )
        )

    def products() -> tuple[np.ndarray, np.ndarray]:
        return X.T @ X, X.T @ Y

    def ridge() -> None:
        Ridge(alpha=1.0, fit_intercept=False, copy_X=False).fit(X, Y)

    times = in_turn(
        max(repeat, 3),
        {"solve": stopwatch(solve), "products": stopwatch(products), "ridge": stopwatch(ridge)},
    )
    medians = {name: float(np.median(seconds)) for name, seconds in times.items()}
    result = found[-1]
    detail = {
        "gap": result.relative_gap,
        "epochs": float(len(result.history)),
        "rank": float(result.W.rank),
    }
    sizes = {"n": n, "d": d, "m": m}
    rows = []
    for other, target in (("products", TARGET), ("ridge", None)):
        ratio = float(np.median(times["solve"] / times[other]))
        seconds = {"solve": medians["solve"], other: medians[other]}
        rows.append(
            Row(
                "accelerated_least_squares",
                f"to 1e-6, / {other}",
                sizes,
                ratio,
                target,
                seconds,
                detail,
            )
        )
    return rows
