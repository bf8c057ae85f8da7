"""Each peer by itself: that it solves what it should."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

import dfwtrace as dt

# `benchmarks` is run from the checkout and never installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import peers, peers_curves, peers_same
from benchmarks.peers_curves import Curve
from benchmarks.peers_problems import Problem, problems, small_problems

needs_copt = pytest.mark.skipif(importlib.util.find_spec("copt") is None, reason="no copt")


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


def test_dense_least_squares_has_our_optimum_within_the_ball() -> None:
    _, problem = small_problems("toy")
    free, *_ = np.linalg.lstsq(problem.X, problem.y)
    assert np.linalg.norm(free, "nuc") > problem.radius  # else nothing is projected
    optimum, at_zero, _ = peers._reference(problem)
    curve = Curve(optimum + 1e-6 * at_zero, cap=60.0)
    assert peers_same.dense_least_squares(problem, curve)["their steps"] == len(curve.values)
    assert optimum - 1e-6 * at_zero <= curve.best <= curve.wanted
    assert 3 < len(curve.values) < 1000
    one = Curve(cap=0.0)
    peers_same.dense_least_squares(problem, one)
    assert one.values == curve.values[:1]


def test_a_projection_is_the_nearest_point_of_the_ball() -> None:
    rng = np.random.default_rng(0)
    M = rng.standard_normal((6, 4))
    P = peers_same._projected(M, 2.0)
    assert np.linalg.norm(P, "nuc") == pytest.approx(2.0)
    # ⟨M - P, Q - P⟩ ≤ 0 for all Q of the ball; it is largest where Q is the oracle's answer.
    assert 2.0 * np.linalg.norm(M - P, 2) <= float(np.vdot(M - P, P)) + 1e-9
    np.testing.assert_array_equal(peers_same._projected(M, 100.0), M)


def test_the_functions_for_peers_are_our_objective() -> None:
    for problem in small_problems("toy"):
        result = dt.solve(
            problem.task,
            problem.X,
            problem.y,
            radius=problem.radius,
            solver="dfw",
            max_iter=5,
            verbose=False,
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
