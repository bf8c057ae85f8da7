"""What a model is worth on some rows, beside answers that ignore the features; its weights."""

from __future__ import annotations

import math
import warnings
from collections import namedtuple
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from dfwtrace._typing import Array, Data, FloatArray, Matrix
from dfwtrace.data.table import whole_as_integers
from dfwtrace.report import counted, number
from dfwtrace.result import Path

Estimator: TypeAlias = Any  # one of ours, fitted
Names: TypeAlias = Sequence[str] | None

_TOP = 5  # classes of "top-5 accuracy"
_MATRIX = 12  # classes of a confusion matrix, at most
_PAIRS = 10
_POINTS = 1000
_COLUMNS, _FEATURES = 12, 5  # of the table of weights
_ROWS_AT_ONCE = 1024
# What found the radius by rows left out, and its name in a sentence.
_SEARCHES = {"cross-validation": "cross-validation", "search": "the search for a radius"}
_POOR = " So the model is no better than ignoring the features."
_HIGHER_IS_BETTER = ("accuracy", "R²")
_UNKNOWN = "the model does not know the labels of {}, such as {!r}: wrong, and not in the log loss."


# A class with its number of rows and the share of them that are wrong, or a target with its RMSE,
# that of its mean, and R².
Part = namedtuple("Part", "name count error baseline r2", defaults=(math.nan, math.nan))
# Rows of a class that the model takes for another: how many, and their share of the class.
Confusion = namedtuple("Confusion", "true predicted count share")
# A class, its rows (None if not known) and the features of its largest weights, or a target.
Weights = namedtuple("Weights", "name count features")


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Scores of a model on some rows, and where it is wrong.

    Parameters
    ----------
    rows : int
        Number of rows.
    scores, baseline : mapping of str to float
        Scores by name, and those of the most frequent class, the frequencies of the classes (log
        loss) or the mean of the targets.
    parts : sequence of Part
        Classes or targets, the worst first.
    confusions : sequence of Confusion
        The most frequent ones.
    matrix : (list of str, array of shape (m, m)) or None
        Names of the classes, and rows by true and predicted class, if there are few.
    points : array of shape (n, 2) or None
        True and predicted values of a single target, or a sample of them.
    warning : str or None
        A sentence on rows that could not be scored.
    """

    rows: int
    scores: Mapping[str, float]
    baseline: Mapping[str, float] = field(default_factory=dict)
    parts: Sequence[Part] = ()
    confusions: Sequence[Confusion] = ()
    matrix: tuple[list[str], Array] | None = None
    points: FloatArray | None = None
    warning: str | None = None

    def sentence(self, where: str) -> str:
        """Say what the model is worth on rows that `where` names; "" if no score is known."""
        known = {name: value for name, value in self.scores.items() if math.isfinite(value)}
        if not known:
            return ""
        name, value = next(iter(known.items()))
        base = self.baseline.get(name, math.nan)
        if name == "accuracy":
            text = f"It gets {shown(name, value)} of {where} right"
            other = f"always answering the most frequent class would get {shown(name, base)}"
        elif name == "log loss":
            text = f"Its log loss on {where} is {shown(name, value)}"
            other = f"the frequencies of the classes alone would have {shown(name, base)}"
        elif name == "R²" and value > 0.0:
            text = f"It explains {100 * value:.1f} % of the variance of {where} (R²)"
            other = "always answering the mean would explain none"
        else:
            text = f"Its {name} on {where} is {shown(name, value)}"
            other = f"always answering the mean would have {shown(name, base)}"
        if not math.isfinite(base):
            return f"{text}."
        better = value > base if name.endswith(_HIGHER_IS_BETTER) else value < base
        return f"{text}; {other}.{'' if better else _POOR}"


def shown(name: str, value: float) -> str:
    """Return a score for people, shares as percentages."""
    if "accuracy" in name and math.isfinite(value):
        return f"{100 * value:.1f} %"
    return number(value, 3 if "R²" in name else 4)


def rows_of(kind: str, evaluation: Evaluation) -> str:
    """Return which rows were scored, for the middle of a sentence."""
    if kind in _SEARCHES:
        return f"rows left out in {_SEARCHES[kind]}"
    return counted(evaluation.rows, f"{kind} row")


def worth(evaluations: Mapping[str, Evaluation]) -> dict[str, Any] | None:
    """Return what a page says first: sentences, a table of scores, and the details of one.

    None if no score is known.
    """
    found = {rows_of(kind, one): one for kind, one in evaluations.items()}
    table = []
    fullest = sorted(found.values(), key=lambda one: -len(one.scores))  # its order is everyone's
    for name in dict.fromkeys(name for one in fullest for name in one.scores):
        cells = [
            [some.get(name, math.nan) for some in (e.scores, e.baseline)] for e in found.values()
        ]
        if any(math.isfinite(value) for value, _ in cells):
            table.append((name, [[shown(name, value) for value in cell] for cell in cells]))
    if not table:
        return None
    where, details = next(((w, one) for w, one in found.items() if one.parts), ("", None))
    # What it does with rows that it knows says little beside what it does with others.
    said = list(filter(None, (one.sentence(w) for w, one in found.items())))
    said = said[:1] if "test" in evaluations else said
    return {
        "sentences": said,
        "columns": [_SEARCHES.get(k, w) for k, w in zip(evaluations, found, strict=True)],
        "based": any(base != "—" for _, cells in table for _, base in cells),
        "poor": bool(said) and said[0].endswith(_POOR),
        "table": table,
        "where": where,
        "details": details,
    }


def evaluations(
    estimator: Estimator,
    X: Data = None,
    y: Data = None,
    sample_weight: Data = None,
    test: tuple[Data, Data] | None = None,
    target_names: Names = None,
) -> dict[str, Evaluation]:
    """Evaluate an estimator on all rows that there are, those that tell most of it first."""
    found = {}
    if test is not None:
        found["test"] = evaluate(estimator, *test, y, target_names)
    validated = cross_validated(estimator, y, sample_weight)
    if validated is not None:
        found["cross-validation" if "radii_" in vars(estimator) else "search"] = validated
    if X is not None and y is not None:
        found["training"] = evaluate(estimator, X, y, y, target_names)
    return found


def evaluate(
    estimator: Estimator, X: Data, y: Data, learned_from: Data = None, target_names: Names = None
) -> Evaluation:
    """Score a fitted estimator on rows; the baseline knows the targets `learned_from` alone.

    By default, these are the targets of the rows themselves.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> X, y, _ = dt.datasets.make_multiclass(n=300, d=20, m=6, rank=3, random_state=0)
    >>> found = evaluate(dt.TraceNormClassifier(radius=20.0).fit(X, y), X, y)
    >>> bool(found.scores["accuracy"] > 0.8 > 0.4 > found.baseline["accuracy"])
    True
    """
    X, y = estimator._check_rows(X), np.asarray(y)
    base = y if learned_from is None else np.asarray(learned_from)
    if "classes_" in vars(estimator):
        return _evaluate_classes(estimator, X, y, base)
    from sklearn.metrics import r2_score, root_mean_squared_error  # only here: it takes a second

    m = estimator.low_rank_.shape[1]
    true, predicted = _columns(y), estimator.predict(X).reshape(-1, m)
    mean = np.broadcast_to(_columns(base).mean(axis=0), true.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # R² of a single row is not a number, which says it all
        r2, r2_of_mean = (
            np.atleast_1d(r2_score(true, some, multioutput="raw_values"))
            for some in (predicted, mean)
        )
        errors, errors_of_mean = (
            np.atleast_1d(root_mean_squared_error(true, some, multioutput="raw_values"))
            for some in (predicted, mean)
        )

    def scores(r2: FloatArray, errors: FloatArray) -> dict[str, float]:
        values = {"R²": float(r2.mean()), "RMSE": float(np.sqrt(np.mean(errors**2)))}
        return values | ({"lowest R²": float(r2.min())} if m > 1 else {})

    names = target_names or [f"target {j}" for j in range(m)]
    parts = [
        Part(str(names[j]), len(y), float(errors[j]), float(errors_of_mean[j]), float(r2[j]))
        for j in np.argsort(r2, kind="stable")
    ]
    points = None
    if m == 1:
        some = np.arange(len(y))
        if len(y) > _POINTS:
            some = np.random.default_rng(0).choice(len(y), _POINTS, replace=False)
        points = np.column_stack([true[some, 0], predicted[some, 0]]).astype(np.float64)
    values, of_mean = scores(r2, errors), scores(r2_of_mean, errors_of_mean)
    return Evaluation(len(y), values, of_mean, parts, points=points)


def _columns(y: Array) -> FloatArray:
    return y.reshape(len(y), -1).astype(np.float64)


def _evaluate_classes(estimator: Estimator, X: Matrix, y: Array, base: Array) -> Evaluation:
    from scipy.special import log_softmax
    from sklearn.utils import gen_batches

    def mean(of: Array) -> float:
        return float(of.mean()) if of.size else math.nan

    classes, n = estimator.classes_, len(y)
    own = _numbers(classes, y)
    known, top = own >= 0, len(classes) > _TOP
    predicted, of_own, in_top = np.empty(n, np.int64), np.empty(n), np.zeros(n, bool)
    for rows in gen_batches(n, _ROWS_AT_ONCE):  # all at once might not fit into memory
        logs = log_softmax(estimator._scores_of(X[rows]), axis=1)
        predicted[rows], of_own[rows] = logs.argmax(axis=1), logs[np.arange(len(logs)), own[rows]]
        in_top[rows] = (logs > of_own[rows, None]).sum(axis=1) < _TOP if top else False
    right = predicted == own
    counts = np.bincount(own[known], minlength=len(classes))
    present = np.flatnonzero(counts)
    recalls = np.bincount(own[right], minlength=len(classes))[present] / counts[present]

    frequent = np.bincount(_known(classes, base), minlength=len(classes)) / max(1, len(base))
    order = np.argsort(-frequent, kind="stable")
    with np.errstate(divide="ignore"):
        log_frequent = np.log(frequent)
    values = {"accuracy": mean(right)}
    baseline = {"accuracy": mean(own == order[0])}
    if top:
        values["top-5 accuracy"] = mean(known & in_top)
        baseline["top-5 accuracy"] = mean(np.isin(own, order[:_TOP]))
    values |= {"balanced accuracy": mean(recalls), "log loss": -mean(of_own[known])}
    baseline |= {"balanced accuracy": mean(present == order[0])}
    baseline |= {"log loss": -mean(log_frequent[own[known]])}

    names = [str(label) for label in classes]
    parts = [
        Part(names[present[k]], int(counts[present[k]]), 1.0 - float(recalls[k]))
        for k in np.argsort(recalls, kind="stable")
    ]
    pairs, times = np.unique(
        own[known & ~right] * len(classes) + predicted[known & ~right], return_counts=True
    )
    confusions = [
        Confusion(names[a], names[b], int(times[k]), float(times[k] / counts[a]))
        for k in np.argsort(-times, kind="stable")[:_PAIRS]
        for a, b in [divmod(int(pairs[k]), len(classes))]
    ]
    matrix = None
    if len(classes) <= _MATRIX:
        table = np.zeros((len(classes), len(classes)), np.int64)
        np.add.at(table, (own[known], predicted[known]), 1)
        matrix = names, table
    warning = None
    if not known.all():
        unknown = counted(int((~known).sum()), "row"), str(y[int(np.argmin(known))])
        warning = _UNKNOWN.format(*unknown)
    return Evaluation(n, values, baseline, parts, confusions, matrix, warning=warning)


def _numbers(classes: Array, y: Array) -> Array:
    """The number of each label's class, -1 for labels that are not among the classes."""
    labels = y.astype(str) if classes.dtype.kind in "OUS" else whole_as_integers(y)
    place = {label: i for i, label in enumerate(classes.tolist())}
    return np.array([place.get(label, -1) for label in labels.ravel().tolist()], dtype=np.int64)


