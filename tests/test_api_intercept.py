"""An intercept that no constraint holds back, against centring, NumPy, SciPy and Clarabel."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from benchmarks.first_try_data import text
from tests.problems import ENGINE, FORMS
from tests.truth import (
    Case,
    best_intercept,
    bracket,
    check_balance,
    row_losses,
    value_and_gradients,
)

import dfwtrace as dt
from dfwtrace.engines import local

TASKS: dict[str, dt.ScoresTask] = {
    "least squares": dt.LeastSquares(),
    "multinomial": dt.Multinomial(n_classes=4),
}
SCORES = ["implicit", "dense", "factored"]
ALTERNATING = [
    (*form, solver) for form, solver in zip(FORMS, 4 * ["dfw", "accelerated"], strict=False)
]


@pytest.fixture(scope="module")
def data(multitask: tuple[Any, Any]) -> dict[str, tuple[Any, Any]]:
    """Features and targets far from zero, so that an intercept matters; every class occurs."""
    X, y, _ = dt.datasets.make_multiclass(n=60, d=7, m=4, rank=3, random_state=0)
    y[(y == 3) & (np.arange(60) % 3 > 0)] = 1
    return {
        "least squares": (multitask[0] + 0.5, multitask[1] + np.arange(5.0)),
        "multinomial": (X + 0.5, y),
    }


def solve(task: Any, X: Any, y: Any, **options: Any) -> dt.Result:
    """With an intercept, by default."""
    call = {"radius": 2.0, "fit_intercept": True, "solver": "dfw", "engine": ENGINE, **options}
    return dt.solve(TASKS[task] if isinstance(task, str) else task, X, y, **call)


# Least squares: centring


@pytest.mark.parametrize("form", dt.LeastSquares.representations)
@pytest.mark.parametrize(("solver", "weighted"), [("dfw", True), ("accelerated", False)])
def test_least_squares_is_that_of_centred_rows(
    form: str, solver: str, weighted: bool, multitask: tuple[Any, Any]
) -> None:
    rng = np.random.default_rng(0)
    X, Y = multitask[0] + 1e3 * rng.choice([-1, 1], 7), multitask[1] + rng.normal(0, 1e3, 5)
    weights = rng.uniform(0.5, 2.0, 60) if weighted else None
    x_mean, y_mean = np.average(X, 0, weights), np.average(Y, 0, weights)
    options: Any = {"radius": 1.0, "solver": solver, "representation": form}
    options |= {"sample_weight": weights}
    options |= {"lmo": "naive", "max_iter": 12} if solver == "dfw" else {"tol": 1e-6}
    free = solve("least squares", X, Y, **options)
    centred = solve("least squares", X - x_mean, Y - y_mean, fit_intercept=False, **options)
    scale = centred.objective_at_zero
    assert free.objective_at_zero == pytest.approx(scale, rel=1e-9)
    if solver == "dfw":
        np.testing.assert_allclose(free.W.to_dense(), centred.W.to_dense(), atol=1e-7)
        assert free.objective == pytest.approx(centred.objective, rel=1e-7)
        assert free.gap == pytest.approx(centred.gap, rel=1e-4)
    else:
        assert free.status == centred.status == "optimal"
        assert abs(free.objective - centred.objective) <= max(free.gap, centred.gap)
    W = free.W.to_dense()
    np.testing.assert_allclose(free.intercept, y_mean - x_mean @ W, atol=1e-6)
    F = value_and_gradients("least squares", X, Y, W, free.intercept, weights)[0]
    assert free.objective == pytest.approx(F, rel=1e-7)


@pytest.mark.parametrize(
    ("name", "form", "dtype"),
    [(*form, dtype) for form, dtype in zip(FORMS, 4 * [np.float32, np.float64], strict=False)],
)
def test_sparse_features_stay_so_and_give_the_same(
    name: str, form: str, dtype: Any, data: dict[str, Any]
) -> None:
    X, y = data[name][0].astype(dtype), data[name][1]
    X[np.random.default_rng(0).random(X.shape) < 0.6] = 0.0
    options: Any = {"lmo": "naive", "max_iter": 6, "representation": form}
    dense, sparse = (solve(name, A, y, **options) for A in (X, sp.csr_array(X)))
    atol = 1e-3 if dtype is np.float32 else 1e-7
    np.testing.assert_allclose(sparse.W.to_dense(), dense.W.to_dense(), atol=atol)
    np.testing.assert_allclose(sparse.intercept, dense.intercept, atol=atol)
    assert sparse.objective == pytest.approx(dense.objective, rel=atol)


# The best b


@pytest.mark.parametrize(("name", "form"), FORMS)
@pytest.mark.parametrize(("solver", "weighted"), [("dfw", True), ("accelerated", False)])
def test_no_other_intercept_is_better(
    name: str, form: str, solver: str, weighted: bool, data: dict[str, Any]
) -> None:
    X, y = data[name]
    weights = np.random.default_rng(1).integers(0, 4, len(X)) if weighted else None
    result = solve(
        name, X, y, sample_weight=weights, solver=solver, max_iter=30, representation=form
    )
    check_balance(name, X, y, result, weights)


@pytest.mark.parametrize(
    ("lmo", "step"),
    [
        ("power-1", "linesearch"),
        ("power-log", "harmonic"),
        ("lanczos", "linesearch"),
        ("sva", "harmonic"),
    ],
)
@pytest.mark.parametrize("name", TASKS)
def test_every_oracle_and_step_takes_an_intercept(
    name: str, lmo: str, step: str, data: dict[str, Any]
) -> None:
    options: Any = {"lmo": lmo, "step": step, "max_iter": 15}
    result = solve(name, *data[name], **options)
    check_balance(name, *data[name], result)
    if step == "linesearch":
        objectives = [result.objective_at_zero, *result.history.column("objective")]
        assert np.all(np.diff(objectives) <= 1e-9 * objectives[0])


def test_the_gram_form_has_no_intercept_for_shards_that_look_for_themselves(
    data: dict[str, Any],
) -> None:
    options: Any = {"lmo": "sva", "max_iter": 2}
    result = solve("least squares", *data["least squares"], **options)
    assert result.plan.representation != "gram"
    with pytest.raises(ValueError, match=r"^representation must be one of implicit, .*'gram'"):
        solve("least squares", *data["least squares"], representation="gram", **options)


# The truth


@cache
def case(name: str, seed: int, radius: float) -> Case:
    rng = np.random.default_rng(seed)
    n, d, m = 30, 4, 4
    X = rng.standard_normal((n, d)) + rng.standard_normal(d)
    y: Any = np.concatenate([np.arange(m), rng.choice(m, n - m, p=[0.6, 0.2, 0.1, 0.1])])
    if name == "least squares":
        y = X @ rng.standard_normal((d, m)) + rng.standard_normal((n, m)) + 3.0
    lower, upper = bracket(name, X, y, m, radius, intercept=True)
    assert lower <= upper <= lower + 1e-5 * abs(upper)
    return Case(name, X, y, radius, lower, upper)


@pytest.mark.parametrize(("name", "form"), FORMS)
@pytest.mark.parametrize(("seed", "radius"), [(1, 0.3), (2, 3.0)])
def test_the_certificate_is_never_below_the_truth(
    name: str, form: str, seed: int, radius: float
) -> None:
    problem = case(name, seed, radius)
    X, y = problem.X, problem.y
    values: list[float] = []

    def note(W: dt.LowRankMatrix, record: Any) -> None:
        dense = W.to_dense()
        b = best_intercept(name, X, y, dense)
        values.append(value_and_gradients(name, X, y, dense, b)[0])

    result = solve(
        name,
        X,
        y,
        radius=radius,
        lmo="naive",
        max_iter=6,
        certify_every=1,
        representation=form,
        callback=note,
    )
    rounding = 1e-12 * result.objective_at_zero
    assert np.all(result.history.column("gap") >= np.array(values) - problem.upper - rounding)
    assert np.all(np.array(values) >= problem.lower - rounding)
    np.testing.assert_allclose(result.history.column("objective"), values, rtol=1e-9)


@pytest.mark.parametrize(("name", "form"), FORMS)
@pytest.mark.parametrize(("seed", "radius"), [(1, 0.3), (2, 3.0)])
def test_the_optimum_is_found_and_certified(name: str, form: str, seed: int, radius: float) -> None:
    problem = case(name, seed, radius)
    result = solve(
        name,
        problem.X,
        problem.y,
        radius=radius,
        solver="accelerated",
        tol=1e-6,
        representation=form,
    )
    assert result.status == "optimal"
    assert result.W.trace_norm <= radius * (1.0 + 1e-9)
    excess = result.objective - problem.lower
    assert -1e-12 * result.objective_at_zero <= excess
    assert excess <= result.gap + (problem.upper - problem.lower)
    assert result.gap >= result.objective - problem.upper


# What an intercept makes no matter of


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_a_constant_added_to_the_features_changes_nothing(
    name: str, form: str, data: dict[str, Any]
) -> None:
    X, y = data[name]
    shift = np.random.default_rng(0).normal(0, 30, X.shape[1])
    options: Any = {"lmo": "naive", "max_iter": 6, "representation": form}
    one, other = (solve(name, A, y, **options) for A in (X, X + shift))
    np.testing.assert_allclose(other.W.to_dense(), one.W.to_dense(), atol=1e-7)
    assert other.objective == pytest.approx(one.objective, rel=1e-9)
    assert other.gap == pytest.approx(one.gap, rel=1e-5)
    assert one.intercept is not None
    expected = one.intercept - shift @ one.W.to_dense()
    np.testing.assert_allclose(other.intercept, expected, atol=1e-4)


# Edges


@pytest.mark.parametrize(("name", "form", "solver"), ALTERNATING)
def test_targets_that_have_nothing_to_do_with_the_features_give_zero(
    name: str, form: str, solver: str
) -> None:
    rng = np.random.default_rng(0)
    X = np.repeat(rng.standard_normal((8, 3)), 6, axis=0)
    if name == "least squares":
        y: Any = np.tile(rng.standard_normal((6, 4)), (8, 1))
        b = y.mean(axis=0)
    else:
        y = np.tile([0, 0, 0, 1, 2, 3], 8)
        b = np.log([3.0, 1.0, 1.0, 1.0])
    options: Any = {"radius": 5.0, "solver": solver, "representation": form, "tol": 1e-9}
    result = solve(name, X, y, **options)
    assert result.status == "optimal"
    assert result.objective == pytest.approx(result.objective_at_zero, rel=1e-12)
    np.testing.assert_allclose(result.W.to_dense(), 0.0, atol=1e-5)
    assert result.intercept is not None
    offset = 0.0 if name == "least squares" else result.intercept.mean() - b.mean()
    np.testing.assert_allclose(result.intercept - offset, b, atol=1e-5)


@pytest.mark.parametrize("form", SCORES)
@pytest.mark.parametrize("solver", ["dfw", "accelerated"])
def test_two_classes(form: str, solver: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 3)) + 2.0
    y = (X @ [1.0, -1.0, 0.5] + rng.logistic(size=50) > 2.0).astype(int)
    options: Any = {"radius": 1.0, "solver": solver, "representation": form, "tol": 1e-4}
    result = solve(dt.Multinomial(), X, y, max_iter=2000, **options)
    assert result.status == "optimal"
    check_balance("multinomial", X, y, result)
    assert result.intercept is not None
    assert result.intercept.sum() == pytest.approx(0.0, abs=1e-6)  # nothing moves both of them


@pytest.mark.parametrize("form", ["implicit", "factored"])
@pytest.mark.parametrize("solver", ["dfw", "accelerated"])
@pytest.mark.parametrize("radius", [1.0, 1e3])
def test_separable_classes(form: str, solver: str, radius: float) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(40) % 3
    X = 10.0 * np.eye(3)[y] + rng.uniform(-1, 1, (40, 3)) + 5.0
    options: Any = {"radius": radius, "solver": solver, "representation": form}
    result = solve(dt.Multinomial(), X, y, max_iter=10, **options)
    assert result.intercept is not None
    scores = X @ result.W.to_dense() + result.intercept
    np.testing.assert_array_equal(scores.argmax(axis=1), y)
    F = value_and_gradients("multinomial", X, y, result.W.to_dense(), result.intercept)[0]
    assert result.objective == pytest.approx(F, rel=1e-6, abs=1e-12)
    assert result.gap >= 0.0


@pytest.mark.parametrize(("form", "radius"), [("implicit", 1e4), ("factored", 1e3)])
def test_the_intercept_is_the_best_however_large_the_scores(form: str, radius: float) -> None:
    """Where all probabilities are 0 or 1, F is nearly linear in b: its changes show no curvature.

    A step of the paper's goes there, whatever it makes of F, and so does a large radius.
    """
    X, y, _ = dt.datasets.make_multiclass(n=60, d=7, m=4, rank=3, random_state=0)
    options: Any = {"radius": radius, "fit_intercept": True, "representation": form}
    options |= {"engine": dt.LocalEngine(n_shards=1)}
    for epochs in (1, 5):
        result = solve(
            dt.Multinomial(), X, y, lmo="naive", step="harmonic", max_iter=epochs, **options
        )
        check_balance("multinomial", X, y, result)
    result = solve(dt.Multinomial(), X, y, solver="accelerated", max_iter=200, **options)
    assert result.status == "optimal"
    assert result.objective < 0.1 * result.objective_at_zero


@pytest.mark.parametrize("radius", [100.0, 300.0])
def test_scores_that_hide_F_in_their_rounding_take_few_shifts_of_the_intercept(
    radius: float,
) -> None:
    """The rows' losses are differences of scores that are a thousand times as large."""
    X, y, _ = dt.datasets.make_multiclass(n=400, d=20, m=12, rank=6, random_state=0)
    options: Any = {"radius": radius, "solver": "accelerated", "max_iter": 15}
    options |= {"representation": "implicit", "engine": dt.LocalEngine(n_shards=1)}
    result = solve(dt.Multinomial(12), X.astype(np.float32), y, **options)
    shifts = [made["method"] for made in result.rounds].count("shift")
    assert shifts <= 25 * (1 + len(result.history))
    W, b = result.W.to_dense(), result.intercept
    _, _, gradient = value_and_gradients("multinomial", X, y, W, b)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-2)


