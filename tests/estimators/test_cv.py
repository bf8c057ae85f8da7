"""Searches for a radius: the grid, the folds, the scores, the choice."""

from __future__ import annotations

import warnings
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from sklearn.base import clone, config_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, make_scorer, r2_score
from sklearn.model_selection import GroupKFold, KFold, LeaveOneOut, PredefinedSplit, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dfwtrace as dt
from dfwtrace.plotting import PathDisplay

# Few radii are tried here, on purpose.
pytestmark = pytest.mark.filterwarnings(
    "ignore:The best radius:UserWarning", "ignore:radius .* is so small:UserWarning"
)

Data = tuple[Any, Any]
RADII = [0.3, 1.0, 3.0]
# Threads cost more than they bring on data as small as these.
SMALL: Any = {"n_shards": 1, "n_jobs": 1}


@pytest.mark.parametrize("name", ["Regressor", "Classifier"])
def test_a_number_of_radii_finds_one_that_is_neither_the_least_nor_the_largest(name: str) -> None:
    if name == "Regressor":
        X, y, _ = dt.datasets.make_multitask(n=150, d=15, m=10, rank=2, noise=1.0, random_state=0)
        X, y = 5.0 * X, 3.0 + 20.0 * y  # the grid follows the scale of the data
    else:
        X, y, _ = dt.datasets.make_multiclass(n=150, d=15, m=4, rank=2, random_state=0)
        y = np.where(np.random.default_rng(0).random(150) < 0.2, (y + 1) % 4, y)
    model = getattr(dt, f"TraceNorm{name}CV")(7, cv=2, tol=1e-2, **SMALL).fit(X, y)
    assert 4 <= len(model.radii_) <= 7  # left early once the score has turned
    assert np.all(np.diff(model.radii_) > 0.0)
    assert model.radii_[0] < model.radius_ < model.radii_[-1]
    assert model.radius_ == model.radii_[model.scores_.mean(axis=1).argmax()]
    if name == "Regressor":
        rescaled = dt.TraceNormRegressorCV(7, cv=2, tol=1e-2, **SMALL).fit(X / 1000.0, y)
        np.testing.assert_allclose(rescaled.radii_, 1000.0 * model.radii_, rtol=1e-4)
        assert rescaled.radius_ == pytest.approx(1000.0 * model.radius_, rel=1e-4)


def test_one_radius_is_the_middle_of_the_grid(multitask: Data) -> None:
    one, three = (
        dt.TraceNormRegressorCV(count, cv=2, tol=1e-2, **SMALL).fit(*multitask) for count in (1, 3)
    )
    np.testing.assert_allclose(one.radii_, three.radii_[1:2])


def test_where_nothing_can_be_learnt_one_radius_does() -> None:
    X, y = np.random.default_rng(0).standard_normal((30, 4)), np.ones(30)
    model = dt.TraceNormRegressorCV(5, cv=2).fit(X, y)
    assert np.array_equal(model.radii_, [1.0])
    np.testing.assert_allclose(model.predict(X), 1.0)


def test_the_classes_are_spread_evenly_over_the_folds(multiclass: Data) -> None:
    X, y = multiclass
    by_number, by_splitter = (
        dt.TraceNormClassifierCV(RADII, cv=cv, tol=1e-2, **SMALL).fit(X, y)
        for cv in (3, StratifiedKFold(3))
    )
    assert np.array_equal(by_number.scores_, by_splitter.scores_)
    splits = list(StratifiedKFold(3).split(X, y))
    for cv in (splits, iter(splits)):
        by_list = dt.TraceNormClassifierCV(RADII, cv=cv, tol=1e-2, **SMALL).fit(X, y)
        assert np.array_equal(by_list.scores_, by_splitter.scores_)


