"""The metric against the matrix that it stands for, and the stiff directions against the data's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dfwtrace as dt
from dfwtrace.solvers.factor_steps import Stiffness, inverse_metric, stiffness
from dfwtrace.solvers.problem import Problem

Array = npt.NDArray[np.float64]
Build = Callable[..., Problem]
D, M = 30, 4


def stiff_of(d: int, count: int, seed: int = 0) -> Stiffness:
    rng = np.random.default_rng(seed)
    return Stiffness(np.linalg.qr(rng.standard_normal((d, count))).Q, 9.0 * rng.random(count))


@pytest.mark.parametrize(("rank", "count"), [(1, 0), (3, 0), (3, 2), (1, 5), (7, 3)])
def test_the_inverse_is_that_of_the_dense_matrix(rank: int, count: int) -> None:
    """H ⊗ BᵀB on A and I ⊗ AᵀHA on B, and an even part everywhere."""
    d, m, rng = 5, 4, np.random.default_rng(rank)
    stiff = stiff_of(d, count)
    A, B = rng.standard_normal((d, rank)), rng.standard_normal((m, rank))
    x = np.concatenate([A.ravel(), B.ravel(), [0.3]])
    E, excess = stiff
    H, along = np.eye(d) + (E * excess) @ E.T, B.T @ B
    values = np.linalg.eigvalsh(along)
    even = 0.1 * values[-1]
    dense = np.zeros((x.size, x.size))
    dense[: d * rank, : d * rank] = np.kron(H, along)
    dense[d * rank : -1, d * rank : -1] = np.kron(np.eye(m), A.T @ H @ A)
    dense[-1, -1] = values.mean()
    dense += even * np.eye(x.size)
    g = rng.standard_normal(x.size)
    np.testing.assert_allclose(
        inverse_metric(x, (d, m), stiff)(g), np.linalg.solve(dense, g), rtol=1e-9
    )


def test_other_factors_of_the_same_matrix_give_the_same_step() -> None:
    """A rotation of the columns of A and B changes neither W nor where a step leads."""
    d, m, rank, rng = 6, 5, 3, np.random.default_rng(0)
    stiff, turn = stiff_of(d, 2), np.linalg.qr(rng.standard_normal((rank, rank))).Q
    x, g = rng.standard_normal((2, (d + m) * rank + 1))

    def turned(v: Array) -> Array:
        return np.append((v[:-1].reshape(d + m, rank) @ turn).ravel(), v[-1])

    step = inverse_metric(x, (d, m), stiff)(g)
    other = inverse_metric(turned(x), (d, m), stiff)(turned(g))
    np.testing.assert_allclose(other, turned(step), rtol=1e-9, atol=1e-12)


def problem_with(problem_of: Build, X: Array, name: str, form: str = "implicit") -> Problem:
    y: Any = np.ones((len(X), M)) if name == "least squares" else np.arange(len(X)) % M
    problem = problem_of(name, X, y, representation=form)
    problem.restart(dt.LowRankMatrix.zeros(problem.shape))
    return problem


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("least squares", "gram"),
        ("least squares", "implicit"),
        ("multinomial", "implicit"),
        ("multinomial", "factored"),
    ],
)
def test_the_features_that_stick_out_are_found(problem_of: Build, name: str, form: str) -> None:
    rng = np.random.default_rng(0)
    scale = np.ones(D)
    scale[[3, 11]] = 20.0, 8.0
    X = rng.standard_normal((400, D)) * scale
    directions, excess = stiffness(problem_with(problem_of, X, name, form))
    np.testing.assert_allclose(directions.T @ directions, np.eye(directions.shape[1]), atol=1e-12)
    values, vectors = np.linalg.eigh(X.T @ X)
    for place in (-1, -2):
        assert abs(directions[:, place] @ vectors[:, place]) > 0.999
        # The least of the directions that were looked at is about as flat as all others.
        assert 0.3 < (1.0 + excess[place]) / (values[place] / np.median(values)) < 3.0
    assert excess[:-2].max() < 2.0


class Uncurved(dt.Task[Any]):
    """Zero everywhere, and no word of its curvature."""

    def stats(self, shard: dt.Shard, W: dt.LowRankMatrix) -> Any:
        return {"grad": np.zeros(W.shape)}

    def update(self, state: Any, atom: dt.RankOne, gamma: float) -> Any:
        return state


@pytest.mark.filterwarnings("ignore:overflow")
def test_where_nothing_is_known_no_direction_is_stiff(problem_of: Build) -> None:
    """No features, no number for the curvature, and a task that does not say."""
    for problem in (
        problem_with(problem_of, np.zeros((20, D)), "multinomial"),
        problem_with(problem_of, np.full((20, D), 1e160), "multinomial"),
        problem_of(Uncurved(), np.ones((20, D)), np.ones((20, M))),
    ):
        directions, excess = stiffness(problem)
        assert (directions.shape, excess.shape) == ((D, 0), (0,))


def test_no_direction_is_taken_for_endlessly_stiff(problem_of: Build) -> None:
    X = np.outer(np.arange(20.0), np.ones(3))
    _, excess = stiffness(problem_with(problem_of, X, "multinomial"))
    np.testing.assert_allclose(excess.max(), 999.0)


def test_features_of_different_size_take_few_epochs() -> None:
    """One feature that is large in all rows, as spaces are among the characters of a text."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 20))
    X[:, 0] = 40.0
    y = (X[:, 1:] @ rng.standard_normal((19, 6))).argmax(axis=1)
    result = dt.solve(dt.Multinomial(6), X, y, radius=20.0, solver="accelerated", tol=1e-6)
    assert result.status == "optimal"
    assert len(result.history) <= 120
