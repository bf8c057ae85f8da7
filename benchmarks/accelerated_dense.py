"""The accelerated solver against dense accelerated projected gradient with full SVDs.

What one would write in NumPy: W and its gradient as dense arrays, FISTA with restarts and a
backtracked step, the projection from a full SVD. Its time is taken until its objective is within
1e-4·F(0) of the optimum, which the certified solution tells.
"""

from __future__ import annotations

import time

import numpy as np

import dfwtrace as dt
from benchmarks.harness import Row, Scale

RATIO = "accelerated / dense, time"
TIMED = True
TARGET = 0.2

_SIZES = {"toy": (300, 30, 20), "full": (20_000, 1000, 1000)}
_RADIUS = 50.0
_TOL = 1e-4
_MOST_STEPS = 200


def run(scale: Scale, repeat: int) -> list[Row]:
    n, d, m = _SIZES[scale]
    X, y, _ = dt.datasets.make_multiclass(n, d, m, rank=10, random_state=0, dtype=np.float32)
    task = dt.Multinomial(n_classes=m)
    dt.solve(task, X[:50], y[:50], radius=1.0, solver="dfw", max_iter=2)  # compiles
    result = dt.solve(task, X, y, radius=_RADIUS, solver="accelerated", tol=_TOL, verbose=False)
    seconds = float(result.history[-1]["seconds"])
    wanted = result.objective + _TOL * result.objective_at_zero
    theirs, steps = _dense(X, y, m, wanted)
    return [
        Row(
            "accelerated_dense",
            "to 1e-4 of F(0)",
            {"n": n, "d": d, "m": m},
            seconds / theirs,
            TARGET,
            {"accelerated": seconds, "dense": theirs},
            {"epochs": float(len(result.history)), "dense steps": float(steps)},
        )
    ]


def _dense(X: np.ndarray, y: np.ndarray, m: int, wanted: float) -> tuple[float, int]:
    """Seconds and steps until F is as low as wanted, or until there were too many steps."""
    began = time.perf_counter()
    rows = np.arange(X.shape[0])

    def value(W: np.ndarray) -> tuple[float, np.ndarray]:
        S = X @ W
        S -= S.max(axis=1, keepdims=True)
        own = S[rows, y].copy()
        np.exp(S, out=S)
        totals = S.sum(axis=1, keepdims=True)
        S /= totals
        S[rows, y] -= 1.0
        return float((np.log(totals[:, 0]) - own).sum(dtype=np.float64)), S

    def project(M: np.ndarray) -> np.ndarray:
        U, s, Vt = np.linalg.svd(M, full_matrices=False)
        if s.sum() > _RADIUS:
            candidates = (np.cumsum(s) - _RADIUS) / np.arange(1, s.size + 1)
            s = np.maximum(s - candidates[np.flatnonzero(s > candidates)[-1]], 0.0)
        return (U * s) @ Vt

    W = Z = np.zeros((X.shape[1], m), X.dtype)
    momentum, lipschitz = 1.0, 1.0
    step = 0
    while step < _MOST_STEPS:
        step += 1
        F, R = value(Z)
        G = X.T @ R
        while True:
            moved = project(Z - G / np.float32(lipschitz))
            D = moved - Z
            lowered, _ = value(moved)
            if lowered <= F + float(np.vdot(G, D)) + 0.5 * lipschitz * float(np.vdot(D, D)):
                break
            lipschitz *= 2.0
        if lowered <= wanted:
            break
        if float(np.vdot(Z - moved, moved - W)) > 0.0:
            momentum = 1.0
        larger = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        Z = moved + np.float32((momentum - 1.0) / larger) * (moved - W)
        W, momentum, lipschitz = moved, larger, 0.9 * lipschitz
    return time.perf_counter() - began, step
