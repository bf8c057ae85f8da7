"""The best intercept for the W where the shards are, found in rounds of a few numbers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from tests.problems import TASKS, make_problem
from tests.truth import value_and_gradients

import dfwtrace as dt
from dfwtrace import LowRankMatrix
from dfwtrace.engines import LocalEngine
from dfwtrace.solvers.intercept import Intercept
from dfwtrace.solvers.problem import Problem

N, D, M = 40, 5, 4
SCORES = ["implicit", "dense", "factored"]
FORMS = [(name, form) for name in TASKS for form in SCORES]

rng = np.random.default_rng(0)
X = rng.standard_normal((N, D)) + 3.0
TARGETS: dict[str, Any] = {
    "least squares": rng.standard_normal((N, M)) + 5.0,
    "multinomial": np.concatenate([np.arange(M), rng.choice(M, N - M, p=[0.7, 0.1, 0.1, 0.1])]),
}
W = LowRankMatrix(rng.standard_normal((D, 2)), [0.5, 0.2], rng.standard_normal((M, 2)))
FAR = LowRankMatrix(rng.standard_normal((D, 2)), [3.0, 1.0], rng.standard_normal((M, 2)))

Build = Callable[..., tuple[Problem, Intercept]]


@pytest.fixture
def build(problem_of: Callable[..., Problem]) -> Build:
    def build(name: str, form: str = "implicit") -> tuple[Problem, Intercept]:
        problem = problem_of(name, X, TARGETS[name], representation=form, intercept=True)
        assert problem.intercept is not None
        np.testing.assert_allclose(problem.intercept.centre, X.mean(axis=0), rtol=1e-14)
        return problem, problem.intercept

    return build


def plain(name: str, at: LowRankMatrix, b: Any) -> tuple[float, float, Any]:
    """F, ⟨W, ∇F⟩ and the gradient in b, of centred features."""
    W = at.to_dense()
    F, G, of_b = value_and_gradients(name, X - X.mean(axis=0), TARGETS[name], W, b)
    return F, float(np.vdot(W, G)), of_b


def methods_of(problem: Problem, act: Callable[[], None]) -> list[str]:
    """The rounds that it takes."""
    before = len(problem.workers.rounds)
    act()
    return [made.method for made in problem.workers.rounds[before:]]


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_b_is_where_its_gradient_vanishes_and_stays_there(
    build: Build, name: str, form: str
) -> None:
    problem, intercept = build(name, form)
    for at in (LowRankMatrix.zeros((D, M)), W, FAR, W):
        problem.restart(at)
        value, inner, gradient = plain(name, at, intercept.b)
        np.testing.assert_allclose(gradient, 0.0, atol=1e-5)
        assert intercept.objective == pytest.approx(value, rel=1e-12)
        assert intercept.inner == pytest.approx(inner, rel=1e-9, abs=1e-9)
    b = intercept.b.copy()
    assert methods_of(problem, intercept.settle) == ["balance"]
    np.testing.assert_array_equal(intercept.b, b)


def test_the_mean_is_best_for_least_squares_in_one_step(build: Build) -> None:
    problem, intercept = build("least squares")
    for at in (W, FAR):
        methods = methods_of(problem, lambda at=at: problem.restart(at))  # type: ignore[misc]
        np.testing.assert_allclose(intercept.b, TARGETS["least squares"].mean(axis=0), atol=1e-12)
        assert methods.count("shift") <= 1


@pytest.mark.parametrize("form", SCORES)
def test_a_b_nearby_takes_few_rounds(build: Build, form: str) -> None:
    problem, _ = build("multinomial", form)
    problem.restart(W)
    nearby = LowRankMatrix(W.U, 1.001 * W.s, W.V)
    assert methods_of(problem, lambda: problem.restart(nearby)).count("shift") <= 8


@pytest.mark.parametrize("far", [-30.0, 30.0])
def test_a_start_far_from_the_best_is_left(build: Build, far: float) -> None:
    problem, intercept = build("multinomial")
    intercept.b = np.array([far, -far, 0.0, far])
    problem.restart(W)
    np.testing.assert_allclose(plain("multinomial", W, intercept.b)[2], 0.0, atol=1e-5)


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_a_run_that_goes_on_takes_the_same_steps(build: Build, name: str, form: str) -> None:
    (problem, first), (other, second) = build(name, form), build(name, form)
    problem.restart(W)
    first.leave_zero()
    second.restore(first.memory())
    assert (second.objective, second.inner) == (first.objective, first.inner)
    here, there = (methods_of(one, lambda p=one: p.restart(FAR)) for one in (problem, other))  # type: ignore[misc]
    np.testing.assert_array_equal(second.b, first.b)
    assert here == there


def test_numbers_that_are_not_finite_are_named(build: Build) -> None:
    problem, intercept = build("least squares")
    intercept.b = np.full(M, 1e200)
    with (
        np.errstate(over="ignore"),
        pytest.raises(ArithmeticError, match="objective or its gradient is not"),
    ):
        problem.restart(W)


# Exactly, for a certificate


def certified(problem: Problem, at: LowRankMatrix) -> float:
    """What the intercept adds to the gap, after it is settled exactly."""
    assert problem.intercept is not None
    problem.restart(at)
    return problem.intercept.certify(problem.radius)


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_what_is_left_of_an_exact_intercept_is_next_to_nothing(
    build: Build, name: str, form: str
) -> None:
    problem, intercept = build(name, form)
    intercept.leave_zero()
    for at in (LowRankMatrix.zeros((D, M)), W, FAR):
        excess = certified(problem, at)
        value, inner, gradient = plain(name, at, intercept.b)
        assert 0.0 <= excess <= 1e-10 * value
        np.testing.assert_allclose(gradient, 0.0, atol=1e-12 * value)
        assert intercept.objective == pytest.approx(value, rel=1e-12)
        assert intercept.inner == pytest.approx(inner, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_what_an_intercept_adds_is_the_same_on_one_shard_and_on_three(name: str, form: str) -> None:
    b = np.linspace(0.0, 0.5, M)  # not the best
    replies = []
    for shards in (1, 3):
        engine = LocalEngine(n_shards=shards, n_jobs=1)
        with closing(
            make_problem(name, X, TARGETS[name], representation=form, intercept=True, engine=engine)
        ) as problem:
            problem.restart(W)
            loss = problem.task.loss_on_scores  # type: ignore[attr-defined]
            sums = problem.workers.sum("imbalance", b)
            change = loss.correction(sums, M).change
            replies.append((sums, problem.workers.sum("excess", b, change, np.full(D, 2.0))))
    for one, three in zip(*replies, strict=True):
        np.testing.assert_allclose(three, one, rtol=1e-12, atol=1e-12 * np.abs(one).max())


@pytest.mark.parametrize("form", SCORES)
@pytest.mark.parametrize("name", TASKS)
def test_what_an_intercept_adds_in_plain_numpy(build: Build, name: str, form: str) -> None:
    """⟨S, R'⟩ + Σ D_i less what is there without Δ, and the lengths of rows in units of a scale."""
    problem, _ = build(name, form)
    problem.restart(W)
    b, scale = np.linspace(0.0, 0.5, M), np.linspace(0.5, 2.0, D)
    loss = problem.task.loss_on_scores  # type: ignore[attr-defined]
    change = loss.correction(problem.workers.sum("imbalance", b), M).change
    reply = problem.workers.sum("excess", b, change, scale)
    A, y = X - X.mean(axis=0), TARGETS[name]
    S = A @ W.to_dense()
    costs, delta = loss.excess(S + b, y, np.ones(N), change)
    of_b = plain(name, W, b)[2]
    np.testing.assert_allclose(delta.sum(axis=0), -of_b, atol=1e-10)
    lengths = np.linalg.norm(A / scale, axis=1) @ np.linalg.norm(delta, axis=1)
    wanted = [costs.sum(), np.vdot(S, delta), lengths]
    np.testing.assert_allclose(reply, wanted, rtol=1e-9, atol=1e-12 * lengths)


