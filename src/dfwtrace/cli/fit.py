"""``dfwtrace fit``, ``path``, ``plan`` and ``demo``: from rows to a model, and what it costs."""

from __future__ import annotations

import re
import time
import warnings
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from rich.console import Console
from sklearn.exceptions import ConvergenceWarning
from typer import Argument, Option

import dfwtrace as dt
from dfwtrace._typing import Array, Matrix
from dfwtrace.cli import data as rows_of
from dfwtrace.cli import output as ui
from dfwtrace.cli import predict as models
from dfwtrace.cli.data import (
    FORMATS,
    Categorical,
    Data,
    Drop,
    Features,
    Given,
    ImputeBy,
    Keep,
    Target,
    Task,
    Weight,
)
from dfwtrace.cli.output import CommandError, Json, Output, Quiet, Verbose, check_outputs, require
from dfwtrace.cli.predict import by_key, shown_scores
from dfwtrace.data.files import array_name, survey
from dfwtrace.data.shards import default_shards
from dfwtrace.files.atomic import atomic_write
from dfwtrace.report import Report, counted, number, require_report, write_report
from dfwtrace.solvers.early_stopping import EarlyStopping
from dfwtrace.solvers.solver import StoppingCriteria, resolve
from dfwtrace.tasks.planning import Workload, free_memory, size_text
from dfwtrace.validation import check_count, check_positive

Forms = Literal["auto", "gram", "implicit", "dense", "factored"]
Floats = Literal["float32", "float64"] | None
Radius = Annotated[
    str | None,
    Option(metavar="NUMBER|auto", help="Trace norm, or a quick choice; else cross-validation."),
]
Radii = Annotated[str | None, Option(metavar="COUNT|LIST", help="To try: 10 (default), or 1,3,9.")]
Cv = Annotated[int, Option(min=2, help="Folds of the cross-validation.")]
SolverName = Annotated[Literal["accelerated", "dfw"], Option(help="Or dfw, the paper's.")]
Lmo = Annotated[str | None, Option(help="Oracle of dfw, such as power-log.")]
Tol = Annotated[float | None, Option(help="Relative gap to reach. Default: 1e-4, for dfw none.")]
MaxIter = Annotated[int | None, Option(min=1, help="Epochs at most.")]
Early = Annotated[bool, Option("--early-stopping", help="End where rows left out do no better.")]
ValidationFraction = Annotated[float, Option(help="Share of the rows left out for that.")]
NoChange = Annotated[int, Option(min=1, help="Epochs without a better score that end it.")]
NoIntercept = Annotated[bool, Option("--no-intercept", help="No free term.")]
Standardize = Annotated[bool, Option("--standardize", help="Scale the features for the fit.")]
ClassWeight = Annotated[Literal["balanced"] | None, Option(help="Every class counts the same.")]
Shards = Annotated[int | None, Option(min=1, help="Logical shards. Default: 8, or 1 if small.")]
Jobs = Annotated[int | None, Option(help="Threads, or Spark's workers.")]
RandomState = Annotated[int | None, Option(min=0, help="Seed of all random numbers.")]
Representation = Annotated[Forms, Option(help="auto, gram, implicit, dense or factored.")]
Dtype = Annotated[Floats, Option(help="float32 or float64. Default: as in the file.")]

# Warnings for programmers, and the same on the command line.
_FOR_USERS = {
    r"The least populated class in y has only (\d+) members.*n_splits=(\d+)": (
        r"the number of rows of the rarest class, \1, is less than --cv \2"
    ),
    "`y`": "The target",
    "radius='auto'": "--radius auto",
    "^radius": "--radius",
}
_RADII = "10"  # where none are given
_STOPPING = ("max_time", "early_stopping", "validation_fraction", "n_iter_no_change")
_SINGLE = ("solver", "lmo", "step", "checkpoint", *_STOPPING)  # for one radius only
_OF_STEP = ("objective", "gap", "relative_gap", "status")
_SHOWN = ("rank", "objective", "epochs", "seconds")
_SHARDS = 4
_ORACLES = ("power-1", "power-2", "power-log", "naive", "sva", "lanczos")


