"""DFW-Trace: Algorithm 2 of the paper."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dfwtrace.linalg.lowrank import RankOne
from dfwtrace.lmo import Oracle, RememberingOracle
from dfwtrace.solvers.problem import Iterate, Problem, Start
from dfwtrace.solvers.steps import Step, within_unit_interval

#: Epochs after which the atoms are compressed and the states built from W: neither rounding errors
#: nor atoms pile up, and a lost worker has no more than these to catch up with.
REBUILT_EVERY = 100


def frank_wolfe(problem: Problem, start: Start, oracle: Oracle, step: Step) -> Iterator[Iterate]:
    """Yield W_1, W_2, … from the start; end early if ∇F = 0."""
    W, (_, inner) = start.W, start.value
    memory = oracle.memory if isinstance(oracle, RememberingOracle) else dict
    for t in range(start.first, start.epochs):
        if problem.intercept is not None:  # a certificate may have settled it
            inner = problem.intercept.inner
        problem.workers.count_for_oracle(True)  # as the paper's table does
        u, v, sigma, iterations = oracle(problem.gradient, t)  # lines 4-10: σ ≈ σ₁(∇F(W_t))
        problem.workers.count_for_oracle(False)
        if sigma == 0.0:
            return
        atom = RankOne(-problem.radius, u, v)
        line = problem.line(atom)
        gamma = within_unit_interval(step(t, line), t)  # line 11
        gap_estimate = inner + problem.radius * sigma  # ⟨W_t - atom, ∇F(W_t)⟩
        if math.isnan(sigma):  # SVA does not know its σ; a line search has seen φ'(0)
            gap_estimate = -line.first_slope
            sigma = (gap_estimate - inner) / problem.radius
        elif line.first_slope > 0.0 < gap_estimate:
            problem.check_slope(atom, line.first_slope, inner)
        problem.update(atom, gamma)  # line 12, on the workers
        W = W.toward(atom, gamma)  # line 12, on the master
        if (t + 1) % REBUILT_EVERY == 0:
            W = W.compress()
            problem.restart(W)
        objective, inner = problem.evaluate(W)
        yield Iterate(t + 1, W, objective, inner, gap_estimate, sigma, gamma, iterations, memory)