@pytest.mark.parametrize("n_rows", [(1e9, 1e-5, 1e-5), (1e9, 1e-5, 0.0), (1e-8, 1e8, 1.0)])
def test_classes_of_any_weight_get_their_probability(n_rows: tuple[float, ...]) -> None:
    weights = np.array(n_rows)
    result = dt.solve(
        dt.Multinomial(n_classes=3),
        np.zeros((3, 2)),
        np.arange(3),
        radius=1.0,
        sample_weight=weights,
        fit_intercept=True,
    )
    # Σ w_c log(Σ w / w_c), with the digits of what the large one leaves to the others.
    some = [(w, np.delete(weights, c).sum()) for c, w in enumerate(weights) if w > 0.0]
    least = float(sum(w * np.log1p(others / w) for w, others in some))
    assert result.status == "optimal"
    assert result.objective == pytest.approx(least, rel=1e-9)
    assert result.gap <= 1e-9 * least


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("solver", ["dfw", "accelerated"])
def test_float32_takes_no_more_rounds_to_settle(name: str, solver: str) -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((100, 50)).astype(np.float32)
    Y = (rows[:, :5] + rng.standard_normal((100, 5)) + 100.0).astype(np.float32)
    y: Any = Y if name == "least squares" else Y.argmax(axis=1)
    result = dt.solve(
        TASKS[name],
        rows,
        y,
        radius=100.0,
        fit_intercept=True,
        solver=solver,
        max_iter=20,
        representation="implicit",
    )
    moves = [made for made in result.rounds if made["method"] in ("update", "stats")]
    settling = [made for made in result.rounds if made["method"] in ("balance", "imbalance")]
    assert len(settling) <= 15 * len(moves)


def test_scores_so_large_that_probabilities_vanish(build: Build) -> None:
    """b far from its best: F is linear in it as far as float64 sees."""
    problem, intercept = build("multinomial")
    intercept.leave_zero()
    for far in (1e3, 1e5):
        intercept.b = np.array([far, -far, 0.0, far])
        excess = certified(problem, LowRankMatrix(W.U, 100.0 * W.s, W.V))
        assert excess <= 1e-9 * intercept.objective
