"""The corpus: its problems, the judge of all methods, the peers, the records and the table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from benchmarks import corpus
from benchmarks.corpus import methods, objective, peers, record, runs, table
from benchmarks.corpus.problems import DATA, NAMES, RECIPES, TOY, Problem, Recipe, draw, load
from benchmarks.harness import Row

SMALL = {
    "squares": Recipe("squares", 40, 6, 4, 0.5, rank=2),
    "squares, weights and intercept": Recipe(
        "squares", 40, 6, 4, 0.5, rank=2, weights="mild", intercept=True
    ),
    "classes": Recipe("classes", 40, 5, 3, 0.5, rank=2),
    "classes, weights and intercept": Recipe(
        "classes", 40, 5, 3, 0.5, rank=2, weights="mild", intercept=True
    ),
}


def minimum(problem: Problem) -> float:
    """F* by a solver for cone programs."""
    W, b = cp.Variable(problem.objective.shape), cp.Variable((1, problem.m))
    S = problem.X @ W + (np.ones((len(problem.y), 1)) @ b if problem.intercept else 0.0)
    weights = np.ones(len(problem.y)) if problem.weights is None else problem.weights
    if problem.y.ndim == 2:
        F = 0.5 * cp.sum_squares(cp.multiply(np.sqrt(weights)[:, None], S - problem.y))
    else:
        own = np.eye(problem.m)[problem.y]
        F = weights @ (cp.log_sum_exp(S, axis=1) - cp.sum(cp.multiply(own, S), axis=1))
    program = cp.Problem(cp.Minimize(F), [cp.normNuc(W) <= problem.radius])
    return float(program.solve(solver=cp.CLARABEL))


@pytest.fixture(scope="module", params=list(SMALL))
def solved(request: pytest.FixtureRequest) -> tuple[Problem, float]:
    problem = draw(request.param, SMALL[request.param])
    return problem, minimum(problem)


# Problems


def test_problems_are_many_and_of_all_kinds() -> None:
    assert len(NAMES) == len(set(NAMES)) >= 45
    recipes = RECIPES.values()
    assert {recipe.task for recipe in recipes} == {"squares", "classes"}
    assert {recipe.dtype for recipe in recipes} == {np.float32, np.float64}
    assert {recipe.intercept for recipe in recipes} == {False, True}
    assert {recipe.weights for recipe in recipes} == {"", "mild", "extreme"}
    assert max(recipe.d * recipe.m for recipe in recipes) > 25_000_000
    assert min(recipe.n / recipe.d for recipe in recipes) < 0.1
    assert max(recipe.n / recipe.d for recipe in recipes) > 1000
    assert {"CLINC150", "UDHR counts", "UDHR tf-idf"} < set(DATA)


def test_a_recipe_gives_the_same_problem_each_time() -> None:
    name = "classes, sparse, intercept, float32"
    one, other = draw(name, RECIPES[name]), draw(name, RECIPES[name])
    assert sp.issparse(one.X)
    assert one.X.dtype == np.float32
    assert (one.X != other.X).nnz == 0
    np.testing.assert_array_equal(one.y, other.y)
    assert (one.radius, one.at_zero) == (other.radius, other.at_zero)


@pytest.mark.parametrize("features", ["gaussian", "columns 1e+04", "uncentred", "near low rank"])
def test_the_radius_is_the_planted_trace_norm(features: str) -> None:
    problem = draw("", Recipe("squares", 50, 8, 5, 2.0, X=features, y="exact"))
    W = np.linalg.lstsq(problem.X, problem.y)[0]
    np.testing.assert_allclose(np.linalg.norm(W, "nuc"), problem.radius / 2.0, rtol=1e-6)


def test_features_have_the_condition_that_they_are_named_after() -> None:
    problem = draw("", Recipe("squares", 50, 8, 5, 1.0, X="condition 1e+04"))
    assert np.linalg.cond(problem.X) == pytest.approx(1e4)
    problem = draw("", Recipe("squares", 50, 8, 5, 1.0, X="deficient"))
    assert np.linalg.matrix_rank(problem.X) == 4


def test_data_sets_that_are_not_here_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DFWTRACE_DATA", str(tmp_path))
    assert load("CLINC150") is None
    assert load("UDHR tf-idf") is None
    wine = load("wine")
    assert wine is not None
    assert wine.name == "wine"
    assert set(wine.y) == {0, 1, 2}


# The judge


@pytest.mark.parametrize("name", list(SMALL))
def test_gradients_are_those_of_differences(name: str) -> None:
    F = draw(name, SMALL[name]).objective
    rng = np.random.default_rng(1)
    W, b = rng.standard_normal(F.shape), rng.standard_normal(F.shape[1]) * F.intercept
    D, e = rng.standard_normal(F.shape), rng.standard_normal(F.shape[1]) * F.intercept
    _, G, g = F.evaluate(W, b)
    h = 1e-5
    difference = F.evaluate(W + h * D, b + h * e)[0] - F.evaluate(W - h * D, b - h * e)[0]
    assert np.vdot(G, D) + g @ e == pytest.approx(difference / (2.0 * h), rel=1e-6)


def test_the_gap_is_a_bound_and_counts_what_the_intercept_lacks(
    solved: tuple[Problem, float],
) -> None:
    problem, least = solved
    F, rng = problem.objective, np.random.default_rng(2)
    W = rng.standard_normal(F.shape)
    W *= problem.radius / np.linalg.norm(W, "nuc")
    scores = problem.X @ W
    b = rng.standard_normal(problem.m) if problem.intercept else None
    found = F.gap(scores, b, problem.radius)
    assert found.objective == F.evaluate(W, np.zeros(problem.m) if b is None else b)[0]
    assert least <= found.settled <= found.objective
    assert found.settled - found.bound <= least * (1.0 + 1e-6)
    if problem.intercept:
        assert found.settled < found.objective
        settled = F.settle(scores, np.zeros(problem.m))
        _, G, g = F.evaluate(W, settled)
        assert np.abs(g).max() < 1e-5 * np.abs(F.evaluate(W, np.zeros(problem.m))[2]).max()
        sigma = np.linalg.norm(G, 2)
        assert found.bound == pytest.approx(np.vdot(W, G) + problem.radius * sigma, rel=1e-5)


def test_the_intercept_is_the_best_one_for_extreme_weights() -> None:
    problem = load("weights 1e9 and 1e-5")
    assert problem is not None
    # p = w/Σw, and F = -Σ w log p.
    weights = problem.weights
    assert weights is not None
    exact = weights[1:] @ np.log(weights.sum() / weights[1:]) + weights[1:].sum()
    assert problem.at_zero == pytest.approx(exact, rel=1e-6)


def test_sigma_needs_no_large_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objective, "_LARGE", 0)
    rng = np.random.default_rng(0)
    X, R = sp.csr_array(rng.standard_normal((5, 30))), rng.standard_normal((5, 20))
    F = objective.Objective(X, np.zeros((5, 20)), 20, None, False)
    assert F.sigma(R) == pytest.approx(np.linalg.svd(X.T @ R, compute_uv=False)[0])


# The methods


@pytest.mark.parametrize("method", list(runs.METHODS))
def test_methods_find_the_minimum(method: str, solved: tuple[Problem, float]) -> None:
    problem, least = solved
    found = runs.METHODS[method](problem, 1e-4, 20.0, 5000)
    assert found.status == "optimal"
    assert found.gap <= 1e-4
    assert least - 1e-6 * problem.at_zero <= found.objective
    assert found.objective <= least + 1.01e-4 * problem.at_zero
    assert found.passes > 0
    assert found.seconds > 0.0
    assert 1 <= found.rank <= min(problem.objective.shape)


def test_answers_that_a_state_keeps_are_no_passes() -> None:
    problem = draw("", SMALL["classes"])
    found = methods.ours(problem, 1e-4, 20.0, 5000)
    assert found.detail["epochs"] <= found.passes < found.detail["rounds"]


@pytest.mark.parametrize("method", [peers.projected, peers.lbfgs])
def test_peers_end_at_the_limit_of_passes(method: methods.Method) -> None:
    problem = draw("", Recipe("squares", 60, 20, 5, 1.0, X="columns 1e+04"))
    found = method(problem, 1e-4, 20.0, 50)
    assert found.status == "max_passes"
    assert 50 <= found.passes < 100
    assert found.gap > 1e-4


def test_peers_end_in_time_and_refuse_what_is_too_large() -> None:
    problem = draw("", SMALL["squares"])
    assert peers.lbfgs(problem, 0.0, 0.0, 5000).status == "max_time"
    huge = draw("", Recipe("squares", 20, 6000, 5000, 0.1, X="sparse 0.001"))
    found = peers.projected(huge, 1e-4, 20.0, 5000)
    assert (found.status, found.passes) == ("too large", 0)


# Records, rows and the table


def outcome(problem: str, status: str, passes: int, gap: float, seconds: float) -> dict[str, Any]:
    known = {"sizes": {"n": 9, "d": 3, "m": 2}, "tol": 1e-4, "detail": {"epochs": 4.0}}
    numbers = {"passes": passes, "gap": gap, "checked": 0.5, "seconds": seconds, "rank": 2}
    return {"problem": problem, "status": status, **known, **numbers}


def test_a_row_compares_passes_and_a_gap_that_was_not_reached_counts() -> None:
    before = {"a": outcome("a", "optimal", 40, 9e-5, 1.0)}
    row = runs.row(outcome("a", "optimal", 20, 9e-5, 0.5), {"before": before})
    assert (row.ratio, row.target, row.met) == (0.5, 1.3, True)
    assert row.seconds == {"ours": 0.5, "before": 1.0}
    row = runs.row(outcome("a", "max_iter", 20, 1e-3, 0.5), {"before": before})
    assert row.ratio == pytest.approx(10.0 * 20 / 40)
    assert row.messages == ("max_iter",)
    row = runs.row(outcome("a", "wrong", 20, 0.0, 0.5), {"before": before})
    assert row.detail["ours: gap"] == 0.5
    assert row.met is False
    assert runs.row(outcome("b", "optimal", 20, 0.0, 0.5), {"before": before}).target is None


def test_the_table_tells_wins_and_losses(tmp_path: Path) -> None:
    before = {
        "a": outcome("a", "optimal", 40, 9e-5, 1.0),
        "b": outcome("b", "max_iter", 10, 1e-2, 1.0),
        "c": outcome("c", "optimal", 10, 1e-2, 0.5),
        "d": outcome("d", "stalled", 10, 1e-2, 0.5),
    }
    rows = [
        runs.row(record, {"before": before, "projected": {"a": {**before["a"], "passes": 5}}})
        for record in (
            outcome("a", "optimal", 20, 9e-5, 2.0),
            outcome("b", "optimal", 20, 9e-5, 0.5),
            outcome("c", "max_iter", 20, 1e-3, 0.5),
            outcome("d", "max_iter", 20, 1e-3, 0.5),
        )
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({**vars(row), "date": "2"}) + "\n" for row in rows))
    lines = table.markdown(path).splitlines()
    size = "9×3×2"
    assert lines[2:6] == [
        f"| a | {size} | 20 | 9.0e-05 | 2 | 2 | 0.5 | **2** | **4** | **2** |  |  |",
        f"| b | {size} | 20 | 9.0e-05 | 2 | 0.5 | < 2 | < 0.5 |  |  |  |  |",
        f"| c | {size} | 20 | **1.0e-03** | 2 | 0.5 | **not reached** | **not reached** "
        "|  |  |  |  |",
        f"| d | {size} | 20 | **1.0e-03** | 2 | 0.5 | neither | neither |  |  |  |  |",
    ]
    assert lines[9:11] == [
        "| before | 4 | 1 | 1 | 1 | 1 | 0.5 | 0.5 (a) | 1 | 0 | 2 | 2 (a) | 0 | 1 |",
        "| projected gradient | 1 | 1 | 0 | 0 | 0 | 4 | 4 (a) | 0 | 1 | 2 | 2 (a) | 0 | 1 |",
    ]
    assert lines[12:] == [
        "- Not certified, ours (2): c; d.",
        "- Not certified, before (2): b; d.",
    ]
    assert len({line.count("|") for line in lines[:6]}) == 1
    assert len({line.count("|") for line in lines[7:11]}) == 1


def test_records_are_added_and_the_last_one_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "records.jsonl"
    for _ in range(2):
        assert record.main([str(path), "--only", "^classes, rank one$"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2
    assert all(line.startswith("classes, rank one ") and "passes" in line for line in printed)
    first, last = map(json.loads, path.read_text("utf-8").splitlines())
    assert first["passes"] == last["passes"]  # it does not depend on the clock
    assert runs.read(path, "ours") == {"classes, rank one": last}
    assert runs.read(path, "lbfgs") == {}
    assert {"commit", "date", "cpu", "wall", "objective"} <= set(last)
    assert table.markdown(path).splitlines()[2].startswith("| classes, rank one | 1500×50×20 |")


def test_what_ours_is_compared_with_is_recorded() -> None:
    for side, records in runs.recorded().items():
        assert set(NAMES) <= set(records), side
        for name, recipe in RECIPES.items():
            sizes = {"n": recipe.n, "d": recipe.d, "m": recipe.m}
            assert records[name]["sizes"] == sizes, name
        for name in TOY:  # or it was of another problem
            problem = load(name)
            assert problem is not None
            assert records[name]["radius"] == pytest.approx(problem.radius, rel=1e-9)


def test_a_row_for_each_problem() -> None:
    rows = corpus.run("toy", 1)
    assert [row.case for row in rows] == list(TOY)
    for row in rows:
        assert isinstance(row, Row)
        assert (row.benchmark, row.target) == ("corpus", corpus.TARGET)
        assert row.detail["ours: certified"] == 1.0
        assert set(row.seconds) == {"ours", "before", "projected", "lbfgs"}
        assert row.ratio == row.detail["ours: passes"] / row.detail["before: passes"]
