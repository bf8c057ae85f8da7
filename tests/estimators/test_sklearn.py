"""Estimators among scikit-learn's tools: pipelines, searches, clones, copies, threads, seeds."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import joblib  # type: ignore[import-untyped]
import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dfwtrace as dt
from dfwtrace.engines import local

# Few radii are tried here, on purpose.
pytestmark = pytest.mark.filterwarnings(
    "ignore:The best radius:UserWarning", "ignore:radius .* is so small:UserWarning"
)

Data = tuple[Any, Any]


@pytest.fixture
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def test_a_pipeline_may_end_with_an_estimator_or_have_it_inside(multiclass: Data) -> None:
    X, y = multiclass
    scaled = StandardScaler().fit_transform(X)
    alone = dt.TraceNormClassifier(5.0).fit(scaled, y)
    pipeline = make_pipeline(StandardScaler(), dt.TraceNormClassifier(5.0)).fit(X, y)
    assert np.array_equal(pipeline.predict_proba(X), alone.predict_proba(scaled))
    inside = make_pipeline(dt.TraceNormRegressor(5.0), dt.TraceNormClassifier(5.0)).fit(X, y)
    names = inside[:-1].get_feature_names_out()
    assert list(names) == ["tracenormregressor0"]
    assert inside[-1].n_features_in_ == 1


def test_a_grid_search_finds_the_radius_that_noise_allows() -> None:
    X, Y, W = dt.datasets.make_multitask(n=100, d=10, m=8, rank=2, noise=1.0, random_state=0)
    radii = [share * W.trace_norm for share in (0.05, 1.0, 50.0)]
    search = GridSearchCV(dt.TraceNormRegressor(tol=1e-3), {"radius": radii}, cv=3).fit(X, Y)
    assert search.best_params_ == {"radius": radii[1]}
    assert search.best_estimator_.radius_ == radii[1]


def test_cross_validation_scores(multiclass: Data) -> None:
    scores = cross_val_score(dt.TraceNormClassifier(5.0), *multiclass, cv=3)
    assert scores.shape == (3,)
    assert scores.min() > 0.5


def test_a_clone_has_the_settings_and_nothing_else(multitask: Data) -> None:
    model = dt.TraceNormRegressor(2.0, tol=1e-3, lmo="power-2", n_jobs=1)
    for copied in (clone(model), clone(copy.copy(model).set_params(lmo=None).fit(*multitask))):
        assert copied.get_params() | {"lmo": None} == model.get_params() | {"lmo": None}
        assert not hasattr(copied, "low_rank_")


def test_copies_predict_to_the_last_bit(multiclass: Data, tmp_path: Path) -> None:
    X, y = multiclass
    for model in (
        dt.TraceNormClassifier(5.0).fit(X, y),
        dt.TraceNormClassifierCV([1.0, 5.0], cv=2, tol=1e-2).fit(X, y),
    ):
        joblib.dump(model, tmp_path / "model.joblib")
        copies = [
            pickle.loads(pickle.dumps(model)),
            copy.deepcopy(model),
            joblib.load(tmp_path / "model.joblib"),
        ]
        for copied in copies:
            assert np.array_equal(copied.predict_proba(X), model.predict_proba(X))
            assert copied.get_params() == model.get_params()


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.usefixtures("routing")
def test_weights_are_routed_where_they_were_asked_for(cross: bool, multitask: Data) -> None:
    X, Y = multitask
    weights = np.arange(60) % 3 + 0.0
    model = dt.TraceNormRegressor(1.0).set_fit_request(sample_weight=True)
    model.set_score_request(sample_weight=False)
    if cross:
        search = GridSearchCV(model, {"radius": [1.0]}, cv=2).fit(X, Y, sample_weight=weights)
        found = search.best_estimator_
    else:
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        pipeline = make_pipeline(scaler, model).fit(X, Y, sample_weight=weights)
        found, X = pipeline[-1], scaler.fit_transform(X)
    expected, unweighted = dt.TraceNormRegressor(1.0), dt.TraceNormRegressor(1.0).fit(X, Y)
    expected.set_fit_request(sample_weight=True).fit(X, Y, sample_weight=weights)
    assert np.array_equal(found.predict(X), expected.predict(X))
    assert not np.array_equal(found.predict(X), unweighted.predict(X))


def test_a_notebook_shows_the_settings(multitask: Data) -> None:
    model = dt.TraceNormRegressor(2.5)
    assert repr(model) == "TraceNormRegressor(radius=2.5)"
    for shown in (model._repr_html_(), model.fit(*multitask)._repr_html_()):
        assert "TraceNormRegressor" in shown
        assert "2.5" in shown


# Fitting again


def test_a_warm_start_begins_where_the_last_fit_ended(multiclass: Data) -> None:
    X, y = multiclass
    model = dt.TraceNormClassifier(5.0, warm_start=True, tol=1e-6).fit(X, y)
    cold, before = model.n_iter_, model.result_.objective
    model.fit(X, y)
    assert model.n_iter_ < cold
    assert model.result_.objective <= before
    # Into a smaller ball, and into a larger one.
    for radius in (1.0, 20.0):
        model.set_params(radius=radius).fit(X, y)
        assert model.status_ == "optimal"
        assert model.low_rank_.trace_norm <= radius * (1 + 1e-9)
        fresh = dt.TraceNormClassifier(radius, tol=1e-6).fit(X, y)
        gap = max(model.duality_gap_, fresh.duality_gap_)
        assert abs(model.result_.objective - fresh.result_.objective) <= gap


def test_without_a_warm_start_a_fit_forgets_the_last(multiclass: Data) -> None:
    X, y = multiclass
    model = dt.TraceNormClassifier(5.0).fit(X, y)
    first = model.predict_proba(X)
    model.fit(X[:30, :3], (y[:30] > 1).astype(int))
    assert (model.n_features_in_, len(model.classes_)) == (3, 2)
    assert np.array_equal(model.fit(X, y).predict_proba(X), first)


def test_a_warm_start_on_other_data_is_refused(multitask: Data) -> None:
    X, Y = multitask
    model = dt.TraceNormRegressor(warm_start=True).fit(X, Y)
    expected = r"start must be finite and of shape \({}\), got LowRankMatrix\(7×5"
    with pytest.raises(ValueError, match=expected.format("6, 5")):
        model.fit(X[:, :6], Y)
    with pytest.raises(ValueError, match=r"start must be .* shape \(7, 1\), got .*7×5"):
        model.fit(X, Y[:, 0])


def test_a_seed_makes_the_fit(multitask: Data) -> None:
    def bits(random_state: Any) -> bytes:
        model = dt.TraceNormRegressor(
            1.0, solver="dfw", tol=None, max_iter=3, random_state=random_state
        )
        return bytes(model.fit(*multitask).coef_.tobytes())

    assert bits(None) == bits(None) == bits(0)
    assert bits(1) == bits(1)
    assert bits(np.random.RandomState(1)) == bits(np.random.RandomState(1))
    assert len({bits(None), bits(1), bits(2)}) == 3


def test_threads_do_not_change_the_bits(monkeypatch: pytest.MonkeyPatch, multitask: Data) -> None:
    monkeypatch.setattr(local, "_BYTES_FOR_A_THREAD", 1)
    found = [
        dt.TraceNormRegressor(1.0, representation="implicit", n_jobs=n_jobs).fit(*multitask).coef_
        for n_jobs in (None, 1, 2, -1, -2, -1000)
    ]
    assert all(np.array_equal(coef, found[0]) for coef in found)


@pytest.mark.parametrize("search", [False, True])
def test_verbose_fits_show_their_progress(search: bool, multitask: Data, capfd: Any) -> None:
    for verbose in (0, 1):
        model: Any = dt.TraceNormRegressor(1.0, verbose=verbose)
        if search:
            model = dt.TraceNormRegressorCV([1.0], cv=2, verbose=verbose)
        model.fit(*multitask)
        shown = capfd.readouterr()
        title = "radius 1, 2/2" if search else "dfwtrace"
        assert (title in shown.out + shown.err) == bool(verbose)


def test_a_fit_goes_on_from_its_checkpoint(multitask: Data, tmp_path: Path) -> None:
    X, Y = multitask
    file = dt.Checkpoint(tmp_path / "run.ckpt", epochs=4)
    settings: Any = {"solver": "dfw", "lmo": "power-2", "tol": None}
    dt.TraceNormRegressor(1.0, max_iter=4, checkpoint=file, **settings).fit(X, Y)
    went_on = dt.TraceNormRegressor(1.0, max_iter=8, checkpoint=file, **settings).fit(X, Y)
    assert went_on.n_iter_ == 8
    at_once = dt.TraceNormRegressor(1.0, max_iter=8, **settings).fit(X, Y)
    assert np.array_equal(went_on.coef_, at_once.coef_)
