"""Rows of files and of Spark: read, and judged to be a classification or a regression."""

from __future__ import annotations

import os
import shlex
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from typer import Argument, Option

from dfwtrace import SparkEngine
from dfwtrace._typing import Array
from dfwtrace.cli.output import CommandError, arm, require, sentence_of
from dfwtrace.data import files
from dfwtrace.data.table import Table, choose, is_classification, whole_as_integers
from dfwtrace.engines.spark.session import find_session

FORMATS = "A .csv, .tsv, .parquet, .arrow, .npz, .npy or .svm file, or a folder of such."
Names = list[str] | None
TaskName = Literal["auto", "classification", "regression"]
Data = Annotated[Path, Argument(metavar="DATA", help=FORMATS)]
Target = Annotated[Names, Option("--target", "-t", metavar="NAME", help="Target column, or 'y*'.")]
Features = Annotated[Names, Option(metavar="NAMES", help="Columns to learn from, else the rest.")]
Weight = Annotated[str | None, Option(metavar="NAME", help="Column of row weights.")]
Task = Annotated[TaskName, Option(help="Chosen by the target unless given.")]

# Spark's own messages are left out; its errors become sentences of ours.
_CALM = "--conf spark.log.level=ERROR --conf spark.ui.showConsoleProgress=false"


class Wanted(NamedTuple):
    """What a model takes from other files: names as in its training file, in its order."""

    feature_names: list[str] | None
    n_features: int
    target: Sequence[str] | None = None  # as --target named it
    target_names: Sequence[str] | None = None
    array: str | None = None  # of an .npz file
    first_index: int | None = None  # of an svmlight file


@contextmanager
def training_rows(
    path: Path, columns: dict[str, Any], dtype: str | None = None, spill: Path | None = None
) -> Iterator[Table]:
    """Read features and targets; what was spilled to a folder is removed after the block."""
    sound = spill is None or (spill.is_dir() and os.access(spill, os.W_OK))
    require(sound, f"--spill: there is no folder {spill} that can be written to.")
    require_target(path, columns["target"])
    # A new folder in that of the user, so that nothing else is removed with it.
    with TemporaryDirectory(dir=spill, prefix="dfwtrace-") if spill else nullcontext() as room:
        table = files.read_table(path, **columns, spill=room)
        X = table.X
        if dtype is not None and X.dtype != dtype:
            if room is None or sp.issparse(X):
                X = X.astype(dtype)
            else:  # numpy converts from map to map without either in memory as a whole
                X = np.lib.format.open_memmap(f"{room}/{dtype}.npy", "w+", dtype, X.shape)
                X[:] = table.X
        yield table._replace(X=X)


def known_rows(
    path: Path, wanted: Wanted, target: Sequence[str] | None = None, targets: bool = True
) -> Table:
    """Read the features of a model and, by default, its targets, both in its order."""
    if targets and files.column_names(path) is not None:
        target = wanted.target if target is None else target
        require_target(path, target)
    elif targets and target is None and wanted.array and files.array_name(path, None):
        # The arrays of the fit; a separate file would hold the targets of other rows. In other
        # cases the target of the fit names a column, which a file without columns has not.
        target = wanted.target
        if target is not None and target[0].endswith(".npy"):
            which = f"which are the targets of {path.name}? Those of the fit are in a separate file"
            raise CommandError(f"{which}, {target[0]!r}.")
    how: dict[str, Any] = {"array": wanted.array, "first_index": wanted.first_index}
    table = files.read_features(path, *wanted[:2], targets=targets, target=target, **how)
    y, names, order = table.y, table.target_names or [], wanted.target_names or []
    missing = targets and y is None
    require(not missing, f"{path.name} has no targets: --target names their file.")
    if y is not None and y.ndim > 1 and names and sorted(names) == sorted(order):
        y = y[:, [names.index(name) for name in order]]
    return table._replace(y=y)


def check_kind(y: Any, file: str, classes: Array | None, width: int) -> None:
    """Refuse targets to score a model on that are not of the kind that it learns."""
    needs = "regression needs numbers"
    if classes is not None:
        needs = f"the labels of the model are numbers such as {classes[0]}"
    if y.dtype.kind not in "biuf" and (classes is None or classes.dtype.kind in "biuf"):
        raise CommandError(f"the target of {file} holds text ({str(y.flat[0])!r}), but {needs}.")
    width, found = 1 if classes is not None else width, 1 if y.ndim == 1 else y.shape[1]
    count = "one target" if width == 1 else f"{width} targets"
    require(found == width, f"the model predicts {count}, but {file} has {found}.")


def judge(y: Array | None, asked: str, names: Sequence[str] | None) -> tuple[str, Array]:
    """Return the task that was asked for, or that targets ask for, and the targets for it."""
    if y is None:
        raise CommandError("--target is missing: the file has no targets of its own.")
    what = f"target {names[0]!r}" if names and len(names) == 1 else "the target"
    found = "classification" if is_classification(y) else "regression"
    task = found if asked == "auto" else asked
    if task == "regression":
        if y.dtype.kind not in "biuf":
            raise CommandError(f"{what} holds text ({str(y[0])!r}): regression needs numbers.")
        return task, y.astype(np.float64) if y.dtype.kind in "biu" else y
    require(y.ndim == 1, f"classification takes one target, got {y.shape[-1]}.")
    labels = whole_as_integers(y)
    if labels.dtype.kind == "f":
        odd = labels[np.argmax(labels != np.rint(labels))]
        raise CommandError(f"{what} holds {odd:g}, which is no label: --task regression?")
    return task, labels


