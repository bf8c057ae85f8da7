"""``dfwtrace plan``: what a fit would take, before anything is read in full."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
import typer

from dfwtrace.cli import options as shared
from dfwtrace.cli.data import first_targets, judge, require_target
from dfwtrace.cli.guard import refusing
from dfwtrace.cli.output import Output
from dfwtrace.cli.words import lines
from dfwtrace.data.files import survey
from dfwtrace.data.table import Survey
from dfwtrace.engines import LocalEngine
from dfwtrace.planning import Workload, choose, free_memory
from dfwtrace.report.numbers import size
from dfwtrace.shards import default_shards
from dfwtrace.solvers import Solver, resolve
from dfwtrace.tasks import LeastSquares, Multinomial

# What a non-zero of a sparse matrix takes beside its value, and what a row takes.
_INDEX_BYTES = 4


def command(
    data: shared.DataArgument,
    target: shared.TargetOption = None,
    features: shared.FeaturesOption = None,
    task: shared.TaskOption = "auto",
    solver: Annotated[shared.SolverName, typer.Option(help="dfw is the paper's.")] = "accelerated",
    lmo: Annotated[str | None, typer.Option(help="Oracle of dfw, such as power-log.")] = None,
    max_iter: Annotated[int | None, typer.Option(min=1, help="Epochs to plan for.")] = None,
    n_shards: Annotated[
        int | None, typer.Option(min=1, help="Logical shards. Default: 8, or 1 for small data.")
    ] = None,
    n_jobs: Annotated[int | None, typer.Option(min=1, help="Threads.")] = None,
    representation: Annotated[
        shared.Representation, typer.Option(help="What a shard keeps.")
    ] = "auto",
    dtype: Annotated[
        shared.Precision | None, typer.Option(help="Precision of the features.")
    ] = None,
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
) -> None:
    """Estimate memory and time of a fit, and say which representation it would take.

    Example: dfwtrace plan train.parquet --target label
    """
    output = Output(json, quiet)
    shared.check_solver(solver, lmo, None)
    require_target(data, target)
    found = survey(data, target=target, features=features)
    kind, y = judge(first_targets(data, target, features), task, None)
    classes = len(np.unique(y)) if kind == "classification" else 0
    method: Any = Multinomial() if classes else LeastSquares()
    way = resolve(solver, lmo, None, method.log_factor)
    m = max(classes, found.targets)
    workload = _workload(found, way, n_shards, n_jobs, max_iter, m, dtype)
    with refusing():
        if representation != "auto":
            method.represent(representation)  # refuses what the task does not have
        plan = choose(method.representations, workload, representation, free_memory())
    cost, free = plan.costs[plan.representation], free_memory()
    total = found.nbytes * workload.itemsize / found.dtype.itemsize + cost.memory
    about = "" if found.exact else "about "
    columns = f"{classes} classes seen" if classes else f"{found.targets} targets"
    facts = [
        ("data", f"{about}{found.rows:,} rows, {found.features:,} features, {columns}"),
        ("task", kind),
        ("features", f"{about}{size(total - cost.memory)} in memory"),
        ("in all", f"{about}{size(total)}" + (f" of {size(free)} free" if free else "")),
    ]
    output.say(lines(facts))
    output.say()
    output.say(str(plan))
    if free is not None and total > free:
        output.warn("the data do not fit into the free memory: try --dtype float32 or --spill.")
    output.tell(
        {
            **found._asdict(),
            "task": kind,
            "classes": classes or None,
            "representation": plan.representation,
            "reason": plan.reason,
            "memory": total,
            "free_memory": free,
            "seconds": cost.total(workload.epochs),
            "epochs": workload.epochs,
            "costs": {name: asdict(each) for name, each in plan.costs.items()},
        }
    )


def _workload(
    found: Survey,
    way: Solver,
    n_shards: int | None,
    n_jobs: int | None,
    max_iter: int | None,
    m: int,
    dtype: str | None,
) -> Workload:
    stored = found.rows * found.features
    if found.sparse:
        values = found.nbytes - _INDEX_BYTES * (found.rows + 1)
        stored = max(1, values // (found.dtype.itemsize + _INDEX_BYTES))
    epochs = way.default_epochs if max_iter is None else max_iter
    itemsize = int(np.dtype(dtype).itemsize if dtype else found.dtype.itemsize)
    engine = LocalEngine(n_shards or default_shards(stored * itemsize), n_jobs)
    return Workload(
        n=found.rows,
        d=found.features,
        m=max(m, 1),
        stored=stored,
        sparse=found.sparse,
        itemsize=itemsize,
        epochs=epochs,
        products=way.mean_products(epochs),
        gathers=way.gathers,
        local=way.local,
        n_shards=engine.n_shards,
        n_jobs=engine.n_jobs,
        columns=way.columns,
    )
