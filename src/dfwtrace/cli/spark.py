"""Fits on Spark: a session, a DataFrame from a path, and the same model out of it."""

from __future__ import annotations

import os
import shlex
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dfwtrace import SparkEngine
from dfwtrace.cli.data import Wanted
from dfwtrace.cli.guard import CommandError, arm, require, sentence_of
from dfwtrace.data.columns import choose
from dfwtrace.engines.spark.session import find_session

# Spark's own messages are left out; its errors become sentences of ours.
_CALM = "--conf spark.log.level=ERROR --conf spark.ui.showConsoleProgress=false"


def fit_frame(
    path: str, master: str | None, columns: Any, dtype: str | None, task: str, given: Any, fit: Any
) -> tuple[Any, Wanted, str]:
    """Read a path with Spark and fit it there; return the model, its names, and the source."""
    require(columns["target"], "--target is missing: which column is it?")
    with session(master) as spark:
        frame = _read(spark, path)
        choice = choose(frame.columns, file=path, **columns)
        task = judge_frame(frame, choice.targets, task)
        require(
            task == "regression" or "radius" in given,
            "--radius is missing: cross-validation of a classification does not run on Spark.",
        )
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

    column = frame[f"`{targets[0]}`"]
    n, distinct, broken = frame.agg(
        sql.count(column), sql.count_distinct(column), sql.max(column != sql.rint(column))
    ).first()
    labels = not broken and distinct <= min(n / 2, max(20, n / 4))
    return "classification" if labels else "regression"


def _cast(frame: Any, features: list[str], number: str) -> Any:
    for name in features:
        kind = frame.schema[name].dataType.simpleString()
        require(kind != "vector", f"--dtype does not go with the vectors of column {name!r}.")
        wanted = f"array<{number}>" if kind.startswith("array") else number
        frame = frame.withColumn(name, frame[f"`{name}`"].cast(wanted))
    return frame