def require_target(path: Path, target: Sequence[str] | None) -> None:
    """Refuse a file with named columns if none of them is named as the target."""
    columns = files.column_names(path) if target is None else None
    if columns is not None:
        names = [repr(name) for name in columns if name]
        some = ", ".join(names if len(names) <= 5 else [*names[:3], "…", names[-1]])
        raise CommandError(f"--target is missing: which column of {path.name} is it, {some}?")


def fit_frame(
    path: str, master: str | None, columns: Any, dtype: str | None, task: str, given: Any, fit: Any
) -> tuple[Any, Wanted, str]:
    """Read a path with Spark and fit it there; return the model, its names, and the source."""
    require(columns["target"], "--target is missing: which column is it?")
    with session(master) as spark:
        frame = _read(spark, path)
        choice = choose(frame.columns, file=path, **columns)
        task = judge_frame(frame, choice.targets, task)
        why = "cross-validation of a classification does not run on Spark"
        require(task == "regression" or "radius" in given, f"--radius is missing: {why}.")
        if dtype is not None:
            frame = _cast(frame, choice.features, "float" if dtype == "float32" else "double")
        # One column by itself may hold arrays or vectors.
        features = choice.features[0] if len(choice.features) == 1 else choice.features
        label = choice.targets[0] if len(choice.targets) == 1 else choice.targets
        workers = given["n_jobs"] if (given["n_jobs"] or 0) > 0 else None
        given = given | {"engine": SparkEngine(spark, given["n_shards"] or 8, workers)}
        estimator = fit(task, (frame, label, choice.weight), given, features=features)
        estimator.engine = "local"  # the session ends here
    (d, m), names = estimator.low_rank_.shape, choice.features
    if len(names) == 1 and d > 1:
        names = [f"{names[0]}[{j}]" for j in range(d)]
    targets = choice.targets if len(choice.targets) in (1, m) else None
    source = f"{path}: {estimator.result_.plan.workload.n} rows, {d} features, read by Spark"
    return estimator, Wanted(names, d, columns["target"], targets), source


@contextmanager
def session(master: str | None) -> Iterator[Any]:
    """Start a session on this master, stopped afterwards; without one, as Spark's settings say."""
    local = master is not None and master.startswith("local")
    if master is None or local:
        # Workers on this machine are this Python, with its packages, and not the first on the path.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    words = [] if master is None else ["--master", shlex.quote(master)]
    if local:
        words.append("--conf spark.sql.shuffle.partitions=8")  # 200 is for clusters
    if master is not None or "PYSPARK_SUBMIT_ARGS" not in os.environ:
        submit = " ".join([*words, _CALM, "--name dfwtrace pyspark-shell"])
        os.environ["PYSPARK_SUBMIT_ARGS"] = submit
    try:
        spark = find_session(None)
    except (ImportError, RuntimeError):
        raise
    except Exception as error:
        where = "" if master is None else f" on {master}"
        raise CommandError(f"Spark does not start{where}: {sentence_of(error)}", 1) from error
    if threading.current_thread() is threading.main_thread():
        arm()  # Spark has put its own handler of Ctrl-C there
    try:
        yield spark
    finally:
        spark.stop()


def _read(spark: Any, path: str) -> Any:
    """Read CSV by its name, Parquet otherwise."""
    from pyspark.errors import AnalysisException

    try:
        if path.lower().endswith((".csv", ".csv.gz")):
            return spark.read.csv(path, header=True, inferSchema=True)
        return spark.read.parquet(path)
    except AnalysisException as error:
        reason = sentence_of(error).split(" SQLSTATE")[0].rstrip(".")
        raise CommandError(f"Spark cannot read {path}: {reason}.") from error


def judge_frame(frame: Any, targets: list[str], asked: str) -> str:
    """Return the task of a target column; by the rule for files, see `is_classification`."""
    kind = frame.schema[targets[0]].dataType.simpleString()
    several = len(targets) > 1 or kind.startswith("array") or kind == "vector"
    wrong = asked == "classification" and several
    require(not wrong, "classification takes one target, got several.")
    wrong = asked == "regression" and kind == "string"
    require(not wrong, f"target {targets[0]!r} holds text: regression needs numbers.")
    if asked != "auto":
        return asked
    if several or kind in ("string", "boolean"):
        return "regression" if several else "classification"
    from pyspark.sql import functions as sql

    y = frame[f"`{targets[0]}`"]
    counts = frame.agg(sql.count(y), sql.count_distinct(y), sql.max(y != sql.rint(y)))
    n, distinct, broken = counts.first()
    labels = not broken and distinct <= min(n / 2, max(20, n / 4))
    return "classification" if labels else "regression"


def _cast(frame: Any, features: list[str], number: str) -> Any:
    for name in features:
        kind = frame.schema[name].dataType.simpleString()
        require(kind != "vector", f"--dtype does not go with the vectors of column {name!r}.")
        wanted = f"array<{number}>" if kind.startswith("array") else number
        frame = frame.withColumn(name, frame[f"`{name}`"].cast(wanted))
    return frame
