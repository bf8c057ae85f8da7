"""The accelerated solver's bits: the same for every number of threads, and of resident workers."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from tests.engines.resident.groups import GroupEngine
from tests.problems import FORMS, TASKS

import dfwtrace as dt
from dfwtrace.engines import local


def bits(result: dt.Result) -> list[bytes]:
    kept = [
        name
        for name in result.history.columns
        if not name.endswith("seconds") and name != "bytes_on_wire"
    ]
    columns = [result.history.column(name).tobytes() for name in kept]
    return [*columns, result.W.U.tobytes(), result.W.s.tobytes(), result.W.V.tobytes()]


@pytest.mark.parametrize(
    ("name", "form", "dtype"),
    [(*form, dtype) for form, dtype in zip(FORMS, 4 * ["float64", "float32"], strict=False)],
)
def test_threads_and_workers_give_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, name: str, form: str, dtype: str
) -> None:
    monkeypatch.setattr(local, "_BYTES_FOR_A_THREAD", 1)
    X, Y, _ = dt.datasets.make_multitask(n=120, d=11, m=7, rank=3, noise=0.5, random_state=1)
    y = Y.astype(dtype) if name == "least squares" else np.arange(120) % 7
    engines = [
        dt.LocalEngine(4, n_jobs=1),
        dt.LocalEngine(4, n_jobs=2),
        GroupEngine(n_shards=4, n_workers=1),
        GroupEngine(n_shards=4, n_workers=2),
    ]
    options: Any = {"radius": 2.0, "solver": "accelerated", "representation": form, "tol": 1e-6}
    first, *others = (
        bits(dt.solve(TASKS[name], X.astype(dtype), y, max_iter=15, engine=engine, **options))
        for engine in engines
    )
    assert all(other == first for other in others)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("solver", ["accelerated", "dfw"])
def test_the_algebra_outside_the_shards_gives_the_same_bits(solver: str, dtype: str) -> None:
    """In gram form it is all that there is to do after one pass over the data."""
    X, Y, _ = dt.datasets.make_multitask(n=900, d=450, m=430, rank=40, noise=0.5, random_state=1)
    options: Any = {"radius": 30.0, "solver": solver, "representation": "gram", "max_iter": 5}
    runs, shared = [], []
    for n_jobs in (1, 2, 3, 5):
        seen = set[str]()
        result = dt.solve(
            dt.LeastSquares(),
            X.astype(dtype),
            Y.astype(dtype),
            engine=dt.LocalEngine(4, n_jobs=n_jobs),
            callback=lambda W, record, seen=seen: seen.update(
                thread.name for thread in threading.enumerate()
            ),
            **options,
        )
        runs.append([*bits(result), result.gap])
        shared.append(any(name.startswith("dfwtrace") for name in seen))
    assert all(run == runs[0] for run in runs[1:])
    assert shared == [False, *3 * [solver == "accelerated"]]  # one vector is not worth it
