"""A loss of the user's own, of some twenty lines, gets every representation, oracle and step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from tests.own_losses import Huber, SquaredHinge

import dfwtrace as dt

REPRESENTATIONS = ("implicit", "dense", "factored")
LMOS = ["power-2", "lanczos", "naive", "sva"]
RADIUS = 2.0


def huber(S: Any, Y: Any) -> tuple[float, Any]:
    """Value and residual, written anew."""
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
def test_a_loss_of_ones_own_follows_plain_numpy(
    name: str, representation: str, layout: Any, cases: dict[str, Any]
) -> None:
    loss, plain, X, y, m = cases[name]
    iterates: list[Any] = []
    result = dt.solve(
        dt.ScoresTask(loss),
        layout(X),
        y,
        radius=RADIUS,
        lmo="naive",
        step="harmonic",
        epochs=12,
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
    options: Any = {"radius": RADIUS, "lmo": lmo, "representation": representation, "epochs": 15}
    options |= {"engine": dt.LocalEngine(n_shards=2, n_jobs=1)}
    result = dt.solve(dt.ScoresTask(loss), X, y, **options)
    objectives = [result.objective_at_zero, *result.history.column("objective")]
    assert np.all(np.diff(objectives) <= 1e-9 * objectives[0])
    assert objectives[-1] < 0.95 * objectives[0]
    assert result.objective == pytest.approx(plain(X @ result.W, y)[0], rel=1e-9)


@pytest.mark.parametrize("representation", REPRESENTATIONS)
def test_float32_data_stay_so(representation: str, cases: dict[str, Any]) -> None:
    loss, _, X, y, _ = cases["Huber"]
    options: Any = {"radius": RADIUS, "representation": representation, "epochs": 10}
    double = dt.solve(dt.ScoresTask(loss), X, y, **options)
    single = dt.solve(dt.ScoresTask(loss), X.astype(np.float32), y.astype(np.float32), **options)
    assert single.plan.workload.itemsize == 4
    np.testing.assert_allclose(single.W.to_dense(), double.W.to_dense(), atol=1e-3)


def test_a_loss_without_curvature_is_refused_a_line_search_before_the_first_round(
    multitask: tuple[Any, Any],
) -> None:
    class Flat(Huber):
        curvature = dt.losses.Loss.curvature

        def evaluate(self, S: Any, y: Any, R: Any) -> float:
            raise AssertionError("a round was run")

    with pytest.raises(TypeError, match=r"curvature|linesearch"):
        dt.solve(dt.ScoresTask(Flat()), *multitask, radius=RADIUS, step="linesearch", epochs=1)


def test_a_loss_without_curvature_runs_with_other_steps(multitask: tuple[Any, Any]) -> None:
    class Flat(Huber):
        curvature = dt.losses.Loss.curvature

    result = dt.solve(dt.ScoresTask(Flat()), *multitask, radius=1.0, step="harmonic", epochs=30)
    assert result.objective < 0.9 * result.objective_at_zero


@pytest.mark.parametrize("loss", ["hinge", dt.losses.SquaredLoss, None])
def test_what_is_no_loss_is_refused(loss: Any, multitask: tuple[Any, Any]) -> None:
    with pytest.raises(TypeError, match="loss"):
        dt.solve(dt.ScoresTask(loss), *multitask, radius=1.0, epochs=1)
