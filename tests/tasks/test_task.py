"""Custom tasks: what they may do, with the base class or without, and where they go wrong."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import pytest
import scipy.sparse as sp
from tests.problems import ENGINE, Untouched
from tests.truth import bracket, value_and_gradient

import dfwtrace as dt
from dfwtrace.tasks.features.scores import as_task

RADIUS = 0.8
X, Y, _ = dt.datasets.make_multitask(n=60, d=8, m=6, rank=3, noise=0.5, random_state=0)


class Bare:
    """½‖XW - Y‖² with no more than a task must have; the state is a dict with a dense gradient."""

    def stats(self, shard: dt.Shard, W: dt.LowRankMatrix) -> Any:
        return self.state(shard.X, shard.targets, shard.X @ W)

    def update(self, state: Any, atom: dt.RankOne, gamma: float) -> Any:
        S = self.part(state, "S") + gamma * self.towards(state, atom)
        return self.state(self.part(state, "X"), self.part(state, "y"), S)

    def state(self, X: Any, y: Any, S: Any) -> Any:
        return {"X": X, "y": y, "S": S, "grad": X.T @ (S - y)}

    def part(self, state: Any, name: str) -> Any:
        return state[name]

    def towards(self, state: Any, atom: dt.RankOne) -> Any:
        X, S = self.part(state, "X"), self.part(state, "S")
        return np.outer(X @ (atom.scale * atom.u), atom.v) - S


class Searching(Bare):
    quadratic = True

    def linesearch(self, state: Any, atom: dt.RankOne, gamma: float) -> Any:
        D, R = self.towards(state, atom), self.part(state, "S") - self.part(state, "y")
        curvature = float(np.sum(D * D))
        return float(np.sum(D * R)) + gamma * curvature, curvature


class Valued(Bare):
    def loss(self, state: Any) -> float:
        return 0.5 * float(np.sum((self.part(state, "S") - self.part(state, "y")) ** 2))


class Full(Searching, Valued):
    """The paper's four methods."""


class Attributes(Full):
    """The gradient is an attribute of the state."""

    def state(self, X: Any, y: Any, S: Any) -> Any:
        return SimpleNamespace(**super().state(X, y, S))

    def part(self, state: Any, name: str) -> Any:
        return getattr(state, name)


class Gradient(Full):
    """The gradient is a method."""

    def state(self, X: Any, y: Any, S: Any) -> Any:
        return {"X": X, "y": y, "S": S}

    def gradient(self, state: Any) -> Any:
        return state["X"].T @ (state["S"] - state["y"])


class Products(Full):
    """Products in place of the gradient."""

    state = Gradient.state

    def matvec(self, state: Any, V: Any) -> Any:
        return state["X"].T @ ((state["S"] - state["y"]) @ V)

    def rmatvec(self, state: Any, U: Any) -> Any:
        return (state["S"] - state["y"]).T @ (state["X"] @ U)


class BareTask(Bare, dt.Task[Any]):
    """A subclass."""


class FullTask(Full, dt.Task[Any]):
    """A subclass."""


def run(task: Any, **options: Any) -> tuple[dt.Result, list[Any]]:
    iterates: list[Any] = []
    call = {"radius": RADIUS, "solver": "dfw", "max_iter": 10, "engine": ENGINE, **options}
    result = dt.solve(task, X, Y, callback=lambda W, record: iterates.append(W.to_dense()), **call)
    return result, iterates


@pytest.mark.parametrize("kind", [Full, FullTask, Attributes, Gradient, Products])
@pytest.mark.parametrize(
    ("lmo", "step"),
    [
        ("naive", "linesearch"),
        ("power-2", "harmonic"),
        ("lanczos", "linesearch"),
        ("sva", "harmonic"),
        ("sva", "linesearch"),
    ],
)
def test_a_custom_task_goes_the_same_way_as_ours(kind: Any, lmo: str, step: str) -> None:
    own, iterates = run(kind(), lmo=lmo, step=step)
    ours, expected = run(dt.LeastSquares(), lmo=lmo, step=step, representation="implicit")
    np.testing.assert_allclose(iterates, expected, atol=1e-10)
    for name in ("objective", "gap_estimate", "sigma", "gamma", "rounds", "numbers_sent"):
        columns = [result.history.column(name) for result in (own, ours)]
        np.testing.assert_allclose(*columns, rtol=1e-8)
    assert own.certificate.gap == pytest.approx(ours.certificate.gap, rel=1e-8)
    assert (own.plan.representation, own.plan.costs) == ("own", {})


@pytest.mark.parametrize("radius", [0.3, 2.0, 20.0])
@pytest.mark.parametrize("kind", [Valued, Products, FullTask])
def test_the_accelerated_solver_asks_for_a_loss_and_a_gradient_only(
    kind: Any, radius: float
) -> None:
    features, targets = X[:, :5], Y[:, :4]
    lower, upper = bracket("least squares", features, targets, 4, radius)
    result = dt.solve(kind(), features, targets, radius=radius, solver="accelerated", tol=1e-6)
    assert result.status == "optimal"
    value = value_and_gradient("least squares", features, targets, result.W.to_dense())[0]
    rounding = 1e-13 * result.objective_at_zero
    assert lower - rounding <= value <= upper + result.gap + rounding