@pytest.mark.parametrize(
    ("form", "solver", "dtype"),
    [
        ("implicit", "dfw", np.float32),
        ("implicit", "accelerated", np.float64),
        ("factored", "dfw", np.float64),
        ("factored", "accelerated", np.float32),
    ],
)
def test_a_class_that_no_row_has_sends_no_intercept_far_away(
    form: str, solver: str, dtype: Any
) -> None:
    """Its best intercept is -∞, but exp(-100) is as good as that."""
    X, y, _ = dt.datasets.make_multiclass(n=60, d=7, m=4, rank=3, random_state=1)
    assert 2 not in y
    options: Any = {"radius": 4.0, "solver": solver, "representation": form, "max_iter": 8}
    result = solve(dt.Multinomial(4), X.astype(dtype), y, **options)
    assert result.intercept is not None
    assert np.abs(result.intercept).max() < 1e3
    shifts = [made["method"] for made in result.rounds].count("shift")
    assert shifts <= 25 * (1 + len(result.history))
    F, _, gradient = value_and_gradients("multinomial", X, y, result.W.to_dense(), result.intercept)
    assert result.objective == pytest.approx(F, rel=1e-5 if dtype is np.float32 else 1e-9)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-2 if dtype is np.float32 else 1e-4)


# Rounds, bits, starts and interruptions


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_without_an_intercept_there_is_none_and_records_are_the_same(
    name: str, form: str, data: dict[str, Any]
) -> None:
    options: Any = {"max_iter": 3, "representation": form}
    seen: list[set[str]] = []
    without, with_one = (
        solve(
            name,
            *data[name],
            fit_intercept=intercept,
            callback=lambda W, record: seen.append(set(record)),
            **options,
        )
        for intercept in (False, True)
    )
    assert without.intercept is None
    assert with_one.intercept is not None
    assert with_one.intercept.dtype == np.float64
    assert list(without.history[0]) == list(with_one.history[0])
    assert len({frozenset(columns) for columns in seen}) == 1


