"""Estimators that find their radius by cross-validation along a path of warm starts."""

from __future__ import annotations

from typing import Any

from sklearn.callback import with_callbacks

from dfwtrace.engines import is_frame
from dfwtrace.estimators.classifier import ClassifierMethods
from dfwtrace.estimators.following import Following
from dfwtrace.estimators.refusals import as_before_if_refused
from dfwtrace.estimators.regressor import RegressorMethods, read_weights
from dfwtrace.estimators.search import CrossValidated


class TraceNormRegressorCV(RegressorMethods, CrossValidated):
    """`TraceNormRegressor` with the radius that does best on rows it has not seen.

    Parameters
    ----------
    radii : int or list of float
        The radii to try; of a number, so many are found from the data.
    cv : int, splitter, iterable of splits or None
        Folds, as everywhere in scikit-learn; each row is left out once at the most. 5 by default.
    scoring : str, callable or None
        What the best radius has most of; by default, the least mean squared error.
    max_time : float, optional
        Seconds of each fit at the most; there is one for each radius and fold, and for all rows.
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
        max_time: float | None = None,
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
        self.max_time = max_time
        self.fit_intercept = fit_intercept
        self.engine = engine
        self.representation = representation
        self.n_shards = n_shards
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @with_callbacks
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        features: Any = None,
    ) -> TraceNormRegressorCV:
        """Learn from rows and their targets; see `TraceNormRegressor.fit`.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n, d), or Spark DataFrame
        y : array of shape (n, m) or (n,); the names of the columns if X is a Spark DataFrame
        sample_weight : array of shape (n,), or the name of a column, optional
        groups : array of shape (n,), optional
            For a `cv` that keeps groups together, such as GroupKFold.
        features : str or list of str, optional

        Returns
        -------
        self
        """
        following = Following(self, X, y, sample_weight)
        with as_before_if_refused(self):
            X, y, more = self._read_targets(X, y)
            weights = read_weights(X, sample_weight)
            data = {"sample_weight": weights, "features": features, **more}
            self._search(following, X, y, data, y, weights, groups)
        return self


class TraceNormClassifierCV(ClassifierMethods, CrossValidated):
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
    max_time : float, optional
        Seconds of each fit at the most; there is one for each radius and fold, and for all rows.
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
        max_time: float | None = None,
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
        self.max_time = max_time
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
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        features: Any = None,
    ) -> TraceNormClassifierCV:
        """Learn from rows and their classes; see `TraceNormClassifier.fit`.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n, d)
        y : array of shape (n,), numbers or strings
        sample_weight : array of shape (n,), optional
        groups : array of shape (n,), optional
            For a `cv` that keeps groups together, such as GroupKFold.
        features : str or list of str, optional

        Returns
        -------
        self
        """
        following, labels = Following(self, X, y, sample_weight), y
        with as_before_if_refused(self):
            X, y, more = self._read_labels(X, y, sample_weight)
            known = labels if is_frame(X) else self.classes_[y]
            weights, data = read_weights(X, sample_weight), {"features": features, **more}
            self._search(following, X, y, data, known, weights, groups)
        return self
