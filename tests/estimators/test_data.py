"""Every form that data come in gives the same model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_sample_weight

import dfwtrace as dt

Data = tuple[Any, Any]
# Threads and shards cost more than they bring on data as small as these.
SMALL: Any = {"n_shards": 1, "n_jobs": 1}
NAMES = [f"f{k}" for k in range(7)]


def objective(model: Any, X: Any, y: Any, weights: Any) -> float:
    """The loss that was minimised, at a fitted model."""
    if hasattr(model, "classes_"):
        log_p = model.predict_log_proba(X)[np.arange(len(y)), np.searchsorted(model.classes_, y)]
        return float(-(weights * log_p).sum())
    return float(0.5 * (weights[:, None] * (model.predict(X) - y) ** 2).sum())


@pytest.fixture(params=["regressor", "classifier"])
def problem(request: pytest.FixtureRequest, multitask: Data, multiclass: Data) -> Any:
    """An estimator with its data."""
    if request.param == "regressor":
        return dt.TraceNormRegressor(1.0, **SMALL), *multitask
    return dt.TraceNormClassifier(5.0, tol=1e-3, **SMALL), *multiclass


@pytest.mark.parametrize("sparse", [False, True])
def test_a_weight_is_a_row_so_many_times(sparse: bool, problem: Any) -> None:
    estimator, X, y = problem
    weights = np.arange(60) % 4
    rows = np.repeat(np.arange(60), weights)
    given, repeated = (sp.csr_array(part) if sparse else part for part in (X, X[rows]))
    one = clone(estimator).set_params(tol=1e-6).fit(given, y, sample_weight=weights)
    other = clone(estimator).set_params(tol=1e-6).fit(repeated, y[rows])
    values = [objective(model, X, y, weights) for model in (one, other)]
    np.testing.assert_allclose(values[0], one.result_.objective, rtol=1e-9)
    assert abs(values[0] - values[1]) <= max(one.duality_gap_, other.duality_gap_) + 1e-9
    unweighted = clone(estimator).fit(X, y)
    assert objective(unweighted, X, y, weights) > values[0] + one.duality_gap_


def test_one_weight_for_all_rows_changes_little(problem: Any) -> None:
    estimator, X, y = problem
    plain, weighted = clone(estimator).fit(X, y), clone(estimator).fit(X, y, sample_weight=1.0)
    np.testing.assert_allclose(weighted.predict(X), plain.predict(X), rtol=1e-6)


def test_zero_weights_for_a_whole_class_are_refused(multiclass: Data) -> None:
    X, y = multiclass
    with pytest.raises(ValueError, match=r"sample_weight must not be zero for all rows of class"):
        dt.TraceNormClassifier().fit(X, y, sample_weight=(y != 2).astype(float))


def test_sparse_rows_are_dense_rows(problem: Any) -> None:
    estimator, X, y = problem
    X = np.where(np.abs(X) > 0.5, X, 0.0)
    dense = clone(estimator).set_params(tol=1e-7).fit(X, y)
    arrays, matrices = (sp.csr_array, sp.csc_array, sp.coo_array), (sp.csr_matrix, sp.coo_matrix)
    for form in (*arrays, *matrices, sp.csc_matrix):
        sparse = clone(estimator).set_params(tol=1e-7).fit(form(X), y)
        gap = max(dense.duality_gap_, sparse.duality_gap_)
        assert abs(dense.result_.objective - sparse.result_.objective) <= gap + 1e-9, form
        np.testing.assert_allclose(sparse.coef_, dense.coef_, atol=0.02)
        for method in ("predict", "transform", "decision_function", "predict_proba"):
            if hasattr(dense, method):
                told = getattr(dense, method)
                np.testing.assert_allclose(told(form(X)), told(X), rtol=1e-9, atol=1e-12)


def test_the_place_in_memory_changes_nothing(problem: Any, tmp_path: Path) -> None:
    estimator, X, y = problem
    expected = clone(estimator).fit(X, y).predict(X)
    frozen = X.copy()
    frozen.flags.writeable = False
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    spread = np.repeat(X, 2, axis=1)[:, ::2]
    for form in (np.asfortranarray(X), frozen, mapped, spread, X.tolist()):
        model = clone(estimator).fit(form, y)
        np.testing.assert_allclose(model.predict(form), expected, rtol=1e-5)
    assert np.array_equal(frozen, X)


def test_labels_do_not_depend_on_the_other_rows(multiclass: Any) -> None:
    X, y = multiclass
    model = dt.TraceNormClassifier(5.0).fit(X, y)
    many, labels = np.tile(X, (35, 1)), np.tile(model.predict(X), 35)  # more than a block
    assert np.array_equal(model.predict(many), labels)
    assert np.array_equal(model.predict(sp.csr_array(many)), labels)


def test_float32_stays_float32(problem: Any) -> None:
    estimator, X, y = problem
    narrow = X.astype(np.float32)
    wide_model = clone(estimator).fit(X, y)
    model = clone(estimator).set_params(tol=1e-3).fit(narrow, y)
    methods = {"transform", "predict_proba", "predict_log_proba", "decision_function"}
    methods |= set() if hasattr(model, "classes_") else {"predict"}
    for method in methods:
        if hasattr(model, method):
            assert getattr(model, method)(narrow).dtype == np.float32
            assert getattr(model, method)(X).dtype == np.float64
            # A model does not depend on what it is used with.
            np.testing.assert_allclose(
                getattr(model, method)(narrow), getattr(model, method)(X), rtol=1e-3, atol=1e-5
            )
    assert model.coef_.dtype == np.float64
    np.testing.assert_allclose(model.coef_, wide_model.coef_, atol=0.2)


def test_whole_numbers_are_numbers(problem: Any) -> None:
    estimator, X, y = problem
    whole = np.round(3 * X).astype(np.int64)
    one, other = (clone(estimator).fit(form, y) for form in (whole, whole.astype(np.float64)))
    assert np.array_equal(one.predict(whole), other.predict(whole))
    assert one.transform(whole).dtype == np.float64


@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
def test_frames_have_names(library: Any, problem: Any) -> None:
    estimator, X, y = problem
    frame = library.DataFrame(dict(zip(NAMES, X.T, strict=True)))
    if not hasattr(StandardScaler().fit(frame), "feature_names_in_"):
        pytest.skip("this version of scikit-learn does not read names from these frames")
    model = clone(estimator).fit(frame, y)
    assert list(model.feature_names_in_) == NAMES
    expected = clone(estimator).fit(X, y)
    np.testing.assert_allclose(model.predict(frame), expected.predict(X), rtol=1e-6)
    with pytest.raises(ValueError, match="must be in the same order"):
        model.predict(frame[NAMES[::-1]])
    with pytest.raises(ValueError, match="seen at fit time, yet now missing"):
        model.predict(frame[NAMES[1:]])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(X)
    assert not hasattr(expected, "feature_names_in_")


@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
def test_transformed_rows_come_in_the_frame_that_is_asked_for(library: Any, problem: Any) -> None:
    estimator, X, y = problem
    model = clone(estimator).set_output(transform=library.__name__).fit(X, y)
    told = model.transform(X)
    assert isinstance(told, library.DataFrame)
    prefix = type(model).__name__.lower()
    names = [f"{prefix}{k}" for k in range(model.low_rank_.rank)]
    assert list(told.columns) == names == list(model.get_feature_names_out())
    np.testing.assert_array_equal(
        told.to_numpy(), model.set_output(transform="default").transform(X)
    )


def test_transformed_rows_give_the_scores(problem: Any) -> None:
    estimator, X, y = problem
    model = clone(estimator).set_params(fit_intercept=False).fit(X, y)
    Z, W = model.transform(X), model.low_rank_
    assert Z.shape == (60, W.rank)
    # Each column is one of XU, up to its sign, which the largest entry of the direction decides.
    np.testing.assert_allclose(np.abs(Z), np.abs(X @ W.U), rtol=1e-9, atol=1e-12)
    U = np.linalg.lstsq(X, Z, rcond=None)[0]
    assert (U[np.abs(U).argmax(axis=0), np.arange(W.rank)] > 0.0).all()


# Labels

LABELS = {
    "strings": np.array(["pear", "fig", "apple", "plum"]),
    "objects": np.array(["pear", "fig", "apple", "plum"], dtype=object),
    "negative and gapped": np.array([-7, 100, 3, 0]),
    "small unsigned": np.array([200, 3, 7, 0], dtype=np.uint8),
    "floats": np.array([2.0, -1.0, 0.0, 9.0]),
}


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("search", [False, True])
def test_labels_of_any_kind(labels: Any, search: bool, multiclass: Data) -> None:
    X, y = multiclass
    rank = np.argsort(np.argsort(labels))  # the place of each label among the sorted ones
    settings: Any = {"tol": 5e-2, **SMALL}
    estimator: Any = dt.TraceNormClassifier(5.0, **settings)
    if search:
        estimator = dt.TraceNormClassifierCV([5.0], cv=2, **settings)
    named, numbered = clone(estimator).fit(X, labels[y]), clone(estimator).fit(X, rank[y])
    assert np.array_equal(named.classes_, np.sort(labels))
    assert named.classes_.dtype == labels.dtype
    assert named.predict(X).dtype == labels.dtype
    assert np.array_equal(named.predict(X), np.sort(labels)[numbered.predict(X)])
    assert np.array_equal(named.predict_proba(X), numbered.predict_proba(X))
    assert named.score(X, labels[y]) == numbered.score(X, rank[y]) > 0.5
    assert np.array_equal(clone(estimator).fit(X, labels[y].tolist()).classes_, np.sort(labels))


@pytest.mark.parametrize("labels", [np.array([False, True]), np.array(["no", "yes"])])
def test_two_classes_look_as_in_scikit_learn(labels: Any, multiclass: Data) -> None:
    X, y = multiclass[0], labels[(multiclass[1] > 1).astype(int)]
    model = dt.TraceNormClassifier(5.0, **SMALL).fit(X, y)
    assert (model.coef_.shape, model.intercept_.shape) == ((1, 7), (1,))
    assert model.low_rank_.shape == (7, 2)
    scores, probabilities = model.decision_function(X), model.predict_proba(X)
    assert (scores.shape, probabilities.shape) == ((60,), (60, 2))
    np.testing.assert_allclose(scores, X @ model.coef_[0] + model.intercept_[0], atol=1e-9)
    np.testing.assert_allclose(probabilities[:, 1], 1.0 / (1.0 + np.exp(-scores)), rtol=1e-9)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), probabilities)
    assert np.array_equal(model.predict(X), labels[(scores > 0.0).astype(int)])
    assert model.predict(X).dtype == labels.dtype


def test_class_weights_are_weights_of_rows(multiclass: Data) -> None:
    X, y = multiclass
    own = np.linspace(0.5, 2.0, 60)
    settings: Any = {"tol": 1e-2, **SMALL}
    for class_weight in ({0: 3.0, 2: 0.5}, "balanced"):
        of_rows = compute_sample_weight(class_weight, y)
        one = dt.TraceNormClassifier(class_weight=class_weight, **settings).fit(X, y)
        other = dt.TraceNormClassifier(**settings).fit(X, y, sample_weight=of_rows)
        assert np.array_equal(one.predict_proba(X), other.predict_proba(X))
    one = dt.TraceNormClassifier(class_weight={0: 3.0}, **settings).fit(X, y, sample_weight=own)
    both = own * compute_sample_weight({0: 3.0}, y)
    other = dt.TraceNormClassifier(**settings).fit(X, y, sample_weight=both)
    assert np.array_equal(one.predict_proba(X), other.predict_proba(X))


# Targets


def test_the_shape_of_targets_is_the_shape_of_predictions(multitask: Data) -> None:
    X, Y = multitask
    flat, column, many = (dt.TraceNormRegressor(**SMALL).fit(X, y) for y in (Y[:, 0], Y[:, :1], Y))
    assert (flat.coef_.shape, flat.predict(X).shape) == ((7,), (60,))
    assert isinstance(flat.intercept_, float)
    assert (column.coef_.shape, column.predict(X).shape) == ((1, 7), (60, 1))
    assert column.intercept_.shape == (1,)
    assert (many.coef_.shape, many.predict(X).shape) == ((5, 7), (60, 5))
    assert np.array_equal(flat.predict(X), column.predict(X)[:, 0])
    assert many.score(X, Y) > 0.5


@pytest.mark.parametrize("search", [False, True])
def test_without_an_intercept_zero_stays_zero(search: bool, problem: Any) -> None:
    estimator, X, y = problem
    if search:
        kind = dt.TraceNormClassifierCV if hasattr(estimator, "class_weight") else None
        estimator = (kind or dt.TraceNormRegressorCV)([1.0], cv=2, tol=1e-3, **SMALL)
    without = clone(estimator).set_params(fit_intercept=False).fit(X, y)
    with_one = clone(estimator).fit(X, y)
    zeros = np.zeros((1, 7))
    assert not np.any(without.intercept_)
    assert np.any(with_one.intercept_)
    if hasattr(without, "classes_"):
        np.testing.assert_allclose(without.predict_proba(zeros), 0.25)
    else:
        assert not without.predict(zeros).any()
        assert with_one.predict(zeros).any()


def test_a_shift_of_the_targets_is_the_intercepts_alone(multitask: Data) -> None:
    X, Y = multitask
    here, there = (
        dt.TraceNormRegressor(1.0, tol=1e-7, **SMALL).fit(X, Y + k) for k in (0.0, 100.0)
    )
    np.testing.assert_allclose(there.predict(X), here.predict(X) + 100.0, atol=1e-2)
