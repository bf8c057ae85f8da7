"""Many radii on the same data, each run from the solution of the one before it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from dfwtrace._typing import Array, FloatArray
from dfwtrace.engines import Engine, LocalWorkers, single_threaded_blas
from dfwtrace.lowrank import LowRankMatrix
from dfwtrace.result import Result
from dfwtrace.rows import ArrayRows
from dfwtrace.running import Limits, run
from dfwtrace.setup import (
    Columns,
    Setup,
    Workplace,
    centre_near_means,
    check_methods,
    prepare,
    start_workers,
)
from dfwtrace.shards import Shard
from dfwtrace.solvers import resolve
from dfwtrace.tasks import Centre, GramTask, Moments, ShardProgram, folds_of
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
    fold_results : list of lists of Result
        For each fold the results without its rows, in the order of the radii.
    """

    radii: FloatArray
    results: list[Result]
    validation: FloatArray | None = None
    fold_results: list[list[Result]] = field(default_factory=list, repr=False)

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
    radii: Sequence[float] | FloatArray,
    folds: int | Sequence[int] | None = None,
    features: str | Sequence[str] | None = None,
    label: str | Sequence[str] | None = None,
    sample_weight: Any = None,
    intercept: bool = False,
    tol: float | None = 1e-4,
    epochs: int = 1000,
    max_time: float | None = None,
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
    task, X, y, features, label, sample_weight, intercept
        As for `solve`.
    representation, engine, seed, progress
        As for `solve`. The solver is "accelerated".
    radii : sequence of float
        In any order.
    folds : int or array of shape (n,), optional
        Also validate each radius on so many folds of the rows, made at random; or on these: the
        number of each row's fold, from 0. A row with a negative number is in no fold: all runs
        learn from it.
    tol : float
        Relative gap that each run is certified to.
    epochs : int
        Epochs of each run at the most.
    max_time : float, optional
        Seconds of each run at the most.

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
    method = resolve("accelerated")
    epochs, seed = check_count("epochs", epochs, 0), check_count("seed", seed, 0)
    max_time = None if max_time is None else check_positive("max_time", max_time)
    limits = Limits(epochs, check_tolerance(tol), max_time, progress=progress)
    columns = Columns(features, label)
    setup = prepare(
        task, X, y, columns, method, representation, engine, epochs, intercept, sample_weight
    )
    check_methods(setup, tol)
    cut = None if folds is None else _check_folds(setup, folds, seed)
    _log.info("representation %s", setup.plan)
    with single_threaded_blas():
        if cut is not None and isinstance(setup.task, GramTask):
            return _gram_path(setup, checked, cut, seed, limits)
        with closing(start_workers(setup)) as place:
            results = _along(setup, place, checked, seed, limits)
        if cut is None:
            return Path(checked, results)
        of_folds, losses = [], []
        for learn, validate in cut.splits(setup):
            of_folds.append(_without_fold(setup, checked, learn, seed, limits))
            losses.append(_validation_losses(setup, of_folds[-1], validate))
        return Path(checked, results, np.column_stack(losses), of_folds)


def _along(
    setup: Setup, place: Workplace, radii: FloatArray, seed: int, limits: Limits
) -> list[Result]:
    """A result for each radius; the runs go from the smallest to the largest."""
    results: dict[int, Result] = {}
    W = LowRankMatrix.zeros(setup.shape)
    for number in np.argsort(radii, kind="stable"):
        place.workers.reset_accounting()
        result = run(setup, place, float(radii[number]), W, seed, limits)
        if result.status == "interrupted":  # Ctrl-C ends the path, not one of its runs
            raise KeyboardInterrupt
        results[int(number)], W = result, result.W
    return [results[number] for number in range(len(radii))]


