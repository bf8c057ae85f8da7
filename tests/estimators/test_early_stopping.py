"""Early stopping: rows left out end a fit, and say which epoch's model is kept."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from tests.files.checkpointed import StopAfter, StopError, assert_same_run
from tests.problems import FORMS, Untouched
from tests.truth import row_losses

import dfwtrace as dt
from dfwtrace.data.shards import Folds, split_rows
from dfwtrace.solvers.early_stopping import EarlyStopping
from dfwtrace.tasks.program import FoldProgram
from dfwtrace.tasks.task import join_weights

Mask = npt.NDArray[np.bool_]
SHARDS, SHARE = 3, 0.2
ENGINE = dt.LocalEngine(SHARDS, n_jobs=1)
LS, MULTI = "least squares", "multinomial"
KINDS: dict[str, Any] = {LS: dt.TraceNormRegressor, MULTI: dt.TraceNormClassifier}
RADIUS = {LS: 2.0, MULTI: 300.0}  # so large that the fits learn the noise
TOL = {LS: 1e-9, MULTI: 1e-4}  # so small that this takes some epochs


@pytest.fixture(scope="module")
def data() -> dict[str, tuple[Any, Any]]:
    """So noisy, and with so few rows, that a fit does worse on other rows from some epoch on."""
    rng = np.random.default_rng(0)
    X, Y, _ = dt.datasets.make_multitask(n=90, d=20, m=6, rank=2, noise=1.5, random_state=0)
    X = X * np.logspace(0.0, -2.0, 20)
    Z, y, _ = dt.datasets.make_multiclass(n=150, d=12, m=4, rank=2, random_state=0)
    y = np.where(rng.random(150) < 0.2, rng.integers(0, 4, 150), y)
    return {LS: (X + 0.3, Y + 1.0), MULTI: (Z + 0.3, y)}


def held_out(name: str, X: Any, y: Any, weights: Any = None, share: float = SHARE) -> Mask:
    """The rows that a fit leaves out; the tests hold the fit itself against them."""
    shape = (X.shape[1], y.shape[1] if name == LS else int(y.max()) + 1)
    task: Any = dt.LeastSquares() if name == LS else dt.Multinomial()
    if weights is not None:
        task, y = task.with_weights(), join_weights(weights, y)
    folds = Folds(1, 0, np.zeros(0), share, 1 if name == LS else shape[1])
    program = FoldProgram(task.represent("implicit"), shape, folds)
    shards = split_rows(X, y, SHARDS)
    before = folds.places(np.array([program.class_sizes(shard) for shard in shards]))
    return np.concatenate([program.fold_of(shard, before) for shard in shards]) == 0


def fitted(name: str, X: Any, y: Any, sample_weight: Any = None, **settings: Any) -> Any:
    settings = {"validation_fraction": SHARE, "engine": ENGINE, "n_iter_no_change": 4} | settings
    if settings.get("solver", "accelerated") == "accelerated":
        settings = {"tol": TOL[name]} | settings
    model = KINDS[name](**{"radius": RADIUS[name], "early_stopping": True} | settings)
    return model.fit(X, y, sample_weight)


def mean_loss(name: str, X: Any, y: Any, result: dt.Result, weights: Any = None) -> float:
    losses = row_losses(name, X, y, result.W, result.intercept)
    return float(np.average(losses, weights=weights))


# Which rows


@pytest.mark.parametrize("share", [0.1, 0.25, 0.6])
@pytest.mark.parametrize("n_shards", [1, 4, 30])
def test_every_class_has_the_same_share_of_the_rows_left_out(n_shards: int, share: float) -> None:
    rng = np.random.default_rng(1)
    sizes = [1, 2, 3, 40, 200, 0, 17]
    y = rng.permutation(np.repeat(np.arange(7), sizes))
    shards = split_rows(np.zeros((y.size, 2)), y, n_shards)
    for n_folds in (1, 5):
        folds = Folds(n_folds, 0, np.zeros(0), share, 7)
        program = FoldProgram(dt.Multinomial(7).represent("implicit"), (2, 7), folds)
        before = folds.places(np.array([program.class_sizes(shard) for shard in shards]))
        fold_of = np.concatenate([program.fold_of(shard, before) for shard in shards])
        left_out = np.bincount(y[fold_of == 0], minlength=7)
        enough = np.array(sizes) * (1.0 - share) >= 1.0
        assert np.all(left_out[~enough] == 0)  # all of them might be left out
        assert np.all(np.abs(left_out - share * np.array(sizes))[enough] < 1.0)
        assert left_out.sum() == np.ceil(share * np.array(sizes)[enough].sum())
        if n_folds == 1:
            first = fold_of == 0
            assert np.all(fold_of[~first] == -1)
            continue
        assert np.array_equal(fold_of == 0, first)  # whatever the other folds are for
        others = np.bincount(fold_of[fold_of > 0].astype(int), minlength=5)[1:]
        assert others.min() >= 0.5 * others.mean()
        assert (fold_of < 0).sum() == np.array(sizes)[~enough].sum()


def test_the_rows_left_out_are_random() -> None:
    X, Y = np.zeros((1000, 2)), np.zeros((1000, 2))
    masks = []
    for seed in (0, 1, 2):
        folds = Folds(1, seed, np.zeros(0), 0.3)
        program = FoldProgram(dt.LeastSquares().represent("implicit"), (2, 2), folds)
        (shard,) = split_rows(X, Y, 1)
        mask = program.fold_of(shard, folds.places(np.array([program.class_sizes(shard)]))) == 0
        assert mask.sum() == 300
        masks.append(mask)
        # Neighbours of rows left out are so as often as others.
        assert 50 < np.count_nonzero(mask[1:] & mask[:-1]) < 130
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert 50 < np.count_nonzero(masks[one] & masks[other]) < 130


# The fit


@pytest.mark.parametrize("solver", ["accelerated", "dfw"])
@pytest.mark.parametrize(("name", "form"), FORMS)
def test_the_best_of_all_iterates_is_kept(
    name: str, form: str, solver: str, data: dict[str, Any]
) -> None:
    X, y = data[name]
    left_out = held_out(name, X, y)
    iterates: list[dt.LowRankMatrix] = []
    task = dt.LeastSquares() if name == LS else dt.Multinomial()
    how: Any = {"radius": RADIUS[name], "solver": solver, "representation": form, "engine": ENGINE}
    how |= {"tol": TOL[name]} if solver == "accelerated" else {}
    early = EarlyStopping(SHARE, 4, name == MULTI, lambda W, record: iterates.append(W))
    result = dt.solve(task, X, y, callback=early, **how)
    scores = [-row_losses(name, X[left_out], y[left_out], W).mean() for W in iterates]
    np.testing.assert_allclose(result.history.column("validation_score"), scores, rtol=1e-9)
    best = int(np.argmax(scores))
    assert (result.status, len(iterates)) == ("early_stopping", best + 5)
    assert all(np.argmax(scores[:t]) > t - 5 for t in range(1, best + 5))  # not before
    np.testing.assert_allclose(result.W.to_dense(), iterates[best].to_dense(), atol=1e-12)
    # It has learned from all other rows, and from these only.
    assert result.objective == pytest.approx(row_losses(name, X, y, result.W)[~left_out].sum())
    alone = dt.solve(task, X[~left_out], y[~left_out], max_iter=1, **how | {"tol": 0.0})
    assert result.objective_at_zero == pytest.approx(alone.objective_at_zero, rel=1e-9)
    assert result.history[0]["objective"] == pytest.approx(alone.objective, rel=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize(("name", "form"), FORMS)
def test_the_score_is_that_of_the_model(
    name: str, form: str, standardize: bool, weighted: bool, data: dict[str, Any]
) -> None:
    X, y = data[name]
    X = X * np.geomspace(0.1, 10.0, X.shape[1]) if standardize else X
    X = sp.csr_array(X) if form == "implicit" else X
    rng = np.random.default_rng(2)
    weights = rng.choice([0.0, 0.5, 1.0, 3.0], X.shape[0]) if weighted else None
    left_out = held_out(name, X, y, weights)
    model = fitted(name, X, y, weights, representation=form, standardize=standardize)
    outside, inside = (None if weights is None else weights[rows] for rows in (~left_out, left_out))
    if weights is not None:
        assert np.all(weights[left_out] > 0.0)
        np.testing.assert_allclose(left_out.sum(), SHARE * (weights > 0.0).sum(), atol=1.0)
    result, scores = model.result_, model.validation_scores_
    expected = -mean_loss(name, X[left_out], y[left_out], result, inside)
    assert model.best_validation_score_ == pytest.approx(expected, rel=1e-8)
    assert model.best_validation_score_ == scores.max()
    assert scores.shape == (model.n_iter_,)
    optimal = model.history_[-1]["gap"] <= TOL[name] * result.objective_at_zero
    assert model.n_iter_ == scores.argmax() + 5 or optimal
    assert np.array_equal(model.history_.column("validation_score"), scores)
    total = (~left_out).sum() if outside is None else outside.sum()
    value = total * mean_loss(name, X[~left_out], y[~left_out], result, outside)
    assert result.objective == pytest.approx(value, rel=1e-8)
    assert result.objective == model.history_[int(scores.argmax())]["objective"]


@pytest.mark.parametrize("name", KINDS)
def test_the_gap_is_a_bound_for_the_model_that_is_kept(name: str, data: dict[str, Any]) -> None:
    X, y = data[name]
    left_out = held_out(name, X, y)
    model = fitted(name, X, y)
    alone = KINDS[name](radius=RADIUS[name], tol=1e-6).fit(X[~left_out], y[~left_out])
    above = model.result_.objective - alone.result_.objective
    assert 0.0 < above <= model.duality_gap_ == model.result_.gap
    assert model.validation_scores_.argmax() + 1 < model.n_iter_
    assert model.status_ == "early_stopping"
    assert "later epochs do no better on the rows left out" in model.result_.message
    assert model.score(X[left_out], y[left_out]) >= alone.score(X[left_out], y[left_out])


def test_shards_with_gradients_of_their_own_leave_rows_out_too(data: dict[str, Any]) -> None:
    """Those of gram form as well, which keep no rows."""
    X, Y = data[LS]
    how: Any = {"solver": "dfw", "lmo": "sva", "fit_intercept": False, "tol": None, "max_iter": 6}
    gram, implicit = (fitted(LS, X, Y, representation=form, **how) for form in ("gram", "implicit"))
    np.testing.assert_allclose(gram.validation_scores_, implicit.validation_scores_, rtol=1e-9)
    left_out = held_out(LS, X, Y)
    expected = -row_losses(LS, X[left_out], Y[left_out], gram.low_rank_).mean()
    assert gram.best_validation_score_ == pytest.approx(expected, rel=1e-9)


# How it ends


def test_without_early_stopping_there_are_no_scores(data: dict[str, Any]) -> None:
    model = fitted(LS, *data[LS], early_stopping=False)
    assert model.validation_scores_ is None
    assert model.best_validation_score_ is None
    assert "validation_score" not in model.history_.columns
    assert model.status_ == "optimal"


@pytest.mark.parametrize("name", KINDS)
def test_a_fit_that_is_optimal_first_ends_as_such(name: str, data: dict[str, Any]) -> None:
    """If the model kept is: else it was chosen by its score."""
    X, y = data[name]
    small = {LS: 1.0, MULTI: 3.0}[name]
    model = fitted(name, X, y, radius=small, n_iter_no_change=50, tol=0.05)
    assert model.status_ == "optimal"
    assert model.result_.relative_gap <= 0.05
    tight = fitted(name, X, y, n_iter_no_change=500, max_iter=500, tol=1e-3)
    assert tight.n_iter_ < 500  # the tolerance ended it
    assert tight.history_[-1]["gap"] <= 1e-3 * tight.result_.objective_at_zero
    assert tight.result_.relative_gap > 1e-3
    assert tight.status_ == "early_stopping"


def test_a_limit_that_comes_first_warns_and_keeps_the_best(data: dict[str, Any]) -> None:
    with pytest.warns(ConvergenceWarning, match="all epochs were used"):
        model = fitted(LS, *data[LS], max_iter=5, solver="dfw")
    assert (model.status_, model.n_iter_) == ("max_iter", 5)
    assert model.best_validation_score_ == model.validation_scores_.max()
    X, y = data[MULTI]
    plain = fitted(MULTI, X, y, n_iter_no_change=3)
    last = plain.n_iter_ - 1  # the score has turned, but not for long enough
    with pytest.warns(ConvergenceWarning, match="all epochs were used"):
        model = fitted(MULTI, X, y, n_iter_no_change=3, max_iter=last)
    assert model.status_ == "max_iter"
    assert np.array_equal(model.coef_, plain.coef_)


def test_ctrl_c_keeps_the_model_with_the_best_score(data: dict[str, Any]) -> None:
    X, y = data[MULTI]
    plain = fitted(MULTI, X, y)

    def interrupt(W: dt.LowRankMatrix, record: dict[str, Any]) -> None:
        if record["epoch"] == plain.n_iter_ - 1:
            raise KeyboardInterrupt

    how: Any = {"radius": RADIUS[MULTI], "engine": ENGINE, "fit_intercept": True}
    early = EarlyStopping(SHARE, 4, True, interrupt)
    result = dt.solve(dt.Multinomial(), X, y, callback=early, **how)
    assert result.status == "interrupted"
    assert len(result.history) == plain.n_iter_ - 1
    assert np.array_equal(result.W.to_dense(), plain.low_rank_.to_dense())


def test_a_callback_is_called_too_and_may_end_the_fit(data: dict[str, Any]) -> None:
    def callback(W: dt.LowRankMatrix, record: dict[str, Any]) -> Any:
        seen.append(record["validation_score"])
        return {"norm": W.trace_norm} if len(seen) < 7 else True

    seen: list[float] = []
    early = EarlyStopping(SHARE, 10, True, callback)
    how: Any = {"radius": RADIUS[MULTI], "engine": ENGINE}
    result = dt.solve(dt.Multinomial(), *data[MULTI], callback=early, **how)
    assert result.status == "stopped"
    assert result.history.column("validation_score").tolist() == seen
    assert np.count_nonzero(result.history.column("norm") > 0.0) == 6
    best = int(np.argmax(seen))
    assert result.objective == result.history[best]["objective"]


# With a search, from a start, from a checkpoint, from a file


@pytest.mark.parametrize("name", KINDS)
def test_a_search_is_judged_by_the_same_rows(name: str, data: dict[str, Any]) -> None:
    """So that the fit does not start from a W that has seen them."""
    X, y = data[name]
    model = fitted(name, X, y, radius="auto")
    search, left_out = model.result_.search, held_out(name, X, y)
    assert search.validation.shape[1] == 5  # few rows: each fold in turn
    for k, result in enumerate(search.fold_results[0]):
        expected = mean_loss(name, X[left_out], y[left_out], result)
        assert search.validation[k, 0] == pytest.approx(expected, rel=1e-8)
    assert model.radius_ == search.radii[search.best]
    expected = -mean_loss(name, X[left_out], y[left_out], model.result_)
    assert model.best_validation_score_ == pytest.approx(expected, rel=1e-8)


def test_a_search_on_many_rows_is_judged_by_these_rows_alone() -> None:
    X, y, _ = dt.datasets.make_multiclass(n=1200, d=6, m=3, rank=2, random_state=0)
    y = np.where(np.arange(1200) % 5 == 0, (y + 1) % 3, y)
    model = dt.TraceNormClassifier(early_stopping=True, engine=ENGINE, tol=1e-3).fit(X, y)
    left_out = held_out(MULTI, X, y, share=0.1)
    assert left_out.sum() == 120
    search = model.result_.search
    assert search.validation.shape[1] == 1
    expected = mean_loss(MULTI, X[left_out], y[left_out], search.fold_results[0][0])
    assert search.validation[0, 0] == pytest.approx(expected, rel=1e-8)


def test_a_warm_start_begins_where_the_last_fit_ended(data: dict[str, Any]) -> None:
    X, y = data[MULTI]
    model = fitted(MULTI, X, y, warm_start=True)
    first, last = model.history_[0]["objective"], model.result_.objective
    model.fit(X, y)
    assert model.history_[0]["objective"] <= last <= first
    assert model.history_[0]["objective"] < first


@pytest.mark.parametrize("solver", ["accelerated", "dfw"])
@pytest.mark.parametrize(("name", "form"), [(LS, "gram"), (LS, "implicit"), (MULTI, "factored")])
def test_a_fit_that_was_stopped_goes_on_to_the_same_bits(
    name: str, form: str, solver: str, data: dict[str, Any], tmp_path: Path
) -> None:
    X, y = data[name]
    task = dt.LeastSquares() if name == LS else dt.Multinomial()
    file = dt.Checkpoint(tmp_path / "run.ckpt", epochs=1)
    how: Any = {"radius": RADIUS[name], "solver": solver, "representation": form}
    how |= {"engine": ENGINE, "fit_intercept": True}
    how |= {"tol": TOL[name]} if solver == "accelerated" else {}
    early = EarlyStopping(SHARE, 4, name == MULTI)
    expected = dt.solve(task, X, y, callback=early, **how)
    assert expected.status == "early_stopping"
    best = int(expected.history.column("validation_score").argmax())
    for epoch in (2, best + 2, best + 4):  # before and after the best
        stop = EarlyStopping(SHARE, 4, name == MULTI, StopAfter(epoch))
        with pytest.raises(StopError):
            dt.solve(task, X, y, callback=stop, checkpoint=file, **how)
    assert_same_run(dt.solve(task, X, y, callback=early, checkpoint=file, **how), expected)
    longer = dt.solve(task, X, y, callback=EarlyStopping(SHARE, 6, name == MULTI), **how)
    more = EarlyStopping(SHARE, 6, name == MULTI)
    assert_same_run(dt.solve(task, X, y, callback=more, checkpoint=file, **how), longer)
    other = EarlyStopping(0.3, 4, name == MULTI)
    for callback, was, now in ((other, SHARE, 0.3), (None, SHARE, None)):
        sentence = f"the validation_fraction was {was} and is {now}"
        with pytest.raises(dt.CheckpointError, match=sentence):
            dt.solve(task, X, y, callback=callback, checkpoint=file, **how)
    with pytest.raises(dt.CheckpointError, match="the rows of the shards have changed"):
        dt.solve(task, X[::-1].copy(), y, callback=early, checkpoint=file, **how)


def test_the_scores_are_saved_with_the_model(data: dict[str, Any], tmp_path: Path) -> None:
    model = fitted(MULTI, *data[MULTI])
    model.save(tmp_path / "model")
    again = dt.load(tmp_path / "model")
    assert np.array_equal(again.validation_scores_, model.validation_scores_)
    assert again.best_validation_score_ == model.best_validation_score_
    assert (again.status_, again.early_stopping) == ("early_stopping", True)


# What is refused


@pytest.mark.parametrize(
    ("setting", "value", "sentence"),
    [
        ("early_stopping", "auto", "early_stopping must be True or False, got 'auto'."),
        ("early_stopping", 1, "early_stopping must be True or False, got 1."),
        ("validation_fraction", "0.1", "validation_fraction must be a number, got '0.1'."),
        ("validation_fraction", 0, "validation_fraction must be a finite number above 0, got 0."),
        ("validation_fraction", 1.0, "validation_fraction must be below 1, got 1.0."),
        ("validation_fraction", np.nan, "validation_fraction must be a finite number above 0"),
        ("n_iter_no_change", 0, "n_iter_no_change must be a whole number of at least 1, got 0."),
        ("n_iter_no_change", 2.0, "n_iter_no_change must be a whole number of at least 1"),
    ],
)
def test_bad_settings_are_refused_before_any_work(
    setting: str, value: Any, sentence: str, data: dict[str, Any]
) -> None:
    engine = Untouched(n_shards=1)
    with pytest.raises((TypeError, ValueError), match=f"^{re.escape(sentence)}"):
        fitted(LS, *data[LS], engine=engine, **{setting: value})


@pytest.mark.parametrize(
    ("name", "y", "share", "end"),
    [
        (LS, [[1.0]], 0.1, "got 0.1 of 1 row in all."),
        (LS, [[1.0], [2.0]], 0.6, "got 0.6 of 2 rows in all."),
        (MULTI, [0, 1, 2], 0.1, "got 0.1 of 1 row in the largest class."),
    ],
)
def test_too_few_rows_are_refused(name: str, y: Any, share: float, end: str) -> None:
    X = np.random.default_rng(0).standard_normal((len(y), 2))
    sentence = "validation_fraction must leave rows to learn from and rows to validate on, " + end
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        fitted(name, X, np.array(y), validation_fraction=share)


def test_a_loss_that_overflows_is_refused() -> None:
    """No score of NaN or infinity is ever compared."""
    X = np.random.default_rng(0).standard_normal((40, 3)).astype(np.float32)
    left_out = held_out(LS, X, np.zeros((40, 1), np.float32))
    y = np.where(left_out, 3e38, 1.0).astype(np.float32)
    with (
        np.errstate(all="ignore"),
        pytest.raises(ArithmeticError, match="the loss of the rows left out is not finite"),
    ):
        fitted(LS, X, y, representation="implicit", solver="dfw", fit_intercept=False)