def test_folds_of_every_kind(multitask: Data) -> None:
    X, Y = multitask
    by_number = dt.TraceNormRegressorCV(RADII, cv=3, **SMALL).fit(X, Y)
    by_splitter = dt.TraceNormRegressorCV(RADII, cv=KFold(3), **SMALL).fit(X, Y)
    assert np.array_equal(by_number.scores_, by_splitter.scores_)
    assert dt.TraceNormRegressorCV(RADII, tol=1e-2, **SMALL).fit(X, Y).scores_.shape == (3, 5)
    # Rows in no fold are learnt from each time.
    fold_of: Any = np.arange(60) % 3 - 1
    split = PredefinedSplit(fold_of)
    some = dt.TraceNormRegressorCV(RADII, cv=split, tol=1e-10, **SMALL).fit(X, Y)
    options: Any = {"fit_intercept": True, "engine": dt.LocalEngine(n_shards=1), "tol": 1e-8}
    path = dt.path(dt.LeastSquares(), X, Y, radii=RADII, cv=fold_of, **options)
    assert path.validation is not None
    np.testing.assert_allclose(some.validation_, path.validation, rtol=1e-5)
    assert some.validation_.shape == (3, 2)


def by_hand(kind: Any, X: Any, y: Any, cv: Any, score: Any, **settings: Any) -> Any:
    """For each radius and fold the score of a fit without the fold's rows."""
    return np.array(
        [
            [
                score(kind(radius, **settings).fit(X[learn], y[learn]), X[rest], y[rest])
                for learn, rest in cv.split(X, y)
            ]
            for radius in RADII
        ]
    )


def test_groups_stay_together(multitask: Data, multiclass: Data) -> None:
    for name, (X, y) in (("Regressor", multitask), ("Classifier", multiclass)):
        groups = np.arange(len(X)) // 7
        model = getattr(dt, f"TraceNorm{name}CV")(RADII, cv=GroupKFold(3), **SMALL)
        found = model.fit(X, y, groups=groups).validation_
        by_hand = list(GroupKFold(3).split(X, y, groups))
        expected = model.set_params(cv=by_hand).fit(X, y).validation_
        np.testing.assert_array_equal(found, expected)
        with pytest.raises(ValueError, match="groups"):
            model.set_params(cv=GroupKFold(3)).fit(X, y)


def test_groups_are_routed(multitask: Data) -> None:
    X, y = multitask
    groups = np.arange(len(X)) // 7
    with config_context(enable_metadata_routing=True):
        model = dt.TraceNormRegressorCV(RADII, cv=GroupKFold(3), **SMALL)
        pipeline = make_pipeline(StandardScaler(), model.set_fit_request(groups=True))
        routed = pipeline.fit(X, y, groups=groups)[-1].validation_
    expected = clone(model).fit(StandardScaler().fit_transform(X), y, groups=groups).validation_
    np.testing.assert_array_equal(routed, expected)


def test_a_limit_of_time_is_one_of_each_fit(multiclass: Data) -> None:
    model = dt.TraceNormClassifierCV(RADII, cv=2, tol=1e-12, max_time=1e-9, **SMALL)
    with pytest.warns(ConvergenceWarning, match="time"):
        model.fit(*multiclass)
    assert model.status_ == "max_time"
    fits = [model.result_, *chain(*model.path_.fold_results)]
    assert {len(result.history) for result in fits} == {1}
    with pytest.raises(ValueError, match="max_time must be"):
        model.set_params(max_time=0.0).fit(*multiclass)


def test_losses_are_those_of_fits_by_hand(multitask: Data, multiclass: Data) -> None:
    X, Y = multitask
    model = dt.TraceNormRegressorCV(RADII, cv=KFold(3), tol=1e-6, **SMALL).fit(X, Y)

    def half_squares(fitted: Any, X: Any, Y: Any) -> float:
        return float(-0.5 * ((fitted.predict(X) - Y) ** 2).sum(axis=1).mean())

    expected = by_hand(dt.TraceNormRegressor, X, Y, KFold(3), half_squares, tol=1e-6, **SMALL)
    np.testing.assert_allclose(model.scores_, expected, rtol=1e-2)
    X, y = multiclass
    model = dt.TraceNormClassifierCV(RADII, cv=3, tol=1e-5, **SMALL).fit(X, y)

    def likelihood(fitted: Any, X: Any, y: Any) -> float:
        return float(fitted.predict_log_proba(X)[np.arange(len(y)), y].mean())

    expected = by_hand(
        dt.TraceNormClassifier, X, y, StratifiedKFold(3), likelihood, tol=1e-5, **SMALL
    )
    np.testing.assert_allclose(model.scores_, expected, rtol=1e-2)


