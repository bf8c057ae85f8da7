"""``dfwtrace fit`` and ``dfwtrace path``: from a file of rows to a model, or to many radii."""

from __future__ import annotations

import json as json_format
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Exit, Option

import dfwtrace
from dfwtrace.cli import data as rows_of
from dfwtrace.cli import guard
from dfwtrace.cli.data import Features, Target, Task, Weight
from dfwtrace.cli.guard import CommandError, check_outputs
from dfwtrace.cli.output import Json, Output, Quiet, Verbose, lines, plain, table
from dfwtrace.cli.predict import Scores, facts_of, save_model, score, task_of
from dfwtrace.data.files import array_name
from dfwtrace.engines.local import threads_for
from dfwtrace.files.atomic import atomic_write
from dfwtrace.report import Report, counted, duration, number, require_report, size, write_report
from dfwtrace.solvers import StoppingCriteria, resolve
from dfwtrace.validation import check_count, check_positive

Given = dict[str, Any]
Forms = Literal["auto", "gram", "implicit", "dense", "factored"]
Floats = Literal["float32", "float64"] | None
Radii = Annotated[str | None, Option(metavar="COUNT|LIST", help="To try: 10 (default), or 1,3,9.")]
Folds = Annotated[int, Option(min=2, help="Folds of the cross-validation.")]
SolverName = Annotated[Literal["accelerated", "dfw"], Option(help="dfw is the paper's.")]
Lmo = Annotated[str | None, Option(help="Oracle of dfw, such as power-log.")]
Tol = Annotated[float | None, Option(help="Relative gap to reach. Default: 1e-4, for dfw none.")]
MaxIter = Annotated[int | None, Option(min=1, help="Epochs at most.")]
NoIntercept = Annotated[bool, Option("--no-intercept", help="No free term.")]
ClassWeight = Annotated[Literal["balanced"] | None, Option(help="Every class counts the same.")]
Shards = Annotated[int | None, Option(min=1, help="Logical shards. Default: 8, or 1 if small.")]
Jobs = Annotated[int | None, Option(help="Threads, or Spark's workers.")]
Seed = Annotated[int | None, Option(min=0, help="Seed of all random numbers.")]
Representation = Annotated[Forms, Option(help="What a shard keeps.")]
Dtype = Annotated[Floats, Option(help="Precision of the features. Default: as in the file.")]

_RADII, _TOL = "10", 1e-4  # where none are given


