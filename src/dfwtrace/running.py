"""One run on workers that are there: from a start to a result."""

from __future__ import annotations

import time
from typing import NamedTuple

from dfwtrace.engines import Ledger
from dfwtrace.history import History
from dfwtrace.lowrank import LowRankMatrix
from dfwtrace.progress import display
from dfwtrace.result import Result
from dfwtrace.setup import Setup, precision
from dfwtrace.solvers import Callback, Problem, Rules, Watch
from dfwtrace.tasks import missing_methods


class Limits(NamedTuple):
    """When a run ends, and what it shows on its way; see `dfwtrace.solve`."""

    epochs: int
    tol: float | None = None
    max_time: float | None = None
    certify_every: int | None = None
    callback: Callback | None = None
    progress: bool | None = None


def run(
    setup: Setup,
    workers: Ledger,
    radius: float,
    W: LowRankMatrix,
    seed: int,
    limits: Limits,
    began: float | None = None,
) -> Result:
    """Minimise F over the ball from W; a relative tolerance is one of F(0)."""
    began = time.perf_counter() if began is None else began
    problem = Problem(
        workers,
        setup.shape,
        radius,
        quadratic=bool(getattr(setup.task, "quadratic", False)),
        tells_objective=not missing_methods(setup.task, ["loss"]),
        seed=seed,
        precision=precision(setup),
        # In gram form the dense gradient is there, and tells all.
        deflates=setup.solver.deflates and setup.plan.representation != "gram",
    )
    value = problem.begin(W)
    at_zero = problem.objective_at_zero
    stop_at = None if limits.tol is None else limits.tol * abs(at_zero)
    iterates = setup.solver.iterates(problem, W, value, limits.epochs, stop_at or 0.0)
    workers.take()  # what it took to set up is no epoch's
    rules = Rules(stop_at, limits.epochs, limits.max_time, limits.certify_every, limits.callback)
    with display(limits.epochs, limits.progress) as shown:
        outcome = Watch(problem, W, value, rules, shown, began).follow(iterates)
    return Result(
        outcome.W,
        outcome.objective,
        outcome.gap,
        outcome.status,
        outcome.history,
        at_zero,
        outcome.certificate,
        setup.plan,
        _rounds(workers, len(outcome.history)),
    )


def _rounds(workers: Ledger, epochs: int) -> History:
    """A record for each round. Those after the last epoch were for the certificate of its W."""
    rounds = History()
    for made in workers.rounds:
        rounds.append(
            {
                "epoch": min(made.epoch, epochs),
                "oracle": made.oracle,
                "method": made.method,
                "numbers_sent": made.numbers,
                "bytes_on_wire": made.cost.bytes,
                "compute_seconds": made.cost.compute,
                "wait_seconds": made.cost.wait,
                "reduce_seconds": made.cost.reduce,
            }
        )
    return rounds
