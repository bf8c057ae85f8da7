"""Two simple methods for the same problems: dense projected gradient, and L-BFGS on factors.

Both compute in float64 on one thread, and are judged by `Objective.gap` at iterates whose numbers
are a tenth apart, while the clock stands still, with the best intercept for their W.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

from benchmarks.corpus.methods import Clock, Outcome
from benchmarks.corpus.problems import Problem

# Matrices with more entries are not formed, and their full SVDs take minutes.
_TOO_LARGE = 25_000_000
_RANK = 64
_START = 0.1  # size of the random factors, where the slack is 1
_TINY = 1e-6  # singular values below this share of the first do not count


class _EndError(Exception):
    """A limit was reached, or the gap."""


class _Run:
    """Passes and seconds of a peer, and its gap at some of its iterates."""

    def __init__(self, problem: Problem, tol: float, max_seconds: float, max_passes: int) -> None:
        self.problem, self.tol = problem, tol
        self.max_seconds, self.max_passes = max_seconds, max_passes
        self.passes, self.iterates, self._next = 0, 0, 1
        self.status, self.clock = "stalled", Clock()
        self._judge(np.zeros((problem.sizes["n"], problem.m)), np.zeros(problem.m))

    def evaluated(self) -> None:
        """Count a pass."""
        self.passes += 1

    def look(self, W: tuple[np.ndarray, ...], b: np.ndarray, *, last: bool = False) -> None:
        """Judge an iterate, the product of matrices W, if it is time to; end the run if it may."""
        self.iterates += 1
        self.clock.stop()
        if self.clock.seconds >= self.max_seconds:
            self.status, last = "max_time", True
        elif self.passes >= self.max_passes:
            self.status, last = "max_passes", True
        if last or self.iterates >= self._next:
            self._next = self.iterates + max(1, self.iterates // 10)
            scores = self.problem.objective.X
            for factor in W:
                scores = np.asarray(scores @ factor)
            self._judge(scores, b)
            if self.gap <= self.tol:
                self.status, last = "optimal", True
        if last:
            raise _EndError
        self.clock.start()

    def _judge(self, scores: np.ndarray, b: np.ndarray) -> None:
        found = self.problem.objective.gap(scores, b, self.problem.radius)
        self.objective, self.gap = found.settled, found.bound / self.problem.at_zero

    def outcome(self, rank: int) -> Outcome:
        return Outcome(
            passes=self.passes,
            seconds=self.clock.seconds,
            wall=self.clock.wall,
            objective=self.objective,
            gap=self.gap,
            checked=self.gap,
            status=self.status,
            rank=rank,
            detail={"iterates": float(self.iterates)},
        )


def projected(problem: Problem, tol: float, max_seconds: float, max_passes: int) -> Outcome:
    """FISTA with restarts and backtracking, W and b as one block, projections by full SVDs."""
    run = _Run(problem, tol, max_seconds, max_passes)
    F, radius, (d, m) = problem.objective, problem.radius, problem.objective.shape
    if d * m > _TOO_LARGE:
        run.status = "too large"
        return run.outcome(0)

    def evaluate(W: np.ndarray, b: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        run.evaluated()
        return F.evaluate(W, b)

    def value(W: np.ndarray, b: np.ndarray) -> float:
        run.evaluated()
        return F.on_scores(np.asarray(F.X @ W) + b)[0]

    W = W_ahead = np.zeros((d, m))
    b = b_ahead = np.zeros(m)
    momentum, L, rank = 1.0, 0.0, 0
    with threadpool_limits(1, "blas"):
        run.clock.start()
        try:
            while True:
                here, G, g = evaluate(W_ahead, b_ahead)
                L = 0.9 * L or max(float(np.linalg.norm(G)), float(np.linalg.norm(g))) / radius
                while True:
                    W_new, rank = _project(W_ahead - G / L, radius)
                    b_new = b_ahead - g / L
                    D, e = W_new - W_ahead, b_new - b_ahead
                    model = here + float(np.vdot(G, D)) + float(g @ e)
                    model += 0.5 * L * (float(np.vdot(D, D)) + float(e @ e))
                    # Where nothing changes but for rounding, that is no reason for a shorter step.
                    if value(W_new, b_new) <= model + 1e-14 * abs(here):
                        break
                    L *= 2.0
                astray = float(np.vdot(D, W_new - W)) + float(e @ (b_new - b)) < 0.0
                momentum = 1.0 if astray else momentum
                following = 0.5 + np.sqrt(0.25 + momentum**2)
                share = (momentum - 1.0) / following
                W_ahead, b_ahead = W_new + share * (W_new - W), b_new + share * (b_new - b)
                W, b, momentum = W_new, b_new, following
                run.look((W,), b)
        except _EndError:
            pass
    return run.outcome(rank)


def _project(M: np.ndarray, radius: float) -> tuple[np.ndarray, int]:
    """The nearest matrix of the trace-norm ball, and its rank."""
    U, s, Vt = np.linalg.svd(M, full_matrices=False)
    if s.sum() <= radius:
        return M, int((s > _TINY * s[0]).sum())
    # The k largest lose as much each as brings their sum to the radius, for the k that takes most.
    s = np.maximum(s - np.max((np.cumsum(s) - radius) / np.arange(1, s.size + 1)), 0.0)
    return (U * s) @ Vt, int((s > 0.0).sum())


def lbfgs(problem: Problem, tol: float, max_seconds: float, max_passes: int) -> Outcome:
    """SciPy's L-BFGS-B on A, B, z and b, where W = 2μABᵀ/(‖A‖² + ‖B‖² + z²) is in the ball."""
    run = _Run(problem, tol, max_seconds, max_passes)
    F, (d, m) = problem.objective, problem.objective.shape
    r = min(d, m, _RANK)
    parts = np.cumsum([d * r, m * r, 1])

    def split(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        A, B, _, b = np.split(x, parts)
        q = float(x[: parts[2]] @ x[: parts[2]])
        return A.reshape(d, r), B.reshape(m, r), b, 2.0 * problem.radius / q

    def evaluate(x: np.ndarray) -> tuple[float, np.ndarray]:
        run.evaluated()
        A, B, b, c = split(x)
        XA = np.asarray(F.X @ A)
        S = c * (XA @ B.T)
        value, R = F.on_scores(S + b)
        gradient = np.concatenate(
            [
                c * np.asarray(F.X.T @ (R @ B)).ravel(),
                c * (R.T @ XA).ravel(),
                [0.0],
                R.sum(axis=0) if F.intercept else np.zeros(m),
            ]
        )
        # c falls where x grows: ⟨W, G⟩ is the derivative in log c.
        gradient[: parts[2]] -= float(np.vdot(S, R)) * c / problem.radius * x[: parts[2]]
        return value, gradient

    def factors(x: np.ndarray) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
        A, B, b, c = split(x)
        return (c * A, B.T), b

    rng = np.random.default_rng(0)
    A, B = rng.standard_normal(d * r), rng.standard_normal(m * r)
    start = np.concatenate([A / np.linalg.norm(A), B / np.linalg.norm(B)])
    last = np.concatenate([_START * start, [1.0], np.zeros(m)])

    def look(x: np.ndarray) -> None:
        nonlocal last
        last = x.copy()
        run.look(*factors(x))

    options = {"maxiter": max_passes, "maxfun": max_passes, "ftol": 0.0, "gtol": 0.0}
    with threadpool_limits(1, "blas"):
        run.clock.start()
        try:
            minimize(evaluate, last, jac=True, method="L-BFGS-B", callback=look, options=options)
            run.look(*factors(last), last=True)  # it ended by itself
        except _EndError:
            pass
    (A, B), _ = factors(last)
    small = np.linalg.qr(A)[1] @ np.linalg.qr(B.T)[1].T
    values = np.linalg.svd(small, compute_uv=False)
    return run.outcome(int((values > _TINY * values[0]).sum()))
