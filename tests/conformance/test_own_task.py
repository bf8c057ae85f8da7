"""A task of one's own: what it may do, and what it is told where it errs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import dfwtrace as dt

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 6)).astype(np.float32)
Y = X @ RNG.standard_normal((6, 4)).astype(np.float32) + RNG.standard_normal((40, 4))
RADIUS = 2.0


class Shifted:
    """½‖XW - Y‖² less a constant for every shard: the same minimiser, a negative F(0)."""

    quadratic = True
    shift = 1e6

    def stats(self, shard: dt.Shard, W: dt.LowRankMatrix) -> Any:
        return self._state(shard.X, shard.targets, shard.X @ W)

    def update(self, state: Any, atom: dt.RankOne, gamma: float) -> Any:
        S = state["S"] + gamma * self._direction(state, atom)
        return self._state(state["X"], state["y"], S)

    def linesearch(self, state: Any, atom: dt.RankOne, gamma: float) -> tuple[float, float]:
        D = self._direction(state, atom)
        curvature = float(np.sum(D * D))
        return float(np.sum(D * (state["S"] - state["y"]))) + gamma * curvature, curvature

    def loss(self, state: Any) -> float:
        return 0.5 * float(np.sum((state["S"] - state["y"]) ** 2)) - self.shift

    def _direction(self, state: Any, atom: dt.RankOne) -> Any:
        return np.outer(state["X"] @ (atom.scale * atom.u), atom.v) - state["S"]

    def _state(self, X: Any, y: Any, S: Any) -> Any:
        return {"X": X, "y": y, "S": S, "grad": X.T @ (S - y)}


def test_a_negative_objective_takes_nothing_from_the_gap() -> None:
    best = dt.solve(dt.LeastSquares(), X, Y, radius=RADIUS, lmo="naive", epochs=3000)
    engine = dt.LocalEngine(n_shards=2, n_jobs=1)
    for epochs in (1, 5, 50, 1000):
        result = dt.solve(Shifted(), X, Y, radius=RADIUS, lmo="naive", epochs=epochs, engine=engine)
        assert result.certificate is not None
        assert result.certificate.rounding > 0.0
        value = 0.5 * np.sum((X.astype(float) @ result.W.to_dense() - Y) ** 2)
        assert result.gap >= value - best.objective  # F(W) - F* is at least this
        assert result.relative_gap == pytest.approx(result.gap / abs(result.objective_at_zero))


def test_tolerance_is_relative_to_the_size_of_a_negative_objective() -> None:
    engine = dt.LocalEngine(n_shards=2, n_jobs=1)
    result = dt.solve(Shifted(), X, Y, radius=RADIUS, tol=1e-5, epochs=200, engine=engine)
    assert result.objective_at_zero < 0.0
    assert result.status == "optimal"
    assert result.gap <= 1e-5 * abs(result.objective_at_zero)


class OneSided(Shifted):
    def matvec(self, state: Any, V: Any) -> Any:
        return state["grad"] @ V


class SparseGradient(Shifted):
    def _state(self, X: Any, y: Any, S: Any) -> Any:
        return {**super()._state(X, y, S), "grad": sp.csr_array(X.T @ (S - y))}


class WrongShape(Shifted):
    def _state(self, X: Any, y: Any, S: Any) -> Any:
        return {**super()._state(X, y, S), "grad": (S - y).T @ X}


class Forgetful(Shifted):
    def update(self, state: Any, atom: dt.RankOne, gamma: float) -> None:
        super().update(state, atom, gamma)


class OneDerivative(Shifted):
    def linesearch(self, state: Any, atom: dt.RankOne, gamma: float) -> Any:
        return super().linesearch(state, atom, gamma)[0]


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (OneSided(), "task lacks the method 'rmatvec'"),
        (SparseGradient(), "grad must give a dense real array of shape (6, 4), got csr_array"),
        (WrongShape(), "grad must give a dense real array of shape (6, 4), got shape (4, 6)"),
        (Forgetful(), "task.update must return the state, got None"),
        (OneDerivative(), "task.linesearch must give a dense real array of shape (2,)"),
    ],
)
def test_mistakes_are_named(task: Any, message: str) -> None:
    with pytest.raises(TypeError) as error:
        dt.solve(task, X, Y, radius=RADIUS, epochs=2)
    assert message in str(error.value)
