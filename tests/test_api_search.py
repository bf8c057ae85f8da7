"""Searches along radii: grids that grow, end early, and say so where the best is at an end."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_wine
from tests.problems import ENGINE

import dfwtrace as dt


@pytest.fixture
def noisy() -> tuple[Any, Any]:
    """A regression whose best radius is well inside of the grid."""
    X, Y, _ = dt.datasets.make_multitask(n=150, d=15, m=10, rank=2, noise=1.0, random_state=0)
    return X, Y


def search(X: Any, Y: Any, **options: Any) -> dt.Path:
    call = {"cv": 3, "fit_intercept": True, "engine": ENGINE, "tol": 1e-2, **options}
    task = dt.LeastSquares() if Y.ndim == 2 else dt.Multinomial()
    return dt.path(task, X, Y, **call)


def means(path: dt.Path) -> Any:
    assert path.validation is not None
    return path.validation.mean(axis=1)


def test_a_grid_is_left_once_the_score_has_turned(noisy: tuple[Any, Any]) -> None:
    path = search(*noisy, radii=20)
    assert len(path.radii) < 20
    assert path.best == len(path.radii) - 4  # three in a row have done worse
    assert path.warning is None
    assert len(path.results) == len(path.radii)


def test_without_folds_all_of_a_grid_is_solved(noisy: tuple[Any, Any]) -> None:
    path = search(*noisy, radii=5, cv=None)
    assert len(path.results) == 5
    np.testing.assert_allclose(path.radii[-1] / path.radii[0], 300.0)
    assert path.warning is None


def test_a_grid_follows_the_units(noisy: tuple[Any, Any]) -> None:
    X, Y = noisy
    np.testing.assert_allclose(
        search(X / 10.0, 7.0 * Y).radii, 70.0 * search(X, Y).radii, rtol=1e-9
    )


def test_a_grid_grows_while_its_largest_radius_is_the_best(
    caplog: pytest.LogCaptureFixture,
) -> None:
    X, y = load_wine(return_X_y=True)  # one of its columns is a thousand times the others
    with caplog.at_level(logging.INFO, "dfwtrace"):
        path = search(X, y, radii=5, max_iter=20, tol=1e-3)
    assert path.radii[-1] > 30.0 / 0.1 * path.radii[0] * 1.01
    assert 0 < path.best < len(path.radii) - 1
    assert path.warning is None
    np.testing.assert_allclose(np.diff(np.log(path.radii)), np.log(300.0) / 4)
    assert any("grew" in record.message for record in caplog.records)


def test_a_grid_grows_while_its_smallest_radius_is_the_best_but_not_for_ever() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((40, 30)), rng.standard_normal((40, 2))
    path = search(X, Y, radii=4)
    assert path.best == 0
    assert len(path.radii) <= 4 + 6
    assert path.radii[-1] / path.radii[0] > 300.0
    assert path.warning is not None
    assert "smallest" in path.warning


def test_larger_radii_than_an_idle_one_are_not_tried() -> None:
    X, Y, _ = dt.datasets.make_multitask(n=60, d=4, m=3, rank=3, noise=0.0, random_state=0)
    path = search(X, Y, radii=2, tol=1e-6)
    assert len(path.radii) == 2  # at 30 times the scale the bound holds nothing back
    assert path.best == 1
    assert path.warning is None


@pytest.mark.parametrize(("radii", "word"), [([1e-4, 1e-3], "largest"), ([0.02, 0.5, 2.0], None)])
def test_radii_that_are_given_are_tried_as_they_are(
    radii: list[float], word: str | None, noisy: tuple[Any, Any]
) -> None:
    path = search(*noisy, radii=radii)
    assert path.radii.tolist() == radii
    assert (path.warning is None) == (word is None)
    if word is not None:
        assert path.warning is not None
        assert path.warning.startswith("The best radius, 0.001, is the largest of the 2 tried")


def test_scores_of_one_s_own_decide(noisy: tuple[Any, Any]) -> None:
    seen: list[int] = []

    def small_rank(fold: int, result: dt.Result) -> float:
        seen.append(fold)
        return -float(result.W.rank)

    path = search(*noisy, radii=[0.01, 0.1, 1.0], scoring=small_rank)
    assert path.scores is not None
    assert path.scores.shape == (3, 3)
    assert np.array_equal(
        path.scores, -np.array([[r.W.rank for r in f] for f in path.fold_results]).T
    )
    assert path.best == path.scores.mean(axis=1).argmax()
    assert sorted(set(seen)) == [0, 1, 2]


def test_a_score_that_is_not_a_number_is_never_the_best(noisy: tuple[Any, Any]) -> None:
    path = search(
        *noisy, radii=[0.1, 1.0], scoring=lambda fold, result: np.nan if result.radius < 1 else 0.0
    )
    assert path.best == 1


def test_scores_that_are_all_nan_choose_nothing(noisy: tuple[Any, Any]) -> None:
    path = search(*noisy, radii=5, scoring=lambda fold, result: np.nan)
    assert len(path.radii) <= 5  # no end of the grid is the best
    assert path.warning is not None
    assert path.warning.startswith("The score of every radius is NaN")


def test_a_score_that_is_no_number_is_refused(noisy: tuple[Any, Any]) -> None:
    with pytest.raises(TypeError, match=r"^scoring must return a number, got None\.$"):
        search(*noisy, radii=[1.0], scoring=lambda fold, result: None)


def test_scores_need_folds_and_a_function(noisy: tuple[Any, Any]) -> None:
    for options in ({"scoring": "accuracy"}, {"scoring": len, "cv": None}):
        with pytest.raises(TypeError, match=r"^scoring must be callable, and needs cv, got .*\.$"):
            search(*noisy, radii=[1.0], **options)


@pytest.mark.parametrize("radii", [0, -1, "10", [], [1.0, -1.0], 2.5])
def test_bad_radii_are_refused(radii: Any, noisy: tuple[Any, Any]) -> None:
    with pytest.raises(ValueError, match=r"^radii must be .*\.$"):
        search(*noisy, radii=radii)
