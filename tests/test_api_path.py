"""Many radii at once: the same as apart, certified, from one look at the data."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from tests.problems import ENGINE, FORMS, TASKS, Untouched
from tests.truth import row_losses

import dfwtrace as dt
from dfwtrace.engines import local

RADII = [0.3, 1.0, 3.0, 10.0]


@pytest.fixture
def data(multitask: tuple[Any, Any], multiclass: tuple[Any, Any]) -> dict[str, tuple[Any, Any]]:
    return {"least squares": multitask, "multinomial": multiclass}


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
        value = row_losses(name, X, y, result.W).sum()
        assert result.objective == pytest.approx(value, rel=1e-9)
        assert result.plan.representation == form
        alone = dt.solve(TASKS[name], X, y, radius=radius, solver="accelerated", **options)
        assert alone.objective_at_zero == pytest.approx(result.objective_at_zero, rel=1e-12)
        rounding = 1e-12 * alone.objective_at_zero
        assert result.objective - alone.objective <= result.gap + rounding
        assert alone.objective - result.objective <= alone.gap + rounding


@pytest.mark.parametrize(
    ("name", "order"), [("least squares", [3, 2, 1, 0]), ("multinomial", [1, 3, 0, 2])]
)
def test_the_order_of_the_radii_is_that_of_the_results_alone(
    name: str, order: list[int], data: dict[str, Any]
) -> None:
    options: Any = {"engine": ENGINE, "cv": 2}
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
        path = dt.path(dt.Multinomial(), *data["multinomial"], radii=radii, engine=ENGINE)
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
    X, Y, _ = dt.datasets.make_multitask(n=200, d=20, m=15, rank=6, noise=0.5, random_state=3)
    X = X * np.logspace(0, -2, 20)  # so that there is something to do
    _, y, _ = dt.datasets.make_multiclass(n=200, d=20, m=15, rank=6, random_state=3)
    targets = Y if name == "least squares" else y
    radii = [first * 1.3**k for k in range(5)]
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
    # Least squares take so few from zero, eight or so, that a start does not save any.
    assert warm_epochs < (1.1 if name == "least squares" else 1.0) * cold_epochs


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
        cv=folds,
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


def test_threads_and_shards_of_every_run_are_given_back(
    monkeypatch: pytest.MonkeyPatch, data: dict[str, Any]
) -> None:
    monkeypatch.setattr(local, "_BYTES_FOR_A_THREAD", 1)
    before = threading.active_count()
    for name in TASKS:
        dt.path(
            TASKS[name], *data[name], radii=[1.0, 2.0], cv=2, engine=dt.LocalEngine(2, n_jobs=2)
        )
    assert threading.active_count() == before


# Custom tasks


class Custom:
    """½‖XW - Y‖² with what an accelerated run needs: a loss, and a state with a gradient."""

    def stats(self, shard: dt.Shard, W: dt.LowRankMatrix) -> dict[str, Any]:
        R = shard.X @ W.to_dense() - shard.targets
        return {"grad": shard.X.T @ R, "value": 0.5 * float(np.square(R).sum())}

    def update(self, state: dict[str, Any], atom: dt.RankOne, gamma: float) -> dict[str, Any]:
        raise AssertionError("an accelerated run builds every state from W")

    def loss(self, state: dict[str, Any]) -> float:
        return float(state["value"])


def test_a_custom_task_has_paths_and_folds_too(multitask: tuple[Any, Any]) -> None:
    X, Y = multitask
    options: Any = {"radii": [0.5, 2.0], "cv": 2, "tol": 1e-7, "engine": ENGINE}
    own = dt.path(Custom(), X, Y, **options)
    ours = dt.path(dt.LeastSquares(), X, Y, representation="implicit", **options)
    for one, other in zip(own.results, ours.results, strict=True):
        assert (one.status, one.plan.representation) == ("optimal", "own")
        assert abs(one.objective - other.objective) <= max(one.gap, other.gap)
    np.testing.assert_allclose(own.validation, ours.validation, rtol=1e-2)  # type: ignore[arg-type]


class Targetless(Custom):
    """Its targets are among its features."""

    def shape(self, X: Any, y: Any) -> tuple[int, int]:
        return 7, 5

    def stats(self, shard: dt.Shard, W: dt.LowRankMatrix) -> dict[str, Any]:
        return super().stats(dt.Shard(shard.index, shard.X[:, :7], shard.X[:, 7:]), W)


def test_a_task_without_targets_has_folds_too(multitask: tuple[Any, Any]) -> None:
    options: Any = {"radii": [1.0], "cv": 3, "engine": ENGINE}
    with_targets = dt.path(Custom(), *multitask, **options)
    without = dt.path(Targetless(), np.hstack(multitask), **options)
    np.testing.assert_allclose(without.validation, with_targets.validation, rtol=1e-9)  # type: ignore[arg-type]


class Interrupted(Custom):
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
        dt.path(task, *multitask, radii=RADII, cv=folds, engine=engine, tol=1e-9)
    assert task.seen == at


# Bad calls


NAN, INF = float("nan"), float("inf")
BAD: dict[str, list[Any]] = {
    "radii": [
        *([], (), np.array([]), iter([])),
        *(None, 0, -3, 1.0, "12", b"12", "", np.array(1.0)),
        *([0.0], [-1.0], [1.0, NAN], [INF], [1.0, None], ["1"], [[1.0]], np.ones((2, 2)), [True]),
    ],
    "cv": [0, 1, -3, 2.0, 61, 10**9, "5", True, [5], NAN],
    "tol": [-1.0, NAN, INF, "1", True],
    "max_iter": [-1, 0, 1.5, "3", True],
    "random_state": [-1, 0.5, "1"],
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
                cv=folds,
                representation=form,
                engine=Untouched(),
            )
        message = str(caught.value)
        assert message.startswith("cv must")
        assert message.endswith(".")
        assert "\n" not in message


def test_folds_of_more_than_the_rows_are_refused_with_their_number(
    multiclass: tuple[Any, Any],
) -> None:
    for task in (dt.Multinomial(), Custom()):
        with pytest.raises(ValueError, match=r"cv must be at most the 60 rows, got 61\."):
            dt.path(task, *multiclass, radii=[1.0], cv=61, engine=Untouched())