def fit(
    # Not a path, which would make hdfs:/host of hdfs://host.
    train: Annotated[str, Argument(metavar="TRAIN", help=rows_of.FORMATS)],
    target: Target = None,
    features: Features = None,
    weight: Weight = None,
    task: Task = "auto",
    radius: Annotated[float | None, Option(help="Trace norm; else cross-validation.")] = None,
    radii: Radii = None,
    folds: Folds = 5,
    solver: SolverName = "accelerated",
    lmo: Lmo = None,
    step: Annotated[str | None, Option(help="Of dfw: linesearch, harmonic or a number.")] = None,
    tol: Tol = None,
    max_iter: MaxIter = None,
    max_time: Annotated[float | None, Option(help="Seconds at most.")] = None,
    no_intercept: NoIntercept = False,
    class_weight: ClassWeight = None,
    engine: Annotated[Literal["local", "spark"], Option(help="Where it runs.")] = "local",
    master: Annotated[str | None, Option(help="Such as local[2] or spark://host:7077.")] = None,
    n_shards: Shards = None,
    n_jobs: Jobs = None,
    seed: Seed = None,
    representation: Representation = "auto",
    dtype: Dtype = None,
    checkpoint: Annotated[Path | None, Option(help="A file to go on from if it is killed.")] = None,
    out: Annotated[Path, Option("--out", "-o", help="The model.")] = Path("model.safetensors"),
    report: Annotated[Path | None, Option(help="An HTML page about the fit.")] = None,
    test: Annotated[Path | None, Option(help="Rows to score the model on.")] = None,
    spill: Annotated[Path | None, Option(help="A folder for features beyond memory.")] = None,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Learn a low-rank classifier or regressor.

    Example: dfwtrace fit train.csv --target label --out model.safetensors --report report.html
    """
    output, began, scores = Output(json, quiet), time.perf_counter(), {}
    single: Given = {"solver": solver, "lmo": lmo, "step": step}
    single |= {"max_time": max_time, "checkpoint": checkpoint}
    given: Given = {"tol": tol, "max_iter": max_iter, "fit_intercept": not no_intercept}
    given |= {"class_weight": class_weight, "representation": representation}
    given |= {"n_shards": n_shards, "n_jobs": n_jobs, "random_state": seed}
    given = settings_of(radius, radii, folds, single, given)
    if engine == "local" and master is not None:
        raise CommandError("--master belongs to --engine spark.")
    if engine == "spark" and spill is not None:
        raise CommandError("--spill belongs to --engine local: Spark keeps its rows itself.")
    if report is not None:
        require_report()
    outputs = {"--out": out, "--report": report, "--checkpoint": checkpoint}
    check_outputs(outputs, {"the data": Path(train), "--test": test})
    if test is not None and not test.exists():
        raise CommandError(f"{test} is not there.")
    columns: Given = {"target": target, "features": features, "weight": weight}
    learn, held_out = partial(fitted, output=output, verbose=verbose), None
    if engine == "spark":
        from dfwtrace.cli.spark import fit_frame

        model, wanted, source = fit_frame(train, master, columns, dtype, task, given, learn)
        seconds = time.perf_counter() - began
        _keep(model, wanted, out)
        output.say(source)
        held_out = None if test is None else rows_of.known_rows(test, wanted)
    else:
        with rows_of.training_rows(Path(train), columns, dtype, spill) as rows:
            source, array = rows.source, array_name(Path(train), features)
            output.say(source)
            names = (rows.feature_names, rows.X.shape[1], target, rows.target_names)
            wanted = rows_of.Wanted(*names, array, rows.first_index)
            kind, y = rows_of.judge(rows.y, task, rows.target_names)
            if test is not None:  # what is wrong with it should be known before the fit
                held_out = rows_of.known_rows(test, wanted)
                labels, width = y[:1] if kind == "classification" else None, y[:1].size
                rows_of.check_kind(held_out.y, test.name, labels, width)
            model = learn(kind, (rows.X, y, rows.weight), given)
            seconds = time.perf_counter() - began
            _keep(model, wanted, out)
            scores["training"] = score(model, wanted, rows.X, rows.y, Path(train).name)
    if test is not None and held_out is not None:
        scores["test"] = found = score(model, wanted, held_out.X, held_out.y, test.name)
        if found.warning is not None:
            output.warn(f"{test.name}: {found.warning}")
    result, tol = model.result_, given["tol"]
    facts = {"source": source, **facts_of(model), "message": result.message, "tol": tol}
    facts |= {"features": result.W.shape[0], "targets": result.W.shape[1], "seconds": seconds}
    facts |= {"objective_at_zero": result.objective_at_zero, "model": str(out)}
    facts["engine"] = "local" if engine == "local" else f"spark {master or ''}".strip()
    facts["scores"] = {name: found.by_key() for name, found in scores.items()}
    facts["report"] = None if report is None else str(report)
    if "radii" in given:
        facts |= {"radii": model.radii_, "validation": model.validation_.mean(axis=1)}
    short = result.status != "optimal" and tol is not None
    if short:
        reach = "raise --max-iter, --max-time or --tol, or scale the features."
        output.warn(f"{result.message} The tolerance of {tol:g} was not reached: {reach}")
    if report is not None:
        write_report(report, _report(model, solver, facts, scores))
    output.say(_shown(facts, scores))
    output.finish(facts)
    if short:
        raise Exit(guard.SHORT)


def path(
    data: rows_of.Data,
    target: Target = None,
    features: Features = None,
    weight: Weight = None,
    task: Task = "auto",
    radii: Radii = None,
    folds: Folds = 5,
    tol: Tol = None,
    max_iter: MaxIter = None,
    no_intercept: NoIntercept = False,
    n_jobs: Jobs = None,
    seed: Seed = None,
    out: Annotated[Path | None, Option("--out", "-o", help="The table as JSON.")] = None,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Fit and cross-validate a list of radii, from the smallest to the largest.

    Example: dfwtrace path train.csv --target label --radii 10 --folds 5
    """
    output, given = Output(json, quiet), {"tol": tol, "max_iter": max_iter, "n_jobs": n_jobs}
    given |= {"fit_intercept": not no_intercept, "random_state": seed}
    given = settings_of(None, radii, folds, {}, given)
    check_outputs({"--out": out}, {"the data": data})
    columns: Given = {"target": target, "features": features, "weight": weight}
    with rows_of.training_rows(data, columns) as rows:
        output.say(rows.source)
        kind, y = rows_of.judge(rows.y, task, rows.target_names)
        model = fitted(kind, (rows.X, y, rows.weight), given, output, verbose)
    steps, shown, losses = [], [], model.validation_.mean(axis=1).tolist()
    results = model.path_.results
    for radius, result, loss in zip(model.radii_.tolist(), results, losses, strict=True):
        best = radius == float(model.radius_)
        step = {"radius": radius, "objective": result.objective, "gap": result.gap}
        step |= {"relative_gap": result.relative_gap, "rank": result.W.rank}
        steps.append(step | {"status": result.status, "validation": loss, "best": best})
        row = {"radius": number(radius), "objective": number(result.objective)}
        row |= {"relative gap": f"{result.relative_gap:.1e}", "rank": f"{result.W.rank}"}
        remark = "best" if best else "" if result.status == "optimal" else result.status
        shown.append(row | {"validation loss": number(loss), "": remark})
    short = sum(result.status != "optimal" for result in results)
    if short:
        of, tolerance = f"{short} of {len(steps)} fits", f"the tolerance of {given['tol']:g}"
        output.warn(f"{of} ended short of {tolerance}.")
    facts = {"source": rows.source, "task": task_of(model), "folds": folds, "path": steps}
    facts["best_radius"] = float(model.radius_)
    if out is not None:
        with atomic_write(out) as file:
            file.write(json_format.dumps(plain(facts), indent=1).encode())
    output.say(table(shown))
    if out is not None:
        output.say(f"path  {out}")
    output.finish(facts)
    if short:
        raise Exit(guard.SHORT)


def settings_of(
    radius: float | None, radii: str | None, folds: int, single: Given, given: Given
) -> Given:
    """Return an estimator's parameters, checked; those in `single` are for one radius only."""
    solver, max_time = single.get("solver", "accelerated"), single.get("max_time")
    with suppress(KeyError, TypeError, ValueError):  # else it is the name of a rule, or none
        single["step"] = float(single["step"])
    with guard.refusing():
        resolve(solver, single.get("lmo"), single.get("step"))
        StoppingCriteria(0, given["tol"], max_time)
        if radius is not None:
            check_positive("radius", radius)
    if given["tol"] is None and solver != "dfw":
        given["tol"] = _TOL
    if radius is not None:
        if radii is not None:
            raise CommandError("--radius and --radii exclude each other: one radius, or many.")
        return {"radius": radius, **single, **given}
    alone = {"--max-time": max_time, "--checkpoint": single.get("checkpoint")}
    for option, wrong in {"--solver dfw": solver == "dfw", **alone}.items():
        if wrong:
            raise CommandError(f"{option} needs --radius: it does not go with cross-validation.")
    text, parts = radii or _RADII, (radii or "").split(",")
    try:
        many = [check_positive("radii", float(part)) for part in parts] if len(parts) > 1 else None
        return {"radii": many or check_count("radii", int(text), 1), "cv": folds, **given}
    except ValueError as error:
        what = "--radii must be how many to try, such as 10, or a list such as 1,3,10"
        raise CommandError(f"{what}, got {text!r}.") from error


def fitted(task: str, rows: Any, given: Given, output: Output, verbose: bool, **more: Any) -> Any:
    """Fit an estimator, and show how; return after Ctrl-C too, if there is a model to save."""
    kind, given = "TraceNormClassifier", dict(given)
    if task == "regression":
        kind = "TraceNormRegressor"
        if given.pop("class_weight", None) is not None:
            raise CommandError("--class-weight belongs to classification.")
    about, runs, when = task.capitalize(), 1, "before the first epoch"
    if "radius" in given:
        about += f" with radius {given['radius']:g}."
    else:
        count = given["radii"] if isinstance(given["radii"], int) else len(given["radii"])
        several = "1 radius" if count == 1 else f"{count} radii"
        hint = "; --radius sets one" if given["radii"] == int(_RADII) else ""
        about += f"; cross-validating over {several} in {given['cv']} folds{hint}."
        kind, runs, when = f"{kind}CV", count * (1 + given["cv"]), "during cross-validation"
    estimator = getattr(dfwtrace, kind)(**given)
    try:
        output.say(about, note=True)
        with guard.refusing(), output.watching(verbose, runs):
            estimator.fit(*rows, **more)
        if estimator.status_ == "interrupted" and not estimator.n_iter_:
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        sentence = f"Interrupted {when}: nothing was saved."
        raise CommandError(sentence, guard.INTERRUPTED) from None
    return estimator


def _keep(estimator: Any, wanted: rows_of.Wanted, out: Path) -> None:
    """Write the model before anything else can go wrong; after Ctrl-C, that is all."""
    save_model(estimator, wanted, out)
    guard.saved.set(out)
    if estimator.status_ == "interrupted":
        epochs = counted(estimator.n_iter_, "epoch")
        sentence = f"Interrupted after {epochs}: the best model so far was saved to {out}."
        raise CommandError(sentence, guard.INTERRUPTED)


def _shown(facts: dict[str, Any], scores: dict[str, Scores]) -> str:
    best_of = f", the best of {len(facts['radii'])}" if "radii" in facts else ""
    objective, at_zero = number(facts["objective"]), number(facts["objective_at_zero"])
    shown = [
        ("result", facts["message"]),
        ("radius", number(facts["radius"]) + best_of),
        ("coefficients", f"{facts['features']} × {facts['targets']}, rank {facts['rank']}"),
        ("objective", f"{objective}, {at_zero} at W = 0"),
        ("effort", f"{counted(facts['epochs'], 'epoch')}, {duration(facts['seconds'])} in all"),
    ]
    for name, found in scores.items():
        shown.append((name, ", ".join(f"{score} {value}" for score, value in found.shown())))
    shown.append(("model", f"{facts['model']} ({size(Path(facts['model']).stat().st_size)})"))
    return lines([*shown, ("report", facts["report"])] if facts["report"] else shown)


def _report(model: Any, solver: str, facts: dict[str, Any], scores: dict[str, Scores]) -> Report:
    of = "test" if "test" in scores else "training"
    found, work = scores.get(of, Scores({}, [])), model.result_.plan.workload
    place = f"{facts['engine']}, {counted(work.n_jobs, 'processor')} at most"
    if facts["engine"] == "local":
        threads = min(threads_for(work.stored * work.itemsize, work.n_jobs), work.n_shards)
        place = f"{counted(threads, 'thread')} of this process"
    return Report.of_result(
        model.result_,
        radius=float(model.radius_),
        solver=solver,
        **{name: facts[name] for name in ("task", "tol", "engine", "source")},
        path=model.path_ if "radii" in facts else None,
        where=[("Solver", "this process"), (counted(work.n_shards, "shard"), place)],
        scores={f"{of} {name}": value for name, value in found.values.items()},
        worst=found.worst,
    )