@pytest.mark.parametrize("form", SCORES)
@pytest.mark.parametrize("name", TASKS)
def test_the_rounds_of_an_intercept_are_counted(name: str, form: str, data: dict[str, Any]) -> None:
    X, y = data[name]
    result = solve(name, X, y, max_iter=4, representation=form)
    m = result.W.shape[1]
    of = {
        method: [made for made in result.rounds if made["method"] == method]
        for method in ("shift", "balance", "first_moments", "stats")
    }
    assert {made["numbers_sent"] for made in of["shift"]} == {3 * m}
    assert {made["numbers_sent"] for made in of["balance"]} == {3 * (3 + 2 * m)}
    assert not any(made["oracle"] for made in of["shift"] + of["balance"])
    assert len(of["first_moments"]) == 1
    assert of["first_moments"][0]["epoch"] == 0
    # A look after every move of W, one after every move of b, and one for the certificate.
    moves = [made for made in result.rounds if made["method"] in ("stats", "update", "shift")]
    assert 0 <= len(of["balance"]) - len(moves) <= 1
    for record in result.history[:-1]:
        others = [m for m in result.rounds if m["epoch"] == record["epoch"] and not m["oracle"]]
        assert record["other_rounds"] == len(others)


def test_in_gram_form_the_means_are_the_only_other_round(data: dict[str, Any]) -> None:
    result = solve("least squares", *data["least squares"], max_iter=3, representation="gram")
    methods = [made["method"] for made in result.rounds]
    assert methods[:2] == ["first_moments", "moments"]
    assert not {"shift", "balance"} & set(methods)