def fit(
    # Not a path, which would make hdfs:/host of hdfs://host.
    train: Annotated[str, Argument(metavar="TRAIN", help=FORMATS)],
    target: Target = None,
    features: Features = None,
    weight: Weight = None,
    drop: Drop = None,
    keep: Keep = None,
    categorical: Categorical = None,
    impute: ImputeBy = None,
    task: Task = "auto",
    radius: Radius = None,
    radii: Radii = None,
    cv: Cv = 5,
    solver: SolverName = "accelerated",
    lmo: Lmo = None,
    step: Annotated[str | None, Option(help="Of dfw: linesearch, harmonic or a number.")] = None,
    tol: Tol = None,
    max_iter: MaxIter = None,
    max_time: Annotated[float | None, Option(help="Seconds at most.")] = None,
    early_stopping: Early = False,
    validation_fraction: ValidationFraction = 0.1,
    n_iter_no_change: NoChange = 10,
    no_intercept: NoIntercept = False,
    standardize: Standardize = False,
    class_weight: ClassWeight = None,
    engine: Annotated[Literal["local", "spark"], Option(help="local or spark.")] = "local",
    master: Annotated[str | None, Option(help="Such as local[2] or spark://host:7077.")] = None,
    n_shards: Shards = None,
    n_jobs: Jobs = None,
    random_state: RandomState = None,
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
    output, began, local = Output(json, quiet), time.perf_counter(), engine == "local"
    given: Given = {"solver": solver, "lmo": lmo, "step": step, "max_time": max_time}
    given |= {"checkpoint": checkpoint, "tol": tol, "max_iter": max_iter}
    given |= {"early_stopping": early_stopping, "validation_fraction": validation_fraction}
    given |= {"n_iter_no_change": n_iter_no_change}
    given |= {"standardize": standardize}
    given |= {"fit_intercept": not no_intercept, "class_weight": class_weight}
    given |= {"representation": representation, "n_shards": n_shards, "n_jobs": n_jobs}
    given = settings_of(radius, radii, cv, given | {"random_state": random_state})
    require(not (local and master), "--master belongs to --engine spark.")
    require(local or not spill, "--spill belongs to --engine local: Spark keeps its rows itself.")
    if report is not None:
        require_report()
    outputs = {"--out": out, "--report": report, "--checkpoint": checkpoint}
    check_outputs(outputs, {"the data": Path(train), "--test": test})
    require(test is None or test.exists(), f"{test} is not there.")
    prepared: Given = {"drop": drop, "keep": keep, "categorical": categorical, "impute": impute}
    for option in [f"--{name}" for name in prepared if prepared[name] is not None]:
        require(local, f"{option} belongs to --engine local: prepare the columns with Spark.")
    columns: Given = {"target": target, "features": features, "weight": weight}
    learn = partial(fitted, output=output, verbose=verbose)
    learned: Given = {}
    tested: tuple[Matrix, Array] | None = None
    with ExitStack() as stack:
        if local:
            reading = rows_of.training_rows(Path(train), columns | prepared, dtype, spill)
            rows = stack.enter_context(reading)
            source, array = rows.source, array_name(Path(train), features)
            output.say(source)
            output.warn(*rows.warnings)
            names = (rows.feature_names, rows.X.shape[1], target, rows.target_names)
            wanted = rows_of.Wanted(*names, array, rows.first_index, rows.preparation)
            kind, y = rows_of.judge(rows.y, task, rows.target_names)
            learned = {"X": rows.X, "y": y, "sample_weight": rows.weight}
            if test is not None:  # what is wrong with it should be known before the fit
                labels = y[:1] if kind == "classification" else None
                width = y[:1].size
                tested = rows_of.scoring_rows(test, wanted, labels, width, output=output)
            model = learn(kind, (rows.X, y, rows.weight), given)
        else:
            read = rows_of.fit_frame(train, master, columns, dtype, task, given, learn)
            model, wanted, source = read
            output.say(source)
        result, seconds = model.result_, time.perf_counter() - began
        models.save_model(model, wanted, out)  # before anything else can go wrong
        ui.saved.set(out)
        if result.status == "interrupted":
            raise KeyboardInterrupt
        if test is not None and not local:
            kinds = models.kind_of(model)
            tested = rows_of.scoring_rows(test, wanted, *kinds, output=output)
        place, work = "local" if local else f"spark {master or ''}".strip(), result.plan.workload
        ran = f"{place}, {counted(work.n_jobs, 'processor')} at most"
        page = Report.of_estimator(
            model,
            **learned,
            test=tested,
            file=Path(train).name,
            feature_names=wanted.feature_names,
            target_names=wanted.target_names,
            engine=place,
            source=source,
            where=[("Solver", "this process"), (counted(work.n_shards, "shard"), ran)],
        )
    scores, tol = page.evaluations, model.tol
    if test is not None and (warning := scores["test"].warning):
        output.warn(f"{test.name}: {warning}")
    facts = models.facts_of(model, page) | {"seconds": seconds, "model": out, "report": report}
    facts["scores"] = by_key({name: by_key(found.scores) for name, found in scores.items()})
    facts["baseline"] = by_key({name: by_key(found.baseline) for name, found in scores.items()})
    chosen = number(model.radius_)
    if page.path is not None:
        chosen += f", the best of {len(page.path.radii)}"
        facts |= {"radii": page.path.radii, "validation": page.path.validation.mean(axis=1)}
    short = result.status not in ("optimal", "early_stopping") and tol is not None
    if short:
        reach = "raise --max-iter, --max-time or --tol"
        reach += "." if standardize else ", or set --standardize."
        output.warn(f"{result.message} The tolerance of {tol:g} was not reached: {reach}")
    if report is not None:
        write_report(report, replace(page, warnings=output.warnings))
    shown = {"result": result.message, "radius": chosen}
    shown |= {name: facts[name] for name in _SHOWN}
    shown |= {name: shown_scores(found.scores) for name, found in scores.items()}
    if base := scores.get("test", scores.get("training")):
        shown["baseline"] = shown_scores(base.baseline)
    output.say(ui.facts_table(shown | {"model": out, "report": report}))
    output.finish(facts, ui.SHORT if short else ui.DONE)


def path(
    data: Data,
    target: Target = None,
    features: Features = None,
    weight: Weight = None,
    drop: Drop = None,
    keep: Keep = None,
    categorical: Categorical = None,
    impute: ImputeBy = None,
    task: Task = "auto",
    radii: Radii = None,
    cv: Cv = 5,
    tol: Tol = None,
    max_iter: MaxIter = None,
    no_intercept: NoIntercept = False,
    standardize: Standardize = False,
    n_jobs: Jobs = None,
    random_state: RandomState = None,
    out: Annotated[Path | None, Option("--out", "-o", help="The table as JSON.")] = None,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Fit and cross-validate a list of radii, from the smallest to the largest."""
    output, given = Output(json, quiet), dict.fromkeys(_SINGLE) | {"solver": "accelerated"}
    given |= {"tol": tol, "max_iter": max_iter, "n_jobs": n_jobs, "random_state": random_state}
    given |= {"fit_intercept": not no_intercept, "standardize": standardize}
    given = settings_of(None, radii, cv, given)
    check_outputs({"--out": out}, {"the data": data})
    columns: Given = {"target": target, "features": features, "weight": weight}
    columns |= {"drop": drop, "keep": keep, "categorical": categorical, "impute": impute}
    with rows_of.training_rows(data, columns) as rows:
        output.say(rows.source)
        output.warn(*rows.warnings)
        kind, y = rows_of.judge(rows.y, task, rows.target_names)
        model = fitted(
            kind, (rows.X, y, rows.weight), given, output, verbose, hint="", coarse=False
        )
    shown = [["radius", "objective", "relative gap", "rank", "validation loss", ""]]
    steps, losses, short = [], model.validation_.mean(axis=1).tolist(), 0
    for radius, result, loss in zip(model.radii_, model.path_.results, losses, strict=True):
        step = {name: getattr(result, name) for name in _OF_STEP} | {"rank": result.W.rank}
        best, status = bool(radius == model.radius_), result.status
        steps.append({"radius": radius, **step, "validation": loss, "best": best})
        row = [number(radius), number(result.objective), f"{result.relative_gap:.1e}"]
        remark = "best" if best else "" if status == "optimal" else status
        shown.append([*row, f"{result.W.rank}", number(loss), remark])
        short += status != "optimal"
    if short:
        fits = f"{short} of {len(steps)} fits"
        output.warn(f"{fits} ended short of the tolerance of {model.tol:g}.")
    facts = {"source": rows.source, "task": kind, "folds": cv, "path": steps}
    facts["best_radius"] = float(model.radius_)
    output.say(ui.table(shown, left=0))
    if out is not None:
        with atomic_write(out) as file:
            file.write(ui.json_of(facts, indent=1).encode())
        output.say(f"path  {out}")
    output.finish(facts, ui.SHORT if short else ui.DONE)


def settings_of(radius: str | None, radii: str | None, cv: int, given: Given) -> Given:
    """Return an estimator's parameters, checked."""
    solver, max_time, text = given["solver"], given["max_time"], radii or _RADII
    with suppress(TypeError, ValueError):  # else it is the name of a rule, or none
        given["step"] = float(given["step"])
    with ui.refusing():
        resolve(solver, given["lmo"], given["step"])
        StoppingCriteria(1, given["tol"], max_time)
        if given["early_stopping"] is not None:
            EarlyStopping(given["validation_fraction"], given["n_iter_no_change"])
    if given["tol"] is None and solver != "dfw":
        del given["tol"]  # the estimator has a default
    if radius is not None:
        require(radii is None, "--radius and --radii exclude each other: one radius, or many.")
        return {"radius": "auto" if radius == "auto" else _number(radius), **given}
    alone = {"--max-time": max_time, "--checkpoint": given["checkpoint"]}
    alone["--early-stopping"] = given["early_stopping"]
    for option, wrong in {"--solver dfw": solver == "dfw", **alone}.items():
        require(not wrong, f"{option} needs --radius: it does not go with cross-validation.")
    parts = text.split(",")
    try:
        listed = [check_positive("radii", float(part)) for part in parts] if parts[1:] else None
        many = listed or check_count("radii", int(text), 1)
    except ValueError as error:
        what = "--radii must be how many to try, such as 10, or a list such as 1,3,10"
        raise CommandError(f"{what}, got {text!r}.") from error
    return {"radii": many, "cv": cv} | {k: given[k] for k in given if k not in _SINGLE}


def _number(radius: str) -> float:
    try:
        return check_positive("radius", float(radius))
    except ValueError as error:
        what = "--radius must be a finite number above 0, or auto"
        raise CommandError(f"{what}, got {radius}.") from error


def _check_folds(y: Any, task: str, folds: int) -> None:
    """Refuse more folds than there are rows, or rows of the most frequent class."""
    if isinstance(y, np.ndarray):  # else Spark has it
        most, what = len(y), "rows"
        if task == "classification":
            most, what = int(np.unique(y, return_counts=True)[1].max()), "rows of any class"
        instead = "lower it, or choose the radius with --radius auto"
        require(folds <= most, f"--cv {folds} is more than there are {what} ({most}): {instead}.")


def fitted(
    task: str,
    rows: Any,
    given: Given,
    output: Output,
    verbose: bool,
    hint: str = "; --radius sets one",
    coarse: bool = True,
    **more: Any,
) -> Any:
    """Fit an estimator, and show how; return after Ctrl-C too, if there is a model to save."""
    kind, given = "TraceNormClassifier", dict(given)
    if task == "regression":
        kind, weights = "TraceNormRegressor", given.pop("class_weight", None)
        require(weights is None, "--class-weight belongs to classification.")
    what = task.capitalize()
    if task == "classification" and isinstance(rows[1], np.ndarray):
        classes = np.unique(rows[1])
        one = (
            f"the target holds one class only, {str(classes[0])!r}: there is nothing to tell apart"
        )
        require(len(classes) > 1, f"{one}.")
        what += f" into {len(classes):,} classes"
    if "radius" in given:
        radius = given["radius"]
        how = (
            "; the radius is chosen by short fits"
            if radius == "auto"
            else f" with radius {radius:g}"
        )
        output.say(f"{what}{how}.")
    else:
        kind, radii, folds = f"{kind}CV", given["radii"], given["cv"]
        n = radii if isinstance(radii, int) else len(radii)
        _check_folds(rows[1], task, folds)
        output.say(f"{what}; cross-validating over {n} radii in {folds} folds{hint}.")
    show = not output.silent and (verbose or Console(stderr=True).is_terminal)
    estimator = getattr(dt, kind)(**given, verbose=int(show))
    if not coarse:
        estimator._coarse = False
    with ui.refusing(), warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            estimator.fit(*rows, **more)
        except KeyboardInterrupt:
            if "result_" not in vars(estimator):
                raise
    # How a fit ended is in its result, and the other two are for programmers.
    left_out = (ConvergenceWarning, DeprecationWarning, FutureWarning)
    for warning in heard:
        if not issubclass(warning.category, left_out):
            said = " ".join(str(warning.message).split())
            for pattern, words in _FOR_USERS.items():
                said = re.sub(pattern, words, said)
            output.warn(said)
    return estimator.set_params(verbose=0)


def plan(
    data: Data,
    target: Target = None,
    features: Features = None,
    drop: Drop = None,
    keep: Keep = None,
    categorical: Categorical = None,
    impute: ImputeBy = None,
    task: Task = "auto",
    solver: SolverName = "accelerated",
    lmo: Lmo = None,
    max_iter: MaxIter = None,
    n_shards: Shards = None,
    n_jobs: Jobs = None,
    representation: Representation = "auto",
    dtype: Dtype = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Estimate memory and time of a fit, and the representation that it would take."""
    output, free = Output(json, quiet), free_memory()
    with ui.refusing():
        rows_of.require_target(data, target)
        columns: Given = {"drop": drop, "keep": keep, "categorical": categorical}
        found, first = survey(data, target=target, features=features, impute=impute, **columns)
        kind, y = rows_of.judge(first, task, target)
        classes = len(np.unique(y)) if kind == "classification" else 0
        method: Any = dt.Multinomial() if classes else dt.LeastSquares()
        way = resolve(solver, lmo, None, method.log_factor)
        stored, m = found.rows * found.features, max(classes, found.targets, 1)
        if found.sparse:  # a value and a 32-bit column number each, and where each row begins
            stored = max(1, (found.nbytes - 4 * (found.rows + 1)) // (found.dtype.itemsize + 4))
        epochs, itemsize = max_iter or way.default_max_iter, np.dtype(dtype or found.dtype).itemsize
        engine = dt.LocalEngine(n_shards or default_shards(stored * itemsize), n_jobs)
        sizes = (found.rows, found.features, m, stored, found.sparse, itemsize)
        effort = (epochs, *way.effort(epochs))
        workload = Workload(*sizes, *effort, engine.n_shards, engine.n_jobs, way.columns)
        choice = method.plan(workload, representation, free, intercept=True)[1]
    cost, about = choice.costs[choice.representation], "" if found.exact else "about "
    features_bytes = found.nbytes * itemsize / found.dtype.itemsize
    total = features_bytes + cost.memory
    outputs = f"{classes} classes seen" if classes else f"{found.targets} targets"
    shown = {"data": f"{about}{found.rows:,} rows, {found.features:,} features, {outputs}"}
    shown |= {"task": kind, "features": f"{about}{size_text(features_bytes)} in memory"}
    shown["in all"] = f"{about}{size_text(total)}" + (f" of {size_text(free)} free" if free else "")
    output.say(f"{ui.facts_table(shown)}\n\n{choice}")
    if free is not None and total > free:
        output.warn("the data do not fit into the free memory: try --dtype float32 or --spill.")
    facts = found._asdict() | {"task": kind, "classes": classes or None, "epochs": epochs}
    facts |= {"representation": choice.representation, "reason": choice.reason}
    facts |= {"memory": total, "free_memory": free, "seconds": cost.total(epochs)}
    facts["costs"] = {name: asdict(each) for name, each in choice.costs.items()}
    output.finish(facts)


def demo(json: Json = False, quiet: Quiet = False) -> None:
    """Solve a small multinomial problem with every oracle and both solvers."""
    output, radius, runs = Output(json, quiet), 50.0, []
    X, y, _ = dt.datasets.make_multiclass(n=1000, d=30, m=10, rank=5, random_state=0)
    for name in (*_ORACLES, "accelerated"):
        how: Given = {"solver": "dfw", "lmo": name, "max_iter": 20}
        how = how if name in _ORACLES else {"solver": name, "tol": 1e-4}
        how |= {"engine": dt.LocalEngine(n_shards=_SHARDS), "verbose": False}
        began, result = time.perf_counter(), dt.solve(dt.Multinomial(), X, y, radius=radius, **how)
        if result.status == "interrupted":  # Ctrl-C ends the demo, not one of its runs
            raise KeyboardInterrupt
        run: Given = {"solver": name, "epochs": len(result.history), "rank": result.W.rank}
        run["relative_objective"] = result.objective / result.objective_at_zero
        run["relative_gap"] = result.relative_gap
        run |= {key: int(result.history.column(key).sum()) for key in ("rounds", "numbers_sent")}
        runs.append(run | {"seconds": time.perf_counter() - began})
    columns = [key.replace("_", " ") for key in runs[0]]
    rows = [[name, *map(number, facts)] for name, *facts in (run.values() for run in runs)]
    problem = f"Multinomial logistic regression, 1,000 rows, 30 × 10, radius {radius:g}"
    output.say(f"{problem}\n\n{ui.table([columns, *rows])}\n")
    output.say("gap: certified upper bound of how far F is from its optimum; relative: over F(0).")
    output.say(f"rounds, numbers: of the oracle, as if each of {_SHARDS} shards were a worker.")
    output.finish({"studies": [{"problem": problem, "radius": radius, "runs": runs}]})
