"""A custom task: complete a low-rank matrix from some of its entries.

    python examples/matrix_completion.py [--small]

One example is one observed entry: a row of X is its place (i, j), y its value. There is no feature
matrix, and the gradient is sparse, so none of the library's own tasks fits; `MatrixCompletion`
below is all that it takes. docs/tasks.md walks through it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

import dfwtrace as dt


@dataclass
class Observed:
    """One shard: places and values of its entries, W there, and the gradient, which is sparse."""

    i: np.ndarray
    j: np.ndarray
    values: np.ndarray
    predictions: np.ndarray
    residual: np.ndarray
    gradient: sp.csr_array


class MatrixCompletion(dt.Task[Observed]):
    """F(W) = ½ Σ (W_ij - y_ij)² over the observed entries (i, j)."""

    quadratic = True  # one Newton step is an exact line search

    def __init__(self, n_rows: int, n_columns: int) -> None:
        self.n_rows, self.n_columns = n_rows, n_columns

    def check(self, X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        shape = self.shape(X, y)
        whole = X.dtype.kind in "iu" and X.shape[1] == 2
        if not whole or np.any(X.min(axis=0) < 0) or np.any(X.max(axis=0) >= shape):
            raise ValueError(f"X must hold whole-numbered places (i, j) in a matrix of {shape}.")
        return X, y

    def shape(self, X: np.ndarray, y: np.ndarray) -> tuple[int, int]:
        return self.n_rows, self.n_columns

    def stats(self, shard: dt.Shard, W: dt.LowRankMatrix) -> Observed:
        i, j = shard.X.T
        return self._state(i, j, shard.targets, entries(W, i, j))

    def update(self, state: Observed, atom: dt.RankOne, gamma: float) -> Observed:
        moved = state.predictions + gamma * self._direction(state, atom)
        return self._state(state.i, state.j, state.values, moved)

    def linesearch(self, state: Observed, atom: dt.RankOne, gamma: float) -> tuple[float, float]:
        direction = self._direction(state, atom)
        curvature = direction @ direction
        return direction @ state.residual + gamma * curvature, curvature

    def loss(self, state: Observed) -> float:
        return 0.5 * state.residual @ state.residual

    def inner(self, state: Observed) -> float:
        return state.predictions @ state.residual

    def matvec(self, state: Observed, V: np.ndarray) -> np.ndarray:
        return state.gradient @ V

    def rmatvec(self, state: Observed, U: np.ndarray) -> np.ndarray:
        return state.gradient.T @ U

    def _direction(self, state: Observed, atom: dt.RankOne) -> np.ndarray:
        """atom - W at the observed places."""
        return atom.scale * atom.u[state.i] * atom.v[state.j] - state.predictions

    def _state(
        self, i: np.ndarray, j: np.ndarray, values: np.ndarray, predictions: np.ndarray
    ) -> Observed:
        residual = predictions - values
        gradient = sp.csr_array((residual, (i, j)), shape=(self.n_rows, self.n_columns))
        return Observed(i, j, values, predictions, residual, gradient)


def entries(W: dt.LowRankMatrix, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """W_ij for many places at once, from the factors."""
    return np.einsum("kr,kr->k", (W.U * W.s)[i], W.V[j])


def make_ratings(
    n_rows: int, n_columns: int, rank: int, share: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """Places and noisy values of a share of the entries of a low-rank matrix; its trace norm."""
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((n_rows, rank)), rng.standard_normal((n_columns, rank))
    truth = dt.LowRankMatrix(left, np.ones(rank), right)
    places = np.argwhere(rng.random((n_rows, n_columns)) < share)
    values = entries(truth, *places.T)
    noise = 0.1 * values.std() * rng.standard_normal(values.size)
    return places, values + noise, truth.trace_norm


def rmse(errors: np.ndarray) -> float:
    return float(np.sqrt(np.mean(errors**2)))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="a smaller matrix")
    n_rows, n_columns = (100, 80) if parser.parse_args(argv).small else (300, 200)

    places, values, radius = make_ratings(n_rows, n_columns, rank=3, share=0.4)
    hidden = np.random.default_rng(1).random(values.size) < 0.2
    known = ~hidden
    print(f"{n_rows} × {n_columns}, {known.sum()} entries known, {hidden.sum()} hidden")

    task = MatrixCompletion(n_rows, n_columns)
    result = dt.solve(
        task,
        places[known],
        values[known],
        radius=radius,
        solver="dfw",
        lmo="lanczos",
        tol=0.02,
        max_iter=1000,
    )
    print(f"{result.status} after {len(result.history)} epochs")

    mean_error = rmse(values[hidden] - values[known].mean())
    error = rmse(values[hidden] - entries(result.W, *places[hidden].T))
    print(f"certified gap / F(0)             {result.relative_gap:.4f}")
    print(f"rank of 90 % of the trace norm   {result.W.compress(tol=0.1).rank}")
    print(f"test RMSE of the known mean      {mean_error:.3f}")
    print(f"test RMSE of W                   {error:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
