"""The search for a radius: a grid, folds, fits along a path, and the choice among them."""

from __future__ import annotations

import math
from inspect import signature
from typing import Any

import numpy as np
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv

from dfwtrace._typing import FloatArray
from dfwtrace.api import path, solve
from dfwtrace.engines import is_frame
from dfwtrace.estimators.base import TraceNormEstimator
from dfwtrace.estimators.classifier import TraceNormClassifier
from dfwtrace.estimators.following import Following
from dfwtrace.estimators.regressor import TraceNormRegressor
from dfwtrace.result import Path
from dfwtrace.validation import check_count, describe

# A grid of radii goes from the scale of the data times the first to that times the second.
_SMALLEST, _LARGEST = 0.1, 30.0


class CrossValidated(TraceNormEstimator):
    """What both estimators share."""

    radii: Any
    cv: Any
    scoring: Any

    def _search(
        self,
        following: Following,
        X: Any,
        y: Any,
        data: dict[str, Any],
        raw_y: Any,
        sample_weight: Any,
        groups: Any,
    ) -> None:
        """Fit along the path, choose a radius, and keep the fit on all rows that belongs to it.

        `raw_y` and `sample_weight` are what scores are worked out with: labels as they came, and
        weights without those of the classes.
        """
        scorer, epochs = self._scorer(X), self._epochs()
        # Once: a splitter that shuffles would make others the next time.
        folds = self._folds(X, raw_y, groups)
        radii = self._grid(X, y, data)
        found = path(
            self._task(),
            X,
            y,
            radii=radii,
            folds=folds,
            intercept=self.fit_intercept,
            tol=self.tol,
            epochs=1000 if epochs is None else epochs,
            max_time=self.max_time,
            representation=self.representation,
            engine=self._engine(X),
            seed=self._seed(),
            progress=bool(self.verbose),
            **data,
        )
        assert found.validation is not None  # folds were asked for
        if scorer is None:
            scores = -found.validation
        else:
            scores = self._fold_scores(scorer, found, folds, X, raw_y, sample_weight)
        # A radius whose score is NaN is never the best.
        means = np.nan_to_num(scores.mean(axis=1), nan=-np.inf)
        best = int(np.argmax(means))
        self.path_, self.validation_, self.radii_ = found, found.validation, found.radii
        self.scores_ = scores
        self._keep(found.results[best], float(self.radii_[best]))
        following.end()

    def _grid(self, X: Any, y: Any, data: dict[str, Any]) -> Any:
        """The radii as given; of a number, so many around F(0)/σ₁(∇F(0)).

        Along the gradient F falls by at most σ₁ for a unit of the radius: with less than that
        quotient it cannot reach zero.
        """
        if np.ndim(self.radii):
            return self.radii
        count = check_count("radii", self.radii, 1)
        at_zero = solve(
            self._task(),
            X,
            y,
            radius=1.0,
            intercept=self.fit_intercept,
            epochs=0,
            engine=self._engine(X),
            seed=self._seed(),
            progress=False,
            **data,
        )
        scale = at_zero.objective / at_zero.gap if at_zero.gap > 0.0 else 0.0
        if not scale > 0.0:  # W = 0 is optimal already, whatever the radius
            return np.ones(1)
        if count == 1:  # the middle, not an end
            return np.array([scale * math.sqrt(_SMALLEST * _LARGEST)])
        return scale * np.geomspace(_SMALLEST, _LARGEST, count)

    def _folds(self, X: Any, y: Any, groups: Any) -> Any:
        """The number of folds, or each row's."""
        if is_frame(X):
            if groups is not None:
                raise TypeError("groups must be None where X is a DataFrame: its folds are random.")
            return check_count("cv", 5 if self.cv is None else self.cv, 2)
        classifies = hasattr(self, "classes_")
        splitter = check_cv(self.cv, y, classifier=classifies)
        fold_of = np.full(X.shape[0], -1)
        for fold, (learn, validate) in enumerate(splitter.split(X, y, groups)):
            if (fold_of[validate] >= 0).any():
                raise ValueError(
                    f"cv must leave out each row once at the most, as KFold does, "
                    f"got {describe(self.cv)}."
                )
            fold_of[validate] = fold
            learnt = np.zeros(X.shape[0], bool)
            learnt[learn] = True
            if not np.array_equal(learnt, fold_of != fold):
                raise ValueError(
                    f"cv must learn from all rows that it does not leave out, as KFold does, "
                    f"got {describe(self.cv)}."
                )
            if learnt.all() or not learnt.any():
                raise ValueError(
                    f"cv must leave out some of the rows each time, got {describe(self.cv)}."
                )
        if (fold_of < 0).all():
            raise ValueError(f"cv must hold at least one split, got {describe(self.cv)}.")
        return fold_of

    def _scorer(self, X: Any) -> Any:
        """What scores a fit; None for the loss that is minimised."""
        if self.scoring is None:
            return None
        if is_frame(X):
            raise TypeError("scoring must be None where X is a DataFrame: the loss is used.")
        return check_scoring(self, self.scoring)

    def _fold_scores(
        self, scorer: Any, found: Path, folds: Any, X: Any, y: Any, sample_weight: Any
    ) -> FloatArray:
        """For each radius and fold how good the fit without the fold's rows is on them."""
        scores = np.empty((len(found.radii), len(found.fold_results)))
        # A function of one's own may know nothing of weights.
        weighted = sample_weight is not None and "sample_weight" in signature(scorer).parameters
        for fold, results in enumerate(found.fold_results):
            rows = np.flatnonzero(folds == fold)
            weights = {"sample_weight": sample_weight[rows]} if weighted else {}
            for number, result in enumerate(results):
                fitted = self._plain(found.radii[number])
                fitted._restore(result, float(found.radii[number]))
                scores[number, fold] = scorer(fitted, X[rows], y[rows], **weights)
        return scores

    def _plain(self, radius: float) -> TraceNormEstimator:
        """An estimator of this kind with a radius, which knows what this one knows of the data."""
        kind = TraceNormClassifier if hasattr(self, "classes_") else TraceNormRegressor
        shared = kind._get_param_names()
        settings = {k: v for k, v in self.get_params(deep=False).items() if k in shared}
        plain: TraceNormEstimator = kind(radius, **settings)
        for name in ("classes_", "_one_target"):
            if hasattr(self, name):
                setattr(plain, name, getattr(self, name))
        return plain
