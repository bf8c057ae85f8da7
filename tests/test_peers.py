"""The benchmark of peers at a toy size: what its rows say, whatever the clock."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import dfwtrace as dt

# `benchmarks` is run from the checkout and never installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import __main__ as command
from benchmarks import peers, peers_curves, peers_same
from benchmarks.harness import Row
from benchmarks.peers_curves import Curve
from benchmarks.peers_problems import Problem, problems, small_problems

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

needs_copt = pytest.mark.skipif(importlib.util.find_spec("copt") is None, reason="no copt")


def check(row: Row) -> None:
    assert row.benchmark == "peers"
    assert len(row.case.split(", ")) == 3
    assert set(row.sizes) == set("ndm")
    assert row.target is None
    assert math.isfinite(row.ratio)
    assert set(row.seconds) == {"accelerated", "peer"}
    assert all(seconds > 0.0 for seconds in row.seconds.values())
    assert {"reached", "rank", "numbers", "their numbers", "their steps"} <= set(row.detail)
    assert all(math.isfinite(number) for number in row.detail.values())
    if "target" in row.detail:
        bests = row.detail["best"], row.detail["their best"]
        assert row.detail["target"] == pytest.approx(1.01 * max(bests))
        assert row.detail["test error"] <= row.detail["target"]
        assert row.detail["their test error"] <= row.detail["target"]
    else:
        tol = float(row.case.split(", ")[2])
        assert -1e-6 <= row.detail["excess"] <= tol
        assert row.detail["reference gap"] <= 1e-6
        if row.detail["reached"]:
            assert -1e-6 <= row.detail["their excess"] <= tol


def test_every_peer_has_its_rows_and_what_is_missing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DFWTRACE_DATA", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pyspark", None)  # as if it were not installed
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    monkeypatch.setitem(sys.modules, "copt", None)
    arguments = ["--scale", "toy", "--repeat", "1", "--only", "peers", "--results", str(tmp_path)]
    assert command.main(arguments) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "CLINC150 is left out: there is no clinc150_minilm.npz in" in printed
    assert "MLlib is left out: pyspark is not installed" in printed
    for package in ("copt", "cvxpy"):
        assert f"{package} is left out: it is not installed" in printed
    (path,) = tmp_path.iterdir()
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [record["case"] for record in records] == [
        "multi-class, dfw, test error",
        "multi-class, LogisticRegression, test error",
        "multi-class, dfw, 0.01",
        "multi-class, dfw, 0.001",
        "multi-class, dense projected gradient, 0.01",
        "multi-class, dense projected gradient, 0.001",
        "multi-task, dfw, test error",
        "multi-task, Ridge, test error",
        "multi-task, dfw, 0.01",
        "multi-task, dfw, 0.001",
    ]
    for record in records:
        check(Row(**{name: record[name] for name in Row.__dataclass_fields__}))
    monkeypatch.setattr(sys, "argv", ["peers", str(path)])
    runpy.run_path(str(peers.__file__), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(records)
    assert {line.count("|") for line in lines} == {9}
    assert "| Ridge | test error" in lines[9]
    assert "| F* + 0.001·F(0) |" in lines[-1]


def test_the_readme_shows_rows_that_are_kept() -> None:
    root = Path(__file__).resolve().parents[1]
    readme = (root / "README.md").read_text("utf-8")
    (name,) = re.findall(r"python -m benchmarks\.peers (benchmarks/results/\S+\.jsonl)", readme)
    kept = (root / name).read_text("utf-8").splitlines()
    printed = peers.markdown([json.loads(line) for line in kept]).splitlines()
    table = readme[readme.index(printed[0]) :].split("\n\n")[0].splitlines()
    assert table == [line for line in printed if "F* + 0.01·F(0)" not in line]
    assert len(table) > 20


def test_a_toy_of_real_data_has_three_of_its_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DFWTRACE_DATA", str(tmp_path))
    rng = np.random.default_rng(0)
    parts = {"train": 12, "val": 5, "test": 10}
    arrays: dict[str, Any] = {f"X_{name}": rng.random((n, 3)) for name, n in parts.items()}
    arrays |= {f"y_{name}": np.arange(n) % 5 for name, n in parts.items()}
    np.savez(tmp_path / "clinc150_minilm.npz", **arrays)
    _, toy, _ = problems("toy")
    assert (toy.name, toy.sizes) == ("CLINC150", {"n": 8, "d": 3, "m": 3})
    np.testing.assert_array_equal(toy.y_test, [0, 1, 2, 0, 1, 2])
    kept = arrays["X_test"][arrays["y_test"] < 3].astype(np.float32)
    np.testing.assert_array_equal(toy.X_test, kept)


@needs_copt
def test_copt_solves_the_same_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DFWTRACE_DATA", str(tmp_path))
    for problem in problems("toy"):
        optimum, at_zero, _ = peers._reference(problem)
        for runner, tol in (
            (peers_same.copt_projected_gradient, 1e-3),
            (peers_same.copt_frank_wolfe, 0.05),
        ):
            curve = Curve(optimum + tol * at_zero, cap=60.0)
            assert runner(problem, curve)["their numbers"] == np.prod(problem.shape)
            assert optimum - 1e-6 * at_zero <= curve.best <= curve.wanted


def test_cone_programs_have_our_optimum() -> None:
    pytest.importorskip("cvxpy")
    for problem in small_problems("toy"):
        optimum, at_zero, _ = peers._reference(problem)
        curve = Curve()
        assert peers_same.cone_program(problem, curve)["their steps"] == 1.0
        assert curve.best == pytest.approx(optimum, abs=2e-6 * at_zero)


def test_dense_steps_in_a_rescaled_ball_have_our_optimum() -> None:
    problem = small_problems("toy")[0]
    assert problem.radius != 50.0  # that of `accelerated_dense`
    optimum, at_zero, _ = peers._reference(problem)
    curve = Curve(optimum + 1e-4 * at_zero)
    peers_same.dense_gradient(problem, curve)
    assert optimum - 1e-6 * at_zero <= curve.best <= curve.wanted


def test_the_functions_for_peers_are_our_objective() -> None:
    for problem in small_problems("toy"):
        result = dt.solve(
            problem.task, problem.X, problem.y, radius=problem.radius, epochs=5, progress=False
        )
        W = result.W.to_dense()
        evaluate = problem.objective()
        F, G = evaluate(W)
        assert pytest.approx(result.objective, rel=1e-9) == F
        D = np.random.default_rng(0).standard_normal(W.shape)
        slope = (evaluate(W + 1e-5 * D)[0] - evaluate(W - 1e-5 * D)[0]) / 2e-5
        assert float(np.vdot(G, D)) == pytest.approx(slope, rel=1e-5)


def test_logistic_regression_is_followed_iteration_by_iteration() -> None:
    from sklearn.linear_model import LogisticRegression

    problem = small_problems("toy")[0]
    curve = Curve()
    known = peers_curves.logistic_regression(problem, curve)
    assert known["their steps"] == len(curve.values) > 3
    assert curve.seconds == sorted(curve.seconds)
    model = LogisticRegression(C=problem.penalty, tol=1e-10, fit_intercept=False, max_iter=1000)
    score = model.fit(problem.X, problem.y).score(problem.X_test, problem.y_test)
    assert curve.values[-1] == pytest.approx(1.0 - score)
    cut = Curve(cap=0.0)
    assert peers_curves.logistic_regression(problem, cut)["their steps"] == 1.0
    assert cut.values == curve.values[:1]


def test_a_class_that_was_never_seen_does_no_harm() -> None:
    problem = small_problems("toy")[0]
    seen = problem.y != 1
    few = Problem(
        *("few", problem.X[seen], problem.y[seen], problem.X_test, problem.y_test),
        *(problem.m, problem.radius, problem.penalty),
    )
    curve = Curve()
    peers_curves.logistic_regression(few, curve)
    assert 0.0 < curve.best < 1.0


def test_a_peer_that_does_not_get_there_is_stopped() -> None:
    problem = small_problems("toy")[1]

    def never(problem: Problem, curve: Curve) -> Mapping[str, float]:
        for second in range(100):
            if curve.add(float(second), 1e9):
                break
        return {"their numbers": 1.0, "their steps": float(len(curve.values))}

    reference = peers._reference(problem)
    rows = peers._to_the_same_objective(problem, reference, "never", never, "toy", 1)
    for row in rows:
        assert row.detail["reached"] == 0.0
        assert row.detail["their steps"] < 100.0
        assert row.ratio == row.seconds["accelerated"] / row.seconds["peer"]
    assert "| > 1 s | < " in peers.markdown([record_of(row) for row in rows])


def record_of(row: Row) -> dict[str, Any]:
    return {name: getattr(row, name) for name in Row.__dataclass_fields__}


def test_a_curves_clock_stands_still_while_a_value_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(peers_curves, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    curve = Curve(wanted=1.0)

    def slow() -> float:
        now[0] += 100.0
        return 2.0

    now[0] = 1.0
    assert not curve.note(slow)
    now[0] += 3.0
    assert curve.note(lambda: 0.5)
    assert curve.seconds == [1.0, 4.0]
    assert curve.best == 0.5
    assert curve.at(2.5) == 2.0
    assert curve.at(0.1) == 0.5  # the least one
    assert curve.time_to(2.0) == 1.0
    assert curve.time_to(0.1) is None


def test_a_run_ends_at_its_cap() -> None:
    curve = Curve(cap=5.0)
    assert not curve.add(4.0, 1.0)
    assert curve.add(5.0, 1.0)


def test_mllib_is_compared_by_its_test_error(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sklearn.linear_model import LogisticRegression

    problem = small_problems("toy")[0]
    runner = peers_curves.mllib(problem)
    monkeypatch.setattr(peers_curves, "_FEWEST", 25)
    row = peers._to_the_same_error(problem, "MLlib", runner, "toy", 1)
    check(row)
    assert row.detail["reached"] == 1.0
    # With iterations enough it is scikit-learn's model: the penalties mean the same.
    model = LogisticRegression(C=problem.penalty, tol=1e-10, fit_intercept=False, max_iter=1000)
    score = model.fit(problem.X, problem.y).score(problem.X_test, problem.y_test)
    assert row.detail["their best"] == pytest.approx(1.0 - score, abs=0.034)  # one row of thirty
