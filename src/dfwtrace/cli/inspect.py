"""``dfwtrace inspect``: what is in a model or checkpoint file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dfwtrace import ModelFormatError
from dfwtrace.cli import options as shared
from dfwtrace.cli.guard import CommandError
from dfwtrace.cli.models import Model, load_model
from dfwtrace.cli.output import Output
from dfwtrace.cli.words import lines, some_of
from dfwtrace.files.checkpoint import read_checkpoint
from dfwtrace.files.container import peek
from dfwtrace.report.numbers import clean, duration, number, size
from dfwtrace.report.numbers import name as clean_name

_CHECKPOINT = "checkpoint"


def command(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A model or a checkpoint.", show_default=False)
    ],
    json: shared.JsonOption = False,
) -> None:
    """Say what is in a model or checkpoint file.

    Example: dfwtrace inspect model.safetensors
    """
    output = Output(json)
    try:
        kind = peek(file)
    except FileNotFoundError as error:
        raise CommandError(f"{file} is not there.") from error
    except OSError as error:
        reason = (error.strerror or str(error)).rstrip(".").lower()
        raise CommandError(f"{file} cannot be read: {reason}.") from error
    facts = _of_checkpoint(file) if kind == _CHECKPOINT else _of_model(file)
    # Those of the file come first, and are not what the file says of itself.
    own = {"file": str(file), "kind": kind, "bytes": file.stat().st_size}
    facts = own | {name: value for name, value in facts.items() if name not in own}
    output.say(lines(_shown(facts)))
    output.tell(facts)


def _of_model(file: Path) -> dict[str, Any]:
    model = load_model(file)
    try:
        return _facts(model)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ModelFormatError(f"{file} is not a whole model: {_lacking(error)}") from error


def _facts(model: Model) -> dict[str, Any]:
    estimator, result = model.estimator, model.estimator.result_
    return {
        "estimator": model.kind,
        "task": model.task,
        "settings": _settings(estimator),
        "shape": list(result.W.shape),
        "rank": result.W.rank,
        "trace_norm": result.W.trace_norm,
        "radius": estimator.radius_,
        "status": result.status,
        "objective": result.objective,
        "gap": result.gap,
        "relative_gap": result.relative_gap,
        "epochs": len(result.history),
        "seconds": float(result.history[-1]["seconds"]) if result.history else None,
        "rows": result.plan.workload.n,
        "representation": result.plan.representation,
        "classes": estimator.classes_.tolist() if model.classifies else None,
        "target": model.target,
        "target_names": model.target_names,
        "array": model.array,
        "first_index": model.first_index,
        "feature_names": model.feature_names,
    }


def _of_checkpoint(file: Path) -> dict[str, Any]:
    run, memory = read_checkpoint(file)
    try:
        last = memory["history"][-1]
        return {
            **{name: value for name, value in run.items() if name != "rows of the shards"},
            "epochs": int(last["epoch"]),
            "rank": int(memory["W"].rank),
            "objective": float(last["objective"]),
            "gap": float(last["gap"]),
            "seconds": float(memory["seconds"]),
        }
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ModelFormatError(f"{file} is not a whole checkpoint: {_lacking(error)}") from error


def _lacking(error: Exception) -> str:
    told = str(error).rstrip(".")
    return f"no {told}." if isinstance(error, KeyError) else f"{told}."


def _settings(estimator: Any) -> dict[str, Any]:
    """The parameters that are not at their defaults."""
    usual = type(estimator)().get_params(deep=False)
    given = estimator.get_params(deep=False)
    return {name: value for name, value in given.items() if value != usual[name]}


def _shown(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """For people: nothing that is not known, lists cut short."""
    units = {"bytes": size, "seconds": duration}
    shown = []
    for name, value in facts.items():
        if value is None or value == {}:
            continue
        if name == "target_names" and value == facts.get("target"):
            continue
        if name in units:
            text = units[name](value)
        elif name in ("shape", "shape of W") and isinstance(value, list):
            text = clean_name(" × ".join(map(str, value)))
        elif isinstance(value, list):
            text = some_of(value)
        elif isinstance(value, dict):
            text = ", ".join(f"{clean_name(key)} {clean_name(item)}" for key, item in value.items())
        elif isinstance(value, float):
            text = number(value)
        else:
            text = clean(str(value)) if name == "file" else clean_name(value)
        shown.append(("size" if name == "bytes" else clean_name(name.replace("_", " ")), text))
    return shown
