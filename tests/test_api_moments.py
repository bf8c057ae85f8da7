"""Least squares whose moments XᵀX and XᵀY have lost the digits that the tolerance asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.files.checkpointed import assert_same_run, every_epoch, stopped

import dfwtrace as dt

N, D, M = 120, 6, 3
rng = np.random.default_rng(0)
X = rng.standard_normal((N, D))
X[:, 1] = X[:, 0] + 1e-5 * rng.standard_normal(N)  # two columns that are all but the same
COEFFICIENTS = rng.standard_normal((D, M))
COEFFICIENTS[:2] = [[1e5, -1e5, 5e4], [-1e5, 1e5, -5e4]]  # and very large where they differ
Y = X @ COEFFICIENTS + 0.1 * rng.standard_normal((N, M))
RADIUS = 1.5 * float(np.linalg.norm(COEFFICIENTS, "nuc"))


def solve(**options: Any) -> dt.Result:
    return dt.solve(dt.LeastSquares(), X, Y, **{"radius": RADIUS, "tol": 1e-4, **options})


def least() -> float:
    """F where nothing holds W back, from the singular values of X."""
    return 0.5 * float(np.sum((X @ np.linalg.lstsq(X, Y)[0] - Y) ** 2))


def test_twins_are_solved_from_the_rows() -> None:
    result = solve()
    assert result.status == "optimal"
    assert result.plan.representation == "implicit"
    assert result.relative_gap <= 1e-4
    assert result.objective == pytest.approx(least(), abs=2e-4 * result.objective_at_zero)
    direct = 0.5 * float(np.sum((X @ result.W - Y) ** 2))
    assert result.objective == pytest.approx(direct, rel=1e-6)


def test_the_moments_alone_do_not_certify_it() -> None:
    result = solve(representation="gram", max_iter=50)
    assert result.status != "optimal"
    assert result.plan.representation == "gram"
    assert result.gap >= result.objective - least()  # a true bound all the same


def test_weights_and_an_intercept_go_along() -> None:
    weights = np.where(np.arange(N) % 3, 1.0, 2.0)
    result = solve(sample_weight=weights, fit_intercept=True)
    assert (result.status, result.plan.representation) == ("optimal", "implicit")
    roots = np.sqrt(weights)[:, None]
    full = np.column_stack([X, np.ones(N)]) * roots
    best = full @ np.linalg.lstsq(full, Y * roots)[0] - Y * roots
    assert result.objective == pytest.approx(
        0.5 * float(np.sum(best**2)), abs=2e-4 * result.objective_at_zero
    )


def test_a_coarse_tolerance_or_a_small_radius_stays_with_the_moments() -> None:
    assert solve(radius=1.0).plan.representation == "gram"
    other = dt.solve(dt.LeastSquares(), X[:, 1:], Y, radius=1.0, tol=1e-6)
    assert (other.status, other.plan.representation) == ("optimal", "gram")


@pytest.mark.parametrize("solver", ["accelerated", "dfw"])
def test_a_checkpoint_continues_what_the_moments_gave_up(tmp_path: Path, solver: str) -> None:
    options: dict[str, Any] = {"solver": solver, "max_iter": 12, "tol": 1e-12}
    expected = solve(**options)
    assert expected.plan.representation == "implicit"
    checkpoint = every_epoch(tmp_path / "run.ckpt")
    assert_same_run(solve(checkpoint=checkpoint, **options), expected)
    # It goes on with the rows at once.
    more = {**options, "max_iter": 20}
    assert_same_run(solve(checkpoint=checkpoint, **more), solve(**more))
    given = {"radius": RADIUS, "checkpoint": every_epoch(tmp_path / "other.ckpt"), **more}
    if solver == "dfw":
        stopped(dt.LeastSquares(), X, Y, 5, **given)
        assert_same_run(solve(**given), solve(**more))
