"""Many radii at once: the same as apart, certified, from one look at the data."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import logsumexp

import dfwtrace as dt
from dfwtrace.shards import Shard, split_rows
from dfwtrace.tasks import folds_of

RADII = [0.3, 1.0, 3.0, 10.0]
TASKS = {"least squares": dt.LeastSquares(), "multinomial": dt.Multinomial()}
FORMS = [(name, form) for name, task in TASKS.items() for form in task.representations]
ENGINE = dt.LocalEngine(n_shards=3, n_jobs=1)


@pytest.fixture
def data(multitask: tuple[Any, Any], multiclass: tuple[Any, Any]) -> dict[str, tuple[Any, Any]]:
    return {"least squares": multitask, "multinomial": multiclass}


def losses(name: str, X: Any, y: Any, W: dt.LowRankMatrix) -> Any:
    """The loss of every row, in plain NumPy."""
    S = (X.toarray() if sp.issparse(X) else X).astype(np.float64) @ W.to_dense()
    if name == "least squares":
        return 0.5 * np.square(S - y).sum(axis=1)
    return logsumexp(S, axis=1) - S[np.arange(len(y)), y]


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_every_radius_is_certified_and_equal_to_a_run_of_its_own(
    name: str, form: str, data: dict[str, Any]
) -> None:
    X, y = data[name]
    options: Any = {"representation": form, "engine": ENGINE, "tol": 1e-6}
    path = dt.path(TASKS[name], X, y, radii=RADII, **options)
    assert path.radii.tolist() == RADII
    assert path.validation is None
    for radius, result in zip(RADII, path.results, strict=True):
        assert result.status == "optimal"
        assert result.relative_gap <= 1e-6
        assert result.W.trace_norm <= radius * (1.0 + 1e-9)
        value = losses(name, X, y, result.W).sum()
        assert result.objective == pytest.approx(value, rel=1e-9)
        assert result.plan.representation == form
        alone = dt.solve(TASKS[name], X, y, radius=radius, solver="accelerated", **options)
        assert alone.objective_at_zero == pytest.approx(result.objective_at_zero, rel=1e-12)
        rounding = 1e-12 * alone.objective_at_zero
        assert result.objective - alone.objective <= result.gap + rounding
        assert alone.objective - result.objective <= alone.gap + rounding


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("order", [[3, 2, 1, 0], [1, 3, 0, 2]])
def test_the_order_of_the_radii_is_that_of_the_results_alone(
    name: str, order: list[int], data: dict[str, Any]
) -> None:
    options: Any = {"engine": ENGINE, "folds": 3}
    sorted_path = dt.path(TASKS[name], *data[name], radii=RADII, **options)
    path = dt.path(TASKS[name], *data[name], radii=[RADII[k] for k in order], **options)
    assert path.radii.tolist() == [RADII[k] for k in order]
    for place, k in enumerate(order):
        assert path.results[place].objective == sorted_path.results[k].objective
        assert np.array_equal(path.results[place].W.to_dense(), sorted_path.results[k].W.to_dense())
    assert path.validation is not None
    assert sorted_path.validation is not None
    assert np.array_equal(path.validation, sorted_path.validation[order])
    assert path.radii[path.best] == sorted_path.radii[sorted_path.best]


def test_a_radius_may_come_twice_and_radii_may_be_any_numbers(data: dict[str, Any]) -> None:
    for radii in ([2.0, 1.0, 2.0], np.array([2, 1, 2]), (2, np.float32(1.0), 2.0)):
        path = dt.path(dt.Multinomial(), *data["multinomial"], radii=radii)
        first, _, again = path.results
        assert {result.status for result in path.results} == {"optimal"}
        assert abs(first.objective - again.objective) <= max(first.gap, again.gap)
        assert len(again.history) <= 2  # it starts where the other ended
    assert repr(path) == "Path(3 radii from 1 to 2)"


def test_radii_may_come_from_a_generator(data: dict[str, Any]) -> None:
    path = dt.path(dt.LeastSquares(), *data["least squares"], radii=(r for r in [1.0, 2.0]))  # type: ignore[arg-type]
    assert path.radii.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(("name", "first"), [("least squares", 0.5), ("multinomial", 10.0)])
def test_warm_starts_take_fewer_epochs_than_cold_ones(name: str, first: float) -> None:
    X, Y, _ = dt.datasets.make_multitask(n=400, d=40, m=25, rank=6, noise=0.5, seed=3)
    X = X * np.logspace(0, -2, 40)  # so that there is something to do
    _, y, _ = dt.datasets.make_multiclass(n=400, d=40, m=25, rank=6, seed=3)
    targets = Y if name == "least squares" else y
    radii = [first * 1.3**k for k in range(6)]
    options: Any = {"representation": "implicit", "engine": ENGINE, "tol": 1e-5}
    path = dt.path(TASKS[name], X, targets, radii=radii, **options)
    cold = [
        dt.solve(TASKS[name], X, targets, radius=radius, solver="accelerated", **options)
        for radius in radii
    ]
    assert {result.status for result in [*path.results, *cold]} == {"optimal"}
    assert np.array_equal(path.results[0].W.to_dense(), cold[0].W.to_dense())
    warm_epochs, cold_epochs = (
        sum(len(result.history) for result in results) for results in (path.results, cold)
    )
    assert warm_epochs < cold_epochs


# What is asked of the workers


class Watched:
    """Workers that note what they were asked for."""

    def __init__(self, workers: Any, calls: list[str]) -> None:
        self._workers, self._calls = workers, calls

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._workers, name)
        if name not in ("build", "apply", "sum", "gather"):
            return value

        def noted(method: str, *args: Any) -> Any:
            self._calls.append(method)
            return value(method, *args)

        return noted


class WatchedEngine(dt.LocalEngine):
    """The local engine, with a note of how often it was started and what its workers did."""

    def __init__(self, n_shards: int = 4) -> None:
        super().__init__(n_shards=n_shards, n_jobs=1)
        self.starts = 0
        self.calls: list[str] = []

    def start(self, program: Any, rows: Any) -> Any:
        self.starts += 1
        return Watched(super().start(program, rows), self.calls)


@pytest.mark.parametrize(("folds", "method"), [(None, "moments"), (5, "fold_moments")])
def test_moments_are_the_only_look_at_the_data(
    folds: int | None, method: str, multitask: tuple[Any, Any]
) -> None:
    engine = WatchedEngine()
    path = dt.path(
        dt.LeastSquares(),
        *multitask,
        radii=RADII,
        folds=folds,
        representation="gram",
        engine=engine,
    )
    assert {result.status for result in path.results} == {"optimal"}
    assert (engine.starts, engine.calls) == (1, [method])


def test_the_data_are_sent_once_for_all_radii(data: dict[str, Any]) -> None:
    engine = WatchedEngine()
    path = dt.path(dt.Multinomial(), *data["multinomial"], radii=RADII, engine=engine)
    assert engine.starts == 1
    # Each run's rounds are its own, and together they are all that there were.
    assert [made["method"] for result in path.results for made in result.rounds] == engine.calls
    for result in path.results:
        assert [made["method"] for made in result.rounds[:2]] == ["stats", "report"]
        assert result.history.column("other_rounds").sum() <= len(result.rounds)


def test_threads_and_shards_of_every_run_are_given_back(data: dict[str, Any]) -> None:
    before = threading.active_count()
    for name in TASKS:
        dt.path(TASKS[name], *data[name], radii=[1.0, 2.0], folds=2)
    assert threading.active_count() == before


# Folds


def folds_of_rows(X: Any, y: Any, n_folds: int, seed: int, n_shards: int) -> Any:
    """The fold of every row, where each shard deals out its own."""
    told, before = [], 0
    for shard in split_rows(X, y, n_shards):
        told.append(folds_of(shard, n_folds, seed, before))
        before += shard.n_rows
    return np.concatenate(told)


@pytest.mark.parametrize(
    ("layout", "dtype", "seed"),
    [
        (np.asfortranarray, np.float64, 0),
        (np.asarray, np.float32, 7),
        (sp.csr_array, np.float64, 7),
        (sp.csr_array, np.float32, 0),
    ],
)
def test_folds_by_subtraction_are_refits_on_the_training_rows(
    layout: Any, dtype: Any, seed: int, multitask: tuple[Any, Any]
) -> None:
    X, Y = layout(multitask[0].astype(dtype)), multitask[1]
    radii = [0.5, 2.0]
    options: Any = {"representation": "gram", "tol": 1e-10, "seed": seed}
    path = dt.path(
        dt.LeastSquares(), X, Y, radii=radii, folds=4, engine=dt.LocalEngine(3, 1), **options
    )
    fold_of = folds_of_rows(X, Y, 4, seed, 3)
    assert path.validation is not None
    assert path.validation.shape == (2, 4)
    for fold in range(4):
        learn, held_out = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)
        for place, radius in enumerate(radii):
            refit = dt.solve(
                dt.LeastSquares(),
                X[learn],
                Y[learn],
                radius=radius,
                solver="accelerated",
                **options,
            )
            expected = losses("least squares", X[held_out], Y[held_out], refit.W).mean()
            assert path.validation[place, fold] == pytest.approx(expected, rel=1e-4)
    assert path.best == np.argmin(path.validation.mean(axis=1))


@pytest.mark.parametrize("form", ["implicit", "factored"])
@pytest.mark.parametrize("sparse", [False, True])
def test_folds_of_a_classification_are_refits_on_the_training_rows(
    form: str, sparse: bool, multiclass: tuple[Any, Any]
) -> None:
    X, y = multiclass
    X = sp.csr_array(X) if sparse else X
    task = dt.Multinomial(n_classes=4)
    options: Any = {"representation": form, "engine": ENGINE}
    path = dt.path(task, X, y, radii=[1.0, 5.0], folds=3, tol=1e-8, **options)
    fold_of = folds_of(Shard(0, X, y), 3, 0)
    assert np.bincount(fold_of).tolist() == [20, 20, 20]
    assert path.validation is not None
    for fold in range(3):
        learn, held_out = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)
        for place, radius in enumerate([1.0, 5.0]):
            refit = dt.solve(
                task, X[learn], y[learn], radius=radius, solver="accelerated", tol=1e-8, **options
            )
            expected = losses("multinomial", X[held_out], y[held_out], refit.W).mean()
            assert path.validation[place, fold] == pytest.approx(expected, rel=1e-3)


def test_results_with_folds_are_those_without(data: dict[str, Any]) -> None:
    for name, task in TASKS.items():
        without, with_folds = (
            dt.path(task, *data[name], radii=RADII, folds=folds, engine=ENGINE, tol=1e-6)
            for folds in (None, 3)
        )
        for one, other in zip(without.results, with_folds.results, strict=True):
            assert abs(one.objective - other.objective) <= max(one.gap, other.gap)


def test_folds_follow_the_seed(multitask: tuple[Any, Any]) -> None:
    found = [
        dt.path(dt.LeastSquares(), *multitask, radii=[1.0], folds=3, seed=seed).validation
        for seed in (0, 0, 1)
    ]
    assert np.array_equal(found[0], found[1])  # type: ignore[arg-type]
    assert not np.array_equal(found[0], found[2])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("folds", [2, 7, 10, 59, 60])
def test_no_fold_is_empty_and_none_is_much_larger_than_another(
    name: str, folds: int, data: dict[str, Any]
) -> None:
    """Also if a shard has fewer rows than there are folds; up to one fold for each row."""
    X, y = data[name]
    path = dt.path(TASKS[name], X, y, radii=[0.5], folds=folds, tol=0.1)
    assert path.validation is not None
    assert path.validation.shape == (1, folds)
    assert np.isfinite(path.validation).all()
    if folds == 60:  # each row is left out once: none is left out of the mean
        assert (path.validation > 0.0).all()


def test_validation_finds_the_radius_that_noise_allows() -> None:
    X, Y, W = dt.datasets.make_multitask(n=200, d=20, m=15, rank=2, noise=1.0, seed=0)
    radii = [share * W.trace_norm for share in (0.05, 1.0, 50.0)]
    path = dt.path(dt.LeastSquares(), X, Y, radii=radii, folds=5)
    assert path.best == 1
    assert np.all(np.diff([result.objective for result in path.results]) < 0.0)


def test_without_folds_there_is_no_best_radius(multitask: tuple[Any, Any]) -> None:
    path = dt.path(dt.LeastSquares(), *multitask, radii=[1.0])
    with pytest.raises(ValueError, match=r"best needs validation losses: ask for folds\."):
        _ = path.best


# An intercept, weights, and folds that are told

FOLD_FORMS = [(name, form) for name, form in FORMS if form != "dense"]


def validation_losses(name: str, X: Any, y: Any, weights: Any, result: dt.Result) -> float:
    """The mean loss of a row, in plain NumPy."""
    X = (X.toarray() if sp.issparse(X) else X).astype(np.float64)
    S = X @ result.W.to_dense() + (0.0 if result.intercept is None else result.intercept)
    if name == "least squares":
        of_rows = 0.5 * np.square(S - y).sum(axis=1)
    else:
        of_rows = logsumexp(S, axis=1) - S[np.arange(len(y)), y]
    return float(np.average(of_rows, weights=weights))


@pytest.fixture(scope="module")
def uncentred(multitask: tuple[Any, Any]) -> dict[str, tuple[Any, Any]]:
    """Features and targets that an intercept matters for; every class occurs in every fold."""
    X, y, _ = dt.datasets.make_multiclass(n=60, d=7, m=4, rank=3, seed=0)
    return {
        "least squares": (multitask[0] + 3.0, multitask[1] + np.arange(5.0)),
        "multinomial": (X + 3.0, y),
    }


@pytest.mark.parametrize(("name", "form"), FOLD_FORMS)
@pytest.mark.parametrize(("intercept", "weighted"), [(False, True), (True, False), (True, True)])
def test_told_folds_are_refits_on_the_training_rows(
    name: str, form: str, intercept: bool, weighted: bool, uncentred: dict[str, Any]
) -> None:
    X, y = uncentred[name]
    X = X if intercept else X - 3.0
    rng = np.random.default_rng(0)
    fold_of = rng.permutation(np.arange(60) % 2) - (rng.random(60) < 0.1) * 5  # some in none
    assert (fold_of < 0).any()
    weights = rng.integers(0, 4, 60) if weighted else None
    radii = [1.5, 0.3]
    options: Any = {"representation": form, "engine": ENGINE, "tol": 1e-4, "intercept": intercept}
    path = dt.path(TASKS[name], X, y, radii=radii, folds=fold_of, sample_weight=weights, **options)
    assert path.validation is not None
    assert path.validation.shape == (2, 2)
    assert [len(results) for results in path.fold_results] == [2, 2]
    task = dt.Multinomial(4) if name == "multinomial" else TASKS[name]
    for fold in range(2):
        learn, held_out = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)
        inside = None if weights is None else weights[learn]
        outside = None if weights is None else weights[held_out]
        for place, radius in enumerate(radii):
            found = path.fold_results[fold][place]
            refit = dt.solve(
                task,
                X[learn],
                y[learn],
                radius=radius,
                sample_weight=inside,
                solver="accelerated",
                **options,
            )
            assert (found.intercept is not None) == intercept
            assert found.objective_at_zero == pytest.approx(refit.objective_at_zero, rel=1e-9)
            rounding = 1e-11 * refit.objective_at_zero
            assert abs(found.objective - refit.objective) <= max(found.gap, refit.gap) + rounding
            expected = validation_losses(name, X[held_out], y[held_out], outside, found)
            assert path.validation[place, fold] == pytest.approx(expected, rel=1e-8)
            again = validation_losses(name, X[held_out], y[held_out], outside, refit)
            assert path.validation[place, fold] == pytest.approx(again, rel=5e-2)
    assert path.best == np.argmin(path.validation.mean(axis=1))


@pytest.mark.parametrize(("name", "form"), FOLD_FORMS)
def test_results_of_a_path_with_an_intercept_are_those_of_runs_of_their_own(
    name: str, form: str, uncentred: dict[str, Any]
) -> None:
    weights = np.random.default_rng(0).uniform(0.1, 2.0, 60)
    options: Any = {"representation": form, "engine": ENGINE, "tol": 1e-4, "intercept": True}
    options |= {"sample_weight": weights}
    fold_of = np.arange(60) % 2
    for folds in (None, fold_of):
        path = dt.path(TASKS[name], *uncentred[name], radii=[0.3, 1.0], folds=folds, **options)
        assert (path.validation is None) == (folds is None)
        assert len(path.fold_results) == (0 if folds is None else 2)
        for radius, result in zip([0.3, 1.0], path.results, strict=True):
            alone = dt.solve(
                TASKS[name], *uncentred[name], radius=radius, solver="accelerated", **options
            )
            rounding = 1e-11 * alone.objective_at_zero
            assert result.status == "optimal"
            assert abs(result.objective - alone.objective) <= max(result.gap, alone.gap) + rounding
            X, y = uncentred[name]
            value = weights.sum() * validation_losses(name, X, y, weights, result)
            assert result.objective == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("layout", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_moments_of_folds_with_an_intercept_take_any_layout(
    layout: Any, dtype: Any, uncentred: dict[str, Any]
) -> None:
    X, Y = uncentred["least squares"]
    X, fold_of = X.astype(dtype), np.arange(60) % 3
    options: Any = {"radii": [1.0], "folds": fold_of, "intercept": True, "tol": 1e-5}
    plain = dt.path(dt.LeastSquares(), X.astype(np.float64), Y, representation="gram", **options)
    other = dt.path(dt.LeastSquares(), layout(X), Y, representation="gram", **options)
    np.testing.assert_allclose(other.validation, plain.validation, rtol=1e-3)  # type: ignore[arg-type]


def test_folds_far_from_zero_keep_their_digits(multitask: tuple[Any, Any]) -> None:
    X, Y = multitask
    options: Any = {"radii": [1.0], "folds": np.arange(60) % 3, "intercept": True, "tol": 1e-6}
    near, far = (
        dt.path(dt.LeastSquares(), X + shift, Y - shift, representation="gram", **options)
        for shift in (0.0, 1e4)
    )
    np.testing.assert_allclose(far.validation, near.validation, rtol=1e-3)  # type: ignore[arg-type]
    assert far.validation is not None
    for fold, (result,) in enumerate(far.fold_results):
        rows = np.arange(60) % 3 == fold
        expected = validation_losses("least squares", X[rows] + 1e4, Y[rows] - 1e4, None, result)
        assert far.validation[0, fold] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("name", "form"), FOLD_FORMS)
def test_all_runs_learn_from_rows_in_no_fold(
    name: str, form: str, uncentred: dict[str, Any]
) -> None:
    """One fold is enough then, and how negative a number is does not matter."""
    X, y = uncentred[name]
    options: Any = {"radii": [1.0], "representation": form, "engine": ENGINE, "intercept": True}
    fold_of = np.where(np.arange(60) < 15, 0, -1)
    path = dt.path(TASKS[name], X, y, folds=fold_of, **options)
    assert path.validation is not None
    assert path.validation.shape == (1, 1)
    task = dt.Multinomial(4) if name == "multinomial" else TASKS[name]
    alone = dt.path(task, X[15:], y[15:], **options).results[0]
    found = path.fold_results[0][0]
    assert abs(found.objective - alone.objective) <= max(found.gap, alone.gap)
    expected = validation_losses(name, X[:15], y[:15], None, found)
    assert path.validation[0, 0] == pytest.approx(expected, rel=1e-8)
    same = dt.path(TASKS[name], X, y, folds=list(np.where(fold_of < 0, -7, 0)), **options)
    np.testing.assert_array_equal(same.validation, path.validation)  # type: ignore[arg-type]


def test_told_folds_are_those_made_at_random_if_they_are_the_same(
    multitask: tuple[Any, Any],
) -> None:
    fold_of = folds_of_rows(*multitask, 4, 3, 3)
    options: Any = {"radii": [1.0], "engine": ENGINE, "seed": 3, "representation": "gram"}
    for intercept in (False, True):
        random, told = (
            dt.path(dt.LeastSquares(), *multitask, folds=folds, intercept=intercept, **options)
            for folds in (4, fold_of)
        )
        np.testing.assert_array_equal(told.validation, random.validation)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "form"), FOLD_FORMS)
def test_a_fold_of_rows_that_count_nothing_has_no_loss(
    name: str, form: str, uncentred: dict[str, Any]
) -> None:
    fold_of = np.arange(60) % 3
    weights = np.where(fold_of == 1, 0.0, 1.0)
    path = dt.path(
        TASKS[name],
        *uncentred[name],
        radii=[1.0],
        folds=fold_of,
        sample_weight=weights,
        intercept=True,
        representation=form,
    )
    assert path.validation is not None
    assert path.validation[0, 1] == 0.0
    assert (path.validation[0, [0, 2]] > 0.0).all()


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_folds_that_leave_no_weight_to_learn_from_are_refused(
    name: str, form: str, uncentred: dict[str, Any]
) -> None:
    fold_of = np.arange(60) % 2
    with pytest.raises(ValueError, match=r"^(sample_weight|folds) .*\.$"):
        dt.path(
            TASKS[name],
            *uncentred[name],
            radii=[1.0],
            folds=fold_of,
            sample_weight=(fold_of == 0).astype(float),
            intercept=True,
            representation=form,
        )


# A task of one's own


class Own:
    """½‖XW - Y‖² with what an accelerated run needs: a loss, and a state with a gradient."""

    def stats(self, shard: dt.Shard, W: dt.LowRankMatrix) -> dict[str, Any]:
        R = shard.X @ W.to_dense() - shard.targets
        return {"grad": shard.X.T @ R, "value": 0.5 * float(np.square(R).sum())}

    def update(self, state: dict[str, Any], atom: dt.RankOne, gamma: float) -> dict[str, Any]:
        raise AssertionError("an accelerated run builds every state from W")

    def loss(self, state: dict[str, Any]) -> float:
        return float(state["value"])


def test_a_task_of_ones_own_has_paths_and_folds_too(multitask: tuple[Any, Any]) -> None:
    X, Y = multitask
    options: Any = {"radii": [0.5, 2.0], "folds": 3, "tol": 1e-9, "engine": ENGINE}
    own = dt.path(Own(), X, Y, **options)
    ours = dt.path(dt.LeastSquares(), X, Y, representation="implicit", **options)
    for one, other in zip(own.results, ours.results, strict=True):
        assert (one.status, one.plan.representation) == ("optimal", "own")
        assert one.objective == pytest.approx(other.objective, rel=1e-8)
    np.testing.assert_allclose(own.validation, ours.validation, rtol=1e-3)  # type: ignore[arg-type]


class Targetless(Own):
    """Its targets are among its features."""

    def shape(self, X: Any, y: Any) -> tuple[int, int]:
        return 7, 5

    def stats(self, shard: dt.Shard, W: dt.LowRankMatrix) -> dict[str, Any]:
        return super().stats(dt.Shard(shard.index, shard.X[:, :7], shard.X[:, 7:]), W)


def test_a_task_without_targets_has_folds_too(multitask: tuple[Any, Any]) -> None:
    options: Any = {"radii": [1.0], "folds": 3, "engine": ENGINE}
    with_targets = dt.path(Own(), *multitask, **options)
    without = dt.path(Targetless(), np.hstack(multitask), **options)
    np.testing.assert_allclose(without.validation, with_targets.validation, rtol=1e-9)  # type: ignore[arg-type]


class Interrupted(Own):
    """Ctrl-C arrives while a loss is worked out."""

    def __init__(self, at: int) -> None:
        self.at, self.seen = at, 0

    def loss(self, state: dict[str, Any]) -> float:
        self.seen += 1
        if self.seen == self.at:
            raise KeyboardInterrupt
        return super().loss(state)


@pytest.mark.parametrize("at", [1, 5])
@pytest.mark.parametrize("folds", [None, 2])
def test_ctrl_c_ends_the_path_and_not_only_one_of_its_runs(
    at: int, folds: int | None, multitask: tuple[Any, Any]
) -> None:
    task = Interrupted(at)
    engine = dt.LocalEngine(n_shards=1, n_jobs=1)
    with pytest.raises(KeyboardInterrupt):
        dt.path(task, *multitask, radii=RADII, folds=folds, engine=engine, tol=1e-9)
    assert task.seen == at


# Bad calls


class Untouched(dt.LocalEngine):
    def start(self, program: Any, rows: Any) -> Any:
        raise AssertionError("work has begun")


NAN, INF = float("nan"), float("inf")
BAD: dict[str, list[Any]] = {
    "radii": [
        *([], (), np.array([]), iter([])),
        *(None, 3, 1.0, "12", b"12", "", np.array(1.0)),
        *([0.0], [-1.0], [1.0, NAN], [INF], [1.0, None], ["1"], [[1.0]], np.ones((2, 2)), [True]),
    ],
    "folds": [0, 1, -3, 2.0, 61, 10**9, "5", True, [5], NAN],
    "tol": [-1.0, NAN, INF, "1", True],
    "epochs": [-1, 1.5, None, "3", True],
    "seed": [-1, 0.5, None],
    "representation": ["", "sparse", None, 3],
    "engine": ["local", 3, dt.LocalEngine],
    "features": ["a"],
    "label": ["a"],
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param(name, value, id=f"{name}-{k}")
        for name, values in BAD.items()
        for k, value in enumerate(values)
    ],
)
def test_bad_arguments_are_refused_in_one_sentence_before_any_work(
    name: str, value: Any, multitask: tuple[Any, Any]
) -> None:
    call: Any = {"radii": [1.0], "engine": Untouched(), name: value}
    with pytest.raises((TypeError, ValueError)) as caught:
        dt.path(dt.LeastSquares(), *multitask, **call)
    message = str(caught.value)
    assert message.startswith(name)
    assert message.endswith(".")
    assert "\n" not in message


@pytest.mark.parametrize(
    "folds",
    [
        np.zeros(59, int),
        np.zeros((60, 1), int),
        np.zeros(0, int),
        np.zeros(60, int),  # nothing to learn from
        np.full(60, -1),
        np.arange(60) % 2 + 1,  # no fold 0
        np.arange(60) % 2 * 2,  # no fold 1
        np.zeros(60),
        np.arange(60) % 2 == 0,
        ["a"] * 60,
        [None] * 60,
        np.r_[np.nan, np.zeros(59)],
    ],
)
def test_bad_folds_of_rows_are_refused_in_one_sentence(
    folds: Any, multitask: tuple[Any, Any]
) -> None:
    for form in ("gram", "implicit"):
        with pytest.raises((TypeError, ValueError)) as caught:
            dt.path(
                dt.LeastSquares(),
                *multitask,
                radii=[1.0],
                folds=folds,
                representation=form,
                engine=Untouched(),
            )
        message = str(caught.value)
        assert message.startswith("folds must")
        assert message.endswith(".")
        assert "\n" not in message


def test_folds_of_more_than_the_rows_are_refused_with_their_number(
    multiclass: tuple[Any, Any],
) -> None:
    for task in (dt.Multinomial(), Own()):
        with pytest.raises(ValueError, match=r"folds must be at most the 60 rows, got 61\."):
            dt.path(task, *multiclass, radii=[1.0], folds=61, engine=Untouched())


def test_a_path_needs_a_loss(multitask: tuple[Any, Any]) -> None:
    class Silent(Own):
        loss = None  # type: ignore[assignment]

    with pytest.raises(TypeError, match="'loss'"):
        dt.path(Silent(), *multitask, radii=[1.0], engine=Untouched())


def test_no_epochs_leave_every_run_at_zero(multitask: tuple[Any, Any]) -> None:
    path = dt.path(dt.LeastSquares(), *multitask, radii=[1.0, 2.0], epochs=0, folds=3)
    assert [(result.status, result.W.rank) for result in path.results] == [("max_epochs", 0)] * 2
    assert path.validation is not None
    assert np.array_equal(path.validation[0], path.validation[1])
