"""One process of the memory benchmark: builds data, solves, prints what it held as JSON."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.optimize  # noqa: F401  # the certificate imports it, and modules are not a run's memory
import scipy.sparse as sp

import dfwtrace as dt

_EPOCHS = 3
_DENSITY = 0.01


def main(task: str, layout: str, n: int, d: int, m: int) -> dict[str, Any]:
    # Compiling takes memory of its own, and would hide behind it what comes after.
    _solve(task, *_data(task, layout, 20, 6, 5), 5)
    X, y = _data(task, layout, n, d, m)
    before, _ = resident_and_peak()
    began = time.perf_counter()
    result = _solve(task, X, y, m)
    seconds = time.perf_counter() - began
    _, peak = resident_and_peak()
    return {
        "before": before,
        "peak": peak,
        "seconds": seconds,
        "certificate": result.certificate.method if result.certificate else None,
    }


def _data(task: str, layout: str, n: int, d: int, m: int) -> tuple[Any, np.ndarray]:
    rng = np.random.default_rng(0)
    if layout == "sparse":
        X = sp.random_array((n, d), density=max(_DENSITY, 1.0 / d), format="csr", rng=rng)
    else:
        X = rng.standard_normal((n, d))
    # With fewer rows than classes most classes stay empty; the first two never do.
    labels = np.concatenate([[0, 1], rng.integers(0, m, n - 2)])
    return X, labels if task == "multinomial" else rng.standard_normal((n, m))


def _solve(task: str, X: Any, y: np.ndarray, m: int) -> dt.Result:
    return dt.solve(
        dt.Multinomial(n_classes=m) if task == "multinomial" else dt.LeastSquares(),
        X,
        y,
        radius=1.0,
        solver="dfw",
        max_iter=_EPOCHS,
        representation="implicit",
        verbose=False,
    )


def resident_and_peak() -> tuple[int, int]:
    """Bytes that this process has in memory now, and has had at the most.

    Not `ru_maxrss` where it can be avoided: Linux hands it down from the process that started this
    one, so that a large parent would hide what is measured here.
    """
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        import resource  # not on Windows

        unit = 1 if sys.platform == "darwin" else 1024
        peak = unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak, peak  # the peak so far is the nearest thing to what is held now
    fields = dict(line.split(":", 1) for line in status.splitlines())
    resident, peak = (1024 * int(fields[name].split()[0]) for name in ("VmRSS", "VmHWM"))
    return resident, peak


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
