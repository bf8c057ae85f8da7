"""radius="auto": short fits, rows left out, the same on every engine, and no surprises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.problems import ENGINE, TASKS
from tests.test_api_folds import folds_of_rows
from tests.truth import row_losses

import dfwtrace as dt


@pytest.fixture
def data(multitask: tuple[Any, Any], multiclass: tuple[Any, Any]) -> dict[str, tuple[Any, Any]]:
    return {"least squares": multitask, "multinomial": multiclass}


def solve(name: str, X: Any, y: Any, **options: Any) -> dt.Result:
    call = {"radius": "auto", "fit_intercept": True, "engine": ENGINE, **options}
    return dt.solve(TASKS[name], X, y, **call)


@pytest.mark.parametrize(
    ("name", "form"),
    [("least squares", "gram"), ("least squares", "factored"), ("multinomial", "implicit")],
)
def test_the_radius_is_the_one_with_the_least_loss_on_rows_left_out(
    name: str, form: str, data: dict[str, Any]
) -> None:
    X, y = data[name]
    result = solve(name, X, y, representation=form)
    search = result.search
    assert search is not None
    assert search.validation is not None
    assert search.validation.shape == (len(search.radii), 5)
    np.testing.assert_allclose(search.radii[1:] / search.radii[:-1], 3.0)
    fold_of = folds_of_rows(X, y, 5, 0, 3)
    for fold, results in enumerate(search.fold_results):
        out = np.flatnonzero(fold_of == fold)
        for place, fit in enumerate(results):
            assert len(fit.history) <= 10
            expected = row_losses(name, X[out], y[out], fit.W, fit.intercept).mean()
            assert search.validation[place, fold] == pytest.approx(expected, rel=1e-9)
    assert result.radius == search.radii[search.validation.mean(axis=1).argmin()]
    assert result.W.trace_norm <= result.radius * (1.0 + 1e-9)


@pytest.mark.parametrize("name", TASKS)
def test_the_result_is_that_of_the_radius_by_hand(name: str, data: dict[str, Any]) -> None:
    found = solve(name, *data[name], tol=1e-6)
    by_hand = solve(name, *data[name], radius=found.radius, tol=1e-6)
    assert found.status == by_hand.status == "optimal"
    assert by_hand.search is None
    assert abs(found.objective - by_hand.objective) <= max(found.gap, by_hand.gap)


def test_all_forms_find_the_same_radius(data: dict[str, Any]) -> None:
    for name, task in TASKS.items():
        found = [
            solve(name, *data[name], representation=form).radius for form in task.representations
        ]
        np.testing.assert_allclose(found, found[0], rtol=1e-6)


def test_the_radius_follows_the_units(multitask: tuple[Any, Any]) -> None:
    X, Y = multitask
    one = solve("least squares", X, Y)
    other = solve("least squares", X / 1000.0, 1e6 * Y)
    assert other.radius == pytest.approx(1e9 * one.radius, rel=1e-6)


def test_many_rows_are_judged_by_a_fifth_of_them() -> None:
    X, y, _ = dt.datasets.make_multiclass(n=1001, d=5, m=3, rank=2, random_state=0)
    result = solve("multinomial", X, y)
    assert result.search is not None
    assert result.search.validation is not None
    assert result.search.validation.shape[1] == 1


def test_weights_count_in_the_rows_left_out(multiclass: tuple[Any, Any]) -> None:
    X, y = multiclass
    weights = np.random.default_rng(0).uniform(0.1, 3.0, len(y))
    search = solve("multinomial", X, y, sample_weight=weights).search
    assert search is not None
    assert search.validation is not None
    fold_of = folds_of_rows(X, y, 5, 0, 3)
    for fold, results in enumerate(search.fold_results):
        out = np.flatnonzero(fold_of == fold)
        losses = row_losses("multinomial", X[out], y[out], results[0].W, results[0].intercept)
        expected = np.average(losses, weights=weights[out])
        assert search.validation[0, fold] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("form", ["gram", "implicit"])
def test_the_weight_of_all_rows_may_be_in_one_fold(form: str, multitask: tuple[Any, Any]) -> None:
    X, Y = multitask
    weights = (np.arange(len(X)) == 7).astype(float)
    result = solve("least squares", X, Y, sample_weight=weights, representation=form)
    assert result.status == "optimal"
    np.testing.assert_allclose(X[7] @ result.W + result.intercept, Y[7])


@pytest.mark.parametrize("name", TASKS)
def test_the_bits_do_not_depend_on_the_threads(name: str, data: dict[str, Any]) -> None:
    one, two = (
        solve(
            name, *data[name], engine=dt.LocalEngine(n_shards=4, n_jobs=n), representation="dense"
        )
        for n in (1, 2)
    )
    assert one.radius == two.radius
    assert np.array_equal(one.W.to_dense(), two.W.to_dense())


def test_the_paper_s_solver_gets_a_radius_too(multiclass: tuple[Any, Any]) -> None:
    fast = solve("multinomial", *multiclass)
    paper = solve("multinomial", *multiclass, solver="dfw", lmo="sva", max_iter=20)
    assert paper.radius == pytest.approx(fast.radius, rel=1e-6)
    assert paper.objective < paper.objective_at_zero


def test_a_start_is_shrunk_into_the_ball(multitask: tuple[Any, Any]) -> None:
    X, Y = multitask
    far = dt.LowRankMatrix(np.eye(7)[:, :1], np.array([1e6]), np.eye(5)[:, :1])
    result = solve("least squares", X, Y, start=far)
    assert result.status == "optimal"
    assert result.W.trace_norm <= result.radius * (1.0 + 1e-9)


def test_where_nothing_can_be_learnt_w_is_zero() -> None:
    X = np.random.default_rng(0).standard_normal((20, 3))
    result = solve("least squares", X, np.ones((20, 2)))
    assert (result.status, result.W.rank, result.radius) == ("optimal", 0, 1.0)
    np.testing.assert_allclose(result.intercept, 1.0)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("intercept", [False, True])
def test_few_rows_are_enough_for_a_number(n: int, intercept: bool) -> None:
    rng = np.random.default_rng(n)
    X, Y = rng.standard_normal((n, 4)), rng.standard_normal((n, 2))
    result = solve("least squares", X, Y, fit_intercept=intercept)
    assert result.status == "optimal"
    assert 0.0 < result.radius < np.inf


def test_a_limit_of_time_holds_for_search_and_fit_together(multiclass: tuple[Any, Any]) -> None:
    result = solve("multinomial", *multiclass, max_time=1e-9, tol=1e-12)
    assert result.status == "max_time"
    assert result.search is not None
    assert len(result.search.radii) == 1
    assert len(result.history) == 1


def test_a_checkpoint_continues_to_the_same_bits(
    multiclass: tuple[Any, Any], tmp_path: Path
) -> None:
    def interrupt(W: Any, record: dict[str, Any]) -> None:
        if record["epoch"] == 3:
            raise KeyboardInterrupt

    options: Any = {"tol": 1e-8}
    checkpoint = dt.Checkpoint(tmp_path / "run.ckpt", epochs=1)
    whole = solve(
        "multinomial", *multiclass, checkpoint=dt.Checkpoint(tmp_path / "b", epochs=1), **options
    )
    first = solve("multinomial", *multiclass, checkpoint=checkpoint, callback=interrupt, **options)
    assert first.status == "interrupted"
    resumed = solve("multinomial", *multiclass, checkpoint=checkpoint, **options)
    assert len(resumed.history) == len(whole.history)
    assert np.array_equal(resumed.W.to_dense(), whole.W.to_dense())


# Ctrl-C


class Stopping(dt.LocalEngine):
    """An engine in whose rounds Ctrl-C arrives, once that many have been made."""

    def __init__(self, after: int) -> None:
        super().__init__(n_shards=2, n_jobs=1)
        self.left = after

    def start(self, program: Any, rows: Any) -> Any:
        workers = super().start(program, rows)
        replies = workers._replies

        def counted(method: str, args: Any, add: bool) -> Any:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
            return replies(method, args, add)

        workers._replies = counted  # type: ignore[method-assign]
        return workers


def test_ctrl_c_in_the_search_returns_the_best_so_far(multiclass: tuple[Any, Any]) -> None:
    # With all rows, four folds of a radius are about a hundred rounds.
    result = solve("multinomial", *multiclass, engine=Stopping(after=300))
    assert result.status == "interrupted"
    assert result.objective < result.objective_at_zero
    assert result.W.trace_norm <= result.radius * (1.0 + 1e-9)


def test_ctrl_c_before_the_first_epoch_is_raised(multiclass: tuple[Any, Any]) -> None:
    with pytest.raises(KeyboardInterrupt):
        solve("multinomial", *multiclass, engine=Stopping(after=2))


# Bad calls


@pytest.mark.parametrize("radius", ["Auto", "10", b"auto", None, [1.0], float("nan"), 0.0])
def test_other_words_than_auto_are_refused(radius: Any, multitask: tuple[Any, Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^radius must be .*\.$"):
        solve("least squares", *multitask, radius=radius)


def test_a_misspelt_auto_is_told_the_word(multitask: tuple[Any, Any]) -> None:
    with pytest.raises(TypeError, match=r"^radius must be a number or 'auto', got 'Auto'\.$"):
        solve("least squares", *multitask, radius="Auto")


def test_a_task_without_a_loss_needs_a_radius(multitask: tuple[Any, Any]) -> None:
    class Lossless(dt.Task[Any]):
        def stats(self, shard: dt.Shard, W: dt.LowRankMatrix) -> Any:
            raise AssertionError("no work before the check")

        update = stats  # type: ignore[assignment]

    options: Any = {"solver": "dfw", "step": "harmonic", "radius": "auto"}
    with pytest.raises(
        TypeError, match=r"lacks the method 'loss'.*a radius that is given does not"
    ):
        dt.solve(Lossless(), *multitask, **options)
