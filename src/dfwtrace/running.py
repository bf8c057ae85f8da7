"""One run on workers that are there: from a start to a result."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from dfwtrace._typing import FloatArray
from dfwtrace.engines import Ledger
from dfwtrace.files.checkpoint import Checkpoint, CheckpointFile
from dfwtrace.files.identity import fingerprint
from dfwtrace.history import History
from dfwtrace.losses import SquaredLoss
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
from dfwtrace.tasks import Centre, GramTask, missing_methods


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
        snapshots = CheckpointFile(limits.checkpoint, _identity(setup, place, radius, seed, W))
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


def _identity(
    setup: Setup, place: Workplace, radius: float, seed: int, W: LowRankMatrix
) -> dict[str, Any]:
    """What must be the same for the run to continue."""
    facts, task = setup.rows.facts, setup.task
    in_moments = isinstance(task, GramTask)
    return fingerprint(
        task=SquaredLoss() if in_moments else getattr(task, "loss_on_scores", task),
        radius=radius,
        solver=setup.solver,
        intercept=setup.intercept,
        weighted=bool(getattr(task, "weighted", False)),
        representation=setup.plan.representation,
        seed=seed,
        start=W,
        n_rows=facts.n_rows,
        shape=facts.shape,
        dtype=facts.dtype,
        n_shards=setup.engine.n_shards,
        digests=place.digests,
    )


def _intercept(centre: Centre | None, outcome: Outcome) -> FloatArray | None:
    """(X - 1x̄ᵀ)W + 1b'ᵀ = XW + 1bᵀ with b = b' - Wᵀx̄; where Y is centred too, b' is ȳ."""
    if centre is None:
        return None
    b = centre.intercept(outcome.W)
    return b if outcome.intercept is None else b + outcome.intercept


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
