"""A custom loss of some twenty lines gets every representation, oracle and step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from tests.custom_losses import Huber, SquaredHinge
from tests.problems import Untouched

import dfwtrace as dt

REPRESENTATIONS = ("implicit", "dense", "factored")
LMOS = ["power-2", "lanczos", "naive", "sva"]
RADIUS = 2.0


def huber(S: Any, Y: Any) -> tuple[float, Any]:
    """Value and residual, written again."""
    error = S - Y
    inside = np.abs(error) <= 1.0
    value = np.where(inside, 0.5 * error**2, np.abs(error) - 0.5)
    return float(value.sum()), np.where(inside, error, np.sign(error))


def squared_hinge(S: Any, labels: Any) -> tuple[float, Any]:
    signs = 2.0 * np.eye(S.shape[1])[labels] - 1.0
    slack = np.where(signs * S < 1.0, 1.0 - signs * S, 0.0)
    return 0.5 * float((slack**2).sum()), -signs * slack


def plain_frank_wolfe(loss: Callable[..., Any], X: Any, y: Any, m: int, epochs: int) -> list[Any]:
    W, iterates = np.zeros((X.shape[1], m)), []
    for t in range(epochs):
        U, _, Vt = np.linalg.svd(X.T @ loss(X @ W, y)[1])
        gamma = 2.0 / (t + 2.0)
        W = (1.0 - gamma) * W - gamma * RADIUS * np.outer(U[:, 0], Vt[0])
        iterates.append(W)
    return iterates


@pytest.fixture
def cases(multitask: tuple[Any, Any], multiclass: tuple[Any, Any]) -> dict[str, tuple[Any, ...]]:
    """Loss, its plain form, features, targets and width, by name."""
    X, Y = multitask
    return {
        "Huber": (Huber(), huber, X, 20.0 * Y, 5),
        "squared hinge": (SquaredHinge(), squared_hinge, *multiclass, 4),
    }


@pytest.mark.parametrize("name", ["Huber", "squared hinge"])
@pytest.mark.parametrize("representation", REPRESENTATIONS)
@pytest.mark.parametrize("layout", [np.asarray, sp.csr_array])
def test_a_custom_loss_follows_plain_numpy(
    name: str, representation: str, layout: Any, cases: dict[str, Any]
) -> None:
    loss, plain, X, y, m = cases[name]
    iterates: list[Any] = []
    result = dt.solve(
        dt.ScoresTask(loss),
        layout(X),
        y,
        radius=RADIUS,
        solver="dfw",
        lmo="naive",
        step="harmonic",
        max_iter=12,
        representation=representation,
        engine=dt.LocalEngine(n_shards=4, n_jobs=2),
        callback=lambda W, record: iterates.append(W.to_dense()),
    )
    expected = plain_frank_wolfe(plain, X, y, m, epochs=12)
    np.testing.assert_allclose(iterates, expected, atol=1e-9)
    values = [plain(X @ W, y)[0] for W in expected]
    np.testing.assert_allclose(result.history.column("objective"), values, rtol=1e-9)


@pytest.mark.parametrize("representation", REPRESENTATIONS)
@pytest.mark.parametrize("lmo", LMOS)
def test_its_line_search_only_descends(
    representation: str, lmo: str, cases: dict[str, Any]
) -> None:
    loss, plain, X, y, _ = cases["Huber"]
    options: Any = {"radius": RADIUS, "solver": "dfw", "lmo": lmo, "max_iter": 15}
    options["representation"] = representation
    options |= {"engine": dt.LocalEngine(n_shards=2, n_jobs=1)}
    result = dt.solve(dt.ScoresTask(loss), X, y, **options)
    objectives = [result.objective_at_zero, *result.history.column("objective")]
    assert np.all(np.diff(objectives) <= 1e-9 * objectives[0])
    assert objectives[-1] < (1.0 if lmo == "sva" else 0.95) * objectives[0]  # SVA promises nothing
    assert result.objective == pytest.approx(plain(X @ result.W, y)[0], rel=1e-9)


@pytest.mark.parametrize("representation", REPRESENTATIONS)
def test_float32_data_stay_so(representation: str, cases: dict[str, Any]) -> None:
    loss, _, X, y, _ = cases["Huber"]
    options: Any = {"radius": RADIUS, "representation": representation, "max_iter": 10}
    double = dt.solve(dt.ScoresTask(loss), X, y, solver="dfw", **options)
    single = dt.solve(
        dt.ScoresTask(loss), X.astype(np.float32), y.astype(np.float32), solver="dfw", **options
    )
    assert single.plan.workload.itemsize == 4
    np.testing.assert_allclose(single.W.to_dense(), double.W.to_dense(), atol=1e-3)


def test_a_loss_without_curvature_is_refused_a_line_search_before_the_first_round(
    multitask: tuple[Any, Any],
) -> None:
    class Flat(Huber):
        curvature = dt.losses.Loss.curvature

        def evaluate(self, S: Any, y: Any, R: Any) -> float:
            raise AssertionError("a round was run")

    with pytest.raises(TypeError, match=r"^Flat\.curvature is missing: solver=.dfw. with a line"):
        dt.solve(dt.ScoresTask(Flat()), *multitask, radius=RADIUS, solver="dfw", max_iter=1)


def test_a_loss_without_curvature_runs_with_other_steps(multitask: tuple[Any, Any]) -> None:
    class Flat(Huber):
        curvature = dt.losses.Loss.curvature

    result = dt.solve(
        dt.ScoresTask(Flat()), *multitask, radius=1.0, solver="dfw", step="harmonic", max_iter=30
    )
    assert result.objective < 0.9 * result.objective_at_zero


@pytest.mark.parametrize("loss", ["hinge", dt.losses.SquaredLoss, None])
def test_what_is_no_loss_is_refused(loss: Any, multitask: tuple[Any, Any]) -> None:
    with pytest.raises(TypeError, match="loss"):
        dt.solve(dt.ScoresTask(loss), *multitask, radius=1.0, solver="dfw", max_iter=1)


# Weights and an intercept


@pytest.mark.parametrize("form", ["implicit", "dense", "factored"])
@pytest.mark.parametrize(("intercept", "step"), [(False, "harmonic"), (True, "linesearch")])
def test_a_custom_loss_takes_weights_and_an_intercept(
    form: str, intercept: bool, step: str, multitask: tuple[Any, Any]
) -> None:
    X, Y = multitask[0], 20.0 * multitask[1] + 1.0
    weights = np.random.default_rng(0).integers(0, 4, len(X))
    repeated = np.repeat(np.arange(len(X)), weights)
    options: Any = {"radius": 2.0, "solver": "dfw", "lmo": "naive", "step": step, "max_iter": 8}
    options |= {
        "representation": form,
        "fit_intercept": intercept,
        "engine": dt.LocalEngine(n_shards=2, n_jobs=1),
    }
    weighted, plain = (
        dt.solve(dt.ScoresTask(Huber()), A, t, sample_weight=w, **options)
        for A, t, w in ((X, Y, weights), (X[repeated], Y[repeated], None))
    )
    np.testing.assert_allclose(weighted.W.to_dense(), plain.W.to_dense(), atol=1e-5)
    assert weighted.objective == pytest.approx(plain.objective, rel=1e-8)
    b = 0.0 if weighted.intercept is None else weighted.intercept
    error = X @ weighted.W.to_dense() + b - Y
    sizes = np.abs(error)
    value = weights @ np.where(sizes <= 1.0, 0.5 * sizes**2, sizes - 0.5).sum(axis=1)
    assert weighted.objective == pytest.approx(float(value), rel=1e-10)
    if intercept:  # no other b is better
        np.testing.assert_allclose(weights @ np.clip(error, -1.0, 1.0), 0.0, atol=1e-4)


@pytest.mark.parametrize("form", ["implicit", "dense", "factored"])
def test_a_loss_that_turns_labels_into_something_else_takes_weights(
    form: str, multiclass: tuple[Any, Any]
) -> None:
    X, y = multiclass
    weights = 1 + np.random.default_rng(0).integers(0, 4, len(X))
    repeated = np.repeat(np.arange(len(X)), weights)
    options: Any = {"radius": 2.0, "solver": "dfw", "lmo": "naive", "max_iter": 6}
    options["representation"] = form
    options |= {"engine": dt.LocalEngine(n_shards=2, n_jobs=1)}
    weighted, plain = (
        dt.solve(dt.ScoresTask(SquaredHinge()), A, t, sample_weight=w, **options)
        for A, t, w in ((X, y, weights), (X[repeated], y[repeated], None))
    )
    np.testing.assert_allclose(weighted.W.to_dense(), plain.W.to_dense(), atol=1e-8)
    assert weighted.objective == pytest.approx(plain.objective, rel=1e-9)


# Mistakes


class Rebinding(Huber):
    def evaluate(self, S: Any, y: Any, R: Any) -> float:
        R = np.clip(S - y, -1.0, 1.0)  # another array: the one that was given stays as it was
        return float((R * (S - y - 0.5 * R)).sum())


class Partial(Huber):
    def evaluate(self, S: Any, y: Any, R: Any) -> float:
        R[:, 0] = np.clip(S - y, -1.0, 1.0)[:, 0]
        return 0.0


class Valueless(Huber):
    def evaluate(self, S: Any, y: Any, R: Any) -> Any:
        super().evaluate(S, y, R)


class OfRows(Huber):
    def evaluate(self, S: Any, y: Any, R: Any) -> Any:
        super().evaluate(S, y, R)
        return np.abs(R).sum(axis=1)


class Widthless(Huber):
    def check_targets(self, y: Any) -> Any:
        return y


class TooFewTargets(Huber):
    def check_targets(self, y: Any) -> tuple[Any, int]:
        return y[:-1], y.shape[1]


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (Rebinding(), "Rebinding.evaluate must write ∂ℓ/∂S into its argument R (R[:] = …"),
        (Partial(), "but left some of it as it was."),
        (Valueless(), "Valueless.evaluate must return a number, got None."),
        (OfRows(), "OfRows.evaluate must return a number, got an object of type ndarray."),
        (Widthless(), "Widthless.check_targets must return the targets as an array of 60 rows"),
        (TooFewTargets(), "TooFewTargets.check_targets must return the targets as an array of"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_mistake_in_a_loss_is_named_before_any_work(
    loss: Any, message: str, multitask: tuple[Any, Any]
) -> None:
    for solver in ("dfw", "accelerated"):
        with pytest.raises(TypeError) as caught:
            dt.solve(dt.ScoresTask(loss), *multitask, radius=1.0, solver=solver, engine=Untouched())
        assert message in str(caught.value)
        with pytest.raises(TypeError) as caught:
            dt.check_task(dt.ScoresTask(loss), *multitask)
        assert message.replace("60", "50") in str(caught.value)


def test_a_missing_smoothness_is_named() -> None:
    class Rough(dt.losses.Loss):
        name = "rough"
        check_targets, evaluate = Huber.check_targets, Huber.evaluate

    with pytest.raises(TypeError, match=r"^Rough\.smoothness is missing: "):
        dt.ScoresTask(Rough())
