"""Estimators as people call them, on real data: time over LogisticRegression's at its best.

A fit with defaults and a search on CLINC150; on UDHR, the way to the test accuracy that
LogisticRegression has with the best of several C. Wall and processor time are rows of their own.
Without the data (see benchmarks/data.py) there are no rows.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from threadpoolctl import threadpool_limits

import dfwtrace as dt
from benchmarks import data
from benchmarks.harness import Row, Scale

RATIO = "ours / LogisticRegression, time"
TIMED = True
TARGET = 1.0
#: Of the search, which also finds a W of low rank.
TARGET_OF_SEARCH = 2.0
#: Rounds for an epoch with an intercept, those that set up and certify with them.
TARGET_OF_ROUNDS = 4.0

_THREADS = (1, 2)
_CLINC_RADIUS, _CLINC_C = 2000.0, 10.0
_RADII, _FOLDS = 8, 3
_UDHR_RADIUS, _UDHR_C, _UDHR_EPOCHS = 8000.0, (10.0, 100.0, 1000.0), 300


class Taken(NamedTuple):
    """What a piece of work returned, and its wall and processor seconds."""

    found: Any
    wall: float
    processor: float


def run(scale: Scale, repeat: int) -> list[Row]:
    """Two rows for each comparison; one fit each, since they take long."""
    rows: list[Row] = []
    clinc, udhr = data.clinc150(), data.udhr()
    if clinc is not None:
        rows += _clinc(_shuffled(clinc, 20 if scale == "toy" else 1))
    if udhr is not None:
        rows += _udhr(_shuffled(udhr, 50 if scale == "toy" else 1))
    return rows


def _shuffled(split: data.Split, every: int) -> data.Split:
    """One in so many of the rows to learn from, in random order; as they come they are sorted."""
    order = np.random.default_rng(0).permutation(len(split.y))[::every]
    return split._replace(X=split.X[order], y=split.y[order])


def _clinc(split: data.Split) -> Iterator[Row]:
    n_folds = min(_FOLDS, int(np.bincount(split.y)[np.unique(split.y)].min()))
    cases = {
        "CLINC150, fit": (
            dt.TraceNormClassifier(radius=_CLINC_RADIUS),
            LogisticRegression(C=_CLINC_C),
            TARGET,
        ),
        "CLINC150, search": (
            dt.TraceNormClassifierCV(radii=_RADII, cv=max(2, n_folds)),
            LogisticRegressionCV(Cs=_RADII, cv=max(2, n_folds)),
            TARGET_OF_SEARCH,
        ),
    }
    dt.TraceNormClassifier(10.0, max_iter=2, tol=None).fit(split.X[::20], split.y[::20])  # compiles
    for case, (ours, theirs, target) in cases.items():
        by_threads = [_fit(theirs, split, threads) for threads in _THREADS]
        us = _fit(ours, split, None)
        rows = list(_rows(case, split, us, _accuracy(us, split), by_threads, target))
        yield from rows
        if case.endswith("fit"):
            result = us.found.result_
            rounds = len(result.rounds) / len(result.history)
            name = "CLINC150, rounds an epoch"
            yield replace(rows[0], case=name, ratio=rounds, target=TARGET_OF_ROUNDS, seconds={})


def _fit(model: Any, split: data.Split, threads: int | None) -> Taken:
    with warnings.catch_warnings(), threadpool_limits(threads, "blas"):
        warnings.simplefilter("ignore")
        return _timed(lambda: clone(model).fit(split.X, split.y))


def _timed(work: Callable[[], Any]) -> Taken:
    wall, processor = time.perf_counter(), time.process_time()
    found = work()
    return Taken(found, time.perf_counter() - wall, time.process_time() - processor)


def _accuracy(taken: Taken, split: data.Split) -> float:
    return float(taken.found.score(split.X_test, split.y_test))


def _udhr(split: data.Split) -> Iterator[Row]:
    """TF-IDF of the counts, as everybody takes them."""
    idf = TfidfTransformer().fit(sp.csr_matrix(split.X))
    split = split._replace(
        X=sp.csr_array(idf.transform(sp.csr_matrix(split.X))),
        X_test=sp.csr_array(idf.transform(sp.csr_matrix(split.X_test))),
    )
    # Sparse products have one thread, whatever BLAS has.
    models = [LogisticRegression(C=C, max_iter=1000) for C in _UDHR_C]
    fits = [_fit(model, split, 1) for model in models]
    theirs = max(fits, key=lambda taken: _accuracy(taken, split))
    us, reached = _to(split, _accuracy(theirs, split))
    yield from _rows("UDHR, to their accuracy", split, us, reached, [theirs], TARGET)


def _to(split: data.Split, accuracy: float) -> tuple[Taken, float]:
    """A fit until its test accuracy is that high, without the time that looking takes."""
    looking, best = np.zeros(2), 0.0

    def look(W: dt.LowRankMatrix, record: Mapping[str, Any]) -> bool:
        nonlocal best
        scores = _timed(lambda: (split.X_test @ (W.U * W.s)) @ W.V.T)
        looking[:] += scores.wall, scores.processor
        best = float((scores.found.argmax(axis=1) == split.y_test).mean())
        return best >= accuracy

    m = int(split.y.max()) + 1
    # As TraceNormClassifier calls it; with its own callbacks, b would not be known.
    taken = _timed(
        lambda: dt.solve(
            dt.Multinomial(m), split.X, split.y, radius=_UDHR_RADIUS, tol=1e-12,
            max_iter=_UDHR_EPOCHS, callback=look, verbose=False,
        )
    )  # fmt: skip
    return taken._replace(
        wall=taken.wall - looking[0], processor=taken.processor - looking[1]
    ), best


def _rows(
    case: str, split: data.Split, us: Taken, accuracy: float, theirs: list[Taken], target: float
) -> Iterator[Row]:
    n, d = split.X.shape
    result = us.found if isinstance(us.found, dt.Result) else us.found.result_
    detail = {
        "accuracy": accuracy,
        "their accuracy": max(_accuracy(taken, split) for taken in theirs),
        "epochs": float(len(result.history)),
        "rank": float(result.W.rank),
        "radius": result.radius,
    }
    search = getattr(us.found, "path_", None)
    if search is not None:
        fits = [fit for fold in search.fold_results for fit in fold]
        detail["epochs of the search"] = float(sum(len(fit.history) for fit in fits))
    for clock in ("wall", "processor"):
        ours, others = getattr(us, clock), min(getattr(taken, clock) for taken in theirs)
        yield Row(
            "estimators_clinc",
            f"{case}, {clock} time",
            {"n": n, "d": d, "m": result.W.shape[1]},
            ours / others,
            target,
            {"ours": ours, "theirs": others},
            detail,
        )
