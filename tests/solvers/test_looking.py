"""The directions that a look around finds, where the gradient is any matrix that one likes."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

from dfwtrace import LeastSquares, LocalEngine, LowRankMatrix
from dfwtrace.rows import ArrayRows
from dfwtrace.setup import Examiner
from dfwtrace.solvers import Problem
from dfwtrace.solvers.looking import beyond
from dfwtrace.tasks import ShardProgram

D, M = 9, 7


@pytest.mark.parametrize("form", ["gram", "implicit"])
@pytest.mark.parametrize("orthonormal", [True, False])
def test_what_lies_beyond_the_known_vectors_is_found(form: str, orthonormal: bool) -> None:
    """½‖W - Y‖² has the gradient -Y at zero; of its singular vectors the first three are known."""
    rng = np.random.default_rng(0)
    U, V = (np.linalg.qr(rng.standard_normal((size, M))).Q for size in (D, M))
    Y = (U * [20.0, 8.9, 8.8, 8.7, 8.6, 1.0, 0.5]) @ V.T
    rows = ArrayRows.examined(np.eye(D), Y, Examiner(LeastSquares()))
    program = ShardProgram(LeastSquares().represent(form), (D, M))
    known = V[:, :3] if orthonormal else V[:, :3] @ rng.standard_normal((3, 4))
    with closing(LocalEngine(2, 1).start(program, rows)) as workers:
        problem = Problem(workers, (D, M), 1.0)
        problem.restart(LowRankMatrix.zeros((D, M)))
        found = beyond(problem.gradient, known, rng.standard_normal((M, 2)), 3)
        first = beyond(problem.gradient, known[:, :0], rng.standard_normal((M, 1)), 20)
    np.testing.assert_allclose(abs(first[:, 0] @ V[:, 0]), 1.0, atol=1e-2)
    np.testing.assert_allclose(found.T @ found, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(found.T @ V[:, :3], 0.0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(found.T @ V[:, 3:5], axis=0), 1.0, atol=1e-3)
