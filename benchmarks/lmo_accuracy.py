"""The error of σ after the same rounds: Lanczos against the power method.

Both begin at the same vectors. The gradient is that of a multinomial problem after some epochs,
when the leading singular values have come close to each other and the oracle's work is hardest.
For information; there is no target.
"""

from __future__ import annotations

import numpy as np

import dfwtrace as dt
from benchmarks.harness import Row, Scale

RATIO = "Lanczos error / power error"
TIMED = False

_SIZES = {"toy": (200, 20, 15), "full": (5000, 300, 300)}
_ITERATIONS = (1, 2, 3, 4, 6, 8)
_EPOCHS_BEFORE = 20
_RADIUS = 50.0
# An error below what float64 resolves is not smaller than another one.
_RESOLUTION = 1e-15


def run(scale: Scale, repeat: int) -> list[Row]:
    """Errors are the geometric mean over `repeat` random starts."""
    n, d, m = _SIZES[scale]
    X, y, _ = dt.datasets.make_multiclass(n, d, m, rank=10, random_state=0)
    task = dt.Multinomial(n_classes=m)
    W = dt.solve(task, X, y, radius=_RADIUS, solver="dfw", max_iter=_EPOCHS_BEFORE, verbose=False).W

    def sigma(lmo: dt.lmo.LMO, seed: int) -> float:
        """σ that the oracle sees in the first epoch, which begins at W."""
        result = dt.solve(
            task,
            X,
            y,
            radius=_RADIUS,
            solver="dfw",
            lmo=lmo,
            max_iter=1,
            start=W,
            random_state=seed,
            verbose=False,
        )
        return float(result.history[0]["sigma"])

    exact = sigma(dt.lmo.Naive(), 0)

    def error(lmo: dt.lmo.LMO) -> float:
        errors = [max(1.0 - sigma(lmo, seed) / exact, _RESOLUTION) for seed in range(repeat)]
        return float(np.exp(np.mean(np.log(errors))))

    rows = []
    for k in _ITERATIONS:
        schedule = dt.lmo.Constant(k)
        power, lanczos = error(dt.lmo.Power(schedule)), error(dt.lmo.Lanczos(schedule))
        rows.append(
            Row(
                "lmo_accuracy",
                f"K={k}, {2 * k} rounds",
                {"n": n, "d": d, "m": m},
                lanczos / power,
                detail={"power error": power, "Lanczos error": lanczos},
            )
        )
    return rows