@pytest.mark.parametrize(
    ("name", "form", "stop"),
    [(*form, stop) for form, stop in zip(FORMS, [6, 6, 1, 6, 6, 1, 6], strict=True)],
)
def test_an_interrupted_run_returns_the_intercept_of_its_best_iterate(
    name: str, form: str, stop: int, data: dict[str, Any]
) -> None:
    X, y = data[name]

    def interrupt(W: dt.LowRankMatrix, record: Any) -> None:
        if record["epoch"] == stop:
            raise KeyboardInterrupt

    for options in ({"step": 0.7, "lmo": "naive"}, {"solver": "accelerated", "tol": 1e-9}):
        result = solve(
            name,
            X,
            y,
            radius=0.5 if name == "least squares" else 5.0,
            representation=form,
            callback=interrupt,
            **options,  # type: ignore[arg-type]
        )
        assert result.status == "interrupted"
        assert len(result.history) == stop
        objectives = [result.objective_at_zero, *result.history.column("objective")]
        assert result.objective == min(objectives)
        if "step" in options and stop > 1:  # a long step: the best iterate is not the last
            assert objectives[-1] > min(objectives)
        if "step" in options or form == "gram":
            check_balance(name, X, y, result)
        else:  # b moves with W, and is its best only in the end
            F = row_losses(name, X, y, result.W, result.intercept).sum()
            assert result.objective == pytest.approx(F, rel=1e-9)


