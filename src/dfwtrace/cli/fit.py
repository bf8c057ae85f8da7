"""``dfwtrace fit`` and ``dfwtrace path``: from a file of rows to a model, or to many radii."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from itertools import count, repeat
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.console import Console
from typer import Argument, Exit, Option

import dfwtrace
from dfwtrace.cli import data as rows_of
from dfwtrace.cli import guard
from dfwtrace.cli.data import Features, Target, Task, Weight
from dfwtrace.cli.guard import CommandError, check_outputs, require
from dfwtrace.cli.output import Json, Output, Quiet, Verbose, facts_table, json_of, table
from dfwtrace.cli.predict import Scores, by_key, facts_of, save_model, score, shown_scores, task_of
from dfwtrace.data.files import array_name
from dfwtrace.engines.local import threads_for
from dfwtrace.files.atomic import atomic_write
from dfwtrace.report import Report, counted, number, require_report, write_report
from dfwtrace.solvers import StoppingCriteria, resolve
from dfwtrace.solvers.progress import titles
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
_SINGLE = ("solver", "lmo", "step", "max_time", "checkpoint")  # for one radius only
_SHOWN = ("rank", "objective", "epochs", "seconds")


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
    """Learn a low-rank classifier or regressor."""
    output, began, scores = Output(json, quiet), time.perf_counter(), {}
    given: Given = {"solver": solver, "lmo": lmo, "step": step, "max_time": max_time}
    given |= {"checkpoint": checkpoint, "tol": tol, "max_iter": max_iter, "random_state": seed}
    given |= {"fit_intercept": not no_intercept, "class_weight": class_weight}
    given |= {"representation": representation, "n_shards": n_shards, "n_jobs": n_jobs}
    given = settings_of(radius, radii, folds, given)
    local = engine == "local"
    require(not (local and master), "--master belongs to --engine spark.")
    require(local or not spill, "--spill belongs to --engine local: Spark keeps its rows itself.")
    if report is not None:
        require_report()
    outputs = {"--out": out, "--report": report, "--checkpoint": checkpoint}
    check_outputs(outputs, {"the data": Path(train), "--test": test})
    require(test is None or test.exists(), f"{test} is not there.")
    columns: Given = {"target": target, "features": features, "weight": weight}
    learn, held_out = partial(fitted, output=output, verbose=verbose), None
    if not local:
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
    facts["engine"] = "local" if local else f"spark {master or ''}".strip()
    facts["scores"] = {name: by_key(found.values) for name, found in scores.items()}
    facts["report"] = None if report is None else str(report)
    best_of = ""
    if "radii" in given:
        facts |= {"radii": model.radii_, "validation": model.validation_.mean(axis=1)}
        best_of = f", the best of {len(model.radii_)}"
    short = result.status != "optimal" and tol is not None
    if short:
        reach = "raise --max-iter, --max-time or --tol, or scale the features."
        output.warn(f"{result.message} The tolerance of {tol:g} was not reached: {reach}")
    if report is not None:
        write_report(report, _report(model, solver, facts, scores))
    shown = {"result": result.message, "radius": number(facts["radius"]) + best_of}
    shown |= {name: facts[name] for name in _SHOWN}
    shown |= {name: shown_scores(found.values) for name, found in scores.items()}
    output.say(facts_table(shown | {"model": out, "report": report}))
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
    """Fit and cross-validate a list of radii, from the smallest to the largest."""
    output, given = Output(json, quiet), dict.fromkeys(_SINGLE) | {"solver": "accelerated"}
    given |= {"tol": tol, "max_iter": max_iter, "n_jobs": n_jobs, "random_state": seed}
    given = settings_of(None, radii, folds, given | {"fit_intercept": not no_intercept})
    check_outputs({"--out": out}, {"the data": data})
    columns: Given = {"target": target, "features": features, "weight": weight}
    with rows_of.training_rows(data, columns) as rows:
        output.say(rows.source)
        kind, y = rows_of.judge(rows.y, task, rows.target_names)
        model = fitted(kind, (rows.X, y, rows.weight), given, output, verbose)
    shown = [["radius", "objective", "relative gap", "rank", "validation loss", ""]]
    steps, losses = [], model.validation_.mean(axis=1).tolist()
    for radius, result, loss in zip(model.radii_, model.path_.results, losses, strict=True):
        best, status = radius == model.radius_, result.status
        step = {"radius": radius, "objective": result.objective, "gap": result.gap}
        step |= {"relative_gap": result.relative_gap, "rank": result.W.rank}
        steps.append(step | {"status": status, "validation": loss, "best": bool(best)})
        row = [number(radius), number(result.objective), f"{result.relative_gap:.1e}"]
        remark = "best" if best else "" if status == "optimal" else status
        shown.append([*row, f"{result.W.rank}", number(loss), remark])
    short = sum(step["status"] != "optimal" for step in steps)
    if short:
        of, tolerance = f"{short} of {len(steps)} fits", f"the tolerance of {given['tol']:g}"
        output.warn(f"{of} ended short of {tolerance}.")
    facts = {"source": rows.source, "task": task_of(model), "folds": folds, "path": steps}
    facts["best_radius"] = float(model.radius_)
    output.say(table(shown, left=0))
    if out is not None:
        with atomic_write(out) as file:
            file.write(json_of(facts, indent=1).encode())
        output.say(f"path  {out}")
    output.finish(facts)
    if short:
        raise Exit(guard.SHORT)


def settings_of(radius: float | None, radii: str | None, folds: int, given: Given) -> Given:
    """Return an estimator's parameters, checked."""
    solver, max_time, text = given["solver"], given["max_time"], radii or _RADII
    with suppress(TypeError, ValueError):  # else it is the name of a rule, or none
        given["step"] = float(given["step"])
    with guard.refusing():
        resolve(solver, given["lmo"], given["step"])
        StoppingCriteria(0, given["tol"], max_time)
        if radius is not None:
            check_positive("radius", radius)
    if given["tol"] is None and solver != "dfw":
        given["tol"] = _TOL
    if radius is not None:
        require(radii is None, "--radius and --radii exclude each other: one radius, or many.")
        return {"radius": radius, **given}
    alone = {"--max-time": max_time, "--checkpoint": given["checkpoint"]}
    for option, wrong in {"--solver dfw": solver == "dfw", **alone}.items():
        require(not wrong, f"{option} needs --radius: it does not go with cross-validation.")
    many: list[float] | int
    try:
        if "," in text:
            many = [check_positive("radii", float(part)) for part in text.split(",")]
        else:
            many = check_count("radii", int(text), 1)
    except ValueError as error:
        what = "--radii must be how many to try, such as 10, or a list such as 1,3,10"
        raise CommandError(f"{what}, got {text!r}.") from error
    return {"radii": many, "cv": folds} | {k: given[k] for k in given if k not in _SINGLE}


