"""``dfwtrace predict``, ``evaluate`` and ``inspect``: model files, and their use on rows."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TextIO, TypeVar

import numpy as np
from typer import Argument, Option

from dfwtrace import ModelFormatError, Result
from dfwtrace._typing import Array, Matrix
from dfwtrace.cli import output as ui
from dfwtrace.cli.data import Data, Estimator, Given, Target, Wanted, scoring_rows
from dfwtrace.cli.output import Json, Output, Quiet, require
from dfwtrace.data.files import read_features
from dfwtrace.data.preparation import Preparation
from dfwtrace.data.table import Table
from dfwtrace.estimators.saving import load, save
from dfwtrace.evaluation import evaluate as score
from dfwtrace.evaluation import shown
from dfwtrace.files.atomic import atomic_write
from dfwtrace.files.checkpoint import checkpoint_errors, read_checkpoint
from dfwtrace.files.container import peek, read_container
from dfwtrace.report import Report, TaskName

T = TypeVar("T")
Model = Annotated[Path, Argument(metavar="MODEL", help="A file that `dfwtrace fit` wrote.")]

_WORST = 50  # classes or targets for programs, at most
_OF_RESULT = ("status", "message", "objective", "objective_at_zero", "gap", "relative_gap")
_FORMATS = (".csv", ".npy", ".parquet")
# What makes a spreadsheet take a cell for a formula, also in full width.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def predict(
    model: Model,
    data: Data,
    out: Annotated[Path | None, Option("--out", "-o", help="A .csv, .npy or .parquet.")] = None,
    proba: Annotated[bool, Option("--proba", help="A probability for each class.")] = False,
    top: Annotated[int | None, Option(min=1, help="The n most probable classes.")] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Predict classes, probabilities or targets; without --out, CSV is printed."""
    suffix = ".csv" if out is None else out.suffix.lower()
    require(out or not json, "--json needs --out: predictions would be mixed up with it.")
    require(suffix in _FORMATS, f"--out must end in .csv, .npy or .parquet, got {out}.")
    require(not (top and suffix == ".npy"), "--top needs --out to end in .csv or .parquet.")
    require(not (top and proba), "--proba and --top exclude each other: --top has probabilities.")
    ui.check_outputs({"--out": out}, {"the model": model, "the data": data})
    estimator, wanted = load_model(model)
    sound = task_of(estimator) == "classification" or not (proba or top)
    option, kind = "--proba" if proba else "--top", type(estimator).__name__
    require(sound, f"{option} needs a classifier, but {model} holds a {kind}.")
    output, table = Output(json, quiet), read_features(data, **wanted.for_reading())
    output.warn(*table.warnings)
    with ui.refusing():
        columns = _predictions(estimator, wanted, table.X, proba, top)
    kept = _kept(wanted, table, columns, data.name, output)
    if suffix != ".npy":
        columns = kept | columns
    elif kept:
        output.warn(f"{out} has no kept columns: they go into .csv and .parquet files.")
    if out is None:
        _write_csv(columns, sys.stdout)
        return
    with atomic_write(out) as file:
        if suffix == ".csv":
            with io.TextIOWrapper(file, "utf-8", newline="") as text:
                _write_csv(columns, text)
        elif suffix == ".npy":
            stacked = np.column_stack(list(columns.values()))
            array = stacked.astype(str) if stacked.dtype.kind == "O" else stacked
            np.save(file, array if len(columns) > 1 else array[:, 0], allow_pickle=False)
        else:
            import pyarrow.parquet  # only here: it takes time

            pyarrow.parquet.write_table(pyarrow.table(columns), file)
    output.say(f"{table.source.split(',')[0]} → {out}")
    output.finish({"rows": table.X.shape[0], "predictions": str(out), "columns": list(columns)})


