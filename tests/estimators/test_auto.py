"""What a fit finds by itself and what it says: the radius, warnings, Ctrl-C."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.exceptions import ConvergenceWarning
from tests.test_api_auto_radius import Stopping

import dfwtrace as dt

Data = tuple[Any, Any]


def sentences(model: Any, X: Any, y: Any) -> list[str]:
    """Fit, and return what was warned of."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        model.fit(X, y)
    return [str(warning.message) for warning in heard]


@pytest.fixture
def easy() -> Data:
    X, Y, _ = dt.datasets.make_multitask(n=120, d=10, m=6, rank=2, noise=0.3, random_state=0)
    return X, Y


# radius="auto"


def test_auto_is_the_default_and_the_radius_is_kept(easy: Data) -> None:
    model = dt.TraceNormRegressor()
    assert model.radius == "auto"
    assert sentences(model, *easy) == []
    search = model.result_.search
    assert model.radius_ == model.result_.radius == search.radii[search.best]
    assert model.radius == "auto"  # as given
    assert clone(model).fit(*easy).radius_ == model.radius_


def test_auto_does_as_well_as_a_search(easy: Data) -> None:
    X, Y, _ = dt.datasets.make_multitask(n=620, d=10, m=6, rank=2, noise=0.3, random_state=0)
    fast, thorough = dt.TraceNormRegressor().fit(*easy), dt.TraceNormRegressorCV().fit(*easy)
    assert fast.score(X[120:], Y[120:]) > thorough.score(X[120:], Y[120:]) - 0.05


def test_a_second_fit_starts_from_the_first(easy: Data) -> None:
    model = dt.TraceNormRegressor(warm_start=True).fit(*easy)
    assert model.fit(*easy).n_iter_ <= 2


def test_a_model_with_a_radius_it_found_is_saved(easy: Data, tmp_path: Any) -> None:
    model = dt.TraceNormRegressor().fit(*easy)
    model.save(tmp_path / "model")
    again = dt.load(tmp_path / "model")
    assert again.radius == "auto"
    assert again.radius_ == model.radius_
    assert np.array_equal(again.predict(easy[0]), model.predict(easy[0]))


@pytest.mark.parametrize("radius", ["cv", -1.0, None])
def test_other_radii_are_refused(radius: Any, easy: Data) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^radius must be"):
        dt.TraceNormRegressor(radius=radius).fit(*easy)


# Messages


def test_a_radius_that_is_too_small_is_pointed_out(easy: Data) -> None:
    (said,) = sentences(dt.TraceNormRegressor(radius=1e-3), *easy)
    assert said.startswith("radius 0.001 is so small that the model explains little: ")
    assert "try radius='auto', or at least " in said
    least = float(said.rsplit(" ", 1)[1].rstrip("."))
    model = dt.TraceNormRegressor(radius=0.9 * least).fit(*easy)
    # It is a lower bound of what half of F(0) takes, but not an empty one.
    assert model.result_.objective >= 0.5 * model.result_.objective_at_zero
    assert sentences(dt.TraceNormRegressor(radius=least), *easy) == []


def test_a_radius_within_the_tolerance_of_zero_is_pointed_out() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 3))
    level = (X[:, 0] + 0.3 * rng.standard_normal(120) > 0).astype(int) + (X[:, 1] > 0.5)
    y = np.array(["low", "middle", "high"])[level]
    for radius in (1e-3, 1e-5):
        model = dt.TraceNormClassifier(radius=radius)
        (said,) = sentences(model, X, y)
        assert said.startswith(f"radius {radius:g} is so small that ")
    assert sentences(dt.TraceNormClassifier(radius=1.0), np.ones((120, 3)), y) == []


def test_radii_that_are_all_too_small_are_pointed_out_once(easy: Data) -> None:
    (said,) = sentences(dt.TraceNormRegressorCV(radii=[1e-5, 1e-4]), *easy)
    assert said.endswith("is the largest of the 2 tried: larger ones may do better.")


def test_a_bound_that_is_idle_is_not_too_small() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((200, 2)), rng.standard_normal((200, 2))
    assert sentences(dt.TraceNormRegressor(radius=100.0), X, Y) == []


def test_features_that_explain_little_are_pointed_out() -> None:
    rng = np.random.default_rng(1)
    X, Y = rng.standard_normal((300, 20)), rng.standard_normal((300, 3))
    for model in (dt.TraceNormRegressor(), dt.TraceNormRegressorCV(radii=4, cv=3)):
        said = sentences(model, X, Y)
        assert any("the features explain little" in one or "is the smallest" in one for one in said)
        assert not any("is so small" in one for one in said)


