"""Many radii on the same data, each run from the solution of the one before it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dfwtrace._typing import Array, FloatArray
from dfwtrace.engines import Engine, Ledger, LocalWorkers, single_threaded_blas
from dfwtrace.lowrank import LowRankMatrix
from dfwtrace.result import Result
from dfwtrace.rows import ArrayRows
from dfwtrace.running import Limits, run
from dfwtrace.setup import Columns, Setup, check_methods, prepare, start_workers
from dfwtrace.shards import Shard
from dfwtrace.solvers import resolve
from dfwtrace.tasks import GramTask, Moments, ShardProgram, folds_of
from dfwtrace.validation import check_count, check_positive, check_tolerance, describe

_log = logging.getLogger("dfwtrace")


@dataclass(frozen=True)
class Path:
    """Solutions along a list of radii.

    Attributes
    ----------
    radii : array
        As given.
    results : list of Result
        One for each radius.
    validation : array of shape (radii, folds), or None
        Mean loss of a row that the run had not seen, if folds were asked for.
    """

    radii: FloatArray
    results: list[Result]
    validation: FloatArray | None = None

    @property
    def best(self) -> int:
        """The place of the radius with the least mean validation loss."""
        if self.validation is None:
            raise ValueError("best needs validation losses: ask for folds.")
        return int(np.argmin(self.validation.mean(axis=1)))

    def __repr__(self) -> str:
        return f"Path({len(self.radii)} radii from {self.radii.min():g} to {self.radii.max():g})"


def path(
    task: Any,
    X: Any,
    y: Any = None,
    *,
    radii: Sequence[float],
    folds: int | None = None,
    features: str | Sequence[str] | None = None,
    label: str | Sequence[str] | None = None,
    tol: float = 1e-4,
    epochs: int = 1000,
    representation: str = "auto",
    engine: Engine | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> Path:
    """Solve for many radii, from the smallest to the largest, each from the one before.

    The data are read, cut into shards and sent to the workers once. Least squares in gram form sums
    its second moments once; those of a fold's training rows are the total less the fold's own, so
    that all folds and all radii together take one pass over the data.

    Parameters
    ----------
    task, X, y, features, label, representation, engine, seed, progress
        As for `solve`. The solver is "accelerated".
    radii : sequence of float
        In any order.
    folds : int, optional
        Also validate each radius on so many folds of the rows.
    tol : float
        Relative gap that each run is certified to.
    epochs : int
        Epochs of each run at the most.

    Returns
    -------
    Path
        With ``results`` in the order of `radii`, and ``validation``.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> X, Y, W = dt.datasets.make_multitask(n=300, d=15, m=10, rank=2, noise=0.3, seed=0)
    >>> path = dt.path(dt.LeastSquares(), X, Y, radii=[0.1, 0.3, 1.0, 3.0], folds=5)
    >>> [result.status for result in path.results]
    ['optimal', 'optimal', 'optimal', 'optimal']
    >>> path.radii[path.best]
    np.float64(1.0)
    """
    checked = _check_radii(radii)
    if folds is not None:
        folds = check_count("folds", folds, 2)
    method = resolve("accelerated")
    epochs, seed = check_count("epochs", epochs, 0), check_count("seed", seed, 0)
    limits = Limits(epochs, check_tolerance(tol), progress=progress)
    setup = prepare(task, X, y, Columns(features, label), method, representation, engine, epochs)
    check_methods(setup, tol)
    if folds is not None:
        _check_folds(setup, folds)
    _log.info("representation %s", setup.plan)
    with single_threaded_blas():
        if folds is not None and isinstance(setup.task, GramTask):
            return _gram_path(setup, checked, folds, seed, limits)
        with closing(start_workers(setup)) as workers:
            results = _along(setup, workers, checked, seed, limits)
        if folds is None:
            return Path(checked, results)
        losses = [
            _fold_losses(setup, checked, fold, seed, limits) for fold in _splits(setup, folds, seed)
        ]
        return Path(checked, results, np.column_stack(losses))


def _along(
    setup: Setup, workers: Ledger, radii: FloatArray, seed: int, limits: Limits
) -> list[Result]:
    """A result for each radius; the runs go from the smallest to the largest."""
    results: dict[int, Result] = {}
    W = LowRankMatrix.zeros(setup.shape)
    for place in np.argsort(radii, kind="stable"):
        result = run(setup, workers.anew(), float(radii[place]), W, seed, limits)
        if result.status == "interrupted":  # Ctrl-C ends the path, not one of its runs
            raise KeyboardInterrupt
        results[int(place)], W = result, result.W
    return [results[place] for place in range(len(radii))]


def _gram_path(setup: Setup, radii: FloatArray, n_folds: int, seed: int, limits: Limits) -> Path:
    """All runs on the moments of the folds, which add up to those of all rows."""
    program = ShardProgram(setup.task, setup.shape)
    with closing(setup.engine.start(program, setup.rows)) as workers:
        rows = workers.shard_rows
        before = np.concatenate([[0.0], np.cumsum(rows)[:-1]])
        packed = workers.sum("fold_moments", n_folds, seed, before).reshape(n_folds, -1)

    def results_on(moments: FloatArray) -> list[Result]:
        here = Ledger(LocalWorkers(program, [Moments(moments, setup.shape)]), rows)
        with closing(here):
            return _along(setup, here, radii, seed, limits)

    total = packed.sum(axis=0)
    results = results_on(total)
    losses = np.empty((len(radii), n_folds))
    for fold, own in enumerate(packed):
        held_out = Moments(own, setup.shape)
        for place, result in enumerate(results_on(total - own)):
            state = setup.task.stats(held_out, result.W)
            losses[place, fold] = setup.task.loss(state) / held_out.n_rows
    return Path(radii, results, losses)


def _splits(setup: Setup, n_folds: int, seed: int) -> Iterator[tuple[Array, Array]]:
    """Row numbers to learn from and to validate on, for each fold."""
    rows = setup.rows
    fold_of = folds_of(Shard(0, rows.X, rows.y), n_folds, seed)
    for fold in range(n_folds):
        yield np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)


def _fold_losses(
    setup: Setup, radii: FloatArray, fold: tuple[Array, Array], seed: int, limits: Limits
) -> list[float]:
    """The mean loss on the rows left out, for each radius."""
    learn, validate = fold
    rows = setup.rows
    facts = replace(rows.facts, n_rows=len(learn))
    part = ArrayRows(rows.X[learn], None if rows.y is None else rows.y[learn], facts)
    inside = setup._replace(rows=part)
    with closing(start_workers(inside)) as workers:
        results = _along(inside, workers, radii, seed, limits)
    held_out = Shard(0, rows.X[validate], None if rows.y is None else rows.y[validate])
    return [
        setup.task.loss(setup.task.stats(held_out, result.W)) / len(validate) for result in results
    ]


def _check_radii(radii: Any) -> FloatArray:
    if isinstance(radii, str | bytes) or not np.iterable(radii):
        raise TypeError(f"radii must be a list of positive numbers, got {describe(radii)}.")
    checked = np.array([check_positive("radii", radius) for radius in radii])
    if checked.size == 0:
        raise ValueError("radii must hold at least one number, got none.")
    return checked


def _check_folds(setup: Setup, folds: int) -> None:
    facts = setup.rows.facts
    if folds > facts.n_rows:
        raise ValueError(f"folds must be at most the {facts.n_rows} rows, got {folds}.")
    if not isinstance(setup.task, GramTask) and not isinstance(setup.rows, ArrayRows):
        raise TypeError(
            "folds of a DataFrame need a task in gram form, such as LeastSquares(); validate "
            "others on a part of the DataFrame that is set aside."
        )
