"""What the tests of an intercept share: F, its gradients and the best b, found without `solve`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

import dfwtrace as dt

TASKS: dict[str, dt.ScoresTask] = {
    "least squares": dt.LeastSquares(),
    "multinomial": dt.Multinomial(n_classes=4),
}
FORMS = [(name, form) for name, task in TASKS.items() for form in task.representations]
SCORES = ["implicit", "dense", "factored"]
ENGINE = dt.LocalEngine(n_shards=3, n_jobs=1)


def value_and_gradients(
    name: str, X: Any, y: Any, W: Any, b: Any, weights: Any = None
) -> tuple[float, Any, Any]:
    """F and its gradients in W and in b, in plain NumPy."""
    X = (X.toarray() if sp.issparse(X) else X).astype(np.float64)
    weights = np.ones(len(X)) if weights is None else weights
    S = X @ W + b
    if name == "least squares":
        losses, R = 0.5 * np.square(S - y).sum(axis=1), S - y
    else:
        losses = logsumexp(S, axis=1) - S[np.arange(len(y)), y]
        R = softmax(S, axis=1)
        R[np.arange(len(y)), y] -= 1.0
    R = weights[:, None] * R
    return float(weights @ losses), X.T @ R, R.sum(axis=0)


def best_intercept(name: str, X: Any, y: Any, W: Any, weights: Any = None) -> Any:
    """The b of the least F at this W, found without `solve`."""

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


def far_from_zero(multitask: tuple[Any, Any]) -> dict[str, tuple[Any, Any]]:
    """Features and targets far from zero, so that an intercept matters; every class occurs."""
    X, y, _ = dt.datasets.make_multiclass(n=60, d=7, m=4, rank=3, seed=0)
    y[(y == 3) & (np.arange(60) % 3 > 0)] = 1
    return {
        "least squares": (multitask[0] + 0.5, multitask[1] + np.arange(5.0)),
        "multinomial": (X + 0.5, y),
    }
