"""Real data: a certified trace-norm solution against scikit-learn's LogisticRegression.

The radius and C are those with the best validation accuracy; the times are those of the one fit
with each, LogisticRegression with its own tolerance and ours to a certified relative gap of 1e-4,
or to ten times the other's time: `reached` is then 0. Without the data (see benchmarks/data.py)
there are no rows.
"""

from __future__ import annotations

import time

import numpy as np

import dfwtrace as dt
from benchmarks import data
from benchmarks.harness import Row, Scale, in_turn, stopwatch

RATIO = "accelerated / LogisticRegression, time"
TIMED = True
TARGET = 1.0

_TOL = 1e-4
_PATIENCE, _LEAST_TIME = 10.0, 5.0
# For the choice of a radius, a fit need not be as good, and may take so many seconds.
_ROUGH_TOL, _ROUGH_TIME = 1e-2, 20.0
_RADII = {
    "clinc150": [500.0, 1000.0, 2000.0, 4000.0],
    "udhr": [500.0, 1000.0, 2000.0, 4000.0, 8000.0],
}
_PENALTIES = [1.0, 10.0, 100.0, 1000.0]


def run(scale: Scale, repeat: int) -> list[Row]:
    rows = []
    for name, load in (("clinc150", data.clinc150), ("udhr", data.udhr)):
        split = load()
        if split is not None:
            if scale == "toy":
                split = split._replace(X=split.X[::50], y=split.y[::50])
            rows.append(_compare(name, split, repeat))
    return rows


def _compare(name: str, split: data.Split, repeat: int) -> Row:
    from sklearn.linear_model import LogisticRegression

    m = int(max(split.y.max(), split.y_val.max(), split.y_test.max())) + 1
    task = dt.Multinomial(n_classes=m)

    def accuracy(W: dt.LowRankMatrix, X: object, y: np.ndarray) -> float:
        return float(((X @ W).argmax(axis=1) == y).mean())

    path = dt.path(
        task,
        split.X,
        split.y,
        radii=_RADII[name],
        tol=_ROUGH_TOL,
        max_time=_ROUGH_TIME,
        verbose=False,
    )
    seen = [accuracy(result.W, split.X_val, split.y_val) for result in path.results]
    radius = float(path.radii[int(np.argmax(seen))])
    models, seconds = [], []
    for C in _PENALTIES:
        began = time.perf_counter()
        models.append(LogisticRegression(C=C, max_iter=1000).fit(split.X, split.y))
        seconds.append(time.perf_counter() - began)
    best = int(np.argmax([model.score(split.X_val, split.y_val) for model in models]))
    found: list[dt.Result] = []

    def ours() -> None:
        found.append(
            dt.solve(
                task,
                split.X,
                split.y,
                radius=radius,
                solver="accelerated",
                tol=_TOL,
                max_time=max(_LEAST_TIME, _PATIENCE * seconds[best]),
                verbose=False,
            )
        )

    def theirs() -> None:
        LogisticRegression(C=_PENALTIES[best], max_iter=1000).fit(split.X, split.y)

    # The choice of a radius and of C was the warm-up.
    measures = {"accelerated": stopwatch(ours), "other": stopwatch(theirs)}
    times = in_turn(repeat, measures, warm_up=False)
    result, other = found[-1], models[best]
    n, d = split.X.shape
    return Row(
        "accelerated_data",
        name,
        {"n": n, "d": d, "m": m},
        float(np.median(times["accelerated"] / times["other"])),
        TARGET,
        {key: float(np.median(taken)) for key, taken in times.items()},
        {
            "radius": radius,
            "reached": float(result.relative_gap <= _TOL),
            "gap": result.relative_gap,
            "epochs": float(len(result.history)),
            "rank": float(result.W.rank),
            "numbers": float(result.W.rank * (d + m + 1)),
            "accuracy": accuracy(result.W, split.X_test, split.y_test),
            "their C": _PENALTIES[best],
            "their numbers": float(other.coef_.size + other.intercept_.size),
            "their accuracy": float(other.score(split.X_test, split.y_test)),
            "their iterations": float(other.n_iter_[0]),
        },
    )
