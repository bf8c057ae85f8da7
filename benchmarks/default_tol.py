"""Test scores of estimators by `tol`, on real data: the coarsest that predictions do not feel.

A ratio is how far the test score is behind that of the finest `tol` of the same set, over how far
it may be: half a point of accuracy or 0.005 of R². The radius is given where it is known, else
"auto", whose search does not depend on `tol`.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import log_loss

import dfwtrace as dt
from benchmarks import data
from benchmarks.corpus.problems import FEATURES
from benchmarks.first_try_data import DataSet, data_set, data_sets
from benchmarks.harness import Row, Scale

RATIO = "behind / allowed"
TIMED = False
TARGET = 1.0

_ALLOWED = {"classification": 0.005, "regression": 0.005}
_TOLS = (1e-1, 3e-2, 1e-2, 1e-3, 1e-4)
_EPOCHS = 300  # more would be a matter of patience, not of `tol`
_LARGE_TOLS, _LARGE_EPOCHS = (1e-1, 3e-2, 1e-2, 1e-3), 100  # as a pass takes long
_TOY = ("iris", "diabetes")
#: Features in raw units, of `corpus.problems.FEATURES`: rows to learn from and to test on, d and m.
_RAW = ("columns 1e+02", "columns 1e+04", "one large", "uncentred", "counts", "near low rank")
_RAW_SIZES = 400, 3000, 30, 6
_DEFAULT = dt.TraceNormClassifier().tol


def run(scale: Scale, repeat: int) -> list[Row]:
    """A row for each `tol` of each data set."""
    if scale == "toy":
        return [row for name in _TOY for row in _rows(data_set(name), None)]
    return [row for each, radius in _cases() for row in _rows(each, radius)]


def _cases() -> Iterator[tuple[DataSet, float | None]]:
    for each in data_sets():
        yield each, 2000.0 if each.name == "clinc150, all rows" else None
    for kind in _RAW:
        yield _raw_units(kind), None
    split = data.udhr()
    if split is not None:
        parts = split.X, split.y, split.X_test, split.y_test
        for radius in (1000.0, 8000.0):
            yield DataSet(f"udhr, radius {radius:g}", "classification", *parts), radius


def _raw_units(kind: str) -> DataSet:
    """Classes drawn from scores to which all directions of the features contribute alike."""
    rng, (n, n_test, d, m) = np.random.default_rng(0), _RAW_SIZES
    X = FEATURES[kind](rng, n + n_test, d)
    away = X - X.mean(axis=0)
    scores = 3.0 * (away / away.std(axis=0)) @ rng.standard_normal((d, m)) / np.sqrt(d)
    y = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    return DataSet(f"classes, {kind}", "classification", X[:n], y[:n], X[n:], y[n:])


def _rows(data: DataSet, radius: float | None) -> list[Row]:
    kind = dt.TraceNormClassifier if data.task == "classification" else dt.TraceNormRegressor
    n, d = data.X_train.shape
    large = n * d > 5 * 10**7
    models = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit may end before its `tol`
        for tol in _LARGE_TOLS if large else _TOLS:
            model = kind(radius or "auto", tol=tol, max_iter=_LARGE_EPOCHS if large else _EPOCHS)
            models.append(model.fit(data.X_train, data.y_train))
    scores = [model.score(data.X_test, data.y_test) for model in models]
    allowed = _ALLOWED[data.task]
    return [
        Row(
            "default_tol",
            f"{data.name}, tol {model.tol:g}",
            {"n": n, "d": d, "m": model.low_rank_.shape[1]},
            (scores[-1] - score) / allowed,
            TARGET if model.tol == _DEFAULT else None,
            detail={
                "tol": model.tol,
                "score": score,
                "test loss": _loss(model, data),
                "epochs": model.n_iter_,
                "reached": float(model.status_ == "optimal"),
                "radius": model.radius_,
            },
        )
        for model, score in zip(models, scores, strict=True)
    ]


def _loss(model: Any, data: DataSet) -> float:
    """Log loss, or mean squared error over the variance."""
    if data.task == "classification":
        chances = model.predict_proba(data.X_test)
        return float(log_loss(data.y_test, chances, labels=model.classes_))
    return 1.0 - float(model.score(data.X_test, data.y_test))


def markdown(records: Iterable[Mapping[str, Any]]) -> str:
    """A table of the last run: test score and epochs for each `tol`."""
    kept = [record for record in records if record["benchmark"] == "default_tol"]
    if not kept:
        raise ValueError("there are no rows of default_tol among these records.")
    last = [record for record in kept if record.get("date") == kept[-1].get("date")]
    found: dict[str, dict[float, Mapping[str, float]]] = {}
    for record in last:
        name = record["case"].rpartition(", ")[0]
        found.setdefault(name, {})[record["detail"]["tol"]] = record["detail"]
    lines = ["| score, log loss, epochs | " + " | ".join(f"{tol:g}" for tol in _TOLS) + " |"]
    lines.append("|---" + len(_TOLS) * "|--:" + "|")
    for name, by_tol in found.items():
        cells = [_cell(by_tol.get(tol)) for tol in _TOLS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(seen: Mapping[str, float] | None) -> str:
    if seen is None:
        return ""
    score, loss, epochs = seen["score"], seen["test loss"], int(seen["epochs"])
    more = "" if seen["reached"] else "+"  # the limit of epochs came first, or rounding
    loss_too = "" if np.isclose(loss, 1.0 - score) else f", {loss:.3f}"
    return f"{score:.4f}{loss_too}, {epochs}{more}"


if __name__ == "__main__":
    stored = Path(sys.argv[1]).read_text(encoding="utf-8")
    print(markdown(json.loads(line) for line in stored.splitlines()))
