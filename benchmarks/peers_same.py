"""Peers that solve the very same problem: F over the trace-norm ball."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from benchmarks import accelerated_dense
from benchmarks.peers_curves import Curve, Runner, dfw
from benchmarks.peers_problems import Problem

_MOST_STEPS = 1_000_000


def peers(problem: Problem) -> dict[str, Runner]:
    """Those that can take this problem here; says which are left out."""
    found: dict[str, Runner] = {"dfw": dfw("objective")}
    found["dense projected gradient"] = (
        dense_gradient if problem.multiclass else dense_least_squares
    )
    if _installed("copt"):
        found["copt Frank-Wolfe"] = copt_frank_wolfe
        found["copt projected gradient"] = copt_projected_gradient
    return found


def small_peers() -> dict[str, Runner]:
    """Those for small problems only."""
    return {"cvxpy": cone_program} if _installed("cvxpy") else {}


def _installed(package: str) -> bool:
    there = importlib.util.find_spec(package) is not None
    if not there:
        print(f"{package} is left out: it is not installed (pip install 'dfwtrace[peers]').")
    return there


def copt_frank_wolfe(problem: Problem, curve: Curve) -> dict[str, float]:
    """copt's Frank-Wolfe: a dense W, the oracle from ARPACK, a backtracked step."""
    with _copt() as copt:
        ball = copt.constraint.TraceBall(problem.radius, problem.shape)
        curve.start()
        function = _flat(problem)

        def look(state: Mapping[str, Any]) -> bool:
            return not curve.note(lambda: float(state["f_next"]))

        x0 = np.zeros(problem.shape).ravel()
        copt.minimize_frank_wolfe(
            function, x0, ball.lmo, jac=True, max_iter=_MOST_STEPS, callback=look
        )
    return _dense_size(problem, curve)


def copt_projected_gradient(problem: Problem, curve: Curve) -> dict[str, float]:
    """copt's accelerated proximal gradient, whose projection takes a full SVD."""
    with _copt() as copt:
        ball = copt.constraint.TraceBall(problem.radius, problem.shape)
        curve.start()
        function = _flat(problem)

        def look(state: Mapping[str, Any]) -> bool:
            return not curve.note(lambda: float(function(state["x"])[0]))

        copt.minimize_proximal_gradient(
            function,
            np.zeros(problem.shape).ravel(),
            ball.prox,
            jac=True,
            tol=0.0,
            max_iter=_MOST_STEPS,
            callback=look,
            accelerated=True,
        )
    return _dense_size(problem, curve)


@contextlib.contextmanager
def _copt() -> Iterator[Any]:
    """copt, quietly: it imports scipy.misc, prints what it estimates, and divides by zero."""
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        np.errstate(all="ignore"),
    ):
        warnings.simplefilter("ignore")
        yield importlib.import_module("copt")  # its functions have no types


def _flat(problem: Problem) -> Any:
    """F and its gradient as functions of a vector."""
    evaluate = problem.objective()

    def function(x: np.ndarray) -> tuple[np.float64, np.ndarray]:
        F, G = evaluate(x.reshape(problem.shape))
        return np.float64(F), G.ravel().astype(np.float64, copy=False)

    return function


class _Watched(float):
    """What F should fall to; it notes every F that it is compared with."""

    def __new__(cls, curve: Curve) -> _Watched:
        return super().__new__(cls, curve.wanted)

    def __init__(self, curve: Curve) -> None:
        self._curve = curve

    def __ge__(self, F: float) -> bool:
        return self._curve.note(lambda: F)


def dense_gradient(problem: Problem, curve: Curve) -> dict[str, float]:
    """The accelerated projected gradient of `accelerated_dense`, of at most 200 steps.

    Its ball has a radius of its own. With W = cV and c the ratio of the radii, XW = (cX)V is the
    same problem. It asks after each step whether F is as low as wanted: there it is watched.
    """
    X = problem.X * problem.X.dtype.type(problem.radius / accelerated_dense._RADIUS)
    curve.start()
    accelerated_dense._dense(X, problem.y, problem.m, _Watched(curve))
    return _dense_size(problem, curve)


def dense_least_squares(problem: Problem, curve: Curve) -> dict[str, float]:
    """The same for a quadratic F: FISTA with restarts, its step from the largest eigenvalue.

    What one would write from XᵀX and XᵀY, whose time counts. One product for each step: the next
    point lies on the line through two whose products are known.
    """
    curve.start()
    A, B = problem.X.T @ problem.X, problem.X.T @ problem.y
    constant = 0.5 * float(np.vdot(problem.y, problem.y))
    step = 1.0 / float(np.linalg.eigvalsh(A)[-1])
    W, Z = np.zeros(problem.shape), np.zeros(problem.shape)
    AW, AZ = np.zeros(problem.shape), np.zeros(problem.shape)
    momentum = 1.0
    for _ in range(_MOST_STEPS):
        moved = _projected(Z - step * (AZ - B), problem.radius)
        A_moved = A @ moved
        F = partial(_quadratic, moved, A_moved, B, constant)
        if curve.note(F):
            break
        if float(np.vdot(Z - moved, moved - W)) > 0.0:
            momentum = 1.0  # it led astray
        following = 0.5 + np.sqrt(0.25 + momentum**2)
        ahead = (momentum - 1.0) / following
        Z, AZ = moved + ahead * (moved - W), A_moved + ahead * (A_moved - AW)
        W, AW, momentum = moved, A_moved, following
    return _dense_size(problem, curve)


def _quadratic(W: np.ndarray, AW: np.ndarray, B: np.ndarray, constant: float) -> float:
    """½‖XW - Y‖² where AW = XᵀXW, B = XᵀY and the constant is ½‖Y‖²."""
    return constant + 0.5 * float(np.vdot(W, AW)) - float(np.vdot(W, B))


def _projected(M: np.ndarray, radius: float) -> np.ndarray:
    """The nearest matrix of the trace-norm ball, from a full SVD."""
    U, s, Vt = np.linalg.svd(M, full_matrices=False)
    if s.sum() <= radius:
        return M
    # As much is taken off each of the k largest as brings their sum to the radius: of all k, the
    # one that takes off most.
    shift = float(np.max((np.cumsum(s) - radius) / np.arange(1, s.size + 1)))
    return np.asarray((U * np.maximum(s - shift, 0.0)) @ Vt)


def cone_program(problem: Problem, curve: Curve) -> dict[str, float]:
    """cvxpy with Clarabel: one solve, from the model to the solution, scaled into the ball."""
    cp: Any = importlib.import_module("cvxpy")  # its functions have no types
    curve.start()
    W = cp.Variable(problem.shape)
    S = problem.X @ W
    if problem.multiclass:
        own = np.eye(problem.m)[problem.y]
        F = cp.sum(cp.log_sum_exp(S, axis=1)) - cp.sum(cp.multiply(own, S))
    else:
        F = 0.5 * cp.sum_squares(S - problem.y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it may be inaccurate: its objective is looked at
        cp.Problem(cp.Minimize(F), [cp.normNuc(W) <= problem.radius]).solve(solver=cp.CLARABEL)

    def value() -> float:
        found = np.asarray(W.value)
        norm = float(np.linalg.norm(found, "nuc"))
        return problem.objective()(found * min(1.0, problem.radius / norm))[0]

    curve.note(value)
    return _dense_size(problem, curve)


def _dense_size(problem: Problem, curve: Curve) -> dict[str, float]:
    return {
        "their numbers": float(np.prod(problem.shape)),
        "their steps": float(len(curve.values)),
    }
