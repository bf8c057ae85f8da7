"""``dfwtrace fit``: from a file of rows to a file with a model."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import typer

import dfwtrace
from dfwtrace.cli import data, guard
from dfwtrace.cli import options as shared
from dfwtrace.cli.guard import CommandError
from dfwtrace.cli.models import Model, Scores, facts_of, save_model, score
from dfwtrace.cli.output import Output, counted, duration, lines, monitor_for, number, size
from dfwtrace.data.table import Table
from dfwtrace.engines.local import threads_for
from dfwtrace.report import Report, require_report, write_report
from dfwtrace.validation import check_positive, check_tolerance

_RADII, _TOL = "10", 1e-4  # where none are given


class Fitted(NamedTuple):
    """A model, and how it came about."""

    model: Model
    parameters: dict[str, Any]
    source: str
    engine: str
    scores: dict[str, Scores]
    seconds: float  # from the command to the fitted model


def fit(
    train: Annotated[
        str,  # not a path, which would make hdfs:/host of hdfs://host
        typer.Argument(metavar="TRAIN", help=shared.FORMATS, show_default=False),
    ],
    target: shared.TargetOption = None,
    features: shared.FeaturesOption = None,
    weight: shared.WeightOption = None,
    task: shared.TaskOption = "auto",
    radius: Annotated[
        float | None, typer.Option(help="Bound of the trace norm; without it, cross-validation.")
    ] = None,
    radii: shared.RadiiOption = None,
    folds: shared.FoldsOption = 5,
    solver: shared.SolverOption = "accelerated",
    lmo: shared.LmoOption = None,
    step: Annotated[
        str | None, typer.Option(help="Step of dfw: linesearch, harmonic or a number.")
    ] = None,
    tol: shared.TolOption = None,
    max_iter: shared.MaxIterOption = None,
    max_time: Annotated[float | None, typer.Option(help="Seconds at most.")] = None,
    no_intercept: shared.NoInterceptOption = False,
    class_weight: Annotated[
        Literal["balanced"] | None, typer.Option(help="Every class counts the same.")
    ] = None,
    engine: Annotated[Literal["local", "spark"], typer.Option(help="Where it runs.")] = "local",
    master: Annotated[
        str | None, typer.Option(help="Spark's, such as local[2] or spark://host:7077.")
    ] = None,
    n_shards: shared.ShardsOption = None,
    n_jobs: shared.JobsOption = None,
    seed: shared.SeedOption = None,
    representation: shared.RepresentationOption = "auto",
    dtype: shared.DtypeOption = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="A file to go on from if the fit is killed.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The model.")] = Path(
        "model.safetensors"
    ),
    report: Annotated[Path | None, typer.Option(help="An HTML page about the fit.")] = None,
    test: Annotated[Path | None, typer.Option(help="Rows to score the model on.")] = None,
    spill: Annotated[
        Path | None, typer.Option(help="A folder for features that do not fit in memory.")
    ] = None,
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
    verbose: shared.VerboseOption = False,
) -> None:
    """Learn a low-rank classifier or regressor.

    Example: dfwtrace fit train.csv --target label --out model.safetensors --report report.html
    """
    output, began = Output(json, quiet), time.perf_counter()
    parameters = parameters_of(
        radius,
        radii,
        folds,
        solver=solver,
        lmo=lmo,
        step=shared.step_of(step),
        max_time=max_time,
        checkpoint=checkpoint,
        tol=tol,
        max_iter=max_iter,
        fit_intercept=not no_intercept,
        class_weight=class_weight,
        n_shards=n_shards,
        n_jobs=n_jobs,
        random_state=seed,
        representation=representation,
    )
    if engine == "local" and master is not None:
        raise CommandError("--master belongs to --engine spark.")
    if engine == "spark" and spill is not None:
        raise CommandError("--spill belongs to --engine local: Spark keeps its rows itself.")
    if report is not None:
        require_report()
    outputs = {"--out": out, "--report": report, "--checkpoint": checkpoint}
    guard.check_outputs(outputs, {"the data": Path(train), "--test": test})
    if test is not None and not test.exists():
        raise CommandError(f"{test} is not there.")
    columns: dict[str, Any] = {"target": target, "features": features, "weight": weight}
    scores: dict[str, Scores] = {}
    if engine == "spark":
        from dfwtrace.cli.spark import fit_frame

        model, source = fit_frame(train, master, columns, dtype, task, parameters, output, verbose)
        seconds = time.perf_counter() - began
        _keep(model, out)
        output.say(source)
        held_out = None if test is None else data.known_rows(test, model.wanted)
    else:
        with data.training_rows(Path(train), **columns, dtype=dtype, spill=spill) as table:
            source, held_out = table.source, None
            output.say(source)
            wanted = data.Wanted(
                table.feature_names,
                table.X.shape[1],
                target,
                table.target_names,
                data.array_of(Path(train), features),
                table.first_index,
            )
            if test is not None:  # what is wrong with it should be known before the fit
                held_out = data.known_rows(test, wanted)
                data.require_same_kind(held_out[1], table, task, test.name)
            model = Model(fit_table(table, task, parameters, output, verbose), wanted)
            seconds = time.perf_counter() - began
            _keep(model, out)
            assert table.y is not None  # the reader has seen to it
            scores["training"] = score(model, table.X, table.y)
    if test is not None and held_out is not None:
        scores["test"] = found = score(model, *held_out)
        if found.warning is not None:
            output.warn(f"{test.name}: {found.warning}")
    place = "local" if engine == "local" else f"spark {master or ''}".strip()
    _finish(Fitted(model, parameters, source, place, scores, seconds), out, report, output)


def parameters_of(
    radius: float | None, radii: str | None, folds: int, *, tol: float | None, **others: Any
) -> dict[str, Any]:
    """The parameters of an estimator, checked before anything is read."""
    solver, max_time = others.get("solver", "accelerated"), others.get("max_time")
    shared.check_solver(solver, others.get("lmo"), others.get("step"))
    with guard.refusing():
        for option, given in (("--radius", radius), ("--max-time", max_time)):
            if given is not None:
                check_positive(option, given)
        check_tolerance(tol)
    others["tol"] = _TOL if tol is None and solver != "dfw" else tol
    if radius is not None:
        if radii is not None:
            raise CommandError("--radius and --radii exclude each other: one radius, or many.")
        return {"radius": radius, **others}
    for option, wrong in (
        ("--solver dfw", solver == "dfw"),
        ("--max-time", max_time is not None),
        ("--checkpoint", others.get("checkpoint") is not None),
    ):
        if wrong:
            raise CommandError(f"{option} needs --radius: it does not go with cross-validation.")
    for name in ("solver", "lmo", "step", "max_time", "checkpoint"):
        others.pop(name, None)
    return {"radii": shared.radii_of(radii or _RADII), "cv": folds, **others}


def estimator_for(task: str, parameters: dict[str, Any], engine: Any = "local") -> Any:
    """An estimator for a task, not fitted."""
    parameters = dict(parameters)
    if task == "regression" and parameters.pop("class_weight", None) is not None:
        raise CommandError("--class-weight belongs to classification.")
    kind = "TraceNormClassifier" if task == "classification" else "TraceNormRegressor"
    found = getattr(dfwtrace, kind if "radius" in parameters else f"{kind}CV")
    return found(engine=engine, **parameters)


def fit_table(
    table: Table, task: str, parameters: dict[str, Any], output: Output, verbose: bool
) -> Any:
    """An estimator, fitted to rows in memory."""
    assert table.y is not None  # the reader has seen to it
    task, y = data.judge(table.y, task, table.target_names)
    estimator = estimator_for(task, parameters)
    run_fit(estimator, task, (table.X, y, table.weight), parameters, output, verbose)
    return estimator


def run_fit(
    estimator: Any,
    task: str,
    rows: tuple[Any, ...],
    parameters: dict[str, Any],
    output: Output,
    verbose: bool,
    **options: Any,
) -> None:
    """Fit an estimator, and show how; return after Ctrl-C too, if there is a model to save."""
    about, runs, when = task.capitalize(), 1, "before the first epoch"
    if "radius" in parameters:
        about += f" with radius {parameters['radius']:g}."
    else:
        radii, folds = parameters["radii"], parameters["cv"]
        count = radii if isinstance(radii, int) else len(radii)
        several = "1 radius" if count == 1 else f"{count} radii"
        hint = "; --radius sets one" if radii == int(_RADII) else ""
        about += f"; cross-validating over {several} in {folds} folds{hint}."
        runs, when = count * (1 + folds), "during cross-validation"
    try:
        output.note(about)
        monitor = monitor_for(output, verbose, runs)
        with output.listening(), guard.refusing(), monitor.following():
            estimator.fit(*rows, **options)
        if estimator.status_ == "interrupted" and not estimator.n_iter_:
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        sentence = f"Interrupted {when}: nothing was saved."
        raise CommandError(sentence, guard.INTERRUPTED) from None


def _keep(model: Model, out: Path) -> None:
    """Write the model before anything else can go wrong; after Ctrl-C, that is all."""
    save_model(model, out)
    guard.note_saved(out)
    if model.result.status == "interrupted":
        epochs = counted(len(model.result.history), "epoch")
        sentence = f"Interrupted after {epochs}: the best model so far was saved to {out}."
        raise CommandError(sentence, guard.INTERRUPTED)


def _finish(fitted: Fitted, out: Path, report: Path | None, output: Output) -> None:
    """Write the report, print the result, and end with the right exit code."""
    result, tol = fitted.model.result, fitted.parameters["tol"]
    short = result.status != "optimal" and tol is not None
    if short:
        output.warn(
            f"{result.message} The tolerance of {tol:g} was not reached: raise --max-iter, "
            "--max-time or --tol, or scale the features."
        )
    if report is not None:
        write_report(report, _report(fitted))
    estimator, validated = fitted.model.estimator, "radii" in fitted.parameters
    best_of = f", the best of {len(estimator.radii_)}" if validated else ""
    d, m = result.W.shape
    shown = [
        ("result", result.message),
        ("radius", number(estimator.radius_) + best_of),
        ("coefficients", f"{d} × {m}, rank {result.W.rank}"),
        ("objective", f"{number(result.objective)}, {number(result.objective_at_zero)} at W = 0"),
        ("effort", f"{counted(len(result.history), 'epoch')}, {duration(fitted.seconds)} in all"),
    ]
    for name, found in fitted.scores.items():
        shown.append((name, ", ".join(f"{score} {value}" for score, value in found.shown())))
    shown.append(("model", f"{out} ({size(out.stat().st_size)})"))
    if report is not None:
        shown.append(("report", str(report)))
    output.say(lines(shown))
    facts = {
        "source": fitted.source,
        **facts_of(fitted.model),
        "features": d,
        "targets": m,
        "message": result.message,
        "objective_at_zero": result.objective_at_zero,
        "tol": tol,
        "seconds": fitted.seconds,
        "engine": fitted.engine,
        "scores": {name: found.by_key() for name, found in fitted.scores.items()},
        "model": str(out),
        "report": None if report is None else str(report),
    }
    if validated:
        facts |= {"radii": estimator.radii_, "validation": estimator.validation_.mean(axis=1)}
    output.tell(facts)
    if short:
        raise typer.Exit(guard.SHORT)


def _report(fitted: Fitted) -> Report:
    estimator, parameters, result = fitted.model.estimator, fitted.parameters, fitted.model.result
    of = "test" if "test" in fitted.scores else "training"
    found = fitted.scores.get(of, Scores({}, []))
    work = result.plan.workload
    place = f"{fitted.engine}, {counted(work.n_jobs, 'processor')} at most"
    if fitted.engine == "local":
        threads = min(threads_for(work.stored * work.itemsize, work.n_jobs), work.n_shards)
        place = f"{counted(threads, 'thread')} of this process"
    return Report.of_result(
        result,
        task=fitted.model.task,
        radius=float(estimator.radius_),
        solver=parameters.get("solver", "accelerated"),
        tol=parameters["tol"],
        engine=fitted.engine,
        source=fitted.source,
        path=estimator.path_ if "radii" in parameters else None,
        where=[("Solver", "this process"), (counted(work.n_shards, "shard"), place)],
        scores={f"{of} {name}": value for name, value in found.values.items()},
        worst=found.worst,
    )
