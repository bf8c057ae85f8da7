"""`solve` with solver="accelerated": against Clarabel and closed forms, on hard problems."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.problems import FORMS, TASKS
from tests.truth import Case, bracketed, project_onto_ball, small_case, value_and_gradient

import dfwtrace as dt

Array = npt.NDArray[Any]


def solve(case: Case, **options: Any) -> dt.Result:
    return case.solve(**{"solver": "accelerated", **options})


def check(case: Case, result: dt.Result) -> None:
    """F* is within the certified gap, and W in the ball."""
    rounding = 1e-13 * result.objective_at_zero
    assert np.isfinite([result.objective, result.gap]).all()
    assert result.W.trace_norm <= case.radius * (1.0 + 1e-10)
    assert result.gap >= case.value(result.W) - case.upper - rounding
    assert case.value(result.W) >= case.lower - rounding
    assert result.status in {"optimal", "stalled"}
    assert f"{result.relative_gap:.2g}" in result.message


# Against the truth


@pytest.mark.parametrize("radius", [0.3, 2.0, 20.0])
@pytest.mark.parametrize(("name", "form"), FORMS)
def test_the_optimum_is_clarabels_to_the_certified_gap(name: str, form: str, radius: float) -> None:
    case = small_case(name, 2, radius)
    result = solve(case, representation=form, tol=1e-7, engine=dt.LocalEngine(3, n_jobs=1))
    check(case, result)
    assert result.status == "optimal"
    assert case.value(result.W) - case.lower <= result.gap + case.upper - case.lower
    assert result.relative_gap <= 1e-7


@settings(max_examples=18, deadline=None)
@given(
    name=st.sampled_from(list(TASKS)),
    seed=st.integers(0, 10**6),
    radius=st.floats(-2.0, 3.0).map(lambda power: 10.0**power),
    dtype=st.sampled_from(["float64", "float32"]),
    decay=st.sampled_from([0.0, 2.0, 6.0]),
    form=st.sampled_from(["auto", "implicit", "dense", "factored"]),
)
def test_no_certificate_is_below_the_truth(
    name: str, seed: int, radius: float, dtype: str, decay: float, form: str
) -> None:
    case = small_case(name, seed, radius, dtype, decay)
    if form == "dense" and name == "least squares":
        form = "gram"
    options: Any = {"solver": "accelerated", "representation": form, "tol": 1e-6, "max_iter": 150}
    result = case.check_gaps(**options)
    assert np.isfinite(result.history.column("gap")).all()


@settings(max_examples=15, deadline=None)
@given(
    d=st.integers(1, 60),
    m=st.integers(1, 60),
    seed=st.integers(0, 10**6),
    share=st.floats(-2.0, 0.5).map(lambda power: 10.0**power),
    form=st.sampled_from(["gram", "implicit", "factored"]),
)
def test_orthonormal_features_give_a_projection(
    d: int, m: int, seed: int, share: float, form: str
) -> None:
    """Large enough for certificates from products alone; the distance to the optimum is known."""
    rng = np.random.default_rng(seed)
    X = np.linalg.qr(rng.standard_normal((d + 5, d)))[0]
    Y = rng.standard_normal((d + 5, m))
    radius = share * float(np.linalg.norm(X.T @ Y, "nuc"))
    best = project_onto_ball(X.T @ Y, radius)
    optimum = value_and_gradient("least squares", X, Y, best)[0]
    case = Case("least squares", X, Y, radius, optimum, optimum)
    result = solve(case, representation=form, tol=1e-6)
    check(case, result)
    assert result.status == "optimal"
    distance = 0.5 * float(np.sum((result.W.to_dense() - best) ** 2))
    assert distance <= result.gap + 1e-12 * result.objective_at_zero


@pytest.mark.parametrize("name", TASKS)
def test_all_representations_agree(name: str) -> None:
    case = small_case(name, 7, 3.0)
    found = [
        solve(case, representation=form, tol=1e-9).W.to_dense()
        for form in ("auto", *TASKS[name].representations)
    ]
    sparse = solve(case._replace(X=sp.csr_array(case.X)), tol=1e-9).W.to_dense()
    for other in [*found[1:], sparse]:
        np.testing.assert_allclose(other, found[0], atol=1e-3 * np.abs(found[0]).max())
        values = [value_and_gradient(name, case.X, case.y, W)[0] for W in (other, found[0])]
        assert values[0] == pytest.approx(values[1], rel=1e-8)


# Hard and odd problems


@pytest.mark.parametrize("form", dt.LeastSquares.representations)
def test_an_idle_constraint_gives_least_squares(form: str) -> None:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((60, 7))
    Y = X @ rng.standard_normal((7, 4)) + rng.standard_normal((60, 4))
    W = np.linalg.lstsq(X, Y, rcond=None)[0]
    optimum = value_and_gradient("least squares", X, Y, W)[0]
    for times in (1.01, 10.0, 100.0):
        radius = times * float(np.linalg.norm(W, "nuc"))
        case = Case("least squares", X, Y, radius, optimum, optimum)
        result = solve(case, representation=form, tol=1e-5)
        check(case, result)
        assert result.status == "optimal"
        np.testing.assert_allclose(result.W.to_dense(), W, atol=1e-2 / times)


def test_an_idle_constraint_in_multinomial_classes_that_overlap() -> None:
    """Trimming once dropped factors that mattered here, again and again."""
    rng = np.random.default_rng(0)
    for radius in (100.0, 3000.0):
        case = bracketed(
            "multinomial", rng.standard_normal((30, 6)), rng.integers(0, 4, size=30), radius
        )
        result = solve(case, tol=1e-5)
        check(case, result)
        assert result.status == "optimal"
        assert len(result.history) < 300


@pytest.mark.parametrize("name", TASKS)
def test_a_tiny_radius_gives_the_top_pair(name: str) -> None:
    case = small_case(name, 3, 1e-4)
    result = solve(case, tol=1e-9)
    check(case, result)
    assert (result.status, result.W.rank) == ("optimal", 1)
    G = value_and_gradient(name, case.X, case.y, result.W.to_dense())[1]
    U, _, Vt = np.linalg.svd(G)
    np.testing.assert_allclose(
        result.W.to_dense(), -1e-4 * np.outer(U[:, 0], Vt[0]), atol=1e-3 * 1e-4
    )


@cache
def rank_deficient(name: str, radius: float) -> Case:
    """Fewer rows than columns, columns of zeros, and columns that occur twice."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((8, 5))
    X = np.hstack([X, X[:, :3], np.zeros((8, 4))])
    y = rng.standard_normal((8, 4)) if name == "least squares" else np.arange(8) % 4
    return bracketed(name, X, y, radius)


