"""Paths with folds: each validation loss is that of a fit without the fold's rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from tests.problems import ENGINE, FORMS, TASKS, solve
from tests.truth import row_losses

import dfwtrace as dt
from dfwtrace.data.shards import random_folds, split_rows

FOLD_FORMS = [(name, form) for name, form in FORMS if form != "dense"]


@pytest.fixture
def data(multitask: tuple[Any, Any], multiclass: tuple[Any, Any]) -> dict[str, tuple[Any, Any]]:
    return {"least squares": multitask, "multinomial": multiclass}


def validation_losses(name: str, X: Any, y: Any, weights: Any, result: dt.Result) -> float:
    """The mean loss of a row, in plain NumPy."""
    return float(np.average(row_losses(name, X, y, result.W, result.intercept), weights=weights))


def folds_of_rows(X: Any, y: Any, n_folds: int, seed: int, n_shards: int) -> Any:
    """The fold of every row, where each shard deals out its own."""
    given, before = [], 0
    for shard in split_rows(X, y, n_shards):
        given.append(random_folds(shard, n_folds, seed, before))
        before += shard.n_rows
    return np.concatenate(given)


@pytest.mark.parametrize(
    ("layout", "dtype", "seed"),
    [
        (np.asfortranarray, np.float64, 0),
        (np.asarray, np.float32, 7),
        (sp.csr_array, np.float64, 7),
        (sp.csr_array, np.float32, 0),
    ],
)
def test_folds_by_sums_are_refits_on_the_training_rows(
    layout: Any, dtype: Any, seed: int, multitask: tuple[Any, Any]
) -> None:
    X, Y = layout(multitask[0].astype(dtype)), multitask[1]
    radii = [0.5, 2.0]
    options: Any = {"representation": "gram", "tol": 1e-9, "random_state": seed, "engine": ENGINE}
    path = dt.path(dt.LeastSquares(), X, Y, radii=radii, cv=3, **options)
    fold_of = folds_of_rows(X, Y, 3, seed, 3)
    assert path.validation is not None
    assert path.validation.shape == (2, 3)
    for fold in range(3):
        learn, held_out = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)
        for place, radius in enumerate(radii):
            refit = solve(
                "least squares", X[learn], Y[learn], radius=radius, solver="accelerated", **options
            )
            expected = validation_losses("least squares", X[held_out], Y[held_out], None, refit)
            assert path.validation[place, fold] == pytest.approx(expected, rel=1e-4)
    assert path.best == np.argmin(path.validation.mean(axis=1))


@pytest.mark.parametrize(("form", "sparse"), [("implicit", True), ("factored", False)])
def test_folds_of_a_classification_are_refits_on_the_training_rows(
    form: str, sparse: bool, multiclass: tuple[Any, Any]
) -> None:
    X, y = multiclass
    X = sp.csr_array(X) if sparse else X
    task = dt.Multinomial(n_classes=4)
    options: Any = {"representation": form, "engine": ENGINE}
    path = dt.path(task, X, y, radii=[1.0, 5.0], cv=3, tol=1e-8, **options)
    fold_of = folds_of_rows(X, y, 3, 0, 3)
    assert np.bincount(fold_of).tolist() == [20, 20, 20]
    assert path.validation is not None
    for fold in range(3):
        learn, held_out = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)
        for place, radius in enumerate([1.0, 5.0]):
            refit = solve(
                task, X[learn], y[learn], radius=radius, solver="accelerated", tol=1e-8, **options
            )
            expected = validation_losses("multinomial", X[held_out], y[held_out], None, refit)
            assert path.validation[place, fold] == pytest.approx(expected, rel=1e-3)


def test_results_with_folds_are_those_without(data: dict[str, Any]) -> None:
    for name, task in TASKS.items():
        without, with_folds = (
            dt.path(task, *data[name], radii=[1.0, 3.0], cv=folds, engine=ENGINE, tol=1e-5)
            for folds in (None, 2)
        )
        for one, other in zip(without.results, with_folds.results, strict=True):
            assert abs(one.objective - other.objective) <= max(one.gap, other.gap)


def test_folds_follow_the_seed(multitask: tuple[Any, Any]) -> None:
    found = [
        dt.path(
            dt.LeastSquares(), *multitask, radii=[1.0], cv=3, random_state=seed, engine=ENGINE
        ).validation
        for seed in (0, 0, 1)
    ]
    assert np.array_equal(found[0], found[1])  # type: ignore[arg-type]
    assert not np.array_equal(found[0], found[2])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("folds", [2, 7, 10, 59, 60])
def test_no_fold_is_empty_and_none_is_much_larger_than_another(
    name: str, folds: int, data: dict[str, Any]
) -> None:
    """Also if a shard has fewer rows than there are folds; up to one fold for each row."""
    X, y = data[name]
    path = dt.path(TASKS[name], X, y, radii=[0.5], cv=folds, tol=0.1)
    assert path.validation is not None
    assert path.validation.shape == (1, folds)
    assert np.isfinite(path.validation).all()
    if folds == 60:  # each row is left out once: none is left out of the mean
        assert (path.validation > 0.0).all()


def test_validation_finds_the_radius_that_noise_allows() -> None:
    X, Y, W = dt.datasets.make_multitask(n=200, d=20, m=15, rank=2, noise=1.0, random_state=0)
    radii = [share * W.trace_norm for share in (0.05, 1.0, 50.0)]
    path = dt.path(dt.LeastSquares(), X, Y, radii=radii, cv=5)
    assert path.best == 1
    assert np.all(np.diff([result.objective for result in path.results]) < 0.0)


def test_without_folds_there_is_no_best_radius(multitask: tuple[Any, Any]) -> None:
    path = dt.path(dt.LeastSquares(), *multitask, radii=[1.0])
    with pytest.raises(ValueError, match=r"best needs validation losses: ask for folds with cv\."):
        _ = path.best


# An intercept, weights, and folds that are given


@pytest.fixture(scope="module")
def uncentred(multitask: tuple[Any, Any]) -> dict[str, tuple[Any, Any]]:
    """Features and targets that an intercept matters for; every class occurs in every fold."""
    X, y, _ = dt.datasets.make_multiclass(n=60, d=7, m=4, rank=3, random_state=0)
    return {
        "least squares": (multitask[0] + 3.0, multitask[1] + np.arange(5.0)),
        "multinomial": (X + 3.0, y),
    }


@pytest.mark.parametrize(
    ("name", "form", "intercept", "weighted"),
    [
        *((*form, True, True) for form in FOLD_FORMS),
        (*FOLD_FORMS[0], False, True),
        (*FOLD_FORMS[-1], True, False),
    ],
)
def test_given_folds_are_refits_on_the_training_rows(
    name: str, form: str, intercept: bool, weighted: bool, uncentred: dict[str, Any]
) -> None:
    X, y = uncentred[name]
    X = X if intercept else X - 3.0
    rng = np.random.default_rng(0)
    fold_of = rng.permutation(np.arange(60) % 2) - (rng.random(60) < 0.1) * 5  # some in none
    assert (fold_of < 0).any()
    weights = rng.integers(0, 4, 60) if weighted else None
    radii = [1.5, 0.3]
    options: Any = {
        "representation": form,
        "engine": ENGINE,
        "tol": 1e-4,
        "fit_intercept": intercept,
    }
    path = dt.path(TASKS[name], X, y, radii=radii, cv=fold_of, sample_weight=weights, **options)
    assert path.validation is not None
    assert path.validation.shape == (2, 2)
    assert [len(results) for results in path.fold_results] == [2, 2]
    task = dt.Multinomial(4) if name == "multinomial" else TASKS[name]
    for fold in range(2):
        learn, held_out = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)
        inside = None if weights is None else weights[learn]
        outside = None if weights is None else weights[held_out]
        for place, radius in enumerate(radii):
            found = path.fold_results[fold][place]
            refit = solve(
                task,
                X[learn],
                y[learn],
                radius=radius,
                sample_weight=inside,
                solver="accelerated",
                **options,
            )
            assert (found.intercept is not None) == intercept
            assert found.objective_at_zero == pytest.approx(refit.objective_at_zero, rel=1e-9)
            rounding = 1e-11 * refit.objective_at_zero
            assert abs(found.objective - refit.objective) <= max(found.gap, refit.gap) + rounding
            expected = validation_losses(name, X[held_out], y[held_out], outside, found)
            assert path.validation[place, fold] == pytest.approx(expected, rel=1e-8)
            again = validation_losses(name, X[held_out], y[held_out], outside, refit)
            assert path.validation[place, fold] == pytest.approx(again, rel=5e-2)
    assert path.best == np.argmin(path.validation.mean(axis=1))


@pytest.mark.parametrize(("name", "form"), FOLD_FORMS)
def test_results_of_a_path_with_an_intercept_are_those_of_runs_of_their_own(
    name: str, form: str, uncentred: dict[str, Any]
) -> None:
    weights = np.random.default_rng(0).uniform(0.1, 2.0, 60)
    options: Any = {"representation": form, "engine": ENGINE, "tol": 1e-4, "fit_intercept": True}
    options |= {"sample_weight": weights}
    fold_of = np.arange(60) % 2
    runs = [
        solve(name, *uncentred[name], radius=radius, solver="accelerated", **options)
        for radius in (0.3, 1.0)
    ]
    for folds in (None, fold_of):
        path = dt.path(TASKS[name], *uncentred[name], radii=[0.3, 1.0], cv=folds, **options)
        assert (path.validation is None) == (folds is None)
        assert len(path.fold_results) == (0 if folds is None else 2)
        for alone, result in zip(runs, path.results, strict=True):
            rounding = 1e-11 * alone.objective_at_zero
            assert result.status == "optimal"
            assert abs(result.objective - alone.objective) <= max(result.gap, alone.gap) + rounding
            X, y = uncentred[name]
            value = weights.sum() * validation_losses(name, X, y, weights, result)
            assert result.objective == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("layout", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_moments_of_folds_with_an_intercept_take_any_layout(
    layout: Any, dtype: Any, uncentred: dict[str, Any]
) -> None:
    X, Y = uncentred["least squares"]
    X, fold_of = X.astype(dtype), np.arange(60) % 3
    options: Any = {"radii": [1.0], "cv": fold_of, "fit_intercept": True, "tol": 1e-5}
    options |= {"engine": ENGINE}
    plain = dt.path(dt.LeastSquares(), X.astype(np.float64), Y, representation="gram", **options)
    other = dt.path(dt.LeastSquares(), layout(X), Y, representation="gram", **options)
    np.testing.assert_allclose(other.validation, plain.validation, rtol=1e-3)  # type: ignore[arg-type]


def test_folds_far_from_zero_keep_their_digits(multitask: tuple[Any, Any]) -> None:
    X, Y = multitask
    options: Any = {"radii": [1.0], "cv": np.arange(60) % 3, "fit_intercept": True, "tol": 1e-6}
    options |= {"engine": ENGINE}
    near, far = (
        dt.path(dt.LeastSquares(), X + shift, Y - shift, representation="gram", **options)
        for shift in (0.0, 1e4)
    )
    np.testing.assert_allclose(far.validation, near.validation, rtol=1e-3)  # type: ignore[arg-type]
    assert far.validation is not None
    for fold, (result,) in enumerate(far.fold_results):
        rows = np.arange(60) % 3 == fold
        expected = validation_losses("least squares", X[rows] + 1e4, Y[rows] - 1e4, None, result)
        assert far.validation[0, fold] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("name", "form"), FOLD_FORMS)
def test_all_runs_learn_from_rows_in_no_fold(
    name: str, form: str, uncentred: dict[str, Any]
) -> None:
    """One fold is enough then, and how negative a number is does not matter."""
    X, y = uncentred[name]
    options: Any = {"radii": [1.0], "representation": form, "engine": ENGINE, "fit_intercept": True}
    fold_of = np.where(np.arange(60) < 15, 0, -1)
    path = dt.path(TASKS[name], X, y, cv=fold_of, **options)
    assert path.validation is not None
    assert path.validation.shape == (1, 1)
    task = dt.Multinomial(4) if name == "multinomial" else TASKS[name]
    alone = dt.path(task, X[15:], y[15:], **options).results[0]
    found = path.fold_results[0][0]
    assert abs(found.objective - alone.objective) <= max(found.gap, alone.gap)
    expected = validation_losses(name, X[:15], y[:15], None, found)
    assert path.validation[0, 0] == pytest.approx(expected, rel=1e-8)
    same = dt.path(TASKS[name], X, y, cv=list(np.where(fold_of < 0, -7, 0)), **options)
    np.testing.assert_array_equal(same.validation, path.validation)  # type: ignore[arg-type]


def test_given_folds_are_those_made_at_random_if_they_are_the_same(
    multitask: tuple[Any, Any],
) -> None:
    fold_of = folds_of_rows(*multitask, 4, 3, 3)
    options: Any = {"radii": [1.0], "engine": ENGINE, "random_state": 3, "representation": "gram"}
    for intercept in (False, True):
        random, given = (
            dt.path(dt.LeastSquares(), *multitask, cv=folds, fit_intercept=intercept, **options)
            for folds in (4, fold_of)
        )
        np.testing.assert_array_equal(given.validation, random.validation)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "form"), FOLD_FORMS)
def test_a_fold_of_rows_that_count_nothing_has_no_loss(
    name: str, form: str, uncentred: dict[str, Any]
) -> None:
    fold_of = np.arange(60) % 3
    weights = np.where(fold_of == 1, 0.0, 1.0)
    path = dt.path(
        TASKS[name],
        *uncentred[name],
        radii=[1.0],
        cv=fold_of,
        sample_weight=weights,
        fit_intercept=True,
        representation=form,
        engine=ENGINE,
    )
    assert path.validation is not None
    assert path.validation[0, 1] == 0.0
    assert (path.validation[0, [0, 2]] > 0.0).all()


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_folds_that_leave_no_weight_to_learn_from_are_refused(
    name: str, form: str, uncentred: dict[str, Any]
) -> None:
    fold_of = np.arange(60) % 2
    with pytest.raises(ValueError, match=r"^(sample_weight|folds) .*\.$"):
        dt.path(
            TASKS[name],
            *uncentred[name],
            radii=[1.0],
            cv=fold_of,
            sample_weight=(fold_of == 0).astype(float),
            fit_intercept=True,
            representation=form,
        )
