"""F, its gradients and optima found without `solve`: NumPy, closed forms, cvxpy with Clarabel."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

import dfwtrace as dt

Array = npt.NDArray[Any]


def row_losses(name: str, X: Any, y: Any, W: Any, b: Any = None) -> Array:
    """The loss of every row, in float64."""
    X = (X.toarray() if sp.issparse(X) else X).astype(np.float64)
    S = X @ (W.to_dense() if isinstance(W, dt.LowRankMatrix) else W) + (0.0 if b is None else b)
    if name == "least squares":
        return 0.5 * np.square(S - y).sum(axis=1)
    losses: Array = logsumexp(S, axis=1) - S[np.arange(len(y)), y]
    return losses


def value_and_gradients(
    name: str, X: Any, y: Any, W: Any, b: Any = 0.0, weights: Any = None
) -> tuple[float, Array, Array]:
    """F and its gradients in W and in an intercept b, in float64."""
    X = (X.toarray() if sp.issparse(X) else X).astype(np.float64)
    weights = np.ones(len(X)) if weights is None else weights
    R = X @ W + b
    if name == "least squares":
        R = R - y
    else:
        R = softmax(R, axis=1)
        R[np.arange(len(y)), y] -= 1.0
    R = weights[:, None] * R
    return float(weights @ row_losses(name, X, y, W, b)), X.T @ R, R.sum(axis=0)


def value_and_gradient(name: str, X: Any, y: Any, W: Any) -> tuple[float, Array]:
    """F and ∇F in float64."""
    return value_and_gradients(name, X, y, W)[:2]


def true_gap(name: str, X: Any, y: Any, W: Array, radius: float) -> float:
    """⟨W, G⟩ + radius·σ₁(G) with the SVD's σ₁."""
    G = value_and_gradient(name, X, y, W)[1]
    return float(np.vdot(W, G) + radius * np.linalg.norm(G, 2))


def best_intercept(name: str, X: Any, y: Any, W: Any, weights: Any = None) -> Any:
    """The b of the least F at this W."""

    def value(b: Any) -> tuple[float, Any]:
        F, _, gradient = value_and_gradients(name, X, y, W, b, weights)
        return F, gradient

    m = W.shape[1]
    return minimize(value, np.zeros(m), jac=True, method="BFGS", options={"gtol": 1e-9}).x


def check_balance(name: str, X: Any, y: Any, result: dt.Result, weights: Any = None) -> None:
    """The objective is that of W and b, and no other b is better."""
    assert result.intercept is not None
    W = result.W.to_dense()
    assert result.intercept.shape == (W.shape[1],)
    F, _, gradient = value_and_gradients(name, X, y, W, result.intercept, weights)
    assert result.objective == pytest.approx(F, rel=1e-9)
    scale = 1e-6 * (len(y) if weights is None else weights.sum())
    np.testing.assert_allclose(gradient, 0.0, atol=scale)
    b = best_intercept(name, X, y, W, weights)
    best = value_and_gradients(name, X, y, W, b, weights)[0]
    assert best >= F - 1e-9 * max(result.objective, result.objective_at_zero)


def bracket(
    name: str, X: Array, y: Array, m: int, radius: float, intercept: bool = False
) -> tuple[float, float]:
    """Clarabel's W gives F* ≤ F(W scaled into the ball) and F* ≥ F(W) + min ⟨S - W, ∇F(W)⟩.

    At the best b only ∇F in W counts.
    """
    W, X = cp.Variable((X.shape[1], m)), X.astype(np.float64)
    S = X @ W
    if intercept:
        S = S + np.ones((len(X), 1)) @ cp.Variable((1, m))
    if name == "least squares":
        F = 0.5 * cp.sum_squares(S - y.astype(np.float64))
    else:
        F = cp.sum(cp.log_sum_exp(S, axis=1)) - cp.sum(cp.multiply(np.eye(m)[y], S))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the bracket says how near it is
        cp.Problem(cp.Minimize(F), [cp.normNuc(W) <= radius]).solve(
            solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11
        )

    def at(W: Array) -> tuple[float, Array]:
        b = best_intercept(name, X, y, W) if intercept else 0.0
        return value_and_gradients(name, X, y, W, b)[:2]

    found = np.asarray(W.value)
    value, G = at(found)
    lower = value - float(np.vdot(found, G)) - radius * float(np.linalg.norm(G, 2))
    upper = at(found * min(1.0, radius / np.linalg.norm(found, "nuc")))[0]
    return lower, upper


def project_onto_ball(B: Array, radius: float) -> Array:
    """Singular values moved onto the simplex of that size: θ with Σ max(s - θ, 0) = radius.

    It is the optimum of least squares on orthonormal features.
    """
    U, s, Vt = np.linalg.svd(B, full_matrices=False)
    if s.sum() <= radius:
        return B
    return (U * onto_simplex(s, radius)) @ Vt


def onto_simplex(s: Array, radius: float) -> Array:
    """max(s - θ, 0) of that sum; s falls."""
    thetas = (np.cumsum(s) - radius) / np.arange(1, s.size + 1)
    return np.maximum(s - thetas[np.flatnonzero(s > thetas)[-1]], 0.0)