def _known(classes: Array, y: Array) -> Array:
    numbers = _numbers(classes, y)
    return numbers[numbers >= 0]


def searched(estimator: Estimator) -> Path | None:
    """Return the radii that were tried, and their losses; None if the radius was given."""
    found = vars(estimator)
    if "validation_" in found and "path_" not in found:  # read from a file
        return Path(found["radii_"], [], found["validation_"])
    path: Path | None = found.get("path_", estimator.result_.search)
    return path


def cross_validated(
    estimator: Estimator, y: Data = None, sample_weight: Data = None
) -> Evaluation | None:
    """Return what the search for a radius knows of the chosen one; None if there was none.

    The baseline takes the targets that the search took; without them there is none.
    """
    found, path = vars(estimator), searched(estimator)
    if path is None or path.validation is None or not path.validation.size:
        return None
    chosen = int(np.argmin(np.abs(path.radii - estimator.radius_)))
    loss, m = float(np.mean(path.validation[chosen])), estimator.low_rank_.shape[1]
    classes, scoring = found.get("classes_"), getattr(estimator, "scoring", None)
    # The loss of a regression is half the squared error, summed over the targets.
    scores = {"RMSE": math.sqrt(2.0 * loss / m)} if classes is None else {"log loss": loss}
    if isinstance(scoring, str):
        name = {"r2": "R²"}.get(scoring, scoring.replace("_", " "))
        scores = {name: float(np.mean(found["scores_"][chosen])), **scores}
    baseline: dict[str, float] = {}
    rows = 0 if y is None else len(y)
    if y is None:
        pass
    elif classes is None:
        targets = _columns(np.asarray(y))
        mean = np.average(targets, axis=0, weights=sample_weight)
        spread = np.average((targets - mean) ** 2, axis=0, weights=sample_weight)
        baseline = {"RMSE": float(np.sqrt(spread.mean())), "R²": 0.0}
        if m == 1 and spread[0] > 0.0:
            scores = {"R²": 1.0 - 2.0 * loss / float(spread[0])} | scores
    else:
        numbers = _numbers(classes, np.asarray(y))
        weights = estimator._weights(np.asarray(y), numbers, sample_weight)
        counts = np.bincount(numbers, weights, minlength=len(classes))
        shares = counts / counts.sum()
        plain = np.bincount(numbers, minlength=len(classes)) / len(numbers)
        baseline = {"log loss": float(-shares @ np.log(shares)), "accuracy": float(plain.max())}
    return Evaluation(rows, scores, baseline)