@pytest.mark.parametrize("radius", [0.5, 5.0, 500.0])
@pytest.mark.parametrize(("name", "form"), FORMS)
def test_features_without_full_rank(name: str, form: str, radius: float) -> None:
    case = rank_deficient(name, radius)
    result = solve(case, representation=form, tol=1e-5)
    check(case, result)
    assert result.status == "optimal"
    np.testing.assert_allclose(result.W.to_dense()[8:], 0.0, atol=1e-9 * radius)


@pytest.mark.parametrize("radius", [1.0, 30.0])
@pytest.mark.parametrize(("name", "form"), FORMS)
def test_badly_scaled_features_converge_or_say_why_not(name: str, form: str, radius: float) -> None:
    case = small_case(name, 4, radius, decay=6.0)
    result = solve(case, representation=form, tol=1e-4)
    check(case, result)
    assert result.status == "optimal"
    check(case, solve(case, representation=form, tol=1e-12, engine=dt.LocalEngine(8, n_jobs=1)))


@pytest.mark.parametrize("radius", [3.0, 30.0, 1e3, 1e5])
def test_separable_classes(radius: float) -> None:
    """F* tends to 0 with the radius, and W wants to be as large as it may."""
    rng = np.random.default_rng(6)
    y = np.arange(30) % 3
    X = 3.0 * np.eye(3)[y] @ rng.standard_normal((3, 8)) + 0.1 * rng.standard_normal((30, 8))
    case = Case("multinomial", X, y, radius, 0.0, np.inf)
    result = solve(case, tol=1e-5)
    assert result.status == "optimal"
    assert result.objective - result.gap >= -1e-5 * result.objective_at_zero
    assert np.array_equal(np.argmax(X @ result.W, axis=1), y)


@pytest.mark.parametrize("form", dt.LeastSquares.representations)
def test_zero_targets_and_zero_features_are_optimal_at_zero(form: str) -> None:
    X, Y = np.random.default_rng(0).standard_normal((2, 20, 5))
    for features, targets in ((X, 0.0 * Y), (0.0 * X, Y), (0.0 * X, 0.0 * Y)):
        case = Case("least squares", features, targets, 3.0, 0.0, np.inf)
        result = solve(case, representation=form)
        assert (result.status, result.W.rank) == ("optimal", 0)
        assert result.gap <= 1e-12 * result.objective_at_zero