def test_two_methods_and_a_gradient_are_enough() -> None:
    result, _ = run(Bare(), lmo="naive", step="harmonic")
    ours, _ = run(dt.LeastSquares(), lmo="naive", step="harmonic")
    np.testing.assert_allclose(result.W.to_dense(), ours.W.to_dense(), atol=1e-9)
    assert result.certificate.gap == pytest.approx(ours.certificate.gap, rel=1e-8)
    assert np.isnan(result.objective)
    assert np.isnan(result.history.column("objective")).all()


def bits(result: dt.Result) -> list[bytes]:
    columns = [result.history.column(name) for name in ("objective", "gap", "sigma", "gamma")]
    parts = [*columns, result.W.U, result.W.s, result.W.V, np.float64(result.gap)]
    return [np.asarray(part).tobytes() for part in parts]


@pytest.mark.parametrize(
    ("plain", "subclass", "step"), [(Bare, BareTask, "harmonic"), (Full, FullTask, "linesearch")]
)
def test_the_base_class_changes_no_bit_nor_does_a_pickle(
    plain: Any, subclass: Any, step: str
) -> None:
    adopted = as_task(plain())
    assert as_task(adopted) is adopted
    copies = [
        make(dump(task))
        for task in (plain(), subclass(), adopted)
        for make, dump in ((pickle.loads, pickle.dumps), (cloudpickle.loads, cloudpickle.dumps))
    ]
    options: Any = {"step": step, "certify_every": 3}
    first, *others = (
        bits(run(task, **options)[0]) for task in (plain(), subclass(), adopted, *copies)
    )
    assert all(other == first for other in others)
    assert (as_task(plain()).supports("loss"), as_task(subclass()).supports("loss")) == (
        (plain is Full,) * 2
    )


def test_a_task_made_where_no_other_process_finds_its_class_is_sent_by_value() -> None:
    class Local(Full):
        pass

    adopted = cloudpickle.loads(cloudpickle.dumps(as_task(Local())))
    assert bits(run(adopted)[0]) == bits(run(Full())[0])


def test_what_a_task_notes_is_noted_on_the_object_that_was_given() -> None:
    class Counting(Full):
        def __init__(self) -> None:
            self.built = 0

        def stats(self, shard: dt.Shard, W: dt.LowRankMatrix) -> Any:
            self.built += 1
            return super().stats(shard, W)

    class CountingTask(Counting, dt.Task[Any]):
        pass

    for task in (Counting(), CountingTask()):
        run(task, max_iter=2)
        assert task.built == ENGINE.n_shards  # all of them at zero, and updated from there on


# Mistakes


class OneSided(Bare):
    def matvec(self, state: Any, V: Any) -> Any:
        return state["grad"] @ V


class OtherSided(Bare):
    def rmatvec(self, state: Any, U: Any) -> Any:
        return state["grad"].T @ U


class OnlyStats:
    stats = Bare.stats


class Derived(dt.Task[Any]):
    """Neither stats nor update: the defaults only raise."""


class OneSidedTask(OneSided, dt.Task[Any]):
    pass


class Slots(Bare):
    __slots__ = ("shift",)

    def __init__(self) -> None:
        self.shift = 1.0


class Named(NamedTuple):
    shift: float = 1.0
    stats, update = Bare().stats, Bare().update  # type: ignore[misc]


class Final(Bare):
    """A class that nothing can be derived from, as those of some compiled modules."""

    def __init_subclass__(cls) -> None:
        raise TypeError("type 'Final' is not an acceptable base type")


class Proxy:
    """Forwards every attribute."""

    def __init__(self) -> None:
        self.__dict__["task"] = Bare()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.task, name)


NAMESPACE = SimpleNamespace(stats=Bare().stats, update=Bare().update)


