"""A fit that is refused, or fails, leaves what the one before it has found."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

import dfwtrace as dt

# Few radii are tried here, on purpose.
pytestmark = pytest.mark.filterwarnings(
    "ignore:The best radius:UserWarning", "ignore:At the radius that did best:UserWarning"
)

Data = tuple[Any, Any]
SMALL: Any = {"tol": 1e-2, "n_shards": 1, "n_jobs": 1}


def fails(*_: Any) -> float:
    raise RuntimeError("no score")


@pytest.mark.parametrize(
    ("search", "settings", "labels", "weights"),
    [
        (False, {"radius": -1.0}, "pq", None),
        (False, {"max_time": 0}, "pq", None),
        (False, {}, "p", None),  # one class
        (False, {}, "pq", np.zeros(60)),
        (False, {"warm_start": True}, "pq", None),  # another width
        (True, {"radii": [-1.0]}, "pq", None),
        (True, {"cv": []}, "pq", None),
        (True, {"scoring": fails}, "pq", None),
        (True, {}, "p", None),
    ],
)
@pytest.mark.parametrize("named", [False, True])
def test_a_classifier_stays_usable(
    named: bool, search: bool, settings: Any, labels: str, weights: Any, multiclass: Data
) -> None:
    X, y = multiclass
    X = pd.DataFrame(X, columns=list("abcdefg")) if named else X
    other = np.array(list(labels))[np.arange(60) % len(labels)]
    model: Any = (
        dt.TraceNormClassifierCV([1.0, 5.0], cv=2, **SMALL)
        if search
        else dt.TraceNormClassifier(5.0, **SMALL)
    )
    model.fit(X, y)
    known, told = dict(vars(model)), model.predict_proba(X)
    before = model.get_params()
    model.set_params(**settings)
    with pytest.raises((ValueError, RuntimeError)):
        model.fit(np.asarray(X)[:, :3], other, sample_weight=weights)
    model.set_params(**before)
    assert vars(model).keys() == known.keys()
    assert all(vars(model)[name] is known[name] for name in known if name.endswith("_"))
    assert np.array_equal(model.predict_proba(X), told)
    assert set(model.predict(X)) <= set(y)
    model.set_params(tol=1e-4)  # there is little to learn, which a loose one would hide
    again = model.fit(np.asarray(X)[:, :3], np.array(list("pq"))[np.arange(60) % 2])
    assert again.classes_.tolist() == ["p", "q"]


def test_a_first_fit_that_is_refused_leaves_nothing(multiclass: Data) -> None:
    model = dt.TraceNormClassifier(-1.0)
    known = set(vars(model))
    with pytest.raises(ValueError, match="radius must be"):
        model.fit(*multiclass)
    assert set(vars(model)) == known


def test_what_fails_after_the_fit_leaves_the_new_one(multiclass: Data) -> None:
    X, y = multiclass
    model = dt.TraceNormClassifier(5.0, **SMALL).fit(X, y)
    model.set_params(max_iter=1, tol=1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConvergenceWarning):
            model.fit(X[:, :5], np.array(["p", "q"])[y % 2])
    assert model.classes_.tolist() == ["p", "q"]
    assert model.predict_proba(X[:, :5]).shape == (60, 2)


@pytest.mark.parametrize("search", [False, True])
def test_a_regressor_stays_usable(search: bool, multitask: Data) -> None:
    X, Y = multitask
    kind: Any = dt.TraceNormRegressorCV if search else dt.TraceNormRegressor
    model = kind([1.0, 2.0] if search else 2.0, **SMALL).fit(X, Y)
    known, told = dict(vars(model)), model.predict(X)
    model.set_params(max_iter=-1)
    with pytest.raises(ValueError, match="max_iter must be"):
        model.fit(X[:, :3], Y[:, 0])  # another width, and one target
    model.set_params(max_iter=None)
    assert vars(model).keys() == known.keys()
    assert model.n_features_in_ == X.shape[1]
    assert np.array_equal(model.predict(X), told)
