"""Optima found without `solve`: NumPy, closed forms, and cvxpy with Clarabel."""

from __future__ import annotations

import warnings
from typing import Any

import cvxpy as cp
import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp, softmax

Array = npt.NDArray[Any]


def value_and_gradient(name: str, X: Array, y: Array, W: Array) -> tuple[float, Array]:
    """F and ∇F in float64."""
    X = X.astype(np.float64)
    S = X @ W
    if name == "least squares":
        R = S - y
        return 0.5 * float(np.sum(R**2)), X.T @ R
    rows = np.arange(len(y))
    R = softmax(S, axis=1)
    R[rows, y] -= 1.0
    return float(np.sum(logsumexp(S, axis=1) - S[rows, y])), X.T @ R


def bracket(name: str, X: Array, y: Array, m: int, radius: float) -> tuple[float, float]:
    """Clarabel's W gives F* ≤ F(W scaled into the ball) and F* ≥ F(W) + min ⟨S - W, ∇F(W)⟩."""
    W = cp.Variable((X.shape[1], m))
    S = X.astype(np.float64) @ W
    if name == "least squares":
        F = 0.5 * cp.sum_squares(S - y.astype(np.float64))
    else:
        F = cp.sum(cp.log_sum_exp(S, axis=1)) - cp.sum(cp.multiply(np.eye(m)[y], S))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the bracket says how near it is
        cp.Problem(cp.Minimize(F), [cp.normNuc(W) <= radius]).solve(
            solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11
        )
    found = np.asarray(W.value)
    value, G = value_and_gradient(name, X, y, found)
    lower = value - float(np.vdot(found, G)) - radius * float(np.linalg.norm(G, 2))
    shrunk = found * min(1.0, radius / np.linalg.norm(found, "nuc"))
    return lower, value_and_gradient(name, X, y, shrunk)[0]


def project_onto_ball(B: Array, radius: float) -> Array:
    """Singular values moved onto the simplex of that size: θ with Σ max(s - θ, 0) = radius.

    It is the optimum of least squares on orthonormal features.
    """
    U, s, Vt = np.linalg.svd(B, full_matrices=False)
    if s.sum() <= radius:
        return B
    thetas = (np.cumsum(s) - radius) / np.arange(1, s.size + 1)
    theta = thetas[np.flatnonzero(s > thetas)[-1]]
    return (U * np.maximum(s - theta, 0.0)) @ Vt
