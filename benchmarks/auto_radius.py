"""radius="auto" against the radius that does best on the test rows, which nobody can know.

A ratio is how far the score on test rows is behind that of the tuned radius, over how far it may
be: 2 points of accuracy or 0.05 of R².
"""

from __future__ import annotations

import time
import warnings
from copy import copy

import numpy as np

import dfwtrace as dt
from benchmarks.first_try_data import DataSet, data_set, data_sets
from benchmarks.harness import Row, Scale

RATIO = "behind / allowed"
TIMED = False
TARGET = 1.0

_ALLOWED = {"classification": 0.02, "regression": 0.05}
_TOY = ("iris", "diabetes")
_FINER = 1.5  # ratio of neighbours among the radii that are tuned over; auto's is 3


def run(scale: Scale, repeat: int) -> list[Row]:
    """A row for each data set."""
    chosen = data_sets() if scale == "full" else map(data_set, _TOY)
    return [_compare(data) for data in chosen]


def _compare(data: DataSet) -> Row:
    kind = dt.TraceNormClassifier if data.task == "classification" else dt.TraceNormRegressor
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what fits say is the business of `first_try`
        model = kind().fit(data.X_train, data.y_train)
        began = time.perf_counter()
        model = kind().fit(data.X_train, data.y_train)  # the first one compiles
        seconds = time.perf_counter() - began
        search = model.result_.search
        score = model.score(data.X_test, data.y_test)
        # From the smallest to the largest that were tried and beyond, each from the one before.
        first, last = search.radii.min() / 9.0, search.radii.max() * 3.0
        tuned, tuned_radius, other = score, model.radius_, copy(model)
        other.set_params(warm_start=True, tol=1e-3, max_iter=300)
        del other.low_rank_
        for radius in np.geomspace(first, last, 1 + int(np.log(last / first) / np.log(_FINER))):
            other.set_params(radius=float(radius)).fit(data.X_train, data.y_train)
            here = other.score(data.X_test, data.y_test)
            if here > tuned:
                tuned, tuned_radius = here, float(radius)
    n, d = data.X_train.shape
    epochs = sum(len(fit.history) for fits in search.fold_results for fit in fits)
    return Row(
        "auto_radius",
        data.name,
        {"n": n, "d": d, "m": model.low_rank_.shape[1]},
        (tuned - score) / _ALLOWED[data.task],
        TARGET,
        {"auto": seconds},
        {
            "score": score,
            "tuned score": tuned,
            "radius / tuned": model.radius_ / tuned_radius,
            "epochs of the search / folds": epochs / len(search.fold_results),
            "epochs of the fit": model.n_iter_,
        },
    )
