"""`check_task` passes what is right, in any units, and names the one method that is wrong."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from tests.custom_losses import Huber, SquaredHinge

import dfwtrace as dt

X, Y, _ = dt.datasets.make_multitask(n=90, d=8, m=6, rank=3, noise=0.5, random_state=0)
FEATURES, LABELS, _ = dt.datasets.make_multiclass(n=300, d=7, m=5, rank=3, random_state=1)


class Complete:
    """Σ log cosh(s - y) over the scores S = XW, with every method that a task can have."""

    def stats(self, shard: dt.Shard, W: dt.LowRankMatrix) -> Any:
        return self.state(shard.X, shard.targets, shard.X @ W, W)

    def state(self, X: Any, y: Any, S: Any, W: Any = None) -> Any:
        return SimpleNamespace(X=X, y=y, S=S, R=np.tanh(S - y), W=W, ahead=None, product=None)

    def update(self, state: Any, atom: dt.RankOne, gamma: float) -> Any:
        moved = self.state(state.X, state.y, state.S + gamma * self.towards(state, atom))
        if state.ahead is not None:
            moved.ahead, moved.product = state.ahead, moved.X.T @ (moved.R @ state.ahead)
        return moved

    def towards(self, state: Any, atom: dt.RankOne) -> Any:
        return np.outer(state.X @ (atom.scale * atom.u), atom.v) - state.S

    def gradient(self, state: Any) -> Any:
        return state.X.T @ state.R

    def matvec(self, state: Any, V: Any) -> Any:
        if state.ahead is not None and np.array_equal(V, state.ahead):
            return state.product
        return state.X.T @ (state.R @ V)

    def rmatvec(self, state: Any, U: Any) -> Any:
        return state.R.T @ (state.X @ U)

    def loss(self, state: Any) -> float:
        E = state.S - state.y
        return float(np.sum(np.logaddexp(E, -E) - np.log(2.0)))

    def inner(self, state: Any) -> float:
        return float(np.vdot(state.S, state.R))

    def linesearch(self, state: Any, atom: dt.RankOne, gamma: float) -> tuple[float, float]:
        D = self.towards(state, atom)
        R = np.tanh(state.S + gamma * D - state.y)
        return float(np.vdot(D, R)), float(np.sum(D**2 * (1.0 - R**2)))

    def curvature_product(self, state: Any, U: Any) -> Any:
        return state.X.T @ (state.X @ U)

    def tangent(self, state: Any) -> Any:
        products = state.X.T @ (state.R @ state.W.V), state.R.T @ (state.X @ state.W.U)
        values = [self.loss(state), self.inner(state)]
        return np.concatenate([values, *(product.ravel() for product in products)])

    def expect(self, state: Any, v: Any) -> Any:
        state.ahead = v
        return state

    def renew(self, state: Any, shard: dt.Shard, W: dt.LowRankMatrix, b: Any = None) -> Any:
        return self.stats(shard, W)


METHODS = [
    *("stats", "update", "gradient", "matvec", "rmatvec", "loss", "inner", "linesearch"),
    *("curvature_product", "tangent", "renew", "expect"),
]


def names(checked: list[str], kind: type) -> set[str]:
    return {name.removeprefix(f"{kind.__name__}.") for name in checked}


def test_a_task_that_is_right_passes_and_all_of_its_methods_are_listed() -> None:
    class CompleteTask(Complete, dt.Task[Any]):
        pass

    for kind in (Complete, CompleteTask):
        assert names(dt.check_task(kind(), X, Y), kind) == set(METHODS)


@pytest.mark.parametrize(
    ("units", "far", "layout"),
    [(1.0, 0.0, sp.csr_array), (1e-5, 50.0, np.asarray), (1e4, 50.0, np.float32)],
)
def test_our_own_tasks_and_custom_losses_pass_in_any_units(
    units: float, far: float, layout: Any
) -> None:
    features, labelled = layout(units * (X + far)), layout(units * (FEATURES + far))
    assert dt.check_task(dt.LeastSquares(), features, Y / units) == [
        "SquaredLoss.check_targets",
        "SquaredLoss.evaluate",
        "SquaredLoss.smoothness",
        "SquaredLoss.curvature",
    ]
    dt.check_task(dt.ScoresTask(Huber()), features, 20.0 * Y)
    dt.check_task(dt.Multinomial(), labelled, LABELS)
    dt.check_task(dt.ScoresTask(SquaredHinge()), labelled, LABELS)


@pytest.mark.parametrize(
    ("n", "d", "m"), [(1, 1, 1), (1, 5, 3), (2, 1, 4), (40, 6, 1), (3, 80, 60)]
)
def test_any_shape_of_the_data_is_fine(n: int, d: int, m: int) -> None:
    rng = np.random.default_rng(n + d)
    X, Y = rng.standard_normal((n, d)), rng.standard_normal((n, m))
    for task in (Complete(), dt.LeastSquares(), dt.ScoresTask(Huber())):
        dt.check_task(task, X, Y)


def test_a_task_that_computes_in_single_precision_passes() -> None:
    class Single(Complete):
        def state(self, X: Any, y: Any, S: Any, W: Any = None) -> Any:
            X, y, S = (part.astype(np.float32) for part in (X, y, S))
            return super().state(X, y, S, W)

    dt.check_task(Single(), X, Y)


def test_rows_of_all_classes_are_taken() -> None:
    seen = []

    class Noting(SquaredHinge):
        def check_targets(self, y: Any) -> tuple[Any, int]:
            seen.append(y)
            return super().check_targets(y)

    y = np.repeat(np.arange(4), [3, 400, 100, 97])  # sorted, as files often are
    rng = np.random.default_rng(0)
    dt.check_task(dt.ScoresTask(Noting()), rng.standard_normal((600, 3)), y)
    assert all(len(rows) <= 50 for rows in seen)
    assert set(seen[0]) == {0, 1, 2, 3}


# One method wrong


def scaled(method: str, factor: float) -> type:
    def changed(self: Any, *args: Any) -> Any:
        value = getattr(Complete, method)(self, *args)
        return tuple(factor * np.asarray(value)) if method == "linesearch" else factor * value

    return type("Wrong", (Complete,), {method: changed})


class StatsWithoutWeights(Complete):
    def stats(self, shard: dt.Shard, W: dt.LowRankMatrix) -> Any:
        return self.state(shard.X, shard.targets, shard.X @ W.U @ W.V.T, W)


class StatsNegative(Complete):
    def stats(self, shard: dt.Shard, W: dt.LowRankMatrix) -> Any:
        return self.state(shard.X, shard.targets, -(shard.X @ W), W)


class StatsAlwaysAtZero(Complete):
    def stats(self, shard: dt.Shard, W: dt.LowRankMatrix) -> Any:
        return self.state(shard.X, shard.targets, 0.0 * (shard.X @ W), W)


class UpdateWithoutDecay(Complete):
    def update(self, state: Any, atom: dt.RankOne, gamma: float) -> Any:
        move = gamma * np.outer(state.X @ (atom.scale * atom.u), atom.v)
        return self.state(state.X, state.y, state.S + move)


class UpdateWithoutScale(Complete):
    def towards(self, state: Any, atom: dt.RankOne) -> Any:
        return np.outer(state.X @ atom.u, atom.v) - state.S

    linesearch = None  # type: ignore[assignment]


class UpdateOfTheOldGradient(Complete):
    def update(self, state: Any, atom: dt.RankOne, gamma: float) -> Any:
        moved = super().update(state, atom, gamma)
        moved.R = state.R
        return moved

    inner = expect = None  # type: ignore[assignment]


class MatvecOfABlock(Complete):
    def matvec(self, state: Any, V: Any) -> Any:
        first = super().matvec(state, V if V.ndim == 1 else V[:, 0])
        return first if V.ndim == 1 else np.tile(first[:, None], V.shape[1])


class LinesearchAtZero(Complete):
    def linesearch(self, state: Any, atom: dt.RankOne, gamma: float) -> tuple[float, float]:
        return super().linesearch(state, atom, 0.0)


class LinesearchWithHalfTheCurvature(Complete):
    def linesearch(self, state: Any, atom: dt.RankOne, gamma: float) -> tuple[float, float]:
        first, second = super().linesearch(state, atom, gamma)
        return first, 0.5 * second


class LossOfTheMean(Complete):
    """Everything is a mean over the rows of a shard."""

    def state(self, X: Any, y: Any, S: Any, W: Any = None) -> Any:
        state = super().state(X, y, S, W)
        state.R = state.R / len(y)
        return state

    def loss(self, state: Any) -> float:
        return super().loss(state) / len(state.y)

    def linesearch(self, state: Any, atom: dt.RankOne, gamma: float) -> tuple[float, float]:
        first, second = super().linesearch(state, atom, gamma)
        return first / len(state.y), second / len(state.y)


class TangentSwapped(Complete):
    def tangent(self, state: Any) -> Any:
        reply = super().tangent(state)
        reply[2:] = reply[:1:-1]
        return reply


class RenewOfTheOldState(Complete):
    def renew(self, state: Any, shard: dt.Shard, W: dt.LowRankMatrix, b: Any = None) -> Any:
        return state


class ExpectTheOldProduct(Complete):
    def expect(self, state: Any, v: Any) -> Any:
        state.ahead, state.product = v, state.X.T @ (state.R @ v)
        return state

    def update(self, state: Any, atom: dt.RankOne, gamma: float) -> Any:
        moved = super().update(state, atom, gamma)
        moved.product = state.product
        return moved


class Quadratic(Complete):
    quadratic = True


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        (StatsWithoutWeights, "stats"),
        (StatsNegative, "stats"),
        (StatsAlwaysAtZero, "stats"),
        (UpdateWithoutDecay, "update"),
        (UpdateWithoutScale, "update"),
        (UpdateOfTheOldGradient, "update"),
        (MatvecOfABlock, "matvec"),
        (LinesearchAtZero, "linesearch"),
        (LinesearchWithHalfTheCurvature, "linesearch"),
        (LossOfTheMean, "loss"),
        (TangentSwapped, "tangent"),
        (RenewOfTheOldState, "renew"),
        (ExpectTheOldProduct, "expect"),
        (Quadratic, "quadratic"),
        *(
            (scaled(method, factor), method)
            for method in ("gradient", "matvec", "rmatvec", "loss", "linesearch", "inner")
            for factor in (-1.0, 0.5, 2.0, 1.01)
        ),
        *((scaled("curvature_product", factor), "curvature_product") for factor in (-1.0, 0.1)),
        *((scaled("tangent", factor), "tangent") for factor in (-1.0, 2.0)),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_the_method_that_is_wrong_is_named(kind: Any, method: str) -> None:
    subclass = type(kind.__name__, (kind, dt.Task), {})
    for task in (kind(), subclass()):
        with pytest.raises(ValueError, match=rf"^{kind.__name__}\.{method} is wrong: ") as caught:
            dt.check_task(task, X, Y)
        message = str(caught.value)
        assert message.endswith(".")
        assert "\n" not in message


class Dense:
    """The shortest task: a dense gradient, no line search."""

    sign, factor = 1.0, 1.0

    def stats(self, shard: dt.Shard, W: dt.LowRankMatrix) -> Any:
        return self.state(shard.X, shard.targets, shard.X @ W)

    def update(self, state: Any, atom: dt.RankOne, gamma: float) -> Any:
        move = np.outer(state["X"] @ (atom.scale * atom.u), atom.v) - state["S"]
        return self.state(state["X"], state["y"], state["S"] + gamma * move)

    def loss(self, state: Any) -> float:
        return 0.5 * float(np.sum((state["S"] - state["y"]) ** 2))

    def state(self, X: Any, y: Any, S: Any) -> Any:
        return {"X": X, "y": y, "S": S, "grad": self.sign * self.factor * X.T @ (S - y)}


def test_a_wrong_gradient_in_the_state_is_named() -> None:
    assert dt.check_task(Dense(), X, Y) == ["Dense.stats", "Dense.update", "Dense.loss"]
    for sign, factor in ((-1.0, 1.0), (1.0, 2.0), (1.0, 1.0 / 90)):
        task = Dense()
        task.sign, task.factor = sign, factor
        with pytest.raises(ValueError, match=r"^grad in Dense's state is wrong: .*finite diff"):
            dt.check_task(task, X, Y)


def test_a_wrong_residual_is_not_blamed_on_the_loss() -> None:
    class Flipped(Complete):
        """The gradient and the line search agree, but F rises where both say that it falls."""

        def gradient(self, state: Any) -> Any:
            return -super().gradient(state)

        def linesearch(self, state: Any, atom: dt.RankOne, gamma: float) -> tuple[float, float]:
            first, second = super().linesearch(state, atom, gamma)
            return -first, second

        matvec = rmatvec = inner = tangent = None  # type: ignore[assignment]

    with pytest.raises(ValueError, match=r"^Flipped\.gradient is wrong: "):
        dt.check_task(Flipped(), X, Y)


def test_an_objective_that_is_not_convex_is_refused() -> None:
    class Bounded(Dense):
        """Σ 1 - exp(-(s - y)²/2): outliers count for nothing."""

        def loss(self, state: Any) -> float:
            return float(np.sum(1.0 - np.exp(-0.5 * (state["S"] - state["y"]) ** 2)))

        def state(self, X: Any, y: Any, S: Any) -> Any:
            R = (S - y) * np.exp(-0.5 * (S - y) ** 2)
            return {"X": X, "y": y, "S": S, "grad": X.T @ R}

    with pytest.raises(ValueError, match=r"^Bounded is not convex: "):
        dt.check_task(Bounded(), X, 30.0 * Y)


def test_a_task_that_cannot_be_sent_to_a_cluster_is_refused() -> None:
    class Locked(Dense):
        def __init__(self) -> None:
            self.lock = threading.Lock()

    with pytest.raises(ValueError, match=r"^Locked cannot be pickled, as clusters need: "):
        dt.check_task(Locked(), X, Y)


def test_a_missing_or_malformed_reply_is_named() -> None:
    class Nothing(Dense):
        def update(self, state: Any, atom: dt.RankOne, gamma: float) -> Any:
            pass

    with pytest.raises(TypeError, match=r"^Nothing\.update must return the state, got None\.$"):
        dt.check_task(Nothing(), X, Y)
    with pytest.raises(TypeError, match=r"^task must be an object such as LeastSquares"):
        dt.check_task("squared", X, Y)
    with pytest.raises(ValueError, match=r"^y must have one row"):
        dt.check_task(Dense(), X, Y[:5])


# Losses


class Flipped(Huber):
    def evaluate(self, S: Any, y: Any, R: Any) -> float:
        value = super().evaluate(S, y, R)
        R *= -1.0
        return value


class Mean(Huber):
    def evaluate(self, S: Any, y: Any, R: Any) -> float:
        value = super().evaluate(S, y, R) / len(S)
        R /= len(S)
        return value


class InPlace(Huber):
    def evaluate(self, S: Any, y: Any, R: Any) -> float:
        value = super().evaluate(S, y, R)
        S -= y
        return value


class Smoother(Huber):
    smoothness = 0.5


class Curved(Huber):
    def curvature(self, S: Any, R: Any, D: Any) -> float:
        return float(np.square(D).sum())


class CalledQuadratic(Huber):
    quadratic = True


class WrongRows(Huber):
    def row_values(self, S: Any, y: Any) -> Any:
        return np.square(S - y).sum(axis=1)


@pytest.mark.parametrize(
    ("loss", "method", "why"),
    [
        (Flipped(), "evaluate", "finite differences give"),
        (Mean(), "evaluate", "it must be a sum over rows"),
        (InPlace(), "evaluate", "it changes the scores"),
        (Smoother(), "smoothness", "the second derivative of a row's loss reaches"),
        (Curved(), "curvature", "finite differences of the residual give"),
        (CalledQuadratic(), "quadratic", "F is not quadratic"),
        (WrongRows(), "row_values", "it must give the loss of each"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_method_of_a_loss_that_is_wrong_is_named(loss: Any, method: str, why: str) -> None:
    name = type(loss).__name__
    with pytest.raises(ValueError, match=rf"^{name}\.{method} is wrong: .*{why}"):
        dt.check_task(dt.ScoresTask(loss), X, 20.0 * Y)