def test_classes_that_are_separated_are_pointed_out() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 40)), np.arange(30) % 3
    (said,) = sentences(dt.TraceNormClassifier(radius=1e4, tol=1e-5), X, y)
    assert said.startswith("The classes are separated: the objective is ")
    assert sentences(dt.TraceNormClassifier(radius=3.0), X, y) == []


def test_features_of_very_different_size_are_pointed_out(easy: Data) -> None:
    X, Y = easy
    units = np.geomspace(1e-6, 1e6, 10)
    said = sentences(dt.TraceNormRegressor(), X * units, Y)
    assert "The features differ in size by a factor of 1e+12; set standardize=True." in said
    assert not any("differ" in one for one in sentences(dt.TraceNormRegressor(), X * 1e6, Y))
    constant = np.column_stack([X, np.full(len(X), 1e-20)])
    for model in (dt.TraceNormRegressor(standardize=True), dt.TraceNormRegressor()):
        assert sentences(model, constant if not model.standardize else X * units, Y) == []


def test_a_best_radius_at_the_end_is_pointed_out(easy: Data) -> None:
    (said, *_) = sentences(dt.TraceNormRegressorCV(radii=[1e-4, 1e-2], cv=2), *easy)
    assert said == (
        "The best radius, 0.01, is the largest of the 2 tried: larger ones may do better."
    )
    assert sentences(dt.TraceNormRegressorCV(cv=2), *easy) == []


def test_raw_units_end_in_the_interior() -> None:
    X, y = load_wine(return_X_y=True)
    model = dt.TraceNormClassifierCV(radii=4, cv=3, tol=1e-3)
    assert sentences(model, X, y) == []
    assert model.radii_[0] < model.radius_ < model.radii_[-1]


def test_few_rows_are_pointed_out() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((6, 2)), rng.standard_normal((6, 1))
    said = sentences(dt.TraceNormRegressor(), X, Y)
    assert any("6 rows" in one for one in said) or any("smallest" in one for one in said)


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({"max_iter": 1}, "Raise max_iter or tol"),
        ({"max_time": 1e-9}, "Raise max_time or tol"),
    ],
)
def test_advice_fits_what_happened(settings: dict[str, Any], advice: str, multiclass: Data) -> None:
    model = dt.TraceNormClassifier(radius=5.0, tol=1e-12, **settings)
    with pytest.warns(ConvergenceWarning, match=advice) as heard:
        model.fit(*multiclass)
    assert not any("nan" in str(warning.message) for warning in heard)


# Ctrl-C


@pytest.mark.parametrize(
    ("model", "after"),
    [
        (dt.TraceNormClassifier(radius=5.0, tol=1e-12), 60),
        (dt.TraceNormClassifier(), 300),
        (dt.TraceNormClassifierCV(radii=[1.0, 5.0], cv=2, tol=1e-12), 150),
    ],
)
def test_ctrl_c_is_raised_with_the_best_model_set(model: Any, after: int, multiclass: Data) -> None:
    X, y = multiclass
    model = clone(model).set_params(engine=Stopping(after))
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert model.status_ == "interrupted"
    assert model.score(X, y) > 0.5
    assert model.result_.message.startswith("Ended with ")
    assert "nan" not in model.result_.message


@pytest.mark.parametrize(
    "model", [dt.TraceNormClassifier(), dt.TraceNormClassifierCV(radii=[1.0, 5.0], cv=2)]
)
def test_ctrl_c_between_search_and_fit_keeps_what_was_found(model: Any, multiclass: Data) -> None:
    X, y = multiclass
    engine = Stopping(10**9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few radii are tried, on purpose
        clone(model).set_params(engine=engine).fit(X, y)
    rounds = 10**9 - engine.left
    for after in range(rounds - 30, rounds, 3):
        stopped = clone(model).set_params(engine=Stopping(after))
        with pytest.raises(KeyboardInterrupt):
            stopped.fit(X, y)
        assert stopped.status_ == "interrupted"
        assert stopped.score(X, y) > 0.5


def test_ctrl_c_before_the_first_epoch_keeps_the_model_before(multiclass: Data) -> None:
    X, y = multiclass
    model = dt.TraceNormClassifier(radius=5.0).fit(X, y)
    before = model.predict_proba(X)
    with pytest.raises(KeyboardInterrupt):
        model.set_params(engine=Stopping(2)).fit(X, y)
    assert model.status_ == "optimal"
    assert np.array_equal(model.predict_proba(X), before)
