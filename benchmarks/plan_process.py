"""One process of `plan_accuracy`: builds data, asks for the plan, solves, prints both as JSON."""

from __future__ import annotations

import ctypes
import json
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import scipy.optimize  # noqa: F401  # the certificate imports it, and modules are not a run's memory
import scipy.sparse as sp

import dfwtrace as dt
from benchmarks.memory_process import resident_and_peak

_RANK = 5  # of the model that the targets come from
_ROWS = 4096  # whose targets are made at once
_NON_ZEROS = {"csr": 20, "csc": 20, "one-hot": 5}  # in a row


def main(case: dict[str, Any], sizes: dict[str, int], epochs: int) -> dict[str, Any]:
    labels, m = case["task"] == "multinomial", sizes["m"]
    how = {
        "solver": case.get("solver", "accelerated"),
        "max_iter": epochs,
        "fit_intercept": case.get("intercept", False),
        "representation": case.get("representation", "auto"),
        "engine": dt.LocalEngine(n_jobs=1),
    }
    few = min(4, m)
    small = data(case, 60, min(20, sizes["d"]), few)
    _solve(dt.Multinomial(few) if labels else dt.LeastSquares(), small, few, how)  # compiles
    task = dt.Multinomial(m) if labels else dt.LeastSquares()
    given = data(case, **sizes)
    plan = dt.plan(task, **given, **how)
    _forget_peak()
    before, mapped = resident_and_peak()[0], _mapped()
    began = time.process_time()
    result = _solve(task, given, m, how)
    seconds = time.process_time() - began
    # Pages of a memory map belong to the file: the system takes them back when it needs them.
    peak = resident_and_peak()[1] - max(0, _mapped() - mapped)
    cost = plan.costs[plan.representation]
    return {
        "representation": plan.representation,
        "epochs": len(result.history),
        "memory": peak - before,
        "planned_memory": cost.memory,
        "seconds": seconds,
        "planned_seconds": cost.total(len(result.history)),
    }


def data(case: dict[str, Any], n: int, d: int, m: int) -> dict[str, Any]:
    """Features of the layout asked for, targets of a model of low rank, and weights."""
    rng = np.random.default_rng(0)
    layout, dtype = case.get("layout", "C"), case.get("dtype", "float64")
    if layout in _NON_ZEROS:
        X = _sparse(rng, n, d, min(d, _NON_ZEROS[layout]), dtype, ones=layout == "one-hot")
    elif np.dtype(dtype).kind == "i":
        X = rng.integers(-3, 4, (n, d), dtype=dtype)
    else:
        X = rng.standard_normal((n, d), dtype)
    y = _targets(rng, X, m, case["task"] == "multinomial")
    if "mean" in case:
        X += case["mean"]
    if layout == "csc":
        X = X.tocsc()
    elif layout == "F":
        X = np.asfortranarray(X)
    elif layout == "map":
        X = _mapped_file(X)
    weights = rng.uniform(0.5, 1.5, n) if case.get("weighted") else None
    return {"X": X, "y": y, "sample_weight": weights}


def _sparse(rng: np.random.Generator, n: int, d: int, k: int, dtype: str, ones: bool) -> Any:
    """Of k groups of columns, one column in each row."""
    groups = d // k * np.arange(k, dtype=np.int32)
    columns = rng.integers(0, d // k, (n, k), dtype=np.int32) + groups
    values = np.ones(n * k, dtype) if ones else rng.standard_normal(n * k).astype(dtype)
    pointers = np.arange(0, n * k + 1, k, dtype=np.int32)
    return sp.csr_array((values, columns.ravel(), pointers), shape=(n, d))


def _targets(rng: np.random.Generator, X: Any, m: int, labels: bool) -> np.ndarray:
    (n, d), rank = X.shape, min(_RANK, m, X.shape[1])
    left, right = rng.standard_normal((d, rank)) / np.sqrt(d), rng.standard_normal((rank, m))
    y = np.empty(n, np.int64) if labels else np.empty((n, m), np.result_type(X.dtype, np.float32))
    for start in range(0, n, _ROWS):
        rows = slice(start, start + _ROWS)
        S = np.asarray(X[rows] @ left) @ right
        if labels:
            y[rows] = (3.0 * S + rng.gumbel(size=S.shape)).argmax(axis=1)
        else:
            y[rows] = S + rng.standard_normal(S.shape)
    return y


def _mapped_file(X: np.ndarray) -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "X.npy"
        np.save(path, X)
        mapped: np.ndarray = np.load(path, mmap_mode="r")
    return mapped


def _solve(task: Any, given: dict[str, Any], m: int, how: dict[str, Any]) -> dt.Result:
    # With a tolerance out of reach, as many epochs as asked for are made, or nearly so.
    tol = 1e-13 if how["solver"] == "accelerated" else None
    radius = 0.5 * _RANK * np.sqrt(m)  # half of the model's norm
    radius *= 3.0 if isinstance(task, dt.Multinomial) else 1.0
    return dt.solve(task, **given, **how, radius=radius, tol=tol, verbose=False)


def _forget_peak() -> None:
    """Give what was freed back to the system, and let the peak begin anew, on Linux."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")


def _mapped() -> int:
    """Bytes in memory that belong to files, on Linux."""
    with suppress(OSError):
        _, _, rest = Path("/proc/self/status").read_text().partition("RssFile:")
        return 1024 * int(rest.split()[0])
    return 0


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
