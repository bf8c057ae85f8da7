"""What a model is worth on rows with known targets."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from dfwtrace._typing import Array, Matrix
from dfwtrace.cli.guard import CommandError
from dfwtrace.cli.models import Model
from dfwtrace.data.table import whole_as_integers
from dfwtrace.report import Worst
from dfwtrace.shards import slice_rows

_NUMBERS_AT_ONCE = 1 << 22
_TOP = 5


class Scores(NamedTuple):
    """Scores by their names, the classes or targets with the largest errors, and a warning."""

    values: dict[str, float]
    worst: list[Worst]
    warning: str | None = None


def score(model: Model, X: Matrix, y: Array) -> Scores:
    """Accuracy and log loss of a classifier, R² and RMSE of a regressor."""
    return _of_classes(model, X, y) if model.classifies else _of_targets(model, X, y)


def row_blocks(model: Model, X: Matrix) -> Iterator[tuple[slice, Matrix]]:
    """A few rows at a time: the scores of all of them may not fit in memory."""
    width = int(model.estimator.low_rank_.shape[1])
    rows = max(1, _NUMBERS_AT_ONCE // max(width, 1))
    for start in range(0, X.shape[0], rows):
        stop = min(start + rows, X.shape[0])
        yield slice(start, stop), slice_rows(X, start, stop)


def _of_classes(model: Model, X: Matrix, y: Array) -> Scores:
    classes = model.estimator.classes_
    numbers = _numbers_of(y, classes)
    known = numbers >= 0
    right, in_top = np.zeros(len(numbers), bool), np.zeros(len(numbers), bool)
    log_loss, top = 0.0, min(_TOP, len(classes))
    for rows, block in row_blocks(model, X):
        logs, labels = model.estimator.predict_log_proba(block), numbers[rows]
        own = logs[np.arange(len(labels)), labels]
        here = known[rows]
        log_loss -= float(own[here].sum(dtype=np.float64))
        right[rows] = here & (logs.argmax(axis=1) == labels)
        in_top[rows] = here & ((logs > own[:, None]).sum(axis=1) < top)
    counts = np.bincount(numbers[known], minlength=len(classes))
    hits = np.bincount(numbers[known & right], minlength=len(classes))
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
    return Scores(values, worst, _about_unknown(y, known))


def _of_targets(model: Model, X: Matrix, y: Array) -> Scores:
    if y.dtype.kind not in "biuf":
        raise CommandError(
            f"the target holds text ({str(y[0])!r}), but {model.kind} predicts numbers."
        )
    width = int(model.estimator.low_rank_.shape[1])
    Y = y.reshape(len(y), -1).astype(np.float64)
    if Y.shape[1] != width:
        raise CommandError(f"the model predicts {width} targets, but --target has {Y.shape[1]}.")
    predicted = np.vstack(
        [model.estimator.predict(block).reshape(-1, width) for _, block in row_blocks(model, X)]
    )
    from sklearn.metrics import r2_score, root_mean_squared_error  # only here: it takes a second

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a single row: R² is not a number, which tells it all
        r2 = np.atleast_1d(r2_score(Y, predicted, multioutput="raw_values"))
    errors = np.atleast_1d(root_mean_squared_error(Y, predicted, multioutput="raw_values"))
    values = {"R²": float(r2.mean()), "RMSE": float(np.sqrt(np.mean((Y - predicted) ** 2)))}
    names = model.target_names or [f"target {j}" for j in range(width)]
    if width > 1:
        values["lowest R²"] = float(r2.min())
    order = np.argsort(-errors, kind="stable")
    return Scores(values, [Worst(names[j], len(Y), float(errors[j])) for j in order])


def _numbers_of(y: Array, classes: Array) -> Array:
    """The place of each label among the classes, -1 for one that is not there."""
    if y.ndim > 1:
        raise CommandError(f"classification takes one target, got {y.shape[1]}.")
    text = classes.dtype.kind in "OUS"
    labels = y if text else whole_as_integers(y)
    if text:
        labels = labels.astype(str)
    elif labels.dtype.kind not in "biuf":
        raise CommandError(
            f"the target holds text ({str(y[0])!r}), but the model's classes are numbers "
            f"such as {classes[0]}."
        )
    place: dict[Any, int] = {label: i for i, label in enumerate(classes.tolist())}
    return np.array([place.get(label, -1) for label in labels.tolist()], dtype=np.int64)


def _about_unknown(y: Array, known: Array) -> str | None:
    missing = int((~known).sum())
    if not missing:
        return None
    label = y[int(np.argmin(known))]
    rows = "row has a label" if missing == 1 else "rows have labels"
    return (
        f"{missing} {rows} that the model does not know, such as {str(label)!r}: counted as "
        "wrong, and left out of the log loss."
    )