def test_scores_are_those_of_fits_by_hand(multitask: Data, multiclass: Data) -> None:
    X, Y = multitask
    model = dt.TraceNormRegressorCV(RADII, cv=3, scoring="r2", tol=1e-6, **SMALL).fit(X, Y)

    def r2(fitted: Any, X: Any, Y: Any) -> float:
        return float(r2_score(Y, fitted.predict(X)))

    expected = by_hand(dt.TraceNormRegressor, X, Y, KFold(3), r2, tol=1e-6, **SMALL)
    np.testing.assert_allclose(model.scores_, expected, rtol=1e-2)
    assert model.radius_ == RADII[model.scores_.mean(axis=1).argmax()]
    own = dt.TraceNormRegressorCV(RADII, cv=3, scoring=r2, tol=1e-6, **SMALL).fit(X, Y)
    assert np.array_equal(own.scores_, model.scores_)
    X, y = multiclass[0], np.array(["a", "b", "c", "d"])[multiclass[1]]
    fine = {"tol": 1e-6, **SMALL}
    model = dt.TraceNormClassifierCV(RADII, cv=3, scoring="accuracy", **fine).fit(X, y)
    expected = by_hand(
        dt.TraceNormClassifier, X, y, StratifiedKFold(3), lambda m, X, y: m.score(X, y), **fine
    )
    np.testing.assert_allclose(model.scores_, expected, atol=0.051)  # one row of twenty
    scorer = make_scorer(accuracy_score)
    same = dt.TraceNormClassifierCV(RADII, cv=3, scoring=scorer, **fine).fit(X, y)
    assert np.array_equal(same.scores_, model.scores_)


def test_folds_that_are_shuffled_anew_each_time_are_made_once(multitask: Data) -> None:
    """Else the scores would be of rows that the fits had seen."""
    X, Y = multitask
    noise = np.random.default_rng(0).standard_normal(Y.shape)  # nothing can be learnt

    class Counting(KFold):  # type: ignore[misc]
        calls = 0

        def split(self, *args: Any) -> Any:
            Counting.calls += 1
            return super().split(*args)

    cv = Counting(30, shuffle=True)
    model = dt.TraceNormRegressorCV(
        [10.0], cv=cv, scoring="neg_mean_squared_error", tol=1e-2, **SMALL
    ).fit(X, noise)
    assert Counting.calls == 1
    np.testing.assert_allclose(-model.scores_, 2.0 * model.validation_ / 5.0, rtol=1e-6)


def test_scores_are_weighted_as_losses_are(multitask: Data) -> None:
    X, Y = multitask
    weights = np.linspace(0.0, 2.0, 60)
    model = dt.TraceNormRegressorCV(RADII, cv=3, scoring="neg_mean_squared_error", **SMALL)
    model.fit(X, Y, sample_weight=weights)
    np.testing.assert_allclose(-model.scores_, 2.0 * model.validation_ / 5.0, rtol=1e-6)
    # A function that takes no weights gets none.
    own = dt.TraceNormRegressorCV(RADII, cv=3, scoring=lambda m, X, Y: m.score(X, Y), **SMALL)
    assert own.fit(X, Y, sample_weight=weights).scores_.shape == (3, 3)


def test_weights_of_classes_are_no_weights_of_scores(multiclass: Data) -> None:
    X, y = multiclass
    rows = [rest for _, rest in StratifiedKFold(3).split(X, y)]
    settings: Any = {"cv": 3, "scoring": "accuracy", "tol": 1e-2, **SMALL}
    model = dt.TraceNormClassifierCV(RADII, class_weight={0: 100.0}, **settings)
    hits = model.fit(X, y).scores_ * [len(part) for part in rows]
    np.testing.assert_allclose(hits, np.round(hits), atol=1e-9)


