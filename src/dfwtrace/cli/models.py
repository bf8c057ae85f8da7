"""Model files with the names of their columns, and what a model is worth on rows."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from dfwtrace._typing import Array, Matrix
from dfwtrace.cli.data import Wanted
from dfwtrace.cli.guard import CommandError
from dfwtrace.cli.output import number
from dfwtrace.data.shards import slice_rows
from dfwtrace.data.table import whole_as_integers
from dfwtrace.files.container import read_container
from dfwtrace.report import Worst
from dfwtrace.result import Result

_NUMBERS_AT_ONCE = 1 << 22
_TOP = 5

Task: TypeAlias = Literal["classification", "regression"]


def task_of(estimator: Any) -> Task:
    """What an estimator is for."""
    from sklearn.base import is_classifier  # only here: it takes a second

    return "classification" if is_classifier(estimator) else "regression"


class Model(NamedTuple):
    """A fitted estimator, and what it takes from files.

    The estimator has no names of features: rows are brought into its order before.
    """

    estimator: Any
    wanted: Wanted

    @property
    def kind(self) -> str:
        return type(self.estimator).__name__

    @property
    def task(self) -> Task:
        return task_of(self.estimator)

    @property
    def classifies(self) -> bool:
        return self.task == "classification"

    @property
    def result(self) -> Result:
        result: Result = self.estimator.result_
        return result

    @property
    def width(self) -> int:
        """Classes or targets."""
        return int(self.estimator.low_rank_.shape[1])


def facts_of(model: Model) -> dict[str, Any]:
    """What fit and inspect say about a model, for programs."""
    result = model.result
    return {
        "estimator": model.kind,
        "task": model.task,
        "rows": result.plan.workload.n,
        "radius": model.estimator.radius_,
        "status": result.status,
        "objective": result.objective,
        "gap": result.gap,
        "relative_gap": result.relative_gap,
        "rank": result.W.rank,
        "epochs": len(result.history),
        "representation": result.plan.representation,
    }


def save_model(model: Model, path: Path) -> None:
    """Write a model that `load_model` and `dfwtrace.load` read."""
    from dfwtrace.estimators.saving import save

    estimator, wanted = model
    estimator.n_features_in_ = wanted.n_features
    if wanted.feature_names is not None:
        estimator.feature_names_in_ = np.array(wanted.feature_names, dtype=object)
    notes = wanted._asdict()
    del notes["feature_names"], notes["n_features"]
    try:
        save(estimator, path, notes)
    finally:
        vars(estimator).pop("feature_names_in_", None)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """A file that cannot be read is bad input."""
    try:
        yield
    except FileNotFoundError as error:
        raise CommandError(f"{path} is not there.") from error
    except OSError as error:
        reason = (error.strerror or str(error)).rstrip(".").lower()
        raise CommandError(f"{path} cannot be read: {reason}.") from error


def load_model(path: Path) -> Model:
    """Read a model, written by the command line or from Python."""
    from dfwtrace import load

    with reading(path):
        estimator = load(path)
        notes = read_container(path, "model").header.get("notes")
    notes = notes if isinstance(notes, dict) else {}
    names = vars(estimator).pop("feature_names_in_", None)
    d, m = estimator.low_rank_.shape
    targets = _texts(notes.get("target_names"))
    if task_of(estimator) == "regression" and len(targets or []) != m:
        targets = None
    array, first_index = notes.get("array"), notes.get("first_index")
    wanted = Wanted(
        None if names is None else [str(name) for name in names],
        int(d),
        _texts(notes.get("target")),
        targets,
        array if isinstance(array, str) else None,
        first_index if type(first_index) is int and first_index in (0, 1) else None,
    )
    return Model(estimator, wanted)


def _texts(value: Any) -> list[str] | None:
    """A list of texts as a file should have it; None for anything else."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return value
    return None


class Scores(NamedTuple):
    """Scores by their names, the classes or targets with the largest errors, and a warning."""

    values: dict[str, float]
    worst: list[Worst]
    warning: str | None = None

    def shown(self) -> list[tuple[str, str]]:
        """The scores for people, shares as percentages."""
        return [
            (name, f"{100.0 * value:.1f} %" if name.endswith("accuracy") else number(value))
            for name, value in self.values.items()
        ]

    def by_key(self) -> dict[str, float]:
        """The scores under names that programs like."""
        plain = str.maketrans({"²": "2", "-": "_", " ": "_"})
        return {name.translate(plain).lower(): value for name, value in self.values.items()}


