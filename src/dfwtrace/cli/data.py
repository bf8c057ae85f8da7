"""Rows of files and of Spark: read, and judged to be a classification or a regression."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from typer import Argument, Option

from dfwtrace import SparkEngine
from dfwtrace._typing import Array, Matrix
from dfwtrace.cli.output import CommandError, Output, arm, require, sentence_of
from dfwtrace.data import files
from dfwtrace.data.preparation import Impute, Preparation
from dfwtrace.data.table import FIRST_ROWS, Table, choose, is_classification, whole_as_integers
from dfwtrace.engines.spark.session import find_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = "A .csv, .tsv, .parquet, .arrow, .npz, .npy or .svm file, or a folder of such."
Estimator: TypeAlias = Any  # one of the four that `load` reads, fitted
Fit = Callable[..., Estimator]
Given = dict[str, Any]
Names = list[str] | None
TaskName = Literal["auto", "classification", "regression"]
Data = Annotated[Path, Argument(metavar="DATA", help=FORMATS)]
Target = Annotated[Names, Option("--target", "-t", metavar="NAME", help="Target column, or 'y*'.")]
Features = Annotated[Names, Option(metavar="NAMES", help="Columns to learn from, else the rest.")]
Weight = Annotated[str | None, Option(metavar="NAME", help="Column of row weights.")]
Drop = Annotated[Names, Option(metavar="NAMES", help="Columns to leave out.")]
Keep = Annotated[Names, Option(metavar="NAMES", help="No features, but carried into predictions.")]
Categorical = Annotated[Names, Option(metavar="NAMES", help="Columns to one-hot encode.")]
ImputeBy = Annotated[Impute | None, Option(help="What stands for missing numbers.")]
Task = Annotated[TaskName, Option(help="classification, regression, or by the target.")]

# With more distinct whole numbers than this, a target may be labels as well as measurements.
_CLEARLY_LABELS = 20
# Spark's own messages are left out; its errors become sentences of ours.
_CALM = "--conf spark.log.level=ERROR --conf spark.ui.showConsoleProgress=false"


class Wanted(NamedTuple):
    """What a model takes from other files: names as in its training file, in its order."""

    feature_names: list[str] | None
    n_features: int
    target: Names = None  # as --target named it
    target_names: Names = None
    array: str | None = None  # of an .npz file
    first_index: int | None = None  # of an svmlight file
    preparation: Preparation | None = None  # of its columns, if any

    def for_reading(self) -> Given:
        """Return the arguments of `read_features`."""
        names = ("n_features", "array", "first_index", "preparation")
        return {"names": self.feature_names} | {name: getattr(self, name) for name in names}


@contextmanager
def training_rows(
    path: Path, columns: Given, dtype: str | None = None, spill: Path | None = None
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


def scoring_rows(
    path: Path,
    wanted: Wanted,
    classes: Array | None,
    width: int,
    target: Names = None,
    *,
    output: Output,
) -> tuple[Matrix, Array]:
    """Read features and targets in the order of a model; refuse targets of another kind."""
    if files.column_names(path) is not None:
        target = wanted.target if target is None else target
        require_target(path, target)
    elif target is None and wanted.array and files.array_name(path, None):
        # The arrays of the fit; a separate file would hold the targets of other rows. In other
        # cases the target of the fit names a column, which a file without columns has not.
        target = wanted.target
        apart = target is not None and target[0].endswith(".npy")
        require(not apart, f"--target is missing: that of the fit is in another file, {target}.")
    table = files.read_features(path, targets=True, target=target, **wanted.for_reading())
    output.warn(*table.warnings)
    y, names, order = table.y, table.target_names or [], wanted.target_names or []
    if y is None:
        raise CommandError(f"{path.name} has no targets: --target names their file.")
    if y.ndim > 1 and names and sorted(names) == sorted(order):
        y = y[:, [names.index(name) for name in order]]
    if y.dtype.kind not in "biuf" and (classes is None or classes.dtype.kind in "biuf"):
        found = f"holds text ({str(y.flat[0])!r}), but the model needs numbers"
        raise CommandError(f"the target of {path.name} {found}.")
    width, seen = 1 if classes is not None else width, 1 if y.ndim == 1 else y.shape[1]
    count = "one target" if width == 1 else f"{width} targets"
    require(seen == width, f"the model predicts {count}, but {path.name} has {seen}.")
    return table.X, y


def judge(y: Array | None, asked: str, names: Names) -> tuple[str, Array]:
    """Return the task that was asked for, or that targets ask for, and the targets for it."""
    if y is None:
        raise CommandError("--target is missing: the file has no targets of its own.")
    what = f"target {names[0]!r}" if names and len(names) == 1 else "the target"
    if asked == "auto" and y.ndim == 1 and whole_as_integers(y).dtype.kind in "iu":
        many = np.unique(y).size
        held = f"{what} holds {many} distinct whole numbers"
        ways = "--task classification or --task regression"
        require(many <= _CLEARLY_LABELS, f"{held}: say {ways}.")
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


def require_target(path: Path, target: Names) -> None:
    """Refuse a file with named columns if none of them is named as the target."""
    columns = files.column_names(path) if target is None else None
    if columns is not None:
        some = ", ".join(map(repr, filter(None, columns[:8])))
        raise CommandError(f"--target is missing: which column of {path.name} is it, {some}?")


def fit_frame(
    path: str, url: str | None, columns: Given, dtype: str | None, task: str, how: Given, fit: Fit
) -> tuple[Estimator, Wanted, str]:
    """Read a path with Spark and fit it there; return the model, its names, and the source."""
    require(columns["target"], "--target is missing: which column is it?")
    with session(url) as spark:
        frame = _read(spark, path)
        choice = choose(frame.columns, file=path, **columns)
        rows = frame.select([frame[f"`{name}`"] for name in choice.targets]).limit(FIRST_ROWS)
        y = np.array([row[0] if len(row) == 1 else list(row) for row in rows.collect()])
        if y.dtype.kind == "O":  # decimals, and numbers of which some are missing
            with suppress(TypeError, ValueError):
                y = y.astype(np.float64)
        task = judge(y, task, choice.targets)[0]
        for name in [] if dtype is None else choice.features:
            kind = "float" if dtype == "float32" else "double"
            held = frame.schema[name].dataType.simpleString()
            require(held != "vector", f"--dtype does not go with the vectors of column {name!r}.")
            cast = frame[f"`{name}`"].cast(f"array<{kind}>" if held.startswith("array") else kind)
            frame = frame.withColumn(name, cast)
        # One column by itself may hold arrays or vectors.
        features = choice.features[0] if len(choice.features) == 1 else choice.features
        label = choice.targets[0] if len(choice.targets) == 1 else choice.targets
        workers = how["n_jobs"] if (how["n_jobs"] or 0) > 0 else None
        how = how | {"engine": SparkEngine(spark, how["n_shards"] or 8, workers)}
        estimator = fit(task, (frame, label, choice.weight), how, features=features)
        estimator.engine = "local"  # the session ends here
    (d, m), names = estimator.low_rank_.shape, choice.features
    if len(names) == 1 and d > 1:
        names = [f"{names[0]}[{j}]" for j in range(d)]
    targets = choice.targets if task == "classification" or len(choice.targets) == m else None
    source = f"{path}: {estimator.result_.plan.workload.n} rows, {d} features, read by Spark"
    return estimator, Wanted(names, d, columns["target"], targets), source


@contextmanager
def session(master: str | None) -> Iterator[SparkSession]:
    """Start a session on this master, stopped afterwards; without one, as Spark's settings say."""
    if master is None or master.startswith("local"):
        # Workers on this machine are this Python, with its packages, and not the first on the path.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master is not None or "PYSPARK_SUBMIT_ARGS" not in os.environ:
        where = "" if master is None else f"--master {shlex.quote(master)} "
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"{where}{_CALM} --name dfwtrace pyspark-shell"
    try:
        spark = find_session(None)
    except (ImportError, RuntimeError):
        raise
    except Exception as error:
        where = "" if master is None else f" on {master}"
        raise CommandError(f"Spark does not start{where}: {sentence_of(error)}", 1) from error
    arm()  # Spark has put its own handler of Ctrl-C there
    try:
        yield spark
    finally:
        spark.stop()


def _read(spark: SparkSession, path: str) -> DataFrame:
    """Read CSV by its name, Parquet otherwise."""
    from pyspark.errors import AnalysisException

    try:
        if path.lower().endswith((".csv", ".csv.gz")):
            return spark.read.csv(path, header=True, inferSchema=True)
        return spark.read.parquet(path)
    except AnalysisException as error:
        reason = sentence_of(error).split(" SQLSTATE")[0].rstrip(".")
        raise CommandError(f"Spark cannot read {path}: {reason}.") from error
