"""The theorem: with its K(t), E[F(W_t)] - F* ≤ 2 C_F (1 + δ)/(t + 2).

Orthonormal features make everything in it known: F(W) = ½‖W - B‖² + constant with B = XᵀY, so
C_F = 4μ² (from one end of the ball to the other), L = σ₁(B) + μ, and F* is a projection.
"""

from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

import dfwtrace as dt

Array = npt.NDArray[np.float64]
N, SIZE, RADIUS, EPOCHS, SEEDS = 45, 40, 1.0, 20, 12
CURVATURE = 4.0 * RADIUS**2


@cache
def problem() -> tuple[Array, Array, float, float]:
    """X, Y, F* and L."""
    rng = np.random.default_rng(0)
    X = np.linalg.qr(rng.standard_normal((N, SIZE)))[0]
    # Nearly equal singular values, all of them needed: as slow as Frank-Wolfe can be, since W_t has
    # rank t at the most, and hard for the power method too.
    U, V = (np.linalg.qr(rng.standard_normal((SIZE, SIZE)))[0] for _ in range(2))
    s = np.linspace(0.05, 0.045, SIZE)
    Y = X @ ((U * s) @ V.T)
    theta = (s.sum() - RADIUS) / SIZE
    assert 0.0 < theta < s.min()  # all singular values are shortened alike by the projection
    optimum = 0.5 * SIZE * theta**2
    return X, Y, optimum, float(s.max()) + RADIUS


@cache
def mean_excess(schedule: dt.lmo.Schedule) -> Array:
    """The mean over seeds of F(W_t) - F* for t = 1, 2, … ."""
    X, Y, optimum, _ = problem()
    runs = [
        dt.solve(
            dt.LeastSquares(),
            X,
            Y,
            radius=RADIUS,
            lmo=dt.lmo.Power(schedule),
            step="harmonic",
            epochs=EPOCHS,
            seed=seed,
            engine=dt.LocalEngine(n_shards=2, n_jobs=1),
        )
        for seed in range(SEEDS)
    ]
    return np.mean([run.history.column("objective") for run in runs], axis=0) - optimum


def bound(delta: float, curvature: float = CURVATURE) -> Array:
    return 2.0 * curvature * (1.0 + delta) / (np.arange(1, EPOCHS + 1) + 2.0)


def schedule(delta: float) -> dt.lmo.TheoremLinear:
    return dt.lmo.TheoremLinear(delta=delta, lipschitz=problem()[3], curvature=CURVATURE)


@pytest.mark.parametrize("delta", [0.5, 1.0, 5.0])
def test_mean_stays_under_the_bound(delta: float) -> None:
    assert np.all(mean_excess(schedule(delta)) <= bound(delta))


def test_mean_stays_under_the_bound_with_constants_from_the_data() -> None:
    assert np.all(mean_excess(dt.lmo.TheoremLinear()) <= bound(1.0))


def test_mean_stays_under_the_bound_with_adaptive_iterations() -> None:
    assert np.all(mean_excess(dt.lmo.Adaptive(curvature=CURVATURE)) <= bound(1.0))


def test_too_small_a_bound_would_be_violated() -> None:
    """What makes the tests above able to fail: a sixtieth of C_F is too little, at every t."""
    assert np.all(mean_excess(schedule(1.0)) > bound(1.0, CURVATURE / 60.0))
