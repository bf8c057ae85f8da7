"""How much of each singular pair is added, and the ridge solution that a run begins with."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

from dfwtrace.solvers.block_oracle import Pairs
from dfwtrace.solvers.columns import amounts_of, ridge
from dfwtrace.solvers.metric import Metric

D, M, K = 7, 5, 3


@pytest.mark.parametrize("radius", [0.05, 0.6, 50.0])
@pytest.mark.parametrize("least", [0.0, 0.8])
def test_amounts_are_those_of_the_quadratic_program(radius: float, least: float) -> None:
    rng = np.random.default_rng(0)
    s, curved = np.sort(rng.uniform(0.2, 3.0, 6))[::-1], rng.uniform(0.5, 4.0, 6)
    a = cp.Variable(6, nonneg=True)
    worth = (s - least) @ a - 0.5 * cp.sum(cp.multiply(curved, cp.square(a)))
    cp.Problem(cp.Maximize(worth), [cp.sum(a) <= radius]).solve(solver=cp.CLARABEL)
    found = amounts_of(s, curved, least, radius)
    np.testing.assert_allclose(found, a.value, atol=1e-5 * radius)
    assert found.sum() <= radius * (1.0 + 1e-12)


def test_equal_values_share_the_radius() -> None:
    np.testing.assert_allclose(amounts_of(np.ones(4), np.ones(4), 0.0, 1.0), 0.25)


@pytest.mark.parametrize("radius", [0.1, 2.0, 1e6])
def test_a_ridge_solution_has_the_least_model_for_its_norm(radius: float) -> None:
    rng = np.random.default_rng(1)
    root = rng.standard_normal((20, D))
    H, relative = root.T @ root, rng.uniform(0.2, 1.0, M)
    values, basis = np.linalg.eigh(H)
    U, s, Vt = np.linalg.svd(rng.standard_normal((D, M)), full_matrices=False)
    pairs = Pairs(U[:, :K], s[:K], Vt[:K].T)
    G = (U[:, :K] * s[:K]) @ Vt[:K]
    W, model = ridge(pairs, Metric(values, basis), relative, radius)
    dense, C = W.to_dense(), relative @ pairs.V**2
    Y = dense @ pairs.V
    np.testing.assert_allclose(Y @ pairs.V.T, dense, atol=1e-10)
    assert W.trace_norm <= radius * (1.0 + 1e-9)
    value = float(np.vdot(G, dense) + 0.5 * np.vdot(Y, H @ (Y * C)))
    assert model == pytest.approx(value, rel=1e-9)
    # Stationary with one κ ≥ 0 for all: G V + H Y C + κ Y = 0.
    slope = G @ pairs.V + H @ (Y * C)
    kappa = -float(np.vdot(slope, Y) / np.vdot(Y, Y))
    np.testing.assert_allclose(slope, -kappa * Y, atol=1e-7 * np.abs(G).max())
    if radius > 1e3:
        assert abs(kappa) <= 1e-8 * values[-1]
    else:  # the ball is filled, about
        assert W.trace_norm >= 0.9 * radius