def _gram_path(setup: Setup, radii: FloatArray, cut: _Cut, seed: int, limits: Limits) -> Path:
    """All runs on the moments of the folds, which add up to those of all rows."""
    n_folds = cut.n_folds
    program = ShardProgram(setup.task, setup.shape)
    with closing(setup.engine.start(program, setup.rows)) as workers:
        rows = workers.shard_rows
        before = np.concatenate([[0.0], np.cumsum(rows)[:-1]])
        near = [centre_near_means(setup, workers)] if setup.intercept else []
        told = workers.sum("fold_moments", n_folds, cut.seed, before, cut.fold_of, *near)
        packed = told.reshape(n_folds + 1, -1)
    d, m = setup.shape
    # With an intercept the moments have one feature more, the constant 1.
    shape = (d + len(near), m)

    def results_on(moments: FloatArray) -> list[Result]:
        about, centre = Moments(moments, shape), None
        if near:
            about, means = about.about_means()
            centre = Centre(near[0][:d] + means.x, near[0][d:] + means.y)
        here = Workplace(LocalWorkers(program, [about], shard_rows=rows), centre)
        with closing(here):
            return _along(setup, here, radii, seed, limits)

    total = packed.sum(axis=0)
    results = results_on(total)
    losses, of_folds = np.empty((len(radii), n_folds)), []
    for fold, own in enumerate(packed[:-1]):
        held_out = Moments(own, shape)
        of_folds.append(results_on(total - own))
        for number, result in enumerate(of_folds[-1]):
            W = result.W
            if result.intercept is not None:
                shift = Centre(near[0][:d], near[0][d:]).intercept(W)
                W = _with_row(W, result.intercept - shift)
            state = setup.task.stats(held_out, W)
            losses[number, fold] = setup.task.loss(state) / (held_out.weight or 1.0)
    return Path(radii, results, losses, of_folds)


def _with_row(W: LowRankMatrix, row: FloatArray) -> LowRankMatrix:
    """W with one more row below."""
    left = np.zeros((W.shape[0] + 1, W.rank + 1))
    left[:-1, :-1], left[-1, -1] = W.U, 1.0
    return LowRankMatrix(left, np.append(W.s, 1.0), np.column_stack([W.V, row]))


class _Cut(NamedTuple):
    """How rows are cut into folds: at random from a seed, or as told for each row."""

    n_folds: int
    seed: int
    fold_of: FloatArray  # empty if at random

    def splits(self, setup: Setup) -> Iterator[tuple[Array, Array]]:
        """Row numbers to learn from and to validate on, for each fold."""
        rows, fold_of = setup.rows, self.fold_of
        if not fold_of.size:
            fold_of = folds_of(Shard(0, rows.X, rows.y), self.n_folds, self.seed)
        for fold in range(self.n_folds):
            yield np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)


def _without_fold(
    setup: Setup, radii: FloatArray, learn: Array, seed: int, limits: Limits
) -> list[Result]:
    """A result for each radius, from some of the rows."""
    rows = setup.rows
    facts = replace(rows.facts, n_rows=len(learn))
    part = ArrayRows(rows.X[learn], None if rows.y is None else rows.y[learn], facts)
    inside = setup._replace(rows=part)
    with closing(start_workers(inside)) as place:
        return _along(inside, place, radii, seed, limits)


def _validation_losses(setup: Setup, results: list[Result], validate: Array) -> list[float]:
    """The mean loss on the rows left out, for each radius."""
    rows = setup.rows
    held_out = Shard(0, rows.X[validate], None if rows.y is None else rows.y[validate])
    weight = (
        held_out.targets[:, 0].sum() if getattr(setup.task, "weighted", False) else len(validate)
    )
    task, losses = setup.task, []
    for result in results:
        b = () if result.intercept is None else (result.intercept,)
        losses.append(task.loss(task.stats(held_out, result.W, *b)) / (weight or 1.0))
    return losses


def _check_radii(radii: Any) -> FloatArray:
    if isinstance(radii, str | bytes) or not np.iterable(radii):
        raise TypeError(f"radii must be a list of positive numbers, got {describe(radii)}.")
    checked = np.array([check_positive("radii", radius) for radius in radii])
    if checked.size == 0:
        raise ValueError("radii must hold at least one number, got none.")
    return checked


def _check_folds(setup: Setup, folds: Any, seed: int) -> _Cut:
    facts = setup.rows.facts
    if np.ndim(folds) == 0:
        cut = _Cut(check_count("folds", folds, 2), seed, np.zeros(0))
        if cut.n_folds > facts.n_rows:
            raise ValueError(f"folds must be at most the {facts.n_rows} rows, got {folds}.")
    else:
        told = np.asarray(folds)
        if told.dtype.kind not in "iu" or told.shape != (facts.n_rows,):
            raise ValueError(
                f"folds must be a whole number for each of the {facts.n_rows} rows, "
                f"got shape {told.shape} of {told.dtype}."
            )
        cut = _Cut(int(told.max()) + 1, seed, told.astype(np.float64))
        sizes = np.bincount(told[told >= 0], minlength=cut.n_folds)
        if cut.n_folds < 1 or not sizes.min() > 0 or sizes.max() == facts.n_rows:
            raise ValueError("folds must number the folds from 0 without gaps, each with rows.")
    if not isinstance(setup.task, GramTask) and not isinstance(setup.rows, ArrayRows):
        raise TypeError(
            "folds of a DataFrame need a task in gram form, such as LeastSquares(); validate "
            "others on a part of the DataFrame that is set aside."
        )
    return cut