def quickly_projected(B: Array, radius: float) -> Array:
    """`project_onto_ball` by the eigenvalues of BᵀB, to half of the digits for small ones."""
    squares, V = np.linalg.eigh(B.T @ B)
    s = np.sqrt(np.maximum(squares, 0.0))
    if s.sum() <= radius:
        return B
    kept = onto_simplex(s[::-1], radius)[::-1]
    return np.asarray((B @ V * (kept / np.where(kept > 0.0, s, 1.0))) @ V.T)


def projected_gradient(
    name: str, X: Array, y: Array, m: int, radius: float, tol: float, intercept: bool = False
) -> tuple[Array, Any, float]:
    """W, b and a bound of F - F*, at most tol·F(0), by Nesterov's method with all singular values.

    It starts anew whenever the momentum points uphill (O'Donoghue and Candès, 2015).
    """
    curved = 1.0 if name == "least squares" else 0.5  # of a row's loss, at the most
    centre = X.mean(axis=0) * intercept
    X = X - centre
    step = 1.0 / (curved * float(np.linalg.norm(X, 2)) ** 2)
    step_b = intercept / (curved * len(X))
    W, b = np.zeros((X.shape[1], m)), np.zeros(m)
    there, there_b, momentum = W, b, 1.0
    target = tol * value_and_gradient(name, X, y, W)[0]
    for k in range(20_000):
        _, G, g = value_and_gradients(name, X, y, there, there_b)
        last, last_b = W, b
        W, b = quickly_projected(there - step * G, radius), there_b - step_b * g
        uphill = np.vdot(there - W, W - last) + (there_b - b) @ (b - last_b) > 0.0
        momentum, before = (1.0 if uphill else momentum), (1.0 if uphill else momentum)
        momentum = 0.5 + np.sqrt(0.25 + before**2)
        share = (before - 1.0) / momentum
        there, there_b = W + share * (W - last), b + share * (b - last_b)
        if k % 10 == 0:
            best = best_intercept(name, X, y, W) if intercept else 0.0
            _, G, _ = value_and_gradients(name, X, y, W, best)
            gap = float(np.vdot(W, G) + radius * np.linalg.norm(G, 2))
            if gap <= target:
                return W, best - centre @ W, gap
    raise AssertionError("it takes too long")


def plain_frank_wolfe(
    name: str, X: Array, y: Array, m: int, radius: float, epochs: int, exact_steps: bool = False
) -> list[Array]:
    """Frank-Wolfe with an exact oracle, as one would write it down in NumPy; γ = 2/(t+2).

    Exact steps are for least squares.
    """
    W, iterates = np.zeros((X.shape[1], m)), []
    for t in range(epochs):
        G = value_and_gradient(name, X, y, W)[1]
        U, _, Vt = np.linalg.svd(G)
        S, gamma = -radius * np.outer(U[:, 0], Vt[0]), 2.0 / (t + 2.0)
        if exact_steps:
            gamma = np.clip(np.vdot(W - S, G) / np.sum((X @ (S - W)) ** 2), 0.0, 1.0)
        W = (1.0 - gamma) * W + gamma * S
        iterates.append(W)
    return iterates


class Case(NamedTuple):
    """A problem and a bracket of F* that owes nothing to `solve`."""

    name: str
    X: Array
    y: Array
    radius: float
    lower: float
    upper: float

    @property
    def task(self) -> dt.ScoresTask:
        if self.name == "least squares":
            return dt.LeastSquares()
        return dt.Multinomial(int(self.y.max()) + 1)

    def solve(self, **options: Any) -> dt.Result:
        engine = dt.LocalEngine(n_shards=2, n_jobs=1)
        call = {"radius": self.radius, "solver": "dfw", "engine": engine, **options}
        return dt.solve(self.task, self.X, self.y, **call)

    def value(self, W: dt.LowRankMatrix) -> float:
        return value_and_gradient(self.name, self.X, self.y, W.to_dense())[0]

    def check_gaps(self, **options: Any) -> dt.Result:
        """Certify every epoch, and hold every certificate against the truth."""
        values: list[float] = []
        result = self.solve(
            certify_every=1, callback=lambda W, record: values.append(self.value(W)), **options
        )
        # What summing F in another order may change.
        rounding = 1e-13 * result.objective_at_zero
        gaps = result.history.column("gap")
        assert np.all(gaps >= np.array(values) - self.upper - rounding)
        assert np.all(np.array(values) >= self.lower - rounding)
        assert result.gap >= self.value(result.W) - self.upper - rounding
        assert result.W.trace_norm <= self.radius * (1.0 + 1e-9)
        return result


def bracketed(name: str, X: Array, y: Array, radius: float) -> Case:
    """With a bracket that Clarabel found."""
    m = y.shape[1] if y.ndim == 2 else int(y.max()) + 1
    return Case(name, X, y, radius, *bracket(name, X, y, m, radius))


@cache
def small_case(
    name: str, seed: int, radius: float, dtype: str = "float64", decay: float = 0.0
) -> Case:
    """Random, with features whose sizes fall by `decay` powers of ten."""
    rng = np.random.default_rng(seed)
    n, d, m = (int(size) for size in rng.integers([20, 3, 3], [41, 7, 7]))
    X = (rng.standard_normal((n, d)) * np.logspace(0.0, -decay, d)).astype(dtype)
    y: Array = np.append(np.arange(m), rng.integers(0, m, size=n - m))
    if name == "least squares":
        y = (X @ rng.standard_normal((d, m)) + rng.standard_normal((n, m))).astype(dtype)
    return bracketed(name, X, y, radius)
