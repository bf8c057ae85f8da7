"""``dfwtrace inspect``, ``plan`` and ``demo``: files, costs and solvers, explained."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from typer import Argument

import dfwtrace as dt
from dfwtrace.cli import fit as options
from dfwtrace.cli.data import Data, Features, Target, Task, judge, require_target
from dfwtrace.cli.guard import refusing
from dfwtrace.cli.output import Json, Output, Quiet, facts_table, table
from dfwtrace.cli.predict import facts_of, load_model
from dfwtrace.data.files import first_targets, survey
from dfwtrace.data.shards import default_shards
from dfwtrace.files.checkpoint import checkpoint_errors, read_checkpoint
from dfwtrace.files.container import peek
from dfwtrace.report import size
from dfwtrace.solvers import resolve
from dfwtrace.tasks.planning import Workload, free_memory

_SHARDS = 4
_ORACLES = ("power-1", "power-2", "power-log", "naive", "sva", "lanczos")
# The columns of a demo, in the order of the facts of a run.
_COLUMNS = {"solver": "", "epochs": "d", "F / F(0)": ".4f", "gap / F(0)": ".1e", "rank": "d"}
_COLUMNS |= {"rounds": ",d", "numbers": ",d", "seconds": ".2f"}


def inspect(
    file: Annotated[Path, Argument(metavar="FILE", help="A model or checkpoint.")],
    json: Json = False,
) -> None:
    """Print what is in a model or checkpoint file."""
    kind, output = peek(file), Output(json)
    found = _of_checkpoint(file) if kind == "checkpoint" else _of_model(file)
    # What the disk says comes first, and cannot be replaced by what the file says of itself.
    facts = {"file": str(file), "kind": kind, "bytes": file.stat().st_size}
    facts |= {name: value for name, value in found.items() if name not in facts}
    output.say(facts_table(facts))
    output.finish(facts)


def _of_model(file: Path) -> dict[str, Any]:
    estimator, wanted = load_model(file)
    result, usual = estimator.result_, type(estimator)().get_params(deep=False)
    given, classes = estimator.get_params(deep=False), vars(estimator).get("classes_")
    try:
        seconds = float(result.history[-1]["seconds"]) if result.history else None
    except (KeyError, TypeError, ValueError) as error:
        why = f"no {error}" if isinstance(error, KeyError) else error
        raise dt.ModelFormatError(f"{file} is not a whole model: {why}.") from error
    facts = facts_of(estimator) | {"shape": list(result.W.shape), "seconds": seconds}
    facts["settings"] = {name: given[name] for name in given if given[name] != usual[name]}
    facts |= {"trace_norm": result.W.trace_norm, **wanted._asdict()}
    del facts["n_features"]
    return facts | {"classes": None if classes is None else classes.tolist()}


def _of_checkpoint(file: Path) -> dict[str, Any]:
    run, memory = read_checkpoint(file)
    run.pop("rows of the shards", None)
    with checkpoint_errors(file):
        last = memory["history"][-1]
        run |= {"epochs": int(last["epoch"]), "rank": int(memory["W"].rank)}
        run |= {"objective": float(last["objective"]), "gap": float(last["gap"])}
        return run | {"seconds": float(memory["seconds"])}


def plan(
    data: Data,
    target: Target = None,
    features: Features = None,
    task: Task = "auto",
    solver: options.SolverName = "accelerated",
    lmo: options.Lmo = None,
    max_iter: options.MaxIter = None,
    n_shards: options.Shards = None,
    n_jobs: options.Jobs = None,
    representation: options.Representation = "auto",
    dtype: options.Dtype = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Estimate memory and time of a fit, and the representation that it would take."""
    output = Output(json, quiet)
    with refusing():
        resolve(solver, lmo)
    require_target(data, target)
    found = survey(data, target=target, features=features)
    kind, y = judge(first_targets(data, target, features), task, None)
    classes = len(np.unique(y)) if kind == "classification" else 0
    method: Any = dt.Multinomial() if classes else dt.LeastSquares()
    way = resolve(solver, lmo, None, method.log_factor)
    stored, m = found.rows * found.features, max(classes, found.targets, 1)
    if found.sparse:  # a value and a 32-bit column number each, and where each row begins
        stored = max(1, (found.nbytes - 4 * (found.rows + 1)) // (found.dtype.itemsize + 4))
    epochs, free = max_iter or way.default_epochs, free_memory()
    itemsize = int(np.dtype(dtype or found.dtype).itemsize)
    with refusing():
        engine = dt.LocalEngine(n_shards or default_shards(stored * itemsize), n_jobs)
        sizes = (found.rows, found.features, m, stored, found.sparse, itemsize)
        effort = (epochs, way.mean_products(epochs), way.gathers, way.local)
        workload = Workload(*sizes, *effort, engine.n_shards, engine.n_jobs, way.columns)
        choice = method.plan(workload, representation, free, intercept=True)[1]
    cost, about = choice.costs[choice.representation], "" if found.exact else "about "
    features_bytes = found.nbytes * itemsize / found.dtype.itemsize
    total, columns = features_bytes + cost.memory, f"{found.targets} targets"
    columns = f"{classes} classes seen" if classes else columns
    shown = {"data": f"{about}{found.rows:,} rows, {found.features:,} features, {columns}"}
    shown |= {"task": kind, "features": f"{about}{size(features_bytes)} in memory"}
    shown["in all"] = f"{about}{size(total)}" + (f" of {size(free)} free" if free else "")
    output.say(f"{facts_table(shown)}\n\n{choice}")
    if free is not None and total > free:
        output.warn("the data do not fit into the free memory: try --dtype float32 or --spill.")
    facts = found._asdict() | {"task": kind, "classes": classes or None, "epochs": epochs}
    facts |= {"representation": choice.representation, "reason": choice.reason}
    facts |= {"memory": total, "free_memory": free, "seconds": cost.total(epochs)}
    facts["costs"] = {name: asdict(each) for name, each in choice.costs.items()}
    output.finish(facts)


def demo(json: Json = False, quiet: Quiet = False) -> None:
    """Solve both problems of the paper, at a small scale, with every oracle and both solvers."""
    X, Y, _ = dt.datasets.make_multitask(n=2000, d=40, m=30, rank=10, noise=0.1, seed=0)
    Z, y, _ = dt.datasets.make_multiclass(n=1000, d=30, m=10, rank=5, seed=0)
    output, studies = Output(json, quiet), []
    for title, radius, problem in (
        ("Multi-task least squares, 2,000 rows, 40 × 30", 1.0, (dt.LeastSquares(), X, Y)),
        ("Multinomial logistic regression, 1,000 rows, 30 × 10", 50.0, (dt.Multinomial(10), Z, y)),
    ):
        runs = [_run(oracle, problem, radius, lmo=oracle, epochs=20) for oracle in _ORACLES]
        runs.append(_run("accelerated", problem, radius, solver="accelerated", tol=1e-4))
        rows = [[*map(format, run.values(), _COLUMNS.values())] for run in runs]
        studies.append({"problem": f"{title}, radius {radius:g}", "radius": radius, "runs": runs})
        output.say(f"{studies[-1]['problem']}\n\n{table([list(_COLUMNS), *rows])}\n")
    output.say("gap: certified upper bound of how far the objective F is from its optimum.")
    output.say(f"rounds, numbers: of the oracle, as if each of {_SHARDS} shards were a worker.")
    output.finish({"studies": studies})


def _run(name: str, problem: tuple[Any, ...], radius: float, **settings: Any) -> dict[str, Any]:
    """Solve in one way. Ctrl-C ends the demo, not the run."""
    began, settings["engine"] = time.perf_counter(), dt.LocalEngine(n_shards=_SHARDS)
    result = dt.solve(*problem, radius=radius, progress=False, **settings)
    if result.status == "interrupted":
        raise KeyboardInterrupt
    run: dict[str, Any] = {"solver": name, "epochs": len(result.history)}
    run["relative_objective"] = result.objective / result.objective_at_zero
    run |= {"relative_gap": result.relative_gap, "rank": result.W.rank}
    run |= {key: int(result.history.column(key).sum()) for key in ("rounds", "numbers_sent")}
    return run | {"seconds": time.perf_counter() - began}