def test_frames_are_scored_without_a_warning(multiclass: Data) -> None:
    X, y = multiclass
    frame = pd.DataFrame(X, columns=list("abcdefg"))
    named, plain = (
        dt.TraceNormClassifierCV(RADII, cv=3, scoring="accuracy", tol=1e-3, **SMALL).fit(form, y)
        for form in (frame, X)
    )
    assert list(named.feature_names_in_) == list("abcdefg")
    np.testing.assert_allclose(named.scores_, plain.scores_, atol=0.051)


def test_a_radius_without_a_score_is_not_chosen(multitask: Data) -> None:
    def sometimes(fitted: Any, X: Any, Y: Any) -> float:
        return float("nan") if fitted.radius_ == 0.3 else -fitted.radius_

    model = dt.TraceNormRegressorCV(RADII, cv=2, scoring=sometimes, **SMALL).fit(*multitask)
    assert np.isnan(model.scores_[0]).all()
    assert model.radius_ == 1.0


def test_the_path_can_be_drawn(multitask: Data) -> None:
    model = dt.TraceNormRegressorCV(RADII, cv=3, **SMALL).fit(*multitask)
    display = PathDisplay.from_estimator(model, ax=Figure().subplots())
    assert display.best_line_ is not None
    assert np.asarray(display.best_line_.get_xdata())[0] == model.radius_
    np.testing.assert_allclose(
        np.asarray(display.line_.get_ydata()), model.validation_.mean(axis=1)
    )


def test_one_target_stays_one(multitask: Data) -> None:
    X, Y = multitask
    model = dt.TraceNormRegressorCV(RADII, cv=2, scoring="r2", **SMALL).fit(X, Y[:, 0])
    assert (model.predict(X).shape, model.coef_.shape) == ((60,), (7,))


def test_scores_of_single_rows_that_are_nan_are_said(multitask: Data) -> None:
    X, Y = multitask
    model = dt.TraceNormRegressorCV(RADII, cv=LeaveOneOut(), scoring="r2", tol=1e-2, **SMALL)
    with warnings.catch_warnings(record=True) as caught:  # scikit-learn's, and ours
        warnings.simplefilter("always")
        model.fit(X[:12], Y[:12])
    assert any("The score of every radius is NaN" in str(each.message) for each in caught)


def test_several_scores_at_once_are_refused(multiclass: Data) -> None:
    model = dt.TraceNormClassifierCV([1.0], cv=2, scoring=["accuracy", "f1_macro"], **SMALL)
    with pytest.raises(TypeError, match=r"^scoring must return a number, got "):
        model.fit(*multiclass)


def test_a_search_is_at_zero_once_for_each_fold(multiclass: Data) -> None:
    model = dt.TraceNormClassifierCV(RADII, cv=2, tol=1e-3, **SMALL).fit(*multiclass)
    for first, *later in model.path_.fold_results:
        of_first = [made["method"] for made in first.rounds]
        assert "imbalance" in of_first  # b at W = 0, by Newton's method
        for result in later:
            assert result.objective_at_zero == first.objective_at_zero
            methods = [made["method"] for made in result.rounds]
            assert "imbalance" not in methods
            assert methods[0] == "stats_without"
            assert methods[1] != "imbalance"


def test_the_bits_of_a_search_do_not_depend_on_the_threads(multiclass: Data) -> None:
    one, two = (
        dt.TraceNormClassifierCV(RADII, cv=2, n_shards=4, n_jobs=n).fit(*multiclass) for n in (1, 2)
    )
    assert np.array_equal(one.scores_, two.scores_)
    assert np.array_equal(one.coef_, two.coef_)


def test_the_default_tolerance_is_that_of_predictions(multiclass: Data) -> None:
    X, y = multiclass
    default, fine = (dt.TraceNormClassifier(3.0, **how).fit(X, y) for how in ({}, {"tol": 1e-4}))
    assert (default.tol, dt.TraceNormRegressor().tol) == (1e-2, 1e-4)
    assert default.n_iter_ < fine.n_iter_
    assert default.duality_gap_ <= 1e-2 * default.result_.objective_at_zero
    assert np.mean(default.predict(X) == fine.predict(X)) > 0.9
