"""The accelerated solver's bits: the same for every number of threads, and of resident workers."""

from __future__ import annotations

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