def evaluate(
    model: Model, data: Data, target: Target = None, json: Json = False, quiet: Quiet = False
) -> None:
    """Score a model beside a baseline: accuracy and log loss, or R² and RMSE."""
    output, (estimator, wanted) = Output(json, quiet), load_model(model)
    X, y = scoring_rows(data, wanted, *kind_of(estimator), target, output=output)
    with ui.refusing():
        found = score(estimator, X, y, target_names=wanted.target_names)
    output.warn(found.warning)
    task, worst = task_of(estimator), found.parts[:_WORST]
    error, unit = ("RMSE {:.4g}", 1.0) if task == "regression" else ("{:.3g} % wrong", 100.0)
    listed = [f"{w.name} ({error.format(unit * w.error)})" for w in worst[:3] if w.error]
    base = shown_scores(found.baseline)
    values = {k: f"{v} (baseline {base[k]})" for k, v in shown_scores(found.scores).items()}
    said = {"rows": f"{len(y):,}", **values, "worst": listed if len(worst) > 1 else None}
    output.say(ui.facts_table(said))
    scores = {"scores": by_key(found.scores), "baseline": by_key(found.baseline)}
    parts = [{k: v for k, v in part._asdict().items() if v == v} for part in worst]
    output.finish({"rows": len(y), "task": task, **scores, "worst": parts})


def inspect(
    file: Annotated[Path, Argument(metavar="FILE", help="A model, result or checkpoint.")],
    json: Json = False,
) -> None:
    """Print what is in a model, result or checkpoint file."""
    kind, output, readable = peek(file), Output(json), dict[str, str]()
    if kind == "checkpoint":
        found, memory = read_checkpoint(file)
        found.pop("rows of the shards", None)
        with checkpoint_errors(file):
            last = memory["history"][-1]
            found |= {"epochs": int(last["epoch"]), "rank": int(memory["W"].rank)}
            found |= {"objective": float(last["objective"]), "gap": float(last["gap"])}
            found["seconds"] = float(memory["seconds"])
    elif kind == "result":
        result = Result.load(file)
        found = {"shape": list(result.W.shape), "rank": result.W.rank}
        found |= {"trace_norm": float(result.W.s.sum()), "epochs": len(result.history)}
        found |= {name: getattr(result, name) for name in _OF_RESULT}
    else:
        estimator, wanted = load_model(file)
        W, usual = estimator.low_rank_, type(estimator)().get_params(deep=False)
        given, classes = estimator.get_params(deep=False), kind_of(estimator)[0]
        with ui.refusing():  # a history may hold anything
            found = facts_of(estimator, Report.of_estimator(estimator, solver=""))
        # The norm that the radius bounds, also where the features were standardised.
        found |= {"shape": list(W.shape), "trace_norm": float(W.s.sum()), **wanted._asdict()}
        found["settings"] = {name: given[name] for name in given if given[name] != usual[name]}
        found["classes"] = None if classes is None else classes.tolist()
        del found["n_features"]
        if wanted.preparation is not None:
            found["preparation"] = wanted.preparation.to_plain() if json else None
            readable = wanted.preparation.summary()
    # What the disk says comes first, and cannot be replaced by what the file says of itself.
    facts = {"file": str(file), "kind": kind, "bytes": file.stat().st_size}
    facts |= {name: value for name, value in found.items() if name not in facts}
    output.say(ui.facts_table(facts | readable))
    output.finish(facts)


def task_of(estimator: Estimator) -> TaskName:
    """Return what an estimator is for."""
    return "classification" if "classes_" in vars(estimator) else "regression"


def facts_of(estimator: Estimator, report: Report) -> Given:
    """Return what fit and inspect say about a model, for programs."""
    facts: Given = {"estimator": type(estimator).__name__, "task": report.task}
    for part in (report.data, report.settings, report.outcome):
        facts |= {name: fact for name, fact in part._asdict().items() if fact != ""}
    return facts


def save_model(estimator: Estimator, wanted: Wanted, path: Path) -> None:
    """Write a model that `load_model` and `dfwtrace.load` read."""
    names, estimator.n_features_in_, *notes = wanted
    if names is not None:
        estimator.feature_names_in_ = np.array(names, dtype=object)
    named: Given = dict(zip(Wanted._fields[2:], notes, strict=True))
    named["preparation"] = wanted.preparation and wanted.preparation.to_plain()
    save(estimator, path, named)
    estimator.__dict__.pop("feature_names_in_", None)  # rows come in its order, without names


