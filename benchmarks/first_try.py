"""Defaults of our estimators against those of scikit-learn's linear models, on raw data.

A ratio is how far our score on test rows is behind, over how far it may be: 2 points of accuracy or
0.05 of R². Where our estimator warned, there is no target: the user was told.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, Ridge, RidgeCV
from threadpoolctl import threadpool_limits

import dfwtrace as dt
from benchmarks.first_try_data import DataSet, data_set, data_sets
from benchmarks.harness import Row, Scale

RATIO = "behind / allowed"
TIMED = False
TARGET = 1.0

#: How far the score may be behind.
_ALLOWED = {"classification": 0.02, "regression": 0.05}
_TOY = ("iris", "diabetes", "noise")
_OURS = {
    "classification": (dt.TraceNormClassifier, dt.TraceNormClassifierCV),
    "regression": (dt.TraceNormRegressor, dt.TraceNormRegressorCV),
}
_THEIRS = {
    "classification": (LogisticRegression, LogisticRegressionCV),
    "regression": (Ridge, RidgeCV),
}


@dataclass(frozen=True)
class Fit:
    """What came of a fit with defaults: the test score, its time and its warnings."""

    score: float
    seconds: float
    said: tuple[str, ...]


def run(scale: Scale, repeat: int) -> list[Row]:
    """A row for the defaults and one for the searches, on each data set; one fit each."""
    chosen = data_sets() if scale == "full" else map(data_set, _TOY)
    return [row for each in chosen for row in _compare(each)]


def _compare(data: DataSet) -> Iterator[Row]:
    measure(_OURS[data.task][0], data)  # compiles
    names = (data.name, f"{data.name} CV")
    for name, ours, theirs in zip(names, _OURS[data.task], _THEIRS[data.task], strict=True):
        yield _row(name, data, measure(ours, data), measure(theirs, data))


def measure(kind: Any, data: DataSet) -> Fit:
    """Fit with defaults; warnings are kept and not raised."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # These are about names in a next version, not about the fit.
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        # As our solver does by itself; scikit-learn's take longer with more threads on these sizes.
        with threadpool_limits(1, "blas"):
            began = time.perf_counter()
            model = kind().fit(data.X_train, data.y_train)
            seconds = time.perf_counter() - began
    said = dict.fromkeys(_first_sentence(str(warning.message)) for warning in caught)
    return Fit(float(model.score(data.X_test, data.y_test)), seconds, tuple(said))


def _row(case: str, data: DataSet, ours: Fit, theirs: Fit) -> Row:
    n, d = data.X_train.shape
    return Row(
        "first_try",
        case,
        {"n": n, "d": d, "m": _width(data)},
        (theirs.score - ours.score) / _ALLOWED[data.task],
        None if ours.said else TARGET,
        {"ours": ours.seconds, "theirs": theirs.seconds},
        {
            "score": ours.score,
            "their score": theirs.score,
            "allowed": _ALLOWED[data.task],
            "they warned": float(bool(theirs.said)),
        },
        ours.said,
    )


def _width(data: DataSet) -> int:
    """Number of classes or of targets."""
    if data.task == "classification":
        return len(np.unique(data.y_train))
    return 1 if data.y_train.ndim == 1 else int(data.y_train.shape[1])


def _first_sentence(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0].removesuffix(".")


def markdown(records: Iterable[Mapping[str, Any]]) -> str:
    """Two tables of the last run among these records, and what our estimators said."""
    kept = [record for record in records if record["benchmark"] == "first_try"]
    if not kept:
        raise ValueError("there are no rows of first_try among these records.")
    last = {r["case"]: r for r in kept if r.get("date") == kept[-1].get("date")}
    classes, targets = _table(last, "classification", "accuracy"), _table(last, "regression", "R²")
    return "\n".join([*classes, "", *targets, "", *_messages(last)]).rstrip()


def _table(records: Mapping[str, Mapping[str, Any]], task: str, score: str) -> Iterator[str]:
    plain, search = (kind.__name__ for kind in _THEIRS[task])
    headings = [f"{score} on data, n×d×m", "ours", plain, "difference", "ours, CV", search]
    headings += ["difference", "seconds", "seconds, CV", "warned", "verdict"]
    yield f"| {' | '.join(headings)} |"
    yield "|---" + 8 * "|--:" + "|---|---|"
    for name, record in records.items():
        searched = records.get(f"{name} CV")
        if searched is None or record["detail"]["allowed"] != _ALLOWED[task]:
            continue
        sizes = "×".join(str(record["sizes"][letter]) for letter in "ndm")
        cells = [f"{name}, {sizes}", *_scores(record), *_scores(searched)]
        cells += [_times(record), _times(searched), _warned(record, searched)]
        yield f"| {' | '.join(cells)} | {_verdict(record, searched)} |"


def _scores(record: Mapping[str, Any]) -> list[str]:
    ours, theirs = record["detail"]["score"], record["detail"]["their score"]
    difference = round(ours - theirs, 3) + 0.0  # without a minus zero
    return [f"{ours:.3f}", f"{theirs:.3f}", f"{difference:+.3f}"]


def _times(record: Mapping[str, Any]) -> str:
    return ", ".join(f"{record['seconds'][side]:.2g}" for side in ("ours", "theirs"))


def _warned(record: Mapping[str, Any], searched: Mapping[str, Any]) -> str:
    sides = {
        "ours": record["messages"],
        "theirs": record["detail"]["they warned"],
        "CV": searched["messages"],
        "their CV": searched["detail"]["they warned"],
    }
    return ", ".join(side for side, warned in sides.items() if warned)


def _verdict(*records: Mapping[str, Any]) -> str:
    """Of the plain fit and the search together."""
    behind = [record for record in records if record["ratio"] > TARGET]
    if any(not record["messages"] for record in behind):
        return "**behind**"
    return "behind, warned" if behind else "level or ahead"


def _messages(records: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for name, record in records.items():
        for message in record["messages"]:
            yield f"- {name}: “{message}”"


if __name__ == "__main__":
    stored = Path(sys.argv[1]).read_text(encoding="utf-8")
    print(markdown(json.loads(line) for line in stored.splitlines()))