@pytest.mark.parametrize(("name", "form"), FORMS)
@pytest.mark.parametrize("solver", ["dfw", "accelerated"])
def test_a_warm_start_begins_where_it_is_told(
    name: str, form: str, solver: str, data: dict[str, Any]
) -> None:
    options: Any = {"representation": form}
    first = solve(name, *data[name], solver="accelerated", tol=1e-6, **options)
    again = solve(name, *data[name], solver=solver, tol=1e-5, start=first.W, max_iter=5, **options)
    assert again.status == "optimal"
    assert again.objective_at_zero == pytest.approx(first.objective_at_zero, rel=1e-10)
    assert again.objective <= first.objective * (1.0 + 1e-9)
    still = solve(name, *data[name], start=first.W, step=0.0, max_iter=1, **options)
    assert still.objective == pytest.approx(first.objective, rel=1e-10)
    moved = still.intercept - first.intercept
    if name == "multinomial":  # which the same number added to all of them does not change
        moved -= moved.mean()
    np.testing.assert_allclose(moved, 0.0, atol=1e-5)
    check_balance(name, *data[name], still)


@pytest.mark.parametrize(("name", "form", "solver"), ALTERNATING)
def test_the_number_of_threads_changes_no_bit(
    monkeypatch: pytest.MonkeyPatch, name: str, form: str, solver: str, data: dict[str, Any]
) -> None:
    monkeypatch.setattr(local, "_BYTES_FOR_A_THREAD", 1)
    weights = np.random.default_rng(0).uniform(0, 2, 60)
    one, other = (
        solve(
            name,
            *data[name],
            sample_weight=weights,
            solver=solver,
            max_iter=5,
            representation=form,
            engine=dt.LocalEngine(n_shards=4, n_jobs=n_jobs),
        )
        for n_jobs in (1, 3)
    )
    assert one.intercept is not None
    assert np.array_equal(one.intercept, other.intercept)  # type: ignore[arg-type]
    assert np.array_equal(one.W.to_dense(), other.W.to_dense())
    assert (one.objective, one.gap) == (other.objective, other.gap)


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_shards_change_little(name: str, form: str, data: dict[str, Any]) -> None:
    """Also if some of them have no rows."""
    options: Any = {"lmo": "naive", "max_iter": 5, "representation": form}
    one, other = (
        solve(name, *data[name], engine=dt.LocalEngine(n_shards=n_shards, n_jobs=1), **options)
        for n_shards in (1, 62)
    )
    np.testing.assert_allclose(other.W.to_dense(), one.W.to_dense(), atol=1e-7)
    np.testing.assert_allclose(other.intercept, one.intercept, atol=1e-5)


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_float32_features_give_nearly_the_same(name: str, form: str, data: dict[str, Any]) -> None:
    X, y = data[name]
    options: Any = {"lmo": "naive", "max_iter": 6, "representation": form}
    double, single = (solve(name, A, y, **options) for A in (X, X.astype(np.float32)))
    assert single.plan.workload.itemsize == 4
    np.testing.assert_allclose(single.W.to_dense(), double.W.to_dense(), atol=5e-3)
    assert single.objective == pytest.approx(double.objective, rel=1e-3)
    assert double.intercept is not None
    assert single.intercept is not None
    difference = single.intercept - double.intercept
    if name == "multinomial":  # which does not see one number that is added to all classes
        difference -= difference.mean()
    np.testing.assert_allclose(difference, 0.0, atol=1e-2)


# Bad calls


@pytest.mark.parametrize("intercept", [None, 1, 0, "yes", 1.0, [True]])
def test_an_intercept_is_wanted_or_not(intercept: Any, data: dict[str, Any]) -> None:
    for call, size in ((dt.solve, {"radius": 1.0}), (dt.path, {"radii": [1.0]})):
        with pytest.raises(TypeError, match=r"^fit_intercept must be True or False, got .*\.$"):
            call(dt.LeastSquares(), *data["least squares"], fit_intercept=intercept, **size)  # type: ignore[operator]


def test_b_stays_where_it_is_where_the_rows_are_fitted_all_but_exactly() -> None:
    """F is flat in every direction there, and curvatures say nothing of how far to go."""
    X, y = text(1200, 80, 1500)
    start, engine = None, dt.LocalEngine(n_shards=1)
    for radius in (2000.0, 4000.0, 16000.0, 64000.0):
        result = dt.solve(
            dt.Multinomial(), X, y, radius=radius, fit_intercept=True, start=start, engine=engine
        )
        start = result.W
    assert result.intercept is not None
    assert (np.asarray(X @ result.W + result.intercept).argmax(axis=1) == y).all()
    assert np.abs(result.intercept).max() < 50.0
