"""A result with an intercept: its rounds, bits, starts and interruptions, and calls refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.intercepts import ENGINE, FORMS, SCORES, TASKS, check_balance, far_from_zero

import dfwtrace as dt
from dfwtrace.engines import local


@pytest.fixture(scope="module")
def data(multitask: tuple[Any, Any]) -> dict[str, tuple[Any, Any]]:
    return far_from_zero(multitask)


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_without_an_intercept_there_is_none_and_records_are_the_same(
    name: str, form: str, data: dict[str, Any]
) -> None:
    options: Any = {"radius": 2.0, "epochs": 3, "representation": form, "engine": ENGINE}
    seen: list[set[str]] = []
    without, with_one = (
        dt.solve(
            TASKS[name],
            *data[name],
            intercept=intercept,
            callback=lambda W, record: seen.append(set(record)),
            **options,
        )
        for intercept in (False, True)
    )
    assert without.intercept is None
    assert with_one.intercept is not None
    assert with_one.intercept.dtype == np.float64
    assert list(without.history[0]) == list(with_one.history[0])
    assert len({frozenset(columns) for columns in seen}) == 1


@pytest.mark.parametrize("form", SCORES)
@pytest.mark.parametrize("name", TASKS)
def test_the_rounds_of_an_intercept_are_counted(name: str, form: str, data: dict[str, Any]) -> None:
    X, y = data[name]
    result = dt.solve(
        TASKS[name], X, y, radius=2.0, intercept=True, epochs=4, representation=form, engine=ENGINE
    )
    m = result.W.shape[1]
    of = {
        method: [made for made in result.rounds if made["method"] == method]
        for method in ("shift", "balance", "first_moments", "stats")
    }
    assert {made["numbers_sent"] for made in of["shift"]} == {3 * m}
    assert {made["numbers_sent"] for made in of["balance"]} == {3 * (3 + m)}
    assert not any(made["oracle"] for made in of["shift"] + of["balance"])
    assert len(of["first_moments"]) == 1
    assert of["first_moments"][0]["epoch"] == 0
    # A look after every move of W, and one after every move of b.
    moves = [made for made in result.rounds if made["method"] in ("stats", "update", "shift")]
    assert len(of["balance"]) == len(moves)
    for record in result.history[:-1]:
        others = [m for m in result.rounds if m["epoch"] == record["epoch"] and not m["oracle"]]
        assert record["other_rounds"] == len(others)


def test_in_gram_form_the_means_are_the_only_other_round(data: dict[str, Any]) -> None:
    result = dt.solve(
        dt.LeastSquares(),
        *data["least squares"],
        radius=2.0,
        intercept=True,
        epochs=3,
        representation="gram",
    )
    methods = [made["method"] for made in result.rounds]
    assert methods[:2] == ["first_moments", "moments"]
    assert not {"shift", "balance"} & set(methods)


@pytest.mark.parametrize(
    ("name", "form", "stop"),
    [(*form, stop) for form, stop in zip(FORMS, [6, 6, 1, 6, 6, 1, 6], strict=True)],
)
def test_an_interrupted_run_returns_the_intercept_of_its_best_iterate(
    name: str, form: str, stop: int, data: dict[str, Any]
) -> None:
    X, y = data[name]

    def interrupt(W: dt.LowRankMatrix, record: Any) -> None:
        if record["epoch"] == stop:
            raise KeyboardInterrupt

    for options in ({"step": 0.7, "lmo": "naive"}, {"solver": "accelerated", "tol": 1e-9}):
        result = dt.solve(
            TASKS[name],
            X,
            y,
            radius=5.0,
            intercept=True,
            representation=form,
            engine=ENGINE,
            callback=interrupt,
            **options,  # type: ignore[arg-type]
        )
        assert result.status == "interrupted"
        assert len(result.history) == stop
        objectives = [result.objective_at_zero, *result.history.column("objective")]
        assert result.objective == min(objectives)
        check_balance(name, X, y, result)


def test_the_best_iterate_of_an_interrupted_run_is_not_always_its_last(
    data: dict[str, Any],
) -> None:
    """So that the test above has something to find."""
    for name, task in TASKS.items():
        options: Any = {"radius": 5.0, "step": 0.7, "lmo": "naive", "epochs": 6}
        result = dt.solve(task, *data[name], intercept=True, **options)
        objectives = result.history.column("objective")
        assert objectives[-1] > objectives.min()


@pytest.mark.parametrize(("name", "form"), FORMS)
@pytest.mark.parametrize("solver", ["dfw", "accelerated"])
def test_a_warm_start_begins_where_it_is_told(
    name: str, form: str, solver: str, data: dict[str, Any]
) -> None:
    options: Any = {"intercept": True, "representation": form, "engine": ENGINE}
    first = dt.solve(
        TASKS[name], *data[name], radius=2.0, solver="accelerated", tol=1e-6, **options
    )
    again = dt.solve(
        TASKS[name],
        *data[name],
        radius=2.0,
        solver=solver,
        tol=1e-5,
        start=first.W,
        epochs=5,
        **options,
    )
    assert again.status == "optimal"
    assert again.objective_at_zero == pytest.approx(first.objective_at_zero, rel=1e-10)
    assert again.objective <= first.objective * (1.0 + 1e-9)
    still = dt.solve(TASKS[name], *data[name], radius=2.0, start=first.W, epochs=0, **options)
    assert still.objective == pytest.approx(first.objective, rel=1e-10)
    np.testing.assert_allclose(still.intercept, first.intercept, atol=1e-5)
    check_balance(name, *data[name], still)


@pytest.mark.parametrize(
    ("name", "form", "solver"),
    [(*form, solver) for form, solver in zip(FORMS, 4 * ["dfw", "accelerated"], strict=False)],
)
def test_the_number_of_threads_changes_no_bit(
    monkeypatch: pytest.MonkeyPatch, name: str, form: str, solver: str, data: dict[str, Any]
) -> None:
    monkeypatch.setattr(local, "_BYTES_FOR_A_THREAD", 1)
    weights = np.random.default_rng(0).uniform(0, 2, 60)
    one, other = (
        dt.solve(
            TASKS[name],
            *data[name],
            radius=2.0,
            intercept=True,
            sample_weight=weights,
            solver=solver,
            epochs=5,
            representation=form,
            engine=dt.LocalEngine(n_shards=4, n_jobs=n_jobs),
        )
        for n_jobs in (1, 3)
    )
    assert one.intercept is not None
    assert np.array_equal(one.intercept, other.intercept)  # type: ignore[arg-type]
    assert np.array_equal(one.W.to_dense(), other.W.to_dense())
    assert (one.objective, one.gap) == (other.objective, other.gap)


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_shards_change_little(name: str, form: str, data: dict[str, Any]) -> None:
    """Also if some of them have no rows."""
    options: Any = {"radius": 2.0, "lmo": "naive", "epochs": 5, "representation": form}
    one, other = (
        dt.solve(
            TASKS[name],
            *data[name],
            intercept=True,
            engine=dt.LocalEngine(n_shards=n_shards, n_jobs=1),
            **options,
        )
        for n_shards in (1, 62)
    )
    np.testing.assert_allclose(other.W.to_dense(), one.W.to_dense(), atol=1e-7)
    np.testing.assert_allclose(other.intercept, one.intercept, atol=1e-5)


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_float32_features_give_nearly_the_same(name: str, form: str, data: dict[str, Any]) -> None:
    X, y = data[name]
    options: Any = {"radius": 2.0, "lmo": "naive", "epochs": 6, "representation": form}
    options |= {"engine": ENGINE}
    double, single = (
        dt.solve(TASKS[name], A, y, intercept=True, **options) for A in (X, X.astype(np.float32))
    )
    assert single.plan.workload.itemsize == 4
    np.testing.assert_allclose(single.W.to_dense(), double.W.to_dense(), atol=5e-3)
    assert single.objective == pytest.approx(double.objective, rel=1e-3)
    assert double.intercept is not None
    assert single.intercept is not None
    difference = single.intercept - double.intercept
    if name == "multinomial":  # which does not tell one number that is added to all classes
        difference -= difference.mean()
    np.testing.assert_allclose(difference, 0.0, atol=1e-2)


# Bad calls


class Own:
    def stats(self, shard: dt.Shard, W: dt.LowRankMatrix) -> Any:
        raise AssertionError("work has begun")

    update = stats


def test_a_task_of_ones_own_is_told_that_it_has_no_intercept(data: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"^intercept needs a task made of a loss on scores"):
        dt.solve(Own(), *data["least squares"], radius=1.0, intercept=True)


@pytest.mark.parametrize("intercept", [None, 1, 0, "yes", 1.0, [True]])
def test_an_intercept_is_wanted_or_not(intercept: Any, data: dict[str, Any]) -> None:
    for call, size in ((dt.solve, {"radius": 1.0}), (dt.path, {"radii": [1.0]})):
        with pytest.raises(TypeError, match=r"^intercept must be True or False, got .*\.$"):
            call(dt.LeastSquares(), *data["least squares"], intercept=intercept, **size)  # type: ignore[operator]
