"""Estimators that find their radius by cross-validation along a path of warm starts."""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np
from sklearn.callback import with_callbacks
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv

from dfwtrace._typing import FloatArray
from dfwtrace.engines import is_frame
from dfwtrace.estimators.base import TraceNormEstimator
from dfwtrace.estimators.classifier import ClassifierMethods, TraceNormClassifier
from dfwtrace.estimators.following import Following
from dfwtrace.estimators.regressor import RegressorMethods, TraceNormRegressor, read_weights
from dfwtrace.paths import Path, path
from dfwtrace.solving import solve
from dfwtrace.validation import check_count, describe

# A grid of radii goes from the scale of the data times the first to that times the second.
_SMALLEST, _LARGEST = 0.1, 30.0


class _CrossValidated(TraceNormEstimator):
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
    ) -> None:
        """Fit along the path, choose a radius, and keep the fit on all rows that belongs to it.

        `raw_y` and `sample_weight` are what scores are worked out with: labels as they came, and
        weights without those of the classes.
        """
        scorer, epochs = self._scorer(X), self._epochs()
        # Once: a splitter that shuffles would make others the next time.
        folds = self._folds(X, raw_y)
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
            representation=self.representation,
            engine=self._engine(X),
            seed=self._seed(),
            progress=bool(self.verbose),
            **data,
        )
        assert found.validation is not None  # folds were asked for
        self.path_, self.validation_, self.radii_ = found, found.validation, found.radii
        if scorer is None:
            self.scores_ = -found.validation
        else:
            self.scores_ = self._fold_scores(scorer, found, folds, X, raw_y, sample_weight)
        # A radius whose score is NaN is never the best.
        means = np.nan_to_num(self.scores_.mean(axis=1), nan=-np.inf)
        best = int(np.argmax(means))
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
        return scale * np.geomspace(_SMALLEST, _LARGEST, count)

    def _folds(self, X: Any, y: Any) -> Any:
        """The number of folds, or each row's."""
        if is_frame(X):
            return check_count("cv", 5 if self.cv is None else self.cv, 2)
        classifies = hasattr(self, "classes_")
        splitter = check_cv(self.cv, y, classifier=classifies)
        fold_of = np.full(X.shape[0], -1)
        for fold, (learn, validate) in enumerate(splitter.split(X, y)):
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


class TraceNormRegressorCV(RegressorMethods, _CrossValidated):
    """`TraceNormRegressor` with the radius that does best on rows it has not seen.

    Parameters
    ----------
    radii : int or list of float
        The radii to try; of a number, so many are found from the data.
    cv : int, splitter, iterable of splits or None
        Folds, as everywhere in scikit-learn; each row is left out once at the most. 5 by default.
    scoring : str, callable or None
        What the best radius has most of; by default, the least mean squared error.
    tol, max_iter, fit_intercept, engine, representation, n_shards, n_jobs, random_state, verbose
        As for `TraceNormRegressor`. All fits are made by the solver "accelerated".

    Attributes
    ----------
    radius_ : float
        The best.
    radii_ : array
        All that were tried.
    scores_ : array of shape (radii, folds)
        The larger the better.
    validation_ : array of shape (radii, folds)
        Mean loss of a row left out.
    path_ : Path
        All fits.
    low_rank_, coef_, intercept_, n_iter_, history_, duality_gap_, status_, result_
        Of the fit on all rows with the best radius; see `TraceNormRegressor`.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> X, Y, _ = dt.datasets.make_multitask(n=200, d=15, m=10, rank=2, noise=0.3, seed=0)
    >>> model = dt.TraceNormRegressorCV(radii=[0.1, 0.3, 1.0, 3.0]).fit(X, Y)
    >>> model.radius_, model.scores_.shape
    (1.0, (4, 5))
    """

    def __init__(
        self,
        radii: Any = 10,
        *,
        cv: Any = None,
        scoring: Any = None,
        tol: float = 1e-4,
        max_iter: int | None = None,
        fit_intercept: bool = True,
        engine: Any = "local",
        representation: str = "auto",
        n_shards: int | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.radii = radii
        self.cv = cv
        self.scoring = scoring
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.engine = engine
        self.representation = representation
        self.n_shards = n_shards
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @with_callbacks
    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, features: Any = None
    ) -> TraceNormRegressorCV:
        """Learn from rows and their targets; see `TraceNormRegressor.fit`.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n, d), or Spark DataFrame
        y : array of shape (n, m) or (n,); the names of the columns if X is a Spark DataFrame
        sample_weight : array of shape (n,), or the name of a column, optional
        features : str or list of str, optional

        Returns
        -------
        self
        """
        following = Following(self, X, y, sample_weight)
        X, y, more = self._read_targets(X, y)
        weights = read_weights(X, sample_weight)
        data = {"sample_weight": weights, "features": features, **more}
        self._search(following, X, y, data, y, weights)
        return self


class TraceNormClassifierCV(ClassifierMethods, _CrossValidated):
    """`TraceNormClassifier` with the radius that does best on rows it has not seen.

    Parameters
    ----------
    radii : int or list of float
        The radii to try; of a number, so many are found from the data.
    cv : int, splitter, iterable of splits or None
        Folds, as everywhere in scikit-learn; each row is left out once at the most. 5 by default,
        with the classes evenly spread.
    scoring : str, callable or None
        What the best radius has most of, such as "accuracy"; by default, the least log loss.
    class_weight : dict, "balanced" or None
        As for `TraceNormClassifier`.
    tol, max_iter, fit_intercept, engine, representation, n_shards, n_jobs, random_state, verbose
        As for `TraceNormClassifier`. All fits are made by the solver "accelerated".

    Attributes
    ----------
    radius_, radii_, scores_, validation_, path_
        As for `TraceNormRegressorCV`.
    classes_, low_rank_, coef_, intercept_, n_iter_, history_, duality_gap_, status_, result_
        Of the fit on all rows with the best radius; see `TraceNormClassifier`.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> X, y, _ = dt.datasets.make_multiclass(n=200, d=15, m=4, rank=2, seed=0)
    >>> model = dt.TraceNormClassifierCV(radii=[1.0, 10.0], cv=3).fit(X, y)
    >>> model.radius_ in model.radii_, model.scores_.shape
    (True, (2, 3))
    """

    def __init__(
        self,
        radii: Any = 10,
        *,
        cv: Any = None,
        scoring: Any = None,
        tol: float = 1e-4,
        max_iter: int | None = None,
        fit_intercept: bool = True,
        class_weight: Any = None,
        engine: Any = "local",
        representation: str = "auto",
        n_shards: int | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.radii = radii
        self.cv = cv
        self.scoring = scoring
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.engine = engine
        self.representation = representation
        self.n_shards = n_shards
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @with_callbacks
    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, features: Any = None
    ) -> TraceNormClassifierCV:
        """Learn from rows and their classes; see `TraceNormClassifier.fit`.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n, d), or Spark DataFrame
        y : array of shape (n,), numbers or strings
        sample_weight : array of shape (n,), optional
        features : str or list of str, optional

        Returns
        -------
        self
        """
        following, labels = Following(self, X, y, sample_weight), y
        X, y, more = self._read_labels(X, y, sample_weight)
        known = labels if is_frame(X) else self.classes_[y]
        weights = read_weights(X, sample_weight)
        self._search(following, X, y, {"features": features, **more}, known, weights)
        return self
