"""What the rows of the benchmark of peers have in common, for the tests of it."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pytest

# `benchmarks` is run from the checkout and never installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import Row


def check(row: Row) -> None:
    assert row.benchmark == "peers"
    assert len(row.case.split(", ")) == 3
    assert set(row.sizes) == set("ndm")
    assert row.target is None
    assert math.isfinite(row.ratio)
    assert set(row.seconds) == {"accelerated", "peer"}
    assert all(seconds > 0.0 for seconds in row.seconds.values())
    assert {"reached", "rounds", "rank", "numbers", "setup"} <= set(row.detail)
    assert {"their numbers", "their steps"} <= set(row.detail)
    assert all(math.isfinite(number) for number in row.detail.values())
    if row.detail["rounds"] > 1:
        assert row.detail["least ratio"] <= row.ratio <= row.detail["largest ratio"]
    else:
        assert "least ratio" not in row.detail
    if "target" in row.detail:
        bests = row.detail["best"], row.detail["their best"]
        assert row.detail["target"] == pytest.approx(1.01 * max(bests))
        assert row.detail["test error"] <= row.detail["target"]
        if row.detail["reached"]:
            assert row.detail["their test error"] <= row.detail["target"]
        assert row.detail["cut short"] <= float(bests[1] > bests[0])
    else:
        tol = float(row.case.split(", ")[2])
        assert -1e-6 <= row.detail["excess"] <= tol
        assert row.detail["reference gap"] <= 1e-6
        if row.detail["reached"]:
            assert -1e-6 <= row.detail["their excess"] <= tol


def record_of(row: Row) -> dict[str, Any]:
    return {name: getattr(row, name) for name in Row.__dataclass_fields__}
