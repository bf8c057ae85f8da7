"""One run on workers that are there: from a start to a result."""

from __future__ import annotations

import time
from typing import NamedTuple

from dfwtrace._typing import FloatArray
from dfwtrace.checkpoints import Checkpoint, Snapshots, fingerprint
from dfwtrace.engines import Workers
from dfwtrace.history import History
from dfwtrace.lowrank import LowRankMatrix
from dfwtrace.progress import Aim, display
from dfwtrace.result import Result
from dfwtrace.setup import Setup, Workplace, precision
from dfwtrace.solvers import (
    Callback,
    GoingOn,
    Intercept,
    Outcome,
    Problem,
    Rules,
    Value,
    Watch,
)
from dfwtrace.tasks import Centre, missing_methods


class Limits(NamedTuple):
    """When a run ends, and what it shows on its way; see `dfwtrace.solve`."""

    epochs: int
    tol: float | None = None
    max_time: float | None = None
    certify_every: int | None = None
    callback: Callback | None = None
    progress: bool | None = None
    checkpoint: Checkpoint | None = None


def run(
    setup: Setup,
    place: Workplace,
    radius: float,
    W: LowRankMatrix,
    seed: int,
    limits: Limits,
    began: float | None = None,
) -> Result:
    """Minimise F over the ball from W; a relative tolerance is one of F(0)."""
    began = time.perf_counter() if began is None else began
    workers, rounding = place.workers, precision(setup)
    intercept = None
    if place.centre is not None and setup.plan.representation != "gram":
        intercept = Intercept(workers, setup.shape[1], place.centre.x, setup.smoothness, rounding)
    problem = Problem(
        workers,
        setup.shape,
        radius,
        quadratic=bool(getattr(setup.task, "quadratic", False)),
        tells_objective=not missing_methods(setup.task, ["loss"]),
        tells_curvature=not missing_methods(setup.task, ["curvature_product"]),
        seed=seed,
        precision=rounding,
        # In gram form the dense gradient is there, and tells all.
        deflates=setup.solver.deflates and setup.plan.representation != "gram",
        intercept=intercept,
    )
    snapshots = saved = going_on = None
    if limits.checkpoint is not None:
        identity = fingerprint(setup, place.digests, radius, seed, W)
        snapshots = Snapshots(limits.checkpoint, identity)
        saved = snapshots.read()
    if saved is None:
        value = problem.begin(W)
    else:
        problem.restore(saved["problem"])
        W, value = saved["W"], Value(*saved["value"])
        going_on = GoingOn(len(saved["history"]), saved["solver"])
    at_zero = problem.objective_at_zero
    stop_at = None if limits.tol is None else limits.tol * abs(at_zero)
    epochs, target = limits.epochs, stop_at or 0.0
    iterates = setup.solver.iterates(problem, W, value, epochs, target, going_on)
    rules = Rules(
        stop_at, epochs, limits.max_time, limits.certify_every, limits.callback, snapshots
    )
    aim = Aim(epochs, stop_at, limits.max_time, at_zero)
    with display(aim, limits.progress) as shown:
        setup_seconds = time.perf_counter() - began
        watch = Watch(problem, W, value, rules, shown, began)
        if saved is None:
            workers.take()  # what it took to set up is no epoch's
        else:
            watch.restore(saved)
        outcome = watch.follow(iterates)
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
        _intercept(place.centre, outcome),
        setup_seconds,
    )


def _intercept(centre: Centre | None, outcome: Outcome) -> FloatArray | None:
    """(X - 1x̄ᵀ)W + 1b'ᵀ = XW + 1bᵀ with b = b' - Wᵀx̄; where Y is centred too, b' is ȳ."""
    if centre is None:
        return None
    b = centre.intercept(outcome.W)
    return b if outcome.intercept is None else b + outcome.intercept


def _rounds(workers: Workers, epochs: int) -> History:
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