def largest_weights(
    estimator: Estimator,
    X: Data = None,
    y: Data = None,
    feature_names: Names = None,
    target_names: Names = None,
) -> list[Weights]:
    """Return the features with the largest weights, for the most frequent classes or the targets.

    A weight is multiplied by the standard deviation of its feature if it is known, of X or of
    `standardize`. Of two classes,
    the second one's weights less the first one's are taken; with more, weights are less their mean,
    which does not change a prediction.
    """
    W, classes = estimator.low_rank_, vars(estimator).get("classes_")
    d, m = W.shape
    left, right, counts, names = W.U * W.s, W.V, None, target_names
    if classes is None:
        names, columns = names or [f"target {j}" for j in range(m)], np.arange(m)
    else:
        names, columns, right = (
            [str(label) for label in classes],
            np.arange(m),
            right - right.mean(0),
        )
        if y is not None:
            counts = np.bincount(_known(classes, np.asarray(y)), minlength=m)
            columns = np.argsort(-counts, kind="stable")
        if m == 2:
            names = [names[0], f"{names[1]} rather than {names[0]}"]
            columns, right = np.array([1]), np.vstack([right[0], right[1] - right[0]])
            counts = None
    known = _spread(estimator._check_rows(X)) if X is not None else scale_of(estimator)
    spread = 1.0 if known is None else known
    found = []
    for j in columns[:_COLUMNS]:
        weights = (left @ right[j]) * spread
        size = np.abs(weights)
        some = np.argpartition(-size, min(_FEATURES, d) - 1)[:_FEATURES]
        some = some[np.lexsort((some, -size[some]))]
        largest = [
            (f"feature {i}" if feature_names is None else str(feature_names[i]), float(weights[i]))
            for i in some
            if size[i] > 0.0
        ]
        if largest:
            rows = None if counts is None else int(counts[j])
            found.append(Weights(str(names[j]), rows, largest))
    return found


def scale_of(estimator: Estimator) -> FloatArray | None:
    """Return the standard deviations that a fit has divided its features by, if it has."""
    scale: FloatArray | None = vars(estimator).get("scale_")
    return scale


def _spread(X: Matrix) -> FloatArray:
    """Standard deviations of the columns, some rows at a time."""
    from sklearn.preprocessing import StandardScaler
    from sklearn.utils import gen_batches

    scaler = StandardScaler(with_mean=False)
    n, d = X.shape
    size = n if sp.issparse(X) else max(1, (1 << 22) // d)
    for rows in gen_batches(n, size):
        scaler.partial_fit(X[rows])
    return np.asarray(np.sqrt(scaler.var_))
