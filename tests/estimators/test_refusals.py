"""What is said when a fit falls short, and when a call cannot be right."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import KFold, RepeatedKFold, ShuffleSplit, TimeSeriesSplit

import dfwtrace as dt

Data = tuple[Any, Any]
NAN = float("nan")


def the_line_of(phrase: str) -> int:
    """The number of this file's only line with a phrase."""
    lines = Path(__file__).read_text().splitlines()
    (number,) = [
        k for k, line in enumerate(lines, 1) if phrase in line and "the_line_of" not in line
    ]
    return number


@pytest.mark.parametrize("search", [False, True])
@pytest.mark.parametrize("name", ["Regressor", "Classifier"])
def test_a_fit_that_falls_short_warns_with_its_gap(
    name: str, search: bool, multitask: Data, multiclass: Data
) -> None:
    X, y = multitask if name == "Regressor" else multiclass
    if search:
        model = getattr(dt, f"TraceNorm{name}CV")([0.5], cv=2, max_iter=1, tol=1e-6)
    else:
        model = getattr(dt, f"TraceNorm{name}")(0.5, max_iter=1, tol=1e-6)
    with pytest.warns(ConvergenceWarning) as caught:
        model.fit(X, y)  # this is the caller
    (warning,) = caught
    assert (warning.filename, warning.lineno) == (__file__, the_line_of("# this is the caller"))
    message = str(warning.message)
    assert f"a relative gap of {model.result_.relative_gap:.2g}" in message
    assert "max_iter" in message
    assert model.status_ == "max_iter"
    assert model.duality_gap_ > 1e-6 * model.result_.objective_at_zero


def test_a_fit_to_the_tolerance_does_not_warn(multitask: Data) -> None:
    # Warnings are errors here.
    assert dt.TraceNormRegressor(1.0).fit(*multitask).status_ == "optimal"
    # Without a tolerance there is nothing to fall short of.
    model = dt.TraceNormRegressor(1.0, solver="dfw", tol=None, max_iter=2).fit(*multitask)
    assert (model.status_, model.n_iter_) == ("max_iter", 2)


def test_a_fit_that_runs_out_of_time_warns(multitask: Data) -> None:
    model = dt.TraceNormRegressor(1.0, solver="dfw", tol=1e-12, max_time=1e-9)
    with pytest.warns(ConvergenceWarning, match="the time was up"):
        model.fit(*multitask)
    assert model.n_iter_ == 1


BAD: list[tuple[str, Any]] = [
    *(("radius", value) for value in (-1, 0.0, NAN, np.inf, "a", None, [1.0], True)),
    *(("solver", value) for value in ("x", None, 3)),
    *(("engine", value) for value in ("x", "spark", 3, dt.LocalEngine)),
    *(("tol", value) for value in (-1, NAN, "a")),
    *(("max_iter", value) for value in (-1, 1.5, "a")),
    *(("max_time", value) for value in (0, -1.0, "a")),
    *(("representation", value) for value in ("x", None)),
    *(("n_shards", value) for value in (0, 1.5)),
    *(("n_jobs", value) for value in (0, 1.5, "a", True)),
    *(("lmo", value) for value in ("x", 3)),
    *(("step", value) for value in ("x",)),
]
BAD_SEARCH: list[tuple[str, Any]] = [
    *(("radii", value) for value in ([], [0], 0, -3, None, "a", ["a"], [[1.0]], [1.0, NAN], 2.5)),
    ("cv", ShuffleSplit(5, random_state=0)),
    ("cv", RepeatedKFold(n_splits=2, n_repeats=2)),
    ("cv", TimeSeriesSplit(3)),
    ("cv", [(np.arange(30), np.arange(40, 60))]),
    ("cv", [(np.arange(60), np.arange(40, 60))]),
    ("cv", [(np.arange(60), np.arange(0))]),
    ("cv", [(np.arange(0), np.arange(60))]),
    ("cv", []),
    ("tol", -1),
    ("max_iter", -1),
    ("engine", "x"),
    ("n_jobs", 0),
]


def assert_one_sentence_on(name: str, message: str) -> None:
    assert message.startswith(name), message
    assert message.endswith("."), message
    assert "\n" not in message, message
    assert not re.search(r"\. [A-Z]", message), message


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_bad_setting_is_refused_in_one_sentence(name: str, value: Any, multitask: Data) -> None:
    solver = {"solver": "dfw"} if name in ("lmo", "step") else {}
    model = dt.TraceNormRegressor(**{**solver, name: value})
    with pytest.raises((TypeError, ValueError)) as caught:
        model.fit(*multitask)
    assert_one_sentence_on(name, str(caught.value))
    with pytest.raises(NotFittedError):
        model.predict(multitask[0])


@pytest.mark.parametrize(("name", "value"), BAD_SEARCH)
def test_a_bad_setting_of_a_search_is_refused_in_one_sentence(
    name: str, value: Any, multitask: Data
) -> None:
    model = dt.TraceNormRegressorCV(**{"radii": [1.0], name: value})
    with pytest.raises((TypeError, ValueError)) as caught:
        model.fit(*multitask)
    assert_one_sentence_on(name, str(caught.value))
    with pytest.raises(NotFittedError):
        model.predict(multitask[0])


def test_a_bad_radius_is_refused_in_a_warm_start_too(multitask: Data) -> None:
    model = dt.TraceNormRegressor(1.0, warm_start=True).fit(*multitask)
    with pytest.raises(TypeError, match=r"radius must be a number or 'auto', got 'a'\."):
        model.set_params(radius="a").fit(*multitask)


