"""A run that a wrong gradient leads upwards is stopped; no other run is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from tests.custom_losses import Huber, SquaredHinge

import dfwtrace as dt

X, Y, _ = dt.datasets.make_multitask(n=60, d=8, m=6, rank=3, noise=0.5, random_state=0)


class Plain(dt.Task[Any]):
    """½‖XW - Y‖² with a gradient, and a line search, times any numbers."""

    quadratic = True

    def __init__(self, gradient: float = 1.0, linesearch: float = 1.0) -> None:
        self.factors = gradient, linesearch

    def stats(self, shard: dt.Shard, W: dt.LowRankMatrix) -> Any:
        return self.state(shard.X, shard.targets, shard.X @ W)

    def update(self, state: Any, atom: dt.RankOne, gamma: float) -> Any:
        move = gamma * self.towards(state, atom)
        return self.state(state["X"], state["y"], state["S"] + move)

    def linesearch(self, state: Any, atom: dt.RankOne, gamma: float) -> tuple[float, float]:
        D = self.towards(state, atom)
        curvature = float(np.vdot(D, D))
        slope = float(np.vdot(D, state["S"] - state["y"])) + gamma * curvature
        return self.factors[1] * slope, curvature

    def loss(self, state: Any) -> float:
        return 0.5 * float(np.sum((state["S"] - state["y"]) ** 2))

    def towards(self, state: Any, atom: dt.RankOne) -> Any:
        return np.outer(state["X"] @ (atom.scale * atom.u), atom.v) - state["S"]

    def state(self, X: Any, y: Any, S: Any) -> Any:
        return {"X": X, "y": y, "S": S, "grad": self.factors[0] * X.T @ (S - y)}


class Flipped(Huber):
    def evaluate(self, S: Any, y: Any, R: Any) -> float:
        value = super().evaluate(S, y, R)
        R *= -1.0
        return value


STEPS: list[dict[str, Any]] = [
    {"solver": "accelerated"},
    *({"solver": "dfw", "step": step} for step in ("linesearch", "harmonic", 0.05)),
    {"solver": "dfw", "step": "harmonic", "lmo": "sva"},
]


@pytest.mark.parametrize("how", STEPS, ids=str)
@pytest.mark.parametrize("radius", [1e-2, 1.0, 100.0])
def test_a_sign_error_in_a_gradient_stops_the_run_at_once(
    how: dict[str, Any], radius: float
) -> None:
    epochs: list[Any] = []
    for task in (Plain(-1.0, -1.0), Plain(-1.0)):
        with pytest.raises(RuntimeError) as caught:
            dt.solve(
                task, X, Y, radius=radius, callback=lambda W, record: epochs.append(record), **how
            )
        message = str(caught.value)
        assert "Plain" in message
        assert "dfwtrace.check_task(task, X, y) names the method." in message
    assert len(epochs) <= 2
    with pytest.raises(ValueError, match=r"^grad in Plain's state is wrong: "):
        dt.check_task(Plain(-1.0), X, Y)


@pytest.mark.parametrize("how", STEPS, ids=str)
@pytest.mark.parametrize("intercept", [False, True])
def test_a_sign_error_in_a_loss_stops_the_run(how: dict[str, Any], intercept: bool) -> None:
    task = dt.ScoresTask(Flipped())
    with pytest.raises(RuntimeError, match=r"^F rose from F\(0\) = .* loss of Flipped is wrong"):
        dt.solve(task, X, 20.0 * Y, radius=3.0, fit_intercept=intercept, **how)


def test_a_right_gradient_may_lead_above_zero_and_the_message_says_so() -> None:
    for task in (Plain(), dt.LeastSquares()):
        result = dt.solve(task, X, Y, radius=30.0, solver="dfw", step=1.0, max_iter=3)
        assert result.objective > 10.0 * result.objective_at_zero
        assert f"F(W) = {result.objective:.6g} is above F(0) = " in result.message
        better = dt.solve(task, X, Y, radius=30.0, solver="dfw", step="linesearch", max_iter=3)
        assert "above" not in better.message


def test_a_run_from_above_zero_goes_on() -> None:
    start = dt.LowRankMatrix(np.eye(8)[:, :1], [50.0], np.eye(6)[:, :1])
    for how in STEPS[:-1]:
        result = dt.solve(Plain(), X, Y, radius=60.0, start=start, **how, max_iter=3)
        assert result.history


def test_a_resumed_run_is_watched_too(tmp_path: Any) -> None:
    options: Any = {"radius": 3.0, "fit_intercept": True, "solver": "dfw", "step": "harmonic"}
    options["representation"] = "implicit"
    file = dt.Checkpoint(tmp_path / "run", epochs=1)
    for epochs in (3, 6):
        dt.solve(dt.ScoresTask(Huber()), X, 20.0 * Y, **options, max_iter=epochs, checkpoint=file)


@pytest.mark.parametrize("seed", range(10))
def test_no_right_task_is_stopped_whatever_the_units_and_the_precision(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, d, m = (int(rng.integers(low, high)) for low, high in ((3, 40), (1, 10), (2, 6)))
    features = 10.0 ** rng.integers(-5, 6) * (rng.standard_normal((n, d)) + rng.choice([0, 1, 1e4]))
    targets = 10.0 ** rng.integers(-1, 2) * (rng.standard_normal((n, m)) + rng.choice([0, 100]))
    labels = np.append(rng.integers(0, m, n - 2), [0, m - 1])
    dtype = rng.choice(["f4", "f8"])
    features, targets = features.astype(dtype), targets.astype(dtype)
    step = rng.choice(np.array(["harmonic", "linesearch", 1.0], object))
    hows: Any = [{"solver": "accelerated"}, {"solver": "dfw", "step": step}]
    call: Any = {"radius": 10.0 ** rng.integers(-3, 6), "max_iter": 4}
    for how in hows:
        dt.solve(Plain(), features, targets, **call, **how)
        for loss, y in ((Huber(), targets), (SquaredHinge(), labels)):
            form = str(rng.choice(["implicit", "dense", "factored"]))
            rows = sp.csr_array(features) if rng.random() < 0.3 else features
            weights = None if y is labels else rng.choice([0.1, 1.0, 10.0], n)
            dt.solve(
                dt.ScoresTask(loss), rows, y, **call, **how, representation=form,
                fit_intercept=bool(rng.integers(2)), sample_weight=weights,
            )  # fmt: skip
