"""scikit-learn's callbacks see the fit and its epochs, and may end it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV

import dfwtrace as dt

callback = pytest.importorskip("sklearn.callback", reason="scikit-learn has callbacks since 1.9")
Data = tuple[Any, Any]


class Diary:
    """Writes down what it is told; asks for an end after some epochs."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.stop_after = stop_after
        self.told: list[tuple[str, str]] = []
        self.data: list[tuple[Any, Any, Any]] = []

    def setup(self, estimator: Any, context: Any) -> None:
        self.told.append(("setup", context.task_name))

    def teardown(self, estimator: Any, context: Any) -> None:
        self.told.append(("teardown", context.task_name))

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        self.told.append(("begin", context.task_name))

    def on_fit_task_end(
        self, estimator: Any, context: Any, *, X: Any = None, y: Any = None, metadata: Any = None
    ) -> bool:
        self.told.append(("end", context.task_name))
        self.data.append((X, y, metadata))
        return self.told.count(("end", "epoch")) == self.stop_after


class Looker(Diary):
    """Uses the estimator as it is after each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def on_fit_task_end(  # type: ignore[override]
        self, estimator: Any, context: Any, *, fitted_estimator: Any = None
    ) -> None:
        self.seen.append(fitted_estimator)


def test_a_callback_sees_the_fit_and_every_epoch(multiclass: Data) -> None:
    X, y = multiclass
    names, weights = np.array(["a", "b", "c", "d"])[y], np.linspace(1.0, 2.0, 60)
    diary = Diary()
    model = dt.TraceNormClassifier(5.0, class_weight="balanced").set_callbacks(diary)
    model.fit(X, names, sample_weight=weights)
    epochs = [("begin", "epoch"), ("end", "epoch")] * model.n_iter_
    around = [("setup", "fit"), ("begin", "fit")], [("end", "fit"), ("teardown", "fit")]
    assert diary.told == [*around[0], *epochs, *around[1]]
    for told_X, told_y, metadata in diary.data:  # as they were given
        assert told_X is X
        assert told_y is names
        assert metadata["sample_weight"] is weights


def test_a_callback_changes_nothing(multiclass: Data) -> None:
    watched = dt.TraceNormClassifier(5.0).set_callbacks(Diary(), Looker()).fit(*multiclass)
    alone = dt.TraceNormClassifier(5.0).fit(*multiclass)
    assert np.array_equal(watched.coef_, alone.coef_)


@pytest.mark.parametrize("kind", [dt.TraceNormRegressor, dt.TraceNormClassifier])
def test_a_callback_may_end_the_fit(kind: Any, multitask: Data, multiclass: Data) -> None:
    data = multitask if kind is dt.TraceNormRegressor else multiclass
    model = kind(tol=1e-6, solver="dfw").set_callbacks(Diary(stop_after=3)).fit(*data)
    assert (model.status_, model.n_iter_) == ("stopped", 3)
    assert model.predict(data[0]).shape[0] == 60


def test_a_failed_fit_is_torn_down(multitask: Data) -> None:
    diary = Diary()
    with pytest.raises(ValueError, match="radius"):
        dt.TraceNormRegressor(-1.0).set_callbacks(diary).fit(*multitask)
    assert diary.told == [("setup", "fit"), ("begin", "fit"), ("teardown", "fit")]


def test_a_search_tells_of_the_fit(multitask: Data) -> None:
    diary = Diary()
    dt.TraceNormRegressorCV([1.0], cv=2).set_callbacks(diary).fit(*multitask)
    told = [("setup", "fit"), ("begin", "fit"), ("end", "fit"), ("teardown", "fit")]
    assert diary.told == told


def test_a_progress_bar_is_full_at_the_end(
    multitask: Data, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the number of epochs is not known before."""
    monkeypatch.setenv("COLUMNS", "200")  # as wide as the terminal is for rich
    model = dt.TraceNormRegressor(1.0).set_callbacks(callback.ProgressBar()).fit(*multitask)
    shown = capsys.readouterr().out
    assert "TraceNormRegressor - fit" in shown
    assert "100%" in shown
    search = GridSearchCV(model.set_callbacks(), {"radius": [0.5, 1.0]}, cv=2, refit=False)
    search.set_callbacks(callback.ProgressBar()).fit(*multitask)
    shown = capsys.readouterr().out
    assert shown.count("TraceNormRegressor - fit") == 4
    assert shown.count("100%") >= 5