def load_model(path: Path) -> tuple[Estimator, Wanted]:
    """Read a model, without its feature names, and what it takes from files."""
    estimator, notes = load(path), read_container(path, "model").header.get("notes") or {}
    names, (d, m) = vars(estimator).pop("feature_names_in_", None), estimator.low_rank_.shape
    kinds = {"target": list, "target_names": list, "array": str, "first_index": int}
    of_file: Given = {name: notes.get(name) for name in kinds} if isinstance(notes, dict) else {}
    if not all(isinstance(of_file.get(name, ...), kind | None) for name, kind in kinds.items()):
        raise ModelFormatError(f"{path} is not a whole model: its notes are of other types.")
    try:
        plain = notes.get("preparation")
        of_file["preparation"] = None if plain is None else Preparation.from_plain(plain)
    except ValueError as error:
        raise ModelFormatError(f"{path} is not a whole model: {error}") from error
    if task_of(estimator) == "regression" and len(of_file["target_names"] or []) != m:
        of_file["target_names"] = None  # one column may hold several targets
    return estimator, Wanted(None if names is None else names.tolist(), d, **of_file)


def shown_scores(values: Mapping[str, float]) -> dict[str, str]:
    """Return scores for people, shares as percentages."""
    return {name: shown(name, value) for name, value in values.items()}


def by_key(values: Mapping[str, T]) -> dict[str, T]:
    """Return scores under names for programs."""
    keys = str.maketrans({"²": "2", "-": "_", " ": "_"})
    return {name.translate(keys).lower(): value for name, value in values.items()}


def kind_of(estimator: Estimator) -> tuple[Array | None, int]:
    """Return the classes of an estimator, if it has any, and the number of columns of W."""
    return vars(estimator).get("classes_"), estimator.low_rank_.shape[1]


def _predictions(
    estimator: Estimator, wanted: Wanted, X: Matrix, proba: bool, top: int | None
) -> dict[str, Array]:
    """Return predictions by the names of their columns."""
    if task_of(estimator) == "regression":
        width = estimator.low_rank_.shape[1]
        numbered = ["prediction"] if width == 1 else [f"prediction_{j}" for j in range(width)]
        values = estimator.predict(X).reshape(-1, width)
        return dict(zip(wanted.target_names or numbered, values.T, strict=True))
    classes = estimator.classes_
    if proba:
        return {f"p_{c}": p for c, p in zip(classes, estimator.predict_proba(X).T, strict=True)}
    if top is None:
        return {"prediction": estimator.predict(X)}
    columns, shares = dict[str, Array](), estimator.predict_proba(X)
    for j, best in enumerate(np.argsort(-shares, axis=1, kind="stable")[:, :top].T, 1):
        columns |= {f"class_{j}": classes[best]}
        columns |= {f"probability_{j}": shares[np.arange(len(best)), best]}
    return columns


def _kept(
    wanted: Wanted, table: Table, columns: dict[str, Array], file: str, output: Output
) -> dict[str, Any]:
    """Return the columns to carry along; say which ones there are not."""
    kept, asked = table.kept or {}, wanted.preparation.keep if wanted.preparation else []
    if absent := [name for name in asked if name not in kept]:
        names = ", ".join(map(repr, absent))
        output.warn(f"{file} has no column {names} to keep: the predictions go without.")
    if taken := [name for name in kept if name in columns]:
        names = ", ".join(map(repr, taken))
        output.warn(f"the column {names} of {file} is not kept: predictions have that name.")
    return {name: column for name, column in kept.items() if name not in columns}


def _write_csv(columns: dict[str, Any], text: TextIO) -> None:
    from dfwtrace.data.arrow import as_cells  # only here: it takes time

    def cell(value: object) -> object:
        """Quote text that a spreadsheet would run, and spell out what a terminal would obey."""
        if not isinstance(value, str):
            return value
        if value.startswith(_FORMULA):
            try:
                float(value)  # a number such as -1 is harmless
            except ValueError:
                value = f"'{value}"
        return ui.visible(value) if text.isatty() else value

    def cells(column: Any) -> Iterator[object]:
        return map(cell, column if isinstance(column, np.ndarray) else as_cells(column))

    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(cell, columns))
    writer.writerows(zip(*map(cells, columns.values()), strict=True))
