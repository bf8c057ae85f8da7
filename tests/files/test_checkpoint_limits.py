"""Limits that change from one call to the next, and what the parts of a run remember."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.files.checkpointed import assert_same_run, every_epoch, stopped

import dfwtrace as dt
from dfwtrace.lmo import Power, TheoremLog
from dfwtrace.solvers import lbfgs
from dfwtrace.solvers.lbfgs import LBFGS

OPTIONS: dict[str, Any] = {
    "radius": 3.0,
    "solver": "dfw",
    "representation": "implicit",
    "engine": dt.LocalEngine(3, 1),
}


@pytest.mark.parametrize("solver", ["dfw", "accelerated"])
def test_fewer_epochs_than_are_in_the_file(
    solver: str, multitask: tuple[Any, Any], tmp_path: Path
) -> None:
    options = {**OPTIONS, "solver": solver, "tol": 0.0, "checkpoint": every_epoch(tmp_path / "run")}
    six = dt.solve(dt.LeastSquares(), *multitask, max_iter=6, **options)
    content = (tmp_path / "run").read_bytes()
    two = dt.solve(dt.LeastSquares(), *multitask, max_iter=2, **options)
    assert_same_run(two, six)
    assert (tmp_path / "run").read_bytes() == content


def test_a_tolerance_may_be_set_later(multitask: tuple[Any, Any], tmp_path: Path) -> None:
    X, Y = multitask
    options = {**OPTIONS, "solver": "accelerated", "checkpoint": every_epoch(tmp_path / "run")}
    options["radius"] = 0.5
    first = dt.solve(dt.LeastSquares(), X, Y, max_iter=500, tol=1e-2, **options)
    then = dt.solve(dt.LeastSquares(), X, Y, max_iter=500, tol=1e-6, **options)
    assert (first.status, then.status) == ("optimal", "optimal")
    assert first.relative_gap <= 1e-2
    assert then.relative_gap <= 1e-6
    assert len(then.history) > len(first.history)
    # All but the last epoch of the first run were in the file.
    kept = len(first.history) - 1
    for name in ("objective", "gamma", "seconds"):
        found, known = then.history.column(name)[:kept], first.history.column(name)[:kept]
        np.testing.assert_array_equal(found, known)


def test_the_time_before_counts(multitask: tuple[Any, Any], tmp_path: Path) -> None:
    X, Y = multitask
    options = {**OPTIONS, "checkpoint": every_epoch(tmp_path / "run")}
    first = dt.solve(dt.LeastSquares(), X, Y, max_iter=3, **options)
    spent = first.history[-1]["seconds"]
    then = dt.solve(dt.LeastSquares(), X, Y, max_iter=9, max_time=spent, **options)
    assert (then.status, len(then.history)) == ("max_time", 4)
    assert all(np.diff(then.history.column("seconds")) > 0.0)


def test_only_the_last_ten_ratios_are_looked_back_at() -> None:
    lmo, setting = (
        Power(TheoremLog(lipschitz=1.0, curvature=1.0)),
        dt.lmo.Setting(1.0, (3, 2), 0, lambda: dt.lmo.Constants(1.0, 1.0)),
    )
    oracle, other = lmo.begin(setting), lmo.begin(setting)
    oracle.seen.ratios.extend(np.linspace(0.9, 0.1, 8))
    other.restore(oracle.memory())
    for ratio in np.linspace(0.2, 0.8, 7):
        oracle.seen.ratios.append(ratio)
        other.seen.ratios.append(ratio)
        assert list(other.seen.ratios) == list(oracle.seen.ratios)
    assert len(other.seen.ratios) == 10


def test_as_many_changes_of_the_gradient_as_before_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lbfgs, "_PAIRS", 40)
    memory, other = LBFGS(), LBFGS()
    for k in range(1, 31):
        memory.remember(np.array([float(k)]), np.array([2.0 * k]))
    other.restore(memory.memory())
    for k in range(1, 31):
        for each in (memory, other):
            each.remember(np.array([-float(k)]), np.array([-3.0 * k]))
    assert memory.memory()["pairs"] == other.memory()["pairs"]
    assert 30 < len(memory.pairs) < 60  # some of both


def test_an_oracle_of_ones_own_may_remember(multitask: tuple[Any, Any], tmp_path: Path) -> None:
    options = {**OPTIONS, "max_iter": 8, "lmo": Tiring()}
    expected = dt.solve(dt.LeastSquares(), *multitask, **options)
    assert list(expected.history.column("power_iterations")) == list(range(8, 0, -1))
    options["checkpoint"] = every_epoch(tmp_path / "run")
    stopped(dt.LeastSquares(), *multitask, 5, **options)
    assert_same_run(dt.solve(dt.LeastSquares(), *multitask, **options), expected)


class Tiring:
    """An oracle whose iterations get fewer with each call."""

    needs: tuple[str, ...] = ()
    local = False
    gathers = False

    def mean_products(self, epochs: int) -> float:
        return 8.0

    def begin(self, setting: Any) -> TiringOracle:
        return TiringOracle(setting)


class TiringOracle:
    def __init__(self, setting: Any) -> None:
        self.setting, self.strength = setting, 8

    def __call__(self, gradient: Any, t: int) -> Any:
        oracle = Power(dt.lmo.Constant(self.strength)).begin(self.setting)
        self.strength -= 1
        return oracle(gradient, t)

    def memory(self) -> dict[str, Any]:
        return {"strength": self.strength}

    def restore(self, memory: dict[str, Any]) -> None:
        self.strength = memory["strength"]
