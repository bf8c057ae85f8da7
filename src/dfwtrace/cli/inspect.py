"""``dfwtrace inspect`` and ``dfwtrace plan``: what is in a file, and what a fit would take."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from dfwtrace import LeastSquares, LocalEngine, ModelFormatError, Multinomial
from dfwtrace.cli import options as shared
from dfwtrace.cli.data import first_targets, judge, require_target
from dfwtrace.cli.guard import refusing
from dfwtrace.cli.models import facts_of, load_model, reading
from dfwtrace.cli.output import Output, duration, lines, number, size, word, words
from dfwtrace.data.files import survey
from dfwtrace.data.shards import default_shards
from dfwtrace.files.checkpoint import read_checkpoint
from dfwtrace.files.container import peek
from dfwtrace.solvers import resolve
from dfwtrace.tasks.planning import Workload, free_memory


def inspect(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A model or a checkpoint.", show_default=False)
    ],
    json: shared.JsonOption = False,
) -> None:
    """Print what is in a model or checkpoint file.

    Example: dfwtrace inspect model.safetensors
    """
    output = Output(json)
    with reading(file):
        kind = peek(file)
    try:
        found = _of_checkpoint(file) if kind == "checkpoint" else _of_model(file)
    except ModelFormatError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        why = f"{'no ' if isinstance(error, KeyError) else ''}{str(error).rstrip('.')}."
        raise ModelFormatError(f"{file} is not a whole {kind}: {why}") from error
    # What the disk says comes first, and cannot be replaced by what the file says of itself.
    facts = {"file": str(file), "kind": kind, "bytes": file.stat().st_size}
    facts |= {name: value for name, value in found.items() if name not in facts}
    output.say(lines(_shown(facts)))
    output.tell(facts)


def _of_model(file: Path) -> dict[str, Any]:
    model = load_model(file)
    estimator, result = model.estimator, model.result
    usual = type(estimator)().get_params(deep=False)
    given = estimator.get_params(deep=False)
    names = model.wanted._asdict()
    del names["n_features"]
    return {
        **facts_of(model),
        "settings": {name: value for name, value in given.items() if value != usual[name]},
        "shape": list(result.W.shape),
        "trace_norm": result.W.trace_norm,
        "seconds": float(result.history[-1]["seconds"]) if result.history else None,
        "classes": estimator.classes_.tolist() if model.classifies else None,
        **names,
    }


def _of_checkpoint(file: Path) -> dict[str, Any]:
    run, memory = read_checkpoint(file)
    last = memory["history"][-1]
    return {
        **{name: value for name, value in run.items() if name != "rows of the shards"},
        "epochs": int(last["epoch"]),
        "rank": int(memory["W"].rank),
        "objective": float(last["objective"]),
        "gap": float(last["gap"]),
        "seconds": float(memory["seconds"]),
    }


def _shown(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """For people: nothing that is not known, lists cut short."""
    shown = []
    for name, value in facts.items():
        if value is None or value == {}:
            continue
        if name == "target_names" and value == facts.get("target"):
            continue
        if name in ("bytes", "seconds"):
            text = size(value) if name == "bytes" else duration(value)
        elif name in ("shape", "shape of W") and isinstance(value, list):
            text = word(" × ".join(map(str, value)))
        elif isinstance(value, list):
            text = words(value)
        elif isinstance(value, dict):
            text = ", ".join(f"{word(key)} {word(item)}" for key, item in value.items())
        else:
            text = number(value) if isinstance(value, float) else word(value)
        shown.append(("size" if name == "bytes" else word(name.replace("_", " ")), text))
    return shown


def plan(
    data: shared.DataArgument,
    target: shared.TargetOption = None,
    features: shared.FeaturesOption = None,
    task: shared.TaskOption = "auto",
    solver: shared.SolverOption = "accelerated",
    lmo: shared.LmoOption = None,
    max_iter: shared.MaxIterOption = None,
    n_shards: shared.ShardsOption = None,
    n_jobs: shared.JobsOption = None,
    representation: shared.RepresentationOption = "auto",
    dtype: shared.DtypeOption = None,
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
) -> None:
    """Estimate memory and time of a fit, and the representation that it would take.

    Example: dfwtrace plan train.parquet --target label
    """
    output = Output(json, quiet)
    shared.check_solver(solver, lmo, None)
    require_target(data, target)
    found = survey(data, target=target, features=features)
    kind, y = judge(first_targets(data, target, features), task, None)
    classes = len(np.unique(y)) if kind == "classification" else 0
    method = Multinomial() if classes else LeastSquares()
    way = resolve(solver, lmo, None, method.log_factor)
    stored = found.rows * found.features
    if found.sparse:  # a value and a 32-bit column number each, and where each row begins
        stored = max(1, (found.nbytes - 4 * (found.rows + 1)) // (found.dtype.itemsize + 4))
    epochs = way.default_epochs if max_iter is None else max_iter
    itemsize = int(np.dtype(dtype or found.dtype).itemsize)
    with refusing():
        engine = LocalEngine(n_shards or default_shards(stored * itemsize), n_jobs)
        workload = Workload(
            n=found.rows,
            d=found.features,
            m=max(classes, found.targets, 1),
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
        free = free_memory()
        choice = method.plan(workload, representation, free, intercept=True)[1]
    cost = choice.costs[choice.representation]
    features_bytes = found.nbytes * itemsize / found.dtype.itemsize
    total, about = features_bytes + cost.memory, "" if found.exact else "about "
    columns = f"{classes} classes seen" if classes else f"{found.targets} targets"
    facts = [
        ("data", f"{about}{found.rows:,} rows, {found.features:,} features, {columns}"),
        ("task", kind),
        ("features", f"{about}{size(features_bytes)} in memory"),
        ("in all", f"{about}{size(total)}" + (f" of {size(free)} free" if free else "")),
    ]
    output.say(f"{lines(facts)}\n\n{choice}")
    if free is not None and total > free:
        output.warn("the data do not fit into the free memory: try --dtype float32 or --spill.")
    output.tell(
        {
            **found._asdict(),
            "task": kind,
            "classes": classes or None,
            "representation": choice.representation,
            "reason": choice.reason,
            "memory": total,
            "free_memory": free,
            "seconds": cost.total(epochs),
            "epochs": epochs,
            "costs": {name: asdict(each) for name, each in choice.costs.items()},
        }
    )