@pytest.mark.parametrize(
    "task", [Slots(), Named(), Final(), Proxy(), NAMESPACE], ids=lambda task: type(task).__name__
)
def test_any_object_with_the_methods_is_a_task(task: Any) -> None:
    expected, found = run(Bare(), step="harmonic")[1], run(task, step="harmonic")[1]
    assert len(found) == 10
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (OneSided(), "lacks the method 'rmatvec'"),
        (OtherSided(), "lacks the method 'matvec'"),
        (OnlyStats(), "must be an object such as LeastSquares(), or have the methods stats and"),
        (object(), "have the methods stats and update"),
        (Derived(), "have the methods stats and update"),
        (OneSidedTask(), "lacks the method 'rmatvec'"),
        (Bare, "must be an object such as LeastSquares()"),
        (FullTask, "must be an object such as LeastSquares()"),
        ("least squares", "'least squares'"),
        (None, "None"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_is_no_task_is_refused_in_one_sentence_before_any_work(task: Any, words: str) -> None:
    for call, options in (
        (dt.solve, {"radius": 1.0, "engine": Untouched()}),
        (dt.path, {"radii": [1.0], "engine": Untouched()}),
        (dt.plan, {}),
    ):
        with pytest.raises(TypeError) as caught:
            call(task, X, Y, **options)  # type: ignore[operator]
        message = str(caught.value)
        assert message.startswith("task ")
        assert words in message
        assert message.endswith(".")
        assert "\n" not in message


@pytest.mark.parametrize(
    ("task", "options", "method"),
    [
        (Searching(), {"tol": 0.1}, "loss"),
        (Valued(), {}, "linesearch"),
        (BareTask(), {}, "linesearch"),
        (Full(), {"lmo": dt.lmo.Power(dt.lmo.TheoremLinear())}, "curvature_product"),
        (FullTask(), {"lmo": dt.lmo.Power(dt.lmo.Adaptive())}, "curvature_product"),
        (Bare(), {"solver": "accelerated"}, "loss"),
        (BareTask(), {"solver": "accelerated"}, "loss"),
    ],
)
def test_a_method_that_a_run_needs_is_named_before_the_first_round(
    task: Any, options: dict[str, Any], method: str
) -> None:
    with pytest.raises(TypeError, match=f"^task lacks the method '{method}', which this run"):
        run(task, engine=Untouched(), **options)


def test_a_method_may_be_taken_away_by_none() -> None:
    class Silent(Full):
        loss: Any = None

    class SilentTask(FullTask):
        loss: Any = None

    for task in (Silent(), SilentTask()):
        with pytest.raises(TypeError, match="lacks the method 'loss'"):
            run(task, solver="accelerated", engine=Untouched())
        with pytest.raises(TypeError, match="lacks the method 'loss'"):
            dt.path(task, X, Y, radii=[1.0], engine=Untouched())


class NoGradient(Full):
    state = Gradient.state


class SparseGradient(Full):
    def state(self, X: Any, y: Any, S: Any) -> Any:
        return {**super().state(X, y, S), "grad": sp.csr_array(X.T @ (S - y))}


class WrongShape(Full):
    def state(self, X: Any, y: Any, S: Any) -> Any:
        return {**super().state(X, y, S), "grad": (S - y).T @ X}


class Forgetful(Full):
    def update(self, state: Any, atom: dt.RankOne, gamma: float) -> Any:
        super().update(state, atom, gamma)


class Lossless(Full):
    def loss(self, state: Any) -> Any:
        super().loss(state)


class LossOfRows(Full):
    def loss(self, state: Any) -> Any:
        return np.square(state["S"] - state["y"]).sum(axis=1)


class OneDerivative(Full):
    def linesearch(self, state: Any, atom: dt.RankOne, gamma: float) -> Any:
        return super().linesearch(state, atom, gamma)[0]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (NoGradient, "task has neither matvec and rmatvec nor a state with a dense `grad`"),
        (
            SparseGradient,
            "SparseGradient's state must give a dense real array of shape (8, 6), got csr_array",
        ),
        (
            WrongShape,
            "WrongShape's state must give a dense real array of shape (8, 6), got shape (6, 8)",
        ),
        (Forgetful, "Forgetful.update must return the state, got None"),
        (Lossless, "Lossless.loss must return a number, got None"),
        (LossOfRows, "LossOfRows.loss must return a number, got an object of type ndarray"),
        (OneDerivative, "OneDerivative.linesearch must give a dense real array of shape (2,)"),
    ],
)
def test_mistakes_in_a_method_are_named(kind: Any, message: str) -> None:
    subclass = type(kind.__name__, (kind, dt.Task), {})
    for task in (kind(), subclass()):
        with pytest.raises(TypeError) as error:
            run(task, max_iter=2)
        assert message in str(error.value)


# A negative F(0)


class Shifted(Full):
    """Less a constant for every shard: the same minimiser, a negative F(0)."""

    def loss(self, state: Any) -> float:
        return super().loss(state) - 1e6


def test_a_negative_objective_takes_nothing_from_the_gap() -> None:
    best = dt.solve(dt.LeastSquares(), X, Y, radius=RADIUS, solver="accelerated", tol=1e-9)
    for epochs in (1, 5, 50, 300):
        result, _ = run(Shifted(), lmo="naive", max_iter=epochs)
        assert result.certificate is not None
        assert result.certificate.rounding > 0.0
        value = value_and_gradient("least squares", X, Y, result.W.to_dense())[0]
        assert result.gap >= value - best.objective  # F(W) - F* is at least this
        assert result.relative_gap == pytest.approx(result.gap / abs(result.objective_at_zero))


def test_tolerance_is_relative_to_the_size_of_a_negative_objective() -> None:
    result, _ = run(Shifted(), tol=1e-7, max_iter=200)
    assert result.objective_at_zero < 0.0
    assert result.status == "optimal"
    assert result.gap <= 1e-7 * abs(result.objective_at_zero)