# The estimator after an epoch


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_a_regressor_can_be_used_after_each_epoch(
    intercept: bool, weighted: bool, standardize: bool, multitask: Data
) -> None:
    X, Y = multitask
    X = X * 10.0 ** np.array([0, 6, -7, 2, 7, -4, 4]) if standardize else X
    weights = np.linspace(0.0, 2.0, 60) if weighted else np.ones(60)
    looker = Looker()
    model = dt.TraceNormRegressor(1.0, fit_intercept=intercept, standardize=standardize)
    model.set_callbacks(looker).fit(X, Y, sample_weight=weights if weighted else None)
    *at_epochs, at_end = looker.seen
    assert len(at_epochs) == model.n_iter_
    for record, fitted in zip(model.history_, at_epochs, strict=True):
        residual = fitted.predict(X) - Y
        loss = 0.5 * float((weights[:, None] * residual**2).sum())
        assert loss == pytest.approx(record["objective"], rel=1e-6)
        assert fitted.transform(X).shape == (60, fitted.low_rank_.rank)
        assert fitted.n_iter_ == record["epoch"]
    assert np.array_equal(at_end.predict(X), model.predict(X))
    np.testing.assert_allclose(at_epochs[-1].predict(X), model.predict(X), rtol=1e-8, atol=1e-9)


def test_a_classifier_can_be_used_after_each_epoch_where_it_has_no_intercept(
    multiclass: Data,
) -> None:
    X, y = multiclass
    looker = Looker()
    model = dt.TraceNormClassifier(5.0, fit_intercept=False).set_callbacks(looker).fit(X, y)
    for record, fitted in zip(model.history_, looker.seen[:-1], strict=True):
        loss = -fitted.predict_log_proba(X)[np.arange(60), y].sum()
        assert loss == pytest.approx(record["objective"], rel=1e-6)


def test_an_intercept_that_is_not_known_is_not_made_up(multiclass: Data) -> None:
    looker = Looker()
    model = dt.TraceNormClassifier(5.0).set_callbacks(looker).fit(*multiclass)
    assert looker.seen[:-1] == [None] * model.n_iter_
    assert looker.seen[-1].score(*multiclass) == model.score(*multiclass)


def test_scores_are_monitored(multitask: Data, multiclass: Data) -> None:
    X, Y = multitask
    monitor = callback.ScoringMonitor(scoring="r2")
    frame = pd.DataFrame(X, columns=list("abcdefg"))  # names are no trouble
    model = dt.TraceNormRegressor(1.0).set_callbacks(monitor).fit(frame, Y)
    scores = [row["r2"] for row in monitor.get_logs().data]  # the fit's, then the epochs'
    assert len(scores) == model.n_iter_ + 1
    assert scores[0] == pytest.approx(model.score(frame, Y))
    assert scores[-1] == pytest.approx(scores[0], rel=1e-6)
    monitor = callback.ScoringMonitor(scoring="accuracy")
    X, y = multiclass[0], np.array(["a", "b", "c", "d"])[multiclass[1]]
    classifier = dt.TraceNormClassifier(5.0).set_callbacks(monitor).fit(X, y)
    assert [row["accuracy"] for row in monitor.get_logs().data] == [classifier.score(X, y)]


def test_an_intercept_of_the_rows_not_left_out_is_not_made_up(multitask: Data) -> None:
    looker = Looker()
    model = dt.TraceNormRegressor(1.0, early_stopping=True).set_callbacks(looker).fit(*multitask)
    assert looker.seen[:-1] == [None] * model.n_iter_
    assert np.array_equal(looker.seen[-1].predict(multitask[0]), model.predict(multitask[0]))
    diary = Diary(stop_after=2)
    model = dt.TraceNormRegressor(1.0, early_stopping=True, tol=1e-9).set_callbacks(diary)
    assert (model.fit(*multitask).status_, len(model.validation_scores_)) == ("stopped", 2)
