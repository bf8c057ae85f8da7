"""Scores, baselines, confusions and weights against scikit-learn's and plain matrices."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    confusion_matrix,
    log_loss,
    r2_score,
    root_mean_squared_error,
    top_k_accuracy_score,
)
from sklearn.model_selection import KFold, cross_val_score
from tests.reports import report_of, solved

import dfwtrace as dt
from dfwtrace.evaluation import Evaluation, cross_validated, evaluate, largest_weights, worth
from dfwtrace.report import Report, render

pytestmark = pytest.mark.filterwarnings("ignore:The best radius", "ignore:At the radius")
NAMES = np.array(["ash", "birch", "cedar", "douglas fir", "elm", "fig", "gum"])


@pytest.fixture(scope="module")
def rows() -> tuple[Any, Any, Any, Any]:
    """Rows of seven classes of different sizes, to learn from and to test."""
    rng = np.random.default_rng(0)
    y = np.sort(rng.choice(7, 400, p=np.arange(1, 8) / 28.0))
    X = rng.normal(size=(7, 5))[y] + rng.normal(size=(400, 5)) * [1.0, 0.1, 10.0, 1.0, 1.0]
    order = rng.permutation(400)
    X, y = X[order], NAMES[y[order]]
    return X[:300], y[:300], X[300:], y[300:]


@pytest.fixture(scope="module")
def classifier(rows: tuple[Any, ...]) -> Any:
    return dt.TraceNormClassifier(5.0, tol=1e-3).fit(*rows[:2])


@pytest.fixture(scope="module")
def regressions() -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 6))
    Y = X @ rng.normal(size=(6, 3)) * [1.0, 100.0, 0.01] + rng.normal(size=(300, 3)) + 5.0
    return X, Y


# Classes


def test_scores_and_baselines_of_classes_are_those_of_scikit_learn(
    rows: tuple[Any, ...], classifier: Any
) -> None:
    X, y, X_test, y_test = rows
    found = evaluate(classifier, X_test, y_test, y)
    for model, scores in (
        (classifier, found.scores),
        (DummyClassifier(strategy="prior").fit(X, y), found.baseline),
    ):
        probabilities = model.predict_proba(X_test)
        assert scores == pytest.approx(
            {
                "accuracy": accuracy_score(y_test, model.predict(X_test)),
                "top-5 accuracy": top_k_accuracy_score(y_test, probabilities, k=5),
                "balanced accuracy": balanced_accuracy_score(y_test, model.predict(X_test)),
                "log loss": log_loss(y_test, probabilities, labels=NAMES),
            }
        )
    assert found.rows == 100


def test_confusions_are_those_of_scikit_learn(rows: tuple[Any, ...], classifier: Any) -> None:
    _, _, X, y = rows
    found, predicted = evaluate(classifier, X, y), classifier.predict(X)
    truth = confusion_matrix(y, predicted, labels=NAMES)
    assert found.matrix is not None
    assert found.matrix[0] == NAMES.tolist()
    np.testing.assert_array_equal(found.matrix[1], truth)
    off = truth - np.diag(np.diag(truth))
    largest = np.sort(off[off > 0])[::-1][:10]
    assert [pair.count for pair in found.confusions] == largest.tolist()
    for pair in found.confusions:
        of_class = y == pair.true
        assert pair.count == (of_class & (predicted == pair.predicted)).sum()
        assert pair.share == pair.count / of_class.sum()
    errors = 1.0 - np.diag(truth) / truth.sum(axis=1)
    assert [part.error for part in found.parts] == pytest.approx(sorted(errors, reverse=True))
    assert all(part.count == (y == part.name).sum() for part in found.parts)
    page = render(Report.of_estimator(classifier, test=(X, y)))
    first = found.confusions[0]
    cells = f'<td class="figure">{first.count}</td><td class="figure">{100 * first.share:.1f} %'
    assert f"<bdi>{first.true}</bdi>" in page
    assert cells in page


def test_labels_that_the_model_does_not_know_are_wrong(
    rows: tuple[Any, ...], classifier: Any
) -> None:
    X, y, X_test, y_test = rows
    strange = y_test.astype(object)
    strange[:4] = "<b>tulip</b>"
    found = evaluate(classifier, X_test, strange, y)
    assert found.scores["accuracy"] == accuracy_score(strange, classifier.predict(X_test))
    rest = evaluate(classifier, X_test[4:], y_test[4:], y)
    assert found.scores["log loss"] == pytest.approx(rest.scores["log loss"])
    assert found.matrix is not None
    assert found.matrix[1].sum() == 96
    report = Report.of_estimator(classifier, X, y, test=(X_test, strange))
    (warning,) = report.warnings
    assert warning.startswith("test rows: the model does not know the labels of 4 rows, such as ")
    page = render(report)
    assert "&lt;b&gt;tulip&lt;/b&gt;" in page
    assert 'class="status other"' in page
    none = evaluate(classifier, X_test[:4], strange[:4], y)
    assert (none.scores["accuracy"], none.parts, none.confusions) == (0.0, [], [])
    assert math.isnan(none.scores["log loss"])
    render(Report.of_estimator(classifier, X, y, test=(X_test[:4], strange[:4])))


def test_one_class_in_the_rows(rows: tuple[Any, ...], classifier: Any) -> None:
    X, y, X_test, y_test = rows
    only = y_test == "gum"  # the most frequent one
    found = evaluate(classifier, X_test[only], y_test[only], y)
    assert found.baseline["accuracy"] == 1.0
    assert len(found.parts) == 1
    assert "no better than ignoring the features" in found.sentence("rows")
    other = evaluate(classifier, X_test[y_test == "fig"], y_test[y_test == "fig"], y)
    assert other.baseline["accuracy"] == 0.0
    render(Report.of_estimator(classifier, X, y, test=(X_test[only], y_test[only])))


def test_pandas_frames_are_taken_as_by_fit(rows: tuple[Any, ...]) -> None:
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(rows[0], columns=["one", "two", "three", "four", "five"])
    y = pandas.Series(rows[1])
    model = dt.TraceNormClassifier(5.0, tol=1e-2).fit(X, y)
    report = Report.of_estimator(model, X, y)
    assert report.evaluations["training"].scores["accuracy"] == model.score(X, y)
    used = {feature for column in report.weights for feature, _ in column.features}
    assert used <= set(X.columns)


# Targets


@pytest.mark.parametrize("width", [1, 3])
def test_errors_of_targets_are_those_of_scikit_learn(
    width: int, regressions: tuple[Any, Any]
) -> None:
    X, Y = regressions
    Y = Y[:, 0] if width == 1 else Y
    model = dt.TraceNormRegressor(30.0).fit(X[:200], Y[:200])
    test = X[200:], Y[200:]
    found = evaluate(model, *test, Y[:200])
    dummy = DummyRegressor().fit(X[:200], Y[:200])
    raw = {"multioutput": "raw_values"}
    for predictor, scores in ((model, found.scores), (dummy, found.baseline)):
        answers = predictor.predict(test[0])
        assert scores["R²"] == pytest.approx(r2_score(test[1], answers))
        errors = root_mean_squared_error(test[1], answers, **raw)
        assert scores["RMSE"] == pytest.approx(np.sqrt(np.mean(errors**2)))
        lowest = r2_score(test[1], answers, **raw).min()
        assert scores.get("lowest R²") == (None if width == 1 else pytest.approx(lowest))
    predicted, mean = model.predict(test[0]), dummy.predict(test[0])
    ranks = np.argsort(r2_score(test[1], predicted, **raw))
    assert [part.name for part in found.parts] == [f"target {j}" for j in ranks]
    for part, j in zip(found.parts, ranks, strict=True):
        of = test[1].reshape(100, -1)[:, j], predicted.reshape(100, -1)[:, j]
        assert part.r2 == pytest.approx(r2_score(*of))
        assert part.error == pytest.approx(root_mean_squared_error(*of))
        base = root_mean_squared_error(of[0], mean.reshape(100, -1)[:, j])
        assert part.baseline == pytest.approx(base)
    if width == 1:
        np.testing.assert_array_equal(found.points, np.column_stack([test[1], predicted]))
    else:
        assert found.points is None


def test_many_points_are_sampled_always_the_same() -> None:
    X = np.random.default_rng(0).normal(size=(5000, 2))
    model = dt.TraceNormRegressor(3.0).fit(X, X[:, 0])
    one, two = (evaluate(model, X, X[:, 0]).points for _ in range(2))
    assert one is not None
    assert one.shape == (1000, 2)
    assert len(np.unique(one[:, 0])) == 1000
    np.testing.assert_array_equal(one, two)
    page = render(Report.of_estimator(model, X, X[:, 0]))
    assert "Predicted against true, 1,000 of 5,000 training rows" in page
    assert len(page) < 250_000


@pytest.mark.parametrize("value", [0.0, 7.0])
def test_a_constant_target_has_a_page(value: float, regressions: tuple[Any, Any]) -> None:
    X, _ = regressions
    y = np.full(300, value)
    model = dt.TraceNormRegressor(1.0).fit(X, y)
    report = Report.of_estimator(model, X, y)
    found = report.evaluations["training"]
    assert found.scores["RMSE"] == pytest.approx(0.0, abs=1e-9)
    assert found.baseline["RMSE"] == 0.0
    assert report.weights == []
    page = render(report)
    assert "What it looks at" not in page
    search = dt.TraceNormRegressorCV([1.0, 2.0], cv=2).fit(X, y)
    render(Report.of_estimator(search, X, y))


def test_one_row_has_an_error_but_no_r2(regressions: tuple[Any, Any]) -> None:
    X, Y = regressions
    model = dt.TraceNormRegressor(30.0).fit(X, Y[:, 0])
    found = evaluate(model, X[:1], Y[:1, 0], Y[:, 0])
    assert math.isnan(found.scores["R²"])
    assert found.sentence("1 test row").startswith("Its RMSE on 1 test row is ")
    render(Report.of_estimator(model, X, Y[:, 0], test=(X[:1], Y[:1, 0])))


# Cross-validation


def test_the_score_of_a_search_is_that_of_its_radius(
    rows: tuple[Any, ...], regressions: tuple[Any, Any]
) -> None:
    X, y, *_ = rows
    search = dt.TraceNormClassifierCV([1.0, 5.0], cv=3, tol=1e-5).fit(X, y)
    found = cross_validated(search, y)
    assert found is not None
    plain = dt.TraceNormClassifier(search.radius_, tol=1e-5)
    scores = cross_val_score(plain, X, y, cv=3, scoring="neg_log_loss")
    assert found.scores["log loss"] == pytest.approx(-scores.mean(), rel=1e-2)
    prior = DummyClassifier(strategy="prior").fit(X, y).predict_proba(X)
    assert found.baseline["log loss"] == pytest.approx(log_loss(y, prior))
    X, Y = regressions
    weights = np.random.default_rng(0).uniform(0.5, 2.0, 300)
    search = dt.TraceNormRegressorCV([1.0, 300.0], cv=KFold(4), tol=1e-7).fit(X, Y)
    found = cross_validated(search, Y, weights)
    assert found is not None
    assert set(found.scores) == {"RMSE"}  # R² of several targets is a mean of other numbers
    plain = dt.TraceNormRegressor(search.radius_, tol=1e-7)
    scores = cross_val_score(plain, X, Y, cv=KFold(4), scoring="neg_mean_squared_error")
    assert found.scores["RMSE"] == pytest.approx(np.sqrt(-scores.mean()), rel=1e-3)
    mean = np.average(Y, axis=0, weights=weights)
    base = root_mean_squared_error(Y.ravel(), np.tile(mean, 300), sample_weight=weights.repeat(3))
    assert found.baseline["RMSE"] == pytest.approx(base)


def test_the_score_of_a_search_for_one_target_is_r2_too(regressions: tuple[Any, Any]) -> None:
    X, Y = regressions
    search = dt.TraceNormRegressorCV([3.0, 300.0], cv=KFold(4)).fit(X, Y[:, 1])
    found = cross_validated(search, Y[:, 1])
    assert found is not None
    assert list(found.scores) == ["R²", "RMSE"]
    assert found.scores["R²"] == pytest.approx(1 - found.scores["RMSE"] ** 2 / np.var(Y[:, 1]))
    assert cross_validated(search) is not None  # without a baseline
    assert cross_validated(dt.TraceNormRegressor(300.0).fit(X, Y)) is None


def test_the_quick_choice_of_a_radius_knows_a_score_as_well(
    regressions: tuple[Any, Any], tmp_path: Path
) -> None:
    X, Y = regressions
    model = dt.TraceNormRegressor().fit(X, Y[:, 1])
    report = Report.of_estimator(model, X, Y[:, 1])
    assert list(report.evaluations) == ["search", "training"]
    losses = model.result_.search.validation
    rmse = np.sqrt(2.0 * losses.mean(axis=1).min())
    assert report.evaluations["search"].scores["RMSE"] == pytest.approx(rmse)
    page = render(report)
    assert "of the variance of rows left out in the search for a radius (R²)" in page
    assert "Choice of the radius" in page
    search = dt.TraceNormRegressorCV([3.0, 300.0], cv=2).fit(X, Y[:, 1])
    search.save(tmp_path / "model")
    again = Report.of_estimator(dt.load(tmp_path / "model"), X, Y[:, 1])
    known = Report.of_estimator(search, X, Y[:, 1]).evaluations["cross-validation"]
    assert again.evaluations["cross-validation"].scores == known.scores


def test_the_score_that_was_asked_for_is_shown(rows: tuple[Any, ...]) -> None:
    X, y, *_ = rows
    how: Any = {"cv": 3, "tol": 1e-2, "scoring": "accuracy", "class_weight": "balanced"}
    search = dt.TraceNormClassifierCV([1.0, 5.0], **how).fit(X, y)
    found = cross_validated(search, y)
    assert found is not None
    assert found.scores["accuracy"] == search.scores_.mean(axis=1).max()
    assert found.baseline["accuracy"] == pytest.approx((y == "gum").mean())
    assert found.baseline["log loss"] == pytest.approx(np.log(7.0))  # as the weights have it


# Weights


@pytest.mark.parametrize("sparse", [False, True])
def test_weights_are_those_of_the_matrix_in_standard_deviations(
    sparse: bool, rows: tuple[Any, ...]
) -> None:
    X, y, *_ = rows
    model = dt.TraceNormClassifier(5.0, tol=1e-3).fit(X, y)
    found = largest_weights(model, sp.csr_array(X) if sparse else X, y, list("abcde"))
    labels, counts = np.unique(y, return_counts=True)
    assert [column.name for column in found] == labels[np.argsort(-counts, kind="stable")].tolist()
    dense = model.coef_ - model.coef_.mean(axis=0)
    for column in found:
        assert column.count == (y == column.name).sum()
        effects = dense[labels.tolist().index(column.name)] * X.std(axis=0)
        order = np.argsort(-np.abs(effects))
        assert [feature for feature, _ in column.features] == ["abcde"[j] for j in order]
        assert [weight for _, weight in column.features] == pytest.approx(effects[order].tolist())


def test_weights_of_two_classes_and_of_targets(regressions: tuple[Any, Any]) -> None:
    X, Y = regressions
    y = np.where(Y[:, 0] > 5.0, "high", "low")
    model = dt.TraceNormClassifier(2.0).fit(X, y)
    ((name, count, features),) = largest_weights(model)
    assert (name, count, len(features)) == ("low rather than high", None, 5)
    order = np.argsort(-np.abs(model.coef_[0]))[:5]
    assert features == [(f"feature {j}", pytest.approx(model.coef_[0, j])) for j in order]
    model = dt.TraceNormRegressor(30.0).fit(X, Y)
    found = largest_weights(model, X, None, None, ["r", "s", "t"])
    assert [column.name for column in found] == ["r", "s", "t"]
    order = np.argsort(-np.abs(model.coef_[1] * X.std(axis=0)))[:5]
    assert [feature for feature, _ in found[1].features] == [f"feature {j}" for j in order]


def test_a_standardised_fit_knows_the_scales_of_its_features(rows: tuple[Any, ...]) -> None:
    X, y, *_ = rows
    model = dt.TraceNormClassifier(5.0, tol=1e-3, standardize=True).fit(X, y)
    for known, again in zip(largest_weights(model, X), largest_weights(model), strict=True):
        assert [name for name, _ in known.features] == [name for name, _ in again.features]
        weights = [weight for _, weight in known.features]
        assert weights == pytest.approx([weight for _, weight in again.features])
    assert Report.of_estimator(model).scaled


def test_large_matrices_stay_factors() -> None:
    """A dense one would take 3 TiB."""
    d, m, rng = 2_000_000, 200_000, np.random.default_rng(0)
    model = dt.TraceNormRegressor(1.0)
    model.low_rank_ = dt.LowRankMatrix(rng.normal(size=(d, 1)), [1.0], rng.normal(size=(m, 1)))
    found = largest_weights(model)
    assert len(found) == 12
    assert all(len(column.features) == 5 for column in found)


# Sentences


@pytest.mark.parametrize(
    ("scores", "baseline", "expected"),
    [
        ({}, {}, ""),
        ({"accuracy": math.nan}, {}, ""),
        ({"R²": math.nan, "RMSE": 2.0}, {"RMSE": 3.0},
         "Its RMSE on 9 rows is 2; always answering the mean would have 3."),
        ({"R²": -0.5}, {"R²": -0.01},
         "Its R² on 9 rows is −0.5; always answering the mean would have −0.01. So the model is no "
         "better than ignoring the features."),
        ({"log loss": 1.5}, {"log loss": 1.0},
         "Its log loss on 9 rows is 1.5; the frequencies of the classes alone would have 1. So the "
         "model is no better than ignoring the features."),
        ({"accuracy": 0.5}, {}, "It gets 50.0 % of 9 rows right."),
    ],
)  # fmt: skip
def test_a_sentence_says_what_is_known(scores: Any, baseline: Any, expected: str) -> None:
    assert Evaluation(9, scores, baseline).sentence("9 rows") == expected


def test_scores_that_are_not_known_make_no_section() -> None:
    assert worth({"test": Evaluation(0, {"accuracy": math.nan})}) is None
    found = {"test": Evaluation(0, {"R²": math.nan, "RMSE": math.inf})}
    assert "What the model is worth" not in render(
        report_of(solved("regression", max_iter=2), evaluations=found)
    )
