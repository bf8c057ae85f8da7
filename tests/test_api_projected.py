"""The accelerated solver against projected gradients with all singular values, in plain NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.problems import TASKS
from tests.truth import projected_gradient, row_losses
from threadpoolctl import threadpool_limits

import dfwtrace as dt

Array = npt.NDArray[Any]


def draw(name: str, n: int, d: int, m: int, rank: int, seed: int) -> tuple[Array, Array, float]:
    """Features, targets of low rank with noise, and the trace norm of what they are drawn from."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + 0.2
    W = rng.standard_normal((d, rank)) @ rng.standard_normal((rank, m))
    W *= (1.0 if name == "least squares" else 3.0) / (X @ W).std()
    if name == "least squares":
        y: Array = X @ W + 0.5 * rng.standard_normal((n, m)) + rng.standard_normal(m)
    else:
        y = (X @ W + rng.gumbel(size=(n, m))).argmax(axis=1)
        y[:m] = np.arange(m)
    return X, y, float(np.linalg.norm(W, "nuc"))


def check(
    name: str, sizes: tuple[int, int, int, int], share: float, intercept: bool, tol: float
) -> tuple[dt.Result, Array]:
    """Each F is above the other by no more than its own gap."""
    X, y, radius = draw(name, *sizes, seed=1)
    radius, m = share * radius, sizes[2]
    task = dt.LeastSquares() if y.ndim == 2 else dt.Multinomial(m)
    result = dt.solve(task, X, y, radius=radius, tol=1e-7, fit_intercept=intercept, verbose=False)
    assert result.status == "optimal"
    with threadpool_limits(1):  # two that wait for each other take longer on a busy machine
        W, b, gap = projected_gradient(name, X, y, m, radius, tol, intercept)
    ours = float(row_losses(name, X, y, result.W, result.intercept).sum())
    theirs = float(row_losses(name, X, y, W, b).sum())
    rounding = 1e-12 * result.objective_at_zero
    assert result.objective == pytest.approx(ours, rel=1e-9)
    assert ours <= theirs + result.gap + rounding
    assert theirs <= ours + gap + rounding
    return result, W


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("share", [0.05, 0.5, 3.0])
@pytest.mark.parametrize("name", TASKS)
def test_small_problems_have_the_optimum_of_projected_gradients(
    name: str, share: float, intercept: bool
) -> None:
    result, W = check(name, (120, 30, 12, 3), share, intercept, 1e-7)
    distance = np.linalg.norm(result.W.to_dense() - W)
    assert distance <= 0.02 * np.linalg.norm(W)


@pytest.mark.parametrize(
    ("name", "share", "tol"), [("least squares", 0.5, 1e-5), ("multinomial", 0.02, 1e-3)]
)
def test_large_problems_have_the_optimum_of_projected_gradients(
    name: str, share: float, tol: float
) -> None:
    result, _ = check(name, (600, 300, 300, 5), share, False, tol)
    assert result.W.rank < 100