@pytest.mark.parametrize("form", dt.LeastSquares.representations)
@pytest.mark.parametrize("radius", [6.0, 60.0])
def test_a_start_away_from_zero_where_zero_is_optimal(form: str, radius: float) -> None:
    eye = np.eye(6)
    case = Case("least squares", eye, np.zeros((6, 6)), radius, 0.0, 0.0)
    result = solve(case, representation=form, start=dt.LowRankMatrix(eye, np.ones(6), eye))
    # F(0) = 0, which a tolerance is relative to: only what is zero exactly is within it.
    assert result.status in {"optimal", "stalled"}
    assert result.objective <= 1e-20
    assert result.gap <= 1e-8


@pytest.mark.parametrize("form", dt.LeastSquares.representations)
def test_a_gradient_of_exact_rank_one(form: str) -> None:
    """What is cut off has no direction at all: nothing may be divided by its length."""
    target = np.zeros((6, 6))
    target[0, 0] = 5.0
    case = Case("least squares", np.eye(6), target, 1.0, 8.0, 8.0)
    result = solve(case, representation=form, tol=1e-9)
    check(case, result)
    assert (result.status, result.W.rank) == ("optimal", 1)
    assert solve(case, representation=form, radius=10.0, tol=1e-6).status == "optimal"


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_float32_says_what_it_has_reached(name: str, form: str) -> None:
    for seed, radius in ((2, 2.0), (3, 500.0)):
        case = small_case(name, seed, radius, "float32")
        result = solve(case, representation=form, tol=1e-13, engine=dt.LocalEngine(8, n_jobs=1))
        check(case, result)
        for column in ("objective", "gap_estimate", "sigma", "gamma"):
            assert np.isfinite(result.history.column(column)).all()
        if result.status == "stalled":
            assert "allowance for rounding" in result.message
            assert "float64" in result.message


# Starts, limits, interruption, refusals


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_warm_starts_end_at_the_same_optimum(name: str, form: str) -> None:
    case = small_case(name, 2, 2.0)
    d, m = (
        dt.plan(case.task, case.X, case.y).workload.d,
        dt.plan(case.task, case.X, case.y).workload.m,
    )
    U, s, Vt = np.linalg.svd(np.random.default_rng(1).standard_normal((d, m)), full_matrices=False)
    for share in (0.5, 1.0):  # of full rank, inside and on the boundary
        start = dt.LowRankMatrix(U, share * 2.0 * s / s.sum(), Vt.T)
        result = solve(case, representation=form, tol=1e-7, start=start)
        check(case, result)
        assert result.status == "optimal"


@pytest.mark.parametrize("radius", [0.3, 2.0, 200.0])
@pytest.mark.parametrize(("name", "form"), FORMS)
def test_the_solution_is_a_start_that_needs_hardly_a_step(
    name: str, form: str, radius: float
) -> None:
    case = small_case(name, 2, radius)
    first = solve(case, representation=form, tol=1e-5)
    again = solve(case, representation=form, tol=1e-5, start=first.W)
    assert first.status == again.status == "optimal"
    assert again.objective <= first.objective * (1.0 + 1e-12)
    assert len(again.history) <= max(3, len(first.history) // 2)
    still: Any = {"solver": "dfw", "step": 0.0, "max_iter": 1}
    there = solve(case, representation=form, tol=1e-5, start=first.W, **still)
    assert there.objective == pytest.approx(first.objective, rel=1e-9)
    assert there.status == "optimal"


def test_a_callback_sees_every_iterate_and_adds_to_the_history() -> None:
    case = small_case("least squares", 2, 2.0)
    seen: list[tuple[dt.LowRankMatrix, float]] = []

    def callback(W: dt.LowRankMatrix, record: dict[str, Any]) -> dict[str, Any]:
        seen.append((W, record["objective"]))
        return {"norm": W.trace_norm}

    result = solve(case, tol=1e-8, callback=callback)
    assert len(seen) == len(result.history)
    for W, objective in seen:  # later steps leave earlier iterates alone
        assert case.value(W) == pytest.approx(objective, rel=1e-12)
    assert np.all(result.history.column("norm") <= 2.0 * (1.0 + 1e-10))


def test_a_tolerance_is_the_default() -> None:
    case = small_case("multinomial", 2, 2.0)
    result = solve(case)
    assert result.status == "optimal"
    assert result.relative_gap <= 1e-4
    check(case, result)
