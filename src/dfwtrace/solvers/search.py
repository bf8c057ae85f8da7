"""Radii in turn, each solution from the one before, judged by rows that were left out."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from dfwtrace._typing import FloatArray
from dfwtrace.linalg.lowrank import LowRankMatrix
from dfwtrace.result import Path, Result
from dfwtrace.solvers.problem import Problem
from dfwtrace.solvers.runner import Runner
from dfwtrace.solvers.solver import StoppingCriteria, resolve
from dfwtrace.validation import as_number

_log = logging.getLogger("dfwtrace")

#: Solves a problem for a radius, from a start, under a title for the progress bar.
Run = Callable[[StoppingCriteria, Problem, float, LowRankMatrix, str], Result]
#: Scores the result without a fold on the fold's rows; higher is better.
Score = Callable[[int, Result], float]

# A grid of radii goes from the scale of the data times the first to that times the second.
_SMALLEST, _LARGEST = 0.1, 30.0
# Radii beyond the ends of a grid, at most. Features of very different size may need very large
# ones; below the smallest there is little but W = 0.
_LARGER, _SMALLER = 20, 6
# A fit that only serves to score its radius ends when its gap is about so many times the tolerance.
_COARSER = 3.0
_ON_ITS_WAY = 0.5  # share of the radius from which on such a fit may be held back by it
# Of radius="auto": the epochs and tolerance of a fit, the ratio of neighbours, how many radii that
# do worse end the search, and up to how many rows each fold is left out in turn.
_EPOCHS, _TOL, _RATIO, _PATIENCE, _FEW_ROWS = 10, 1e-3, 3.0, 2, 1000


class Grid(NamedTuple):
    """Radii, from the smallest to the largest, and how to go on from there."""

    radii: Sequence[float]
    ratio: float | None = None  # of neighbours beyond the ends; None to stay within
    patience: int | None = None  # radii in a row that do worse than the best end the search

    @classmethod
    def around(cls, scale: float, count: int, grows: bool) -> Grid:
        """A grid in units of the data's own scale, F(0)/σ₁(∇F(0))."""
        if not 0.0 < scale < np.inf:  # W = 0 is optimal already, whatever the radius
            return cls([1.0])
        if count == 1:  # the middle, not an end
            return cls([scale * float(np.sqrt(_SMALLEST * _LARGEST))])
        radii = (scale * np.geomspace(_SMALLEST, _LARGEST, count)).tolist()
        return cls(radii, radii[1] / radii[0], 3) if grows else cls(radii)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a search, with the best result so far."""

    def __init__(self, result: Result) -> None:
        super().__init__()
        self.result = replace(result, status="interrupted")


class _Trial(NamedTuple):
    """A radius, and for each fold the result without it, its mean loss and its score there."""

    radius: float
    results: list[Result]
    losses: list[float]
    scores: list[float]

    @property
    def score(self) -> float:
        """The mean; a score that is NaN is never the best."""
        mean = float(np.mean(self.scores)) if self.scores else np.nan
        return mean if mean == mean else -np.inf


@dataclass
class Search:
    """A problem with folds, and what has been tried on it.

    Where fits without a fold only serve to compare radii, they may be `coarse`: none is certified.
    """

    problem: Problem
    folds: Sequence[int]
    criteria: StoppingCriteria
    run: Run
    score: Score | None = None
    coarse: bool = False
    trials: list[_Trial] = field(default_factory=list)  # from the smallest radius to the largest

    def over(self, grid: Grid) -> Search:
        """Try the radii of a grid from the smallest to the largest, and more where the best ends.

        Where the grid may grow, it is left early once the score has turned.
        """
        for radius in sorted(grid.radii):
            self._try(radius)
            if grid.patience is not None and self._behind >= grid.patience:
                break
        if grid.ratio is None or self.trials[self.best].score == -np.inf:  # no radius has a score
            return self
        patience, first, last = grid.patience or 1, self.trials[0].radius, self.trials[-1].radius
        # Large radii are the expensive ones: where the smallest is best, smaller ones come first.
        self._grow(grid.ratio, lambda: self._behind >= (patience if self.best > 0 else 1))
        for _ in range(_SMALLER):
            if self.best > 0 or self._out_of_time:
                break
            self._try(self.trials[0].radius / grid.ratio)
        self._grow(grid.ratio, lambda: self._behind >= patience)
        if (self.trials[0].radius, self.trials[-1].radius) != (first, last):
            _log.info(
                "the best radius was at an end of the grid, which grew from %g to %g to %g to %g",
                *(first, last, self.trials[0].radius, self.trials[-1].radius),
            )
        return self

    def _grow(self, ratio: float, enough: Callable[[], bool]) -> None:
        """Try larger radii until that is enough, or could change nothing."""
        for _ in range(_LARGER):
            if enough() or not self._worthwhile:
                return
            self._try(self.trials[-1].radius * ratio)

    @property
    def best(self) -> int:
        """Place of the best trial, the one with the smallest radius of equal ones."""
        return int(np.argmax([trial.score for trial in self.trials]))

    @property
    def _behind(self) -> int:
        """How many larger radii than the best have been tried."""
        return len(self.trials) - 1 - self.best

    @property
    def _worthwhile(self) -> bool:
        """Whether a larger radius could change anything."""
        if self._out_of_time:
            return False
        # A fit that was cut short may be on its way to the bound; a coarse one ends before it.
        return any(
            (r.is_bound_active or r.status != "optimal" or self._on_its_way(r))
            and not self._vanished(r)
            for r in self.trials[-1].results
        )

    def _on_its_way(self, result: Result) -> bool:
        return self.coarse and float(result.W.s.sum()) >= _ON_ITS_WAY * result.radius

    def _vanished(self, result: Result) -> bool:
        """Whether F is all but zero, as where classes are separated: it cannot fall any more."""
        least = (self._scoring.tol or 0.0) * abs(result.objective_at_zero)
        return self.problem.task.nonnegative and result.objective <= least

    @property
    def _out_of_time(self) -> bool:
        return any(r.status == "max_time" for trial in self.trials for r in trial.results)

    def _try(self, radius: float) -> None:
        place = int(np.searchsorted([trial.radius for trial in self.trials], radius, "right"))
        trial = _Trial(radius, [], [], [])
        self.trials.insert(place, trial)
        for k, fold in enumerate(self.folds):
            problem, W = self.problem.without(fold), self._start(place, k, radius)
            title = f"radius {radius:.2g}, {k + 1}/{len(self.folds)}"
            try:
                result = self.run(self._scoring, problem, radius, W, title)
                trial.results.append(result)
                if result.status == "interrupted":
                    raise KeyboardInterrupt
                loss = self.problem.held_out_loss(fold, result.W, result.intercept)
                trial.losses.append(loss)
                score = -loss if self.score is None else self.score(fold, result)
                trial.scores.append(as_number(score, "scoring"))
            except KeyboardInterrupt as ended:
                raise self._interruption() from ended

    @property
    def _scoring(self) -> StoppingCriteria:
        """When fits without a fold end."""
        if not self.coarse:
            return self.criteria
        tol = self.criteria.tol
        return replace(self.criteria, tol=None if tol is None else _COARSER * tol, certified=False)

    def _start(self, place: int, k: int, radius: float) -> LowRankMatrix:
        """The solution for the next smaller radius, or that for the next larger one, shrunk."""
        if place > 0:
            return self.trials[place - 1].results[k].W
        if len(self.trials) > 1:
            return self.trials[1].results[k].W * (radius / self.trials[1].radius)
        return LowRankMatrix.zeros(self.problem.shape)

    def refit(self) -> list[Result]:
        """The results on all rows, for each of the radii."""
        results, W = list[Result](), LowRankMatrix.zeros(self.problem.shape)
        for trial in self.trials:
            results.append(self._refit(trial.radius, W, results))
            W = results[-1].W
        return results

    def refit_best(self) -> Result:
        """The result on all rows for the best radius, from the mean of those without a fold."""
        best = self.trials[self.best]
        return self._refit(best.radius, _mean([result.W for result in best.results]))

    def _refit(self, radius: float, W: LowRankMatrix, before: Sequence[Result] = ()) -> Result:
        problem, title = self.problem.without(None), f"radius {radius:.2g}"
        try:
            result = self.run(self.criteria, problem, radius, W, title)
            if result.status == "interrupted":
                raise KeyboardInterrupt
        except KeyboardInterrupt as ended:
            raise self._interruption(before) from ended
        return result

    def _interruption(self, on_all_rows: Sequence[Result] = ()) -> KeyboardInterrupt:
        """With the best result so far; one that no rows have judged, if there is no other."""
        known = list(on_all_rows[self.best : self.best + 1])
        for trial in sorted(self.trials, key=lambda trial: -trial.score):
            known += [result for result in trial.results if result.history]
        return Interrupted(known[0]) if known else KeyboardInterrupt()

    def path(self, results: list[Result]) -> Path:
        """What was tried, for the user; `results` are those on all rows, if any."""
        radii: FloatArray = np.array([trial.radius for trial in self.trials])
        if not self.folds:
            return Path(radii, results)
        losses = np.array([trial.losses for trial in self.trials])
        scores = np.array([trial.scores for trial in self.trials])
        by_fold = [list(fold) for fold in zip(*(t.results for t in self.trials), strict=True)]
        return Path(radii, results, losses, by_fold, None if self.score is None else scores)


def _mean(matrices: Sequence[LowRankMatrix]) -> LowRankMatrix:
    """The mean, whose trace norm is no larger than the largest of theirs."""
    return (sum(matrices[1:], matrices[0]) / len(matrices)).compress()


def in_order(found: Path, given: list[float]) -> Path:
    """The path in the order in which the radii were given."""
    order = np.argsort(np.argsort(given, kind="stable"), kind="stable")
    losses, scores = found.validation, found.scores
    return Path(
        found.radii[order],
        [found.results[k] for k in order if found.results],
        None if losses is None else losses[order],
        [[results[k] for k in order] for results in found.fold_results],
        None if scores is None else scores[order],
    )


def find_radius(
    problem: Problem, max_time: float | None, verbose: bool | int | None, began: float, seed: int
) -> tuple[float, LowRankMatrix, Path]:
    """The radius with the least loss on rows left out, a W near its solution, and what was tried.

    Fits of ten epochs are enough to tell the radii apart; shorter ones are not, since a W on its
    way to a radius that is too large passes by good ones.
    """
    method, criteria = resolve("accelerated"), StoppingCriteria(_EPOCHS, _TOL, max_time)

    def run(
        criteria: StoppingCriteria, problem: Problem, radius: float, W: LowRankMatrix, title: str
    ) -> Result:
        runner = Runner(problem, method, criteria, verbose=verbose, began=began, title=title)
        return runner.run(radius, W, seed)

    n_rows, scale = problem.rows.facts.n_rows, problem.radius_scale()
    folds = range(0 if n_rows < 2 else min(5, n_rows) if n_rows <= _FEW_ROWS else 1)
    grid = Grid([scale], _RATIO, _PATIENCE) if 0.0 < scale < math.inf else Grid([1.0])
    search = Search(problem, folds, criteria, run, coarse=True).over(grid)
    problem.without(None)
    found = search.path([])
    if not found.fold_results:  # one row teaches nothing of the radius
        return search.trials[0].radius, LowRankMatrix.zeros(problem.shape), found
    return float(found.radii[found.best]), found.fold_results[0][found.best].W, found
