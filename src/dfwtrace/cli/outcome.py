"""What comes out of a fit: a model file, a report, and a few lines or a JSON object."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import typer

from dfwtrace.cli.guard import INTERRUPTED, SHORT, CommandError, note_saved
from dfwtrace.cli.models import Model, save_model
from dfwtrace.cli.output import Output
from dfwtrace.cli.scores import Scores
from dfwtrace.cli.settings import FitSettings
from dfwtrace.cli.words import by_key, in_one_line, lines
from dfwtrace.engines.local import threads_for
from dfwtrace.report import Report, machine_here, write_report
from dfwtrace.report.numbers import duration, number, size
from dfwtrace.result import Result


class Outcome(NamedTuple):
    """A fit that has ended, and what is to be made of it."""

    model: Model
    source: str
    settings: FitSettings
    engine: str
    scores: dict[str, Scores]
    out: Path
    report: Path | None
    seconds: float  # from the command to the fitted model

    @property
    def result(self) -> Result:
        result: Result = self.model.estimator.result_
        return result


def keep(model: Model, out: Path) -> Model:
    """Write the model, before anything else can go wrong; after Ctrl-C, that is all."""
    save_model(model, out)
    note_saved(out)
    result: Result = model.estimator.result_
    if result.status == "interrupted":
        epochs = len(result.history)
        raise CommandError(
            f"Interrupted after {epochs} {'epoch' if epochs == 1 else 'epochs'}: the best model so "
            f"far was saved to {out}.",
            INTERRUPTED,
        )
    return model


def finish(outcome: Outcome, output: Output) -> None:
    """Write the report, say what there is to say, and end with the right exit code."""
    status = outcome.result.status
    short = status != "optimal" and outcome.settings.tolerance is not None
    if short:
        output.warn(
            f"{outcome.result.message} The tolerance of {outcome.settings.tolerance:g} was not "
            "reached: raise --max-iter, --max-time or --tol, or scale the features."
        )
    if outcome.report is not None:
        write_report(outcome.report, _report(outcome))
    output.say(lines(_lines(outcome)))
    output.tell(_facts(outcome))
    if short:
        raise typer.Exit(SHORT)


def _lines(outcome: Outcome) -> list[tuple[str, Any]]:
    result, model = outcome.result, outcome.model
    tried = outcome.settings.validates
    radius = number(model.estimator.radius_)
    if tried:
        radius += f", the best of {len(model.estimator.radii_)}"
    d, m = result.W.shape
    known: list[tuple[str, Any]] = [
        ("result", result.message),
        ("radius", radius),
        ("coefficients", f"{d} × {m}, rank {result.W.rank}"),
        ("objective", f"{number(result.objective)}, {number(result.objective_at_zero)} at W = 0"),
        ("effort", f"{_effort(outcome)}, {duration(outcome.seconds)} in all"),
    ]
    known += [(name, in_one_line(found.values)) for name, found in outcome.scores.items()]
    known.append(("model", f"{outcome.out} ({size(outcome.out.stat().st_size)})"))
    if outcome.report is not None:
        known.append(("report", outcome.report))
    return known


def _effort(outcome: Outcome) -> str:
    epochs = len(outcome.result.history)
    return "1 epoch" if epochs == 1 else f"{epochs} epochs"


def _facts(outcome: Outcome) -> dict[str, Any]:
    result, model = outcome.result, outcome.model
    workload = result.plan.workload
    facts = {
        "source": outcome.source,
        "task": model.task,
        "estimator": model.kind,
        "rows": workload.n,
        "features": workload.d,
        "targets": workload.m,
        "radius": model.estimator.radius_,
        "status": result.status,
        "message": result.message,
        "objective": result.objective,
        "objective_at_zero": result.objective_at_zero,
        "gap": result.gap,
        "relative_gap": result.relative_gap,
        "tol": outcome.settings.tolerance,
        "rank": result.W.rank,
        "epochs": len(result.history),
        "seconds": outcome.seconds,
        "representation": result.plan.representation,
        "engine": outcome.engine,
        "scores": {name: by_key(found.values) for name, found in outcome.scores.items()},
        "model": str(outcome.out),
        "report": None if outcome.report is None else str(outcome.report),
    }
    if outcome.settings.validates:
        facts["radii"] = model.estimator.radii_
        facts["validation"] = model.estimator.validation_.mean(axis=1)
    return facts


def _report(outcome: Outcome) -> Report:
    model = outcome.model
    of = "test" if "test" in outcome.scores else "training"
    found = outcome.scores.get(of, Scores({}, []))
    return Report.of_result(
        outcome.result,
        task="classification" if model.classifies else "regression",
        radius=float(model.estimator.radius_),
        solver=outcome.settings.solver,
        tol=outcome.settings.tolerance,
        engine=outcome.engine,
        source=outcome.source,
        path=getattr(model.estimator, "path_", None),
        where=_where(outcome),
        scores={f"{of} {name}": value for name, value in found.values.items()},
        worst=found.worst,
    )


def _where(outcome: Outcome) -> list[tuple[str, str]]:
    """What was done, and where it ran."""
    work, machine = outcome.result.plan.workload, machine_here()
    cores = f"{machine['Cores']} {'core' if machine['Cores'] == '1' else 'cores'}"
    here = f"this process, on {machine['System']} {machine['Processor']} with {cores}"
    if outcome.engine == "local":
        numbers = work.stored * work.itemsize
        place = _several(min(threads_for(numbers, work.n_jobs), work.n_shards), "thread")
        place += " of this process"
    else:
        place = f"{outcome.engine}, {_several(work.n_jobs, 'processor')} at the most"
    return [
        ("Solver", here),
        (_several(work.n_shards, "shard"), place),
    ]


def _several(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