def row_blocks(model: Model, X: Matrix) -> Iterator[tuple[slice, Matrix]]:
    """A few rows at a time: the predictions for all of them may not fit in memory."""
    rows = max(1, _NUMBERS_AT_ONCE // max(model.width, 1))
    for start in range(0, X.shape[0], rows):
        stop = min(start + rows, X.shape[0])
        yield slice(start, stop), slice_rows(X, start, stop)


def score(model: Model, X: Matrix, y: Array) -> Scores:
    """Accuracy and log loss of a classifier, R² and RMSE of a regressor."""
    return _score_classes(model, X, y) if model.classifies else _score_targets(model, X, y)


def _score_classes(model: Model, X: Matrix, y: Array) -> Scores:
    classes = model.estimator.classes_
    numbers = _class_numbers(y, classes)
    known = numbers >= 0
    right, in_top = np.zeros(len(numbers), bool), np.zeros(len(numbers), bool)
    log_loss = 0.0
    for rows, block in row_blocks(model, X):
        logs, labels, here = model.estimator.predict_log_proba(block), numbers[rows], known[rows]
        own = logs[np.arange(len(labels)), labels]
        log_loss -= float(own[here].sum(dtype=np.float64))
        right[rows] = here & (logs.argmax(axis=1) == labels)
        in_top[rows] = here & ((logs > own[:, None]).sum(axis=1) < _TOP)
    counts = np.bincount(numbers[known], minlength=len(classes))
    hits = np.bincount(numbers[right], minlength=len(classes))
    present = np.flatnonzero(counts)
    recalls = hits[present] / counts[present]
    values = {"accuracy": float(right.mean())}
    if len(classes) > _TOP:
        values["top-5 accuracy"] = float(in_top.mean())
    values["balanced accuracy"] = float(recalls.mean()) if recalls.size else float("nan")
    values["log loss"] = log_loss / known.sum() if known.any() else float("nan")
    order = np.argsort(recalls, kind="stable")
    ranked = zip(present[order], recalls[order], strict=True)
    worst = [Worst(str(classes[c]), int(counts[c]), 1.0 - float(r)) for c, r in ranked]
    if known.all():
        return Scores(values, worst)
    missing = int((~known).sum())
    rows_with = "row has a label" if missing == 1 else "rows have labels"
    return Scores(
        values,
        worst,
        f"{missing} {rows_with} that the model does not know, such as "
        f"{str(y[int(np.argmin(known))])!r}: counted as wrong, and left out of the log loss.",
    )


def _class_numbers(y: Array, classes: Array) -> Array:
    """The place of each label among the classes, -1 for one that is not there."""
    if y.ndim > 1:
        raise CommandError(f"classification takes one target, got {y.shape[1]}.")
    labels = y.astype(str) if classes.dtype.kind in "OUS" else whole_as_integers(y)
    if classes.dtype.kind not in "OUS" and labels.dtype.kind not in "biuf":
        raise CommandError(
            f"the target holds text ({str(y[0])!r}), but the model's classes are numbers "
            f"such as {classes[0]}."
        )
    place: Mapping[Any, int] = {label: i for i, label in enumerate(classes.tolist())}
    return np.array([place.get(label, -1) for label in labels.tolist()], dtype=np.int64)


def _score_targets(model: Model, X: Matrix, y: Array) -> Scores:
    from sklearn.metrics import r2_score, root_mean_squared_error  # only here: it takes a second

    width = model.width
    if y.dtype.kind not in "biuf":
        raise CommandError(
            f"the target holds text ({str(y[0])!r}), but {model.kind} predicts numbers."
        )
    Y = y.reshape(len(y), -1).astype(np.float64)
    if Y.shape[1] != width:
        raise CommandError(f"the model predicts {width} targets, but --target has {Y.shape[1]}.")
    predicted = np.vstack(
        [model.estimator.predict(block).reshape(-1, width) for _, block in row_blocks(model, X)]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # R² of a single row is not a number, which says it all
        r2 = np.atleast_1d(r2_score(Y, predicted, multioutput="raw_values"))
    errors = np.atleast_1d(root_mean_squared_error(Y, predicted, multioutput="raw_values"))
    values = {"R²": float(r2.mean()), "RMSE": float(np.sqrt(np.mean(errors**2)))}
    if width > 1:
        values["lowest R²"] = float(r2.min())
    names = model.wanted.target_names or [f"target {j}" for j in range(width)]
    order = np.argsort(-errors, kind="stable")
    return Scores(values, [Worst(names[j], len(Y), float(errors[j])) for j in order])