@pytest.mark.parametrize("scoring", ["nonsense", 3])
def test_a_bad_scoring_is_refused(scoring: Any, multitask: Data) -> None:
    with pytest.raises(ValueError, match=r"scoring|nonsense"):
        dt.TraceNormRegressorCV([1.0], scoring=scoring).fit(*multitask)


def test_more_folds_than_rows_are_refused(multitask: Data) -> None:
    with pytest.raises(ValueError, match="61"):
        dt.TraceNormRegressorCV([1.0], cv=KFold(61)).fit(*multitask)


@pytest.mark.parametrize("bad", [NAN, np.inf])
def test_what_is_not_finite_is_refused(bad: float, multitask: Data, multiclass: Data) -> None:
    X, Y = multitask
    with_bad_X, with_bad_Y = X.copy(), Y.copy()
    with_bad_X[3, 2] = with_bad_Y[3, 2] = bad
    found = "NaN" if np.isnan(bad) else "infinity"
    model = dt.TraceNormRegressor()
    with pytest.raises(ValueError, match=rf"X contains {found}"):
        model.fit(with_bad_X, Y)
    with pytest.raises(ValueError, match=rf"y contains {found}"):
        model.fit(X, with_bad_Y)
    weights = np.ones(60)
    weights[5] = bad
    with pytest.raises(ValueError, match="sample_weight must be finite"):
        model.fit(X, Y, sample_weight=weights)
    with pytest.raises(ValueError, match=rf"X contains {found}"):
        model.fit(X, Y).predict(with_bad_X)
    labels = multiclass[1].astype(float)
    labels[3] = bad
    with pytest.raises(ValueError, match=rf"y contains {found}"):
        dt.TraceNormClassifier().fit(multiclass[0], labels)


def test_bad_weights_are_refused(multitask: Data, multiclass: Data) -> None:
    for model, data in (
        (dt.TraceNormRegressor(), multitask),
        (dt.TraceNormClassifier(), multiclass),
    ):
        for weights in (-np.ones(60), np.ones(59), np.ones((60, 2)), np.array(["a"] * 60)):
            with pytest.raises((TypeError, ValueError), match=r"^sample_weight must"):
                model.fit(*data, sample_weight=weights)


@pytest.mark.parametrize("search", [False, True])
@pytest.mark.parametrize("masked", ["X", "y", "sample_weight"])
@pytest.mark.parametrize("name", ["Regressor", "Classifier"])
def test_masked_arrays_are_refused(
    name: str, masked: str, search: bool, multitask: Data, multiclass: Data
) -> None:
    X, y = multitask if name == "Regressor" else multiclass
    data = {"X": X, "y": y, "sample_weight": np.ones(60)}
    hidden = np.ma.masked_array(data[masked])
    hidden[3] = np.ma.masked
    kind = getattr(dt, f"TraceNorm{name}CV" if search else f"TraceNorm{name}")
    with pytest.raises(TypeError) as caught:
        kind().fit(**{**data, masked: hidden})
    assert_one_sentence_on(f"{masked} must not be a masked array", str(caught.value))


def test_masked_arrays_are_refused_by_a_fitted_model_and_by_solve(multitask: Data) -> None:
    X, Y = multitask
    model, hidden = dt.TraceNormRegressor(1.0, tol=1e-1).fit(X, Y), np.ma.masked_array(X)
    for refused in (
        lambda: model.predict(hidden),
        lambda: model.transform(hidden),
        lambda: dt.solve(dt.LeastSquares(), hidden, Y, radius=1.0, solver="dfw"),
        lambda: dt.solve(
            dt.LeastSquares(), hidden.filled(), np.ma.masked_array(Y), radius=1.0, solver="dfw"
        ),
    ):
        with pytest.raises(TypeError, match=r"^[Xy] must not be a masked array; .*\.$"):
            refused()


def test_targets_that_are_no_classes_are_refused(multiclass: Data) -> None:
    X, y = multiclass
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        dt.TraceNormClassifier().fit(X, y + 0.5 * (np.arange(60) % 2))
    with pytest.raises(ValueError, match=r"y must hold at least two classes, got one class: 'a'\."):
        dt.TraceNormClassifier().fit(X, ["a"] * 60)


def test_nothing_works_before_the_fit(multitask: Data) -> None:
    X = multitask[0]
    for model in (dt.TraceNormRegressor(), dt.TraceNormClassifier()):
        for method in ("predict", "transform", "predict_proba", "decision_function"):
            if hasattr(model, method):
                with pytest.raises(NotFittedError):
                    getattr(model, method)(X)
        with pytest.raises(NotFittedError):
            model.get_feature_names_out()
        with pytest.raises(NotFittedError):
            _ = model.coef_


@pytest.mark.parametrize("name", ["Regressor", "Classifier", "RegressorCV", "ClassifierCV"])
def test_every_setting_and_attribute_is_documented(
    name: str, multitask: Data, multiclass: Data
) -> None:
    kind = getattr(dt, f"TraceNorm{name}")
    found = re.findall(r"^(\w+(?:, \w+)*) : (.*)$", inspect.getdoc(kind) or "", re.MULTILINE)
    described = {each: what for names, what in found for each in names.split(", ")}
    for setting, parameter in inspect.signature(kind).parameters.items():
        default = json.dumps(parameter.default).replace("0.0001", "1e-4")
        default = {"null": "None", "true": "True", "false": "False"}.get(default, default)
        assert described[setting].endswith(f", default={default}"), setting
    small: Any = {"tol": 1e-1, **({"radii": [1.0]} if "CV" in name else {})}
    model = kind(**small).fit(*(multitask if "Regressor" in name else multiclass))
    for attribute in {*vars(model), "coef_"} - set(model.get_params()):
        assert attribute.startswith("_") or attribute in described, attribute
