"""The arguments' names: the same everywhere, with the former ones still understood."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dfwtrace as dt
from dfwtrace.datasets import make_multiclass, make_multitask
from dfwtrace.validation import check_seed

X, Y, _ = make_multitask(n=60, d=100, m=90, rank=3, noise=0.5, random_state=0)
FORM = "implicit"  # where the solver draws random probes


def solve(**options: Any) -> tuple[bytes, ...]:
    result = dt.solve(dt.LeastSquares(), X, Y, radius=1.0, representation=FORM, **options)
    b = b"" if result.intercept is None else result.intercept.tobytes()
    return result.W.to_dense().tobytes(), b


def path(**options: Any) -> tuple[bytes, ...]:
    found = dt.path(dt.LeastSquares(), X, Y, radii=[0.5, 1.0], representation=FORM, **options)
    losses = b"" if found.validation is None else found.validation.tobytes()
    return found.results[1].W.to_dense().tobytes(), losses


def plan(**options: Any) -> dt.Plan:
    return dt.plan(dt.LeastSquares(), X, Y, **options)


def draw(make: Callable[..., Any]) -> Callable[..., bytes]:
    return lambda **options: make(n=5, d=4, m=3, rank=2, **options)[0].tobytes()


FORMER = [
    pytest.param(call, former, new, value, id=f"{name}-{former}")
    for name, call, names in (
        ("solve", solve, "epochs seed intercept progress"),
        ("path", path, "epochs seed intercept progress folds"),
        ("plan", plan, "epochs"),
        ("make_multitask", draw(make_multitask), "seed"),
        ("make_multiclass", draw(make_multiclass), "seed"),
    )
    for former, new, value in (
        ("epochs", "max_iter", 2),
        ("seed", "random_state", 3),
        ("intercept", "fit_intercept", True),
        ("progress", "verbose", False),
        ("folds", "cv", 3),
    )
    if former in names.split()
]


@pytest.mark.parametrize(("call", "former", "new", "value"), FORMER)
def test_a_former_name_warns_and_does_the_same(
    call: Callable[..., Any], former: str, new: str, value: Any
) -> None:
    with pytest.warns(DeprecationWarning, match=f"^{former} is deprecated: use {new}\\.$") as heard:
        found = call(**{former: value})
    assert len(heard) == 1
    assert heard[0].filename == __file__  # whose line is to be changed
    assert found == call(**{new: value})
    if new != "verbose":
        assert found != call()


@pytest.mark.parametrize(("call", "former", "new", "value"), FORMER)
def test_both_names_are_refused(
    call: Callable[..., Any], former: str, new: str, value: Any
) -> None:
    sentence = f"^{new} and {former}, its former name, exclude each other\\.$"
    with pytest.raises(TypeError, match=sentence):
        call(**{former: value, new: value})


@pytest.mark.parametrize("call", [dt.solve, dt.path, dt.plan, make_multitask, make_multiclass])
def test_a_signature_shows_the_new_names_only(call: Callable[..., Any]) -> None:
    names = set(inspect.signature(call).parameters)
    assert not names & {"epochs", "seed", "intercept", "progress", "folds", "kwargs", "args"}
    assert names & {"max_iter", "random_state"}
    assert (call.__doc__ or "").count(" : ") >= 4


def test_functions_and_estimators_use_the_same_words() -> None:
    shared = {"max_iter", "random_state", "fit_intercept", "verbose", "tol", "max_time", "engine"}
    for call in (dt.solve, dt.path, dt.TraceNormRegressor, dt.TraceNormClassifierCV):
        assert shared <= set(inspect.signature(call).parameters)
    for call in (dt.path, dt.TraceNormRegressorCV):
        assert {"radii", "cv"} <= set(inspect.signature(call).parameters)


# The seed


def test_a_random_state_is_a_seed_and_none_is_always_the_same() -> None:
    assert [check_seed(state) for state in (None, 0, 7, np.int64(7), 2**70)] == [0, 0, 7, 7, 2**70]
    state = np.random.RandomState(1)
    first, second = check_seed(state), check_seed(state)
    assert first != second  # a generator goes on
    assert first == check_seed(np.random.RandomState(1))
    dfw: Any = {"solver": "dfw", "lmo": "power-1", "max_iter": 2}
    assert solve(**dfw) == solve(**dfw, random_state=0) != solve(**dfw, random_state=1)
    seeded = solve(**dfw, random_state=np.random.RandomState(1))
    assert seeded == solve(**dfw, random_state=first)
    assert draw(make_multitask)() == draw(make_multitask)(random_state=0)
    assert path(cv=3) == path(cv=3, random_state=0) != path(cv=3, random_state=1)


@pytest.mark.parametrize("state", [-1, 0.5, "1", True, np.random.default_rng(0), [1]])
def test_other_random_states_are_refused(state: Any) -> None:
    sentence = r"^random_state must be a whole number of at least 0, a RandomState or None, got "
    estimator = dt.TraceNormRegressor(1.0, random_state=state)
    for call in (solve, path, draw(make_multiclass)):
        with pytest.raises(ValueError, match=sentence):
            call(random_state=state)
    with pytest.raises(ValueError, match=sentence):
        estimator.fit(X, Y)


# The default solver


def test_the_fast_solver_is_the_default() -> None:
    assert solve() == solve(solver="accelerated") != solve(solver="dfw")
    assert plan() == plan(solver="accelerated") != plan(solver="dfw")
    assert plan().workload.epochs == 1000
    result = dt.solve(dt.LeastSquares(), X, Y, radius=1.0)
    assert result.status == "optimal"
    assert result.relative_gap <= 1e-4


@pytest.mark.parametrize(("name", "value"), [("lmo", "power-2"), ("step", 0.5)])
def test_an_oracle_or_a_step_asks_for_the_papers_solver(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"^{name} belongs to solver='dfw', got {value!r}\\.$"):
        solve(**{name: value})


def test_a_task_without_a_loss_is_told_of_the_papers_solver() -> None:
    class Lossless(dt.Task[Any]):
        def stats(self, shard: dt.Shard, W: dt.LowRankMatrix) -> Any:
            return shard.X, shard.X @ W - shard.targets

        def update(self, state: Any, atom: dt.RankOne, gamma: float) -> Any:
            A, R = state
            moved = np.outer(A @ (atom.scale * atom.u), atom.v) - Y
            return A, (1.0 - gamma) * R + gamma * moved

        def gradient(self, state: Any) -> Any:
            return state[0].T @ state[1]

    one = dt.LocalEngine(n_shards=1, n_jobs=1)
    missing = "^task lacks the method 'loss', which this run needs"
    with pytest.raises(TypeError, match=rf"{missing}; solver='dfw' without tol does not\.$"):
        dt.solve(Lossless(), X, Y, radius=1.0, engine=one)
    paper: Any = {"radius": 1.0, "engine": one, "solver": "dfw", "step": "harmonic"}
    assert len(dt.solve(Lossless(), X, Y, **paper).history) == 100
    with pytest.raises(TypeError, match=rf"{missing}\.$"):
        dt.solve(Lossless(), X, Y, tol=0.1, **paper)
    with pytest.raises(TypeError, match=rf"{missing}\.$"):
        dt.path(Lossless(), X, Y, radii=[1.0], engine=one)


# No epochs


@pytest.mark.parametrize(
    "call",
    [
        lambda: solve(max_iter=0),
        lambda: solve(max_iter=0, solver="dfw"),
        lambda: path(max_iter=0),
        lambda: plan(max_iter=0),
        lambda: dt.TraceNormRegressor(1.0, max_iter=0).fit(X, Y),
        lambda: dt.TraceNormRegressorCV(max_iter=0).fit(X, Y),
        lambda: dt.TraceNormClassifier(1.0, max_iter=0).fit(X, Y.argmax(axis=1)),
    ],
)
def test_a_run_has_an_epoch_at_least(call: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"^max_iter must be a whole number of at least 1, got 0"):
        call()