def fitted(task: str, rows: Any, given: Given, output: Output, verbose: bool, **more: Any) -> Any:
    """Fit an estimator, and show how; return after Ctrl-C too, if there is a model to save."""
    kind, given, when = "TraceNormClassifier", dict(given), "before the first epoch"
    if task == "regression":
        kind, weights = "TraceNormRegressor", given.pop("class_weight", None)
        require(weights is None, "--class-weight belongs to classification.")
    if "radius" in given:
        about = f"{task.capitalize()} with radius {given['radius']:g}."
        titles.set(repeat("dfwtrace"))
    else:
        n = given["radii"] if isinstance(given["radii"], int) else len(given["radii"])
        hint = "; --radius sets one" if given["radii"] == int(_RADII) else ""
        over = f"{'1 radius' if n == 1 else f'{n} radii'} in {given['cv']} folds{hint}"
        about = f"{task.capitalize()}; cross-validating over {over}."
        kind, runs, when = f"{kind}CV", n * (1 + given["cv"]), "during cross-validation"
        titles.set(f"run {k} of {runs}" for k in count(1))
    show = not output.silent and (verbose or Console(stderr=True).is_terminal)
    estimator = getattr(dfwtrace, kind)(**given, verbose=int(show))
    try:
        output.say(about, note=True)
        with guard.refusing(), output.relaying_warnings():
            estimator.fit(*rows, **more)
        if estimator.status_ == "interrupted" and not estimator.n_iter_:
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        sentence = f"Interrupted {when}: nothing was saved."
        raise CommandError(sentence, guard.INTERRUPTED) from None
    return estimator.set_params(verbose=0)


def _keep(estimator: Any, wanted: rows_of.Wanted, out: Path) -> None:
    """Write the model before anything else can go wrong; after Ctrl-C, that is all."""
    save_model(estimator, wanted, out)
    guard.saved.set(out)
    epochs = counted(estimator.n_iter_, "epoch")
    sentence = f"Interrupted after {epochs}: the best model so far was saved to {out}."
    require(estimator.status_ != "interrupted", sentence, guard.INTERRUPTED)


def _report(model: Any, solver: str, facts: dict[str, Any], scores: dict[str, Scores]) -> Report:
    of = "test" if "test" in scores else "training"
    found, work = scores.get(of, Scores({}, [])), model.result_.plan.workload
    place = f"{facts['engine']}, {counted(work.n_jobs, 'processor')} at most"
    if facts["engine"] == "local":
        threads = min(threads_for(work.stored * work.itemsize, work.n_jobs), work.n_shards)
        place = f"{counted(threads, 'thread')} of this process"
    return Report(
        model.result_,
        radius=float(model.radius_),
        solver=solver,
        **{name: facts[name] for name in ("task", "tol", "engine", "source")},
        path=model.path_ if "radii" in facts else None,
        where=[("Solver", "this process"), (counted(work.n_shards, "shard"), place)],
        scores={f"{of} {name}": value for name, value in found.values.items()},
        worst=found.worst,
    )
