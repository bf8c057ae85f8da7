"""Estimators that find their radius by cross-validation along a path of warm starts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any, Self

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv

from dfwtrace._typing import FloatArray
from dfwtrace.api import path, solve
from dfwtrace.engines import Engine, is_frame
from dfwtrace.estimators.base import (
    FitCallbacks,
    TraceNormEstimator,
    read_weights,
    with_callbacks,
)
from dfwtrace.estimators.classifier import ClassifierMethods, TraceNormClassifier
from dfwtrace.estimators.regressor import RegressorMethods, TraceNormRegressor
from dfwtrace.result import Path, Result
from dfwtrace.validation import check_count, describe

# A grid of radii goes from the scale of the data times the first to that times the second.
_SMALLEST, _LARGEST = 0.1, 30.0


class CrossValidated(TraceNormEstimator):
    """A grid of radii, folds, fits along a path, and the choice among them."""

    def __init__(
        self,
        radii: int | Sequence[float] | FloatArray = 10,
        *,
        cv: object = None,
        scoring: object = None,
        tol: float = 1e-4,
        max_iter: int | None = None,
        max_time: float | None = None,
        fit_intercept: bool = True,
        engine: str | Engine = "local",
        representation: str = "auto",
        n_shards: int | None = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
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
    ) -> Self:
        """Find the radius and fit the model to all rows.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n, d), or Spark DataFrame
            Features; a DataFrame for regressors only.
        y : array of shape (n, m) or (n,), str, or list of str
            Targets of a regressor, or labels of a classifier, numbers or strings; the names of
            their columns if X is a Spark DataFrame.
        sample_weight : array of shape (n,), or str, default=None
            Weights of the rows; the name of their column if X is a Spark DataFrame.
        groups : array of shape (n,), default=None
            For a `cv` that keeps groups together, such as GroupKFold.
        features : str or list of str, default=None
            Columns of features of a Spark DataFrame; see `dfwtrace.solve`.

        Returns
        -------
        object
            The estimator itself.
        """
        self._fit(X, y, sample_weight, features, groups)
        return self

    def _find(
        self,
        callbacks: FitCallbacks,
        X: Any,
        y: Any,
        data: dict[str, Any],
        sample_weight: Any,
        groups: Any,
    ) -> tuple[Result, float]:
        """Fit along the path and choose a radius; the result is the fit to all rows with it."""
        labels = self.classes_[y] if is_classifier(self) and not is_frame(X) else y
        scorer, epochs = self._scorer(X), self._epochs()
        # Once: a splitter that shuffles would make others the next time.
        folds = self._folds(X, labels, groups)
        found = path(
            self._task(),
            X,
            y,
            radii=self._grid(X, y, data),
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
        assert found.validation is not None  # because of the folds
        if scorer is None:
            scores = -found.validation
        else:  # with the rows' weights alone, without those of their classes
            weights = read_weights(X, sample_weight)
            scores = self._fold_scores(scorer, found, folds, X, labels, weights)
        # A radius whose score is NaN is never the best.
        best = int(np.argmax(np.nan_to_num(scores.mean(axis=1), nan=-np.inf)))
        self.path_, self.validation_, self.radii_ = found, found.validation, found.radii
        self.scores_ = scores
        return found.results[best], float(found.radii[best])

    def _grid(self, X: Any, y: Any, data: dict[str, Any]) -> Sequence[float] | FloatArray:
        """The radii as given; of a number, as many around F(0)/σ₁(∇F(0)).

        Along the gradient F falls by at most σ₁ for a unit of the radius: with less than that
        quotient it cannot reach zero.
        """
        if not isinstance(self.radii, int) and np.ndim(self.radii):
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
        radii: FloatArray = scale * np.geomspace(_SMALLEST, _LARGEST, count)
        return radii

    def _folds(self, X: Any, y: Any, groups: Any) -> Any:
        """The number of folds, or each row's."""
        if is_frame(X):
            if groups is not None:
                raise TypeError("groups must be None where X is a DataFrame: its folds are random.")
            return check_count("cv", 5 if self.cv is None else self.cv, 2)
        splitter = check_cv(self.cv, y, classifier=is_classifier(self))
        fold_of = np.full(X.shape[0], -1)
        for fold, (learn, validate) in enumerate(splitter.split(X, y, groups)):
            again = (fold_of[validate] >= 0).any()
            fold_of[validate] = fold
            learnt = np.zeros(X.shape[0], bool)
            learnt[learn] = True
            if again:
                rule = "leave out each row at most once, as KFold does"
            elif not np.array_equal(learnt, fold_of != fold):
                rule = "learn from all rows that it does not leave out, as KFold does"
            elif learnt.all() or not learnt.any():
                rule = "leave out some of the rows each time"
            else:
                continue
            raise ValueError(f"cv must {rule}, got {describe(self.cv)}.")
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
        """For each radius and fold, the score on its rows of the fit without them."""
        scores = np.empty((len(found.radii), len(found.fold_results)))
        # A custom function may take no weights.
        weighted = sample_weight is not None and "sample_weight" in signature(scorer).parameters
        for fold, results in enumerate(found.fold_results):
            rows = np.flatnonzero(folds == fold)
            weights = {"sample_weight": sample_weight[rows]} if weighted else {}
            for number, result in enumerate(results):
                fitted = self._with_radius(float(found.radii[number]))
                fitted._keep(result, float(found.radii[number]))
                scores[number, fold] = scorer(fitted, X[rows], y[rows], **weights)
        return scores

    def _with_radius(self, radius: float) -> TraceNormEstimator:
        """An estimator with a fixed radius, which knows what this one knows of the data."""
        fixed: TraceNormEstimator
        fixed = TraceNormClassifier(radius) if is_classifier(self) else TraceNormRegressor(radius)
        settings, names = self.get_params(deep=False), fixed.get_params(deep=False)
        fixed.set_params(**{name: value for name, value in settings.items() if name in names})
        for name in ("classes_", "_one_target"):
            if name in vars(self):
                setattr(fixed, name, vars(self)[name])
        return fixed


class TraceNormRegressorCV(RegressorMethods, CrossValidated):
    """`TraceNormRegressor` with the radius that does best on rows it has not seen.

    All fits are made by the solver "accelerated".

    Parameters
    ----------
    radii : int or array of float, default=10
        The radii to try; of a number, as many are found from the data.
    cv : int, splitter, iterable of splits or None, default=None
        Folds, as everywhere in scikit-learn; each row is left out at most once. None is 5.
    scoring : str, callable or None, default=None
        What the best radius maximises; if None, minus the mean squared error.
    tol : float, default=1e-4
        A fit ends when the certified gap is at most `tol` times the objective at W = 0.
    max_iter : int, default=None
        Maximum number of epochs of each fit; if None, 1000.
    max_time : float, default=None
        Wall-clock limit of each fit in seconds; there is one for each radius and fold, and one for
        each radius on all rows.
    fit_intercept : bool, default=True
        Whether to learn b, which is not constrained.
    engine : "local" or Engine, default="local"
        Where the fits run: this process, or for instance ``SparkEngine(spark)``.
    representation : {"auto", "gram", "implicit", "dense", "factored"}, default="auto"
        What a shard keeps; see `dfwtrace.plan`.
    n_shards : int, default=None
        Logical shards of the local engine; if None, 8, or 1 for less than a mebibyte of features.
    n_jobs : int, default=None
        Threads of the local engine; None and -1 are all processors.
    random_state : int, RandomState or None, default=None
        Seed of the solver. None is the same seed in every fit.
    verbose : int, default=0
        Show a progress bar if not zero.

    Attributes
    ----------
    radius_ : float
        The best radius.
    radii_ : ndarray of shape (n_radii,)
        All radii that were tried.
    scores_ : ndarray of shape (n_radii, n_folds)
        Scores on the rows left out; higher is better.
    validation_ : ndarray of shape (n_radii, n_folds)
        Mean loss of a row left out.
    path_ : Path
        All fits.
    low_rank_ : LowRankMatrix of shape (d, m)
        W as factors, of the fit to all rows with the best radius, as all that follows.
    coef_ : ndarray of shape (m, d), or (d,)
        W transposed and dense, built on every access.
    intercept_ : ndarray of shape (m,), or float
        b.
    n_iter_ : int
        Number of epochs.
    history_ : History
        A record for each epoch.
    duality_gap_ : float
        Certified upper bound of the distance of the objective from its optimum.
    status_ : str
        "optimal" if the gap is within `tol`; see `dfwtrace.Result`.
    result_ : Result
        All that the solver returned.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X had names.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> X, Y, _ = dt.datasets.make_multitask(n=200, d=15, m=10, rank=2, noise=0.3, seed=0)
    >>> model = dt.TraceNormRegressorCV(radii=[0.1, 0.3, 1.0, 3.0]).fit(X, Y)
    >>> model.radius_, model.scores_.shape
    (1.0, (4, 5))
    """


class TraceNormClassifierCV(ClassifierMethods, CrossValidated):
    """`TraceNormClassifier` with the radius that does best on rows it has not seen.

    All fits are made by the solver "accelerated".

    Parameters
    ----------
    radii : int or array of float, default=10
        The radii to try; of a number, as many are found from the data.
    cv : int, splitter, iterable of splits or None, default=None
        Folds, as everywhere in scikit-learn; each row is left out at most once. None is 5, with the
        classes evenly spread.
    scoring : str, callable or None, default=None
        What the best radius maximises, such as "accuracy"; if None, minus the log loss.
    tol : float, default=1e-4
        A fit ends when the certified gap is at most `tol` times the objective at W = 0.
    max_iter : int, default=None
        Maximum number of epochs of each fit; if None, 1000.
    max_time : float, default=None
        Wall-clock limit of each fit in seconds; there is one for each radius and fold, and one for
        each radius on all rows.
    fit_intercept : bool, default=True
        Whether to learn b, which is not constrained.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, by which those of their rows are multiplied.
    engine : "local" or Engine, default="local"
        Where the fits run: this process, or for instance ``SparkEngine(spark)``.
    representation : {"auto", "implicit", "dense", "factored"}, default="auto"
        What a shard keeps; see `dfwtrace.plan`.
    n_shards : int, default=None
        Logical shards of the local engine; if None, 8, or 1 for less than a mebibyte of features.
    n_jobs : int, default=None
        Threads of the local engine; None and -1 are all processors.
    random_state : int, RandomState or None, default=None
        Seed of the solver. None is the same seed in every fit.
    verbose : int, default=0
        Show a progress bar if not zero.

    Attributes
    ----------
    radius_ : float
        The best radius.
    radii_ : ndarray of shape (n_radii,)
        All radii that were tried.
    scores_ : ndarray of shape (n_radii, n_folds)
        Scores on the rows left out; higher is better.
    validation_ : ndarray of shape (n_radii, n_folds)
        Mean loss of a row left out.
    path_ : Path
        All fits.
    classes_ : ndarray of shape (m,)
        Labels of the classes, sorted.
    low_rank_ : LowRankMatrix of shape (d, m)
        W as factors, of the fit to all rows with the best radius, as all that follows.
    coef_ : ndarray of shape (m, d), or (1, d) for two classes
        W transposed and dense, built on every access; the difference of two classes.
    intercept_ : ndarray of shape (m,), or (1,) for two classes
        b.
    n_iter_ : int
        Number of epochs.
    history_ : History
        A record for each epoch.
    duality_gap_ : float
        Certified upper bound of the distance of the objective from its optimum.
    status_ : str
        "optimal" if the gap is within `tol`; see `dfwtrace.Result`.
    result_ : Result
        All that the solver returned.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X had names.

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
        radii: int | Sequence[float] | FloatArray = 10,
        *,
        cv: object = None,
        scoring: object = None,
        tol: float = 1e-4,
        max_iter: int | None = None,
        max_time: float | None = None,
        fit_intercept: bool = True,
        class_weight: Mapping[object, float] | str | None = None,
        engine: str | Engine = "local",
        representation: str = "auto",
        n_shards: int | None = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            radii,
            cv=cv,
            scoring=scoring,
            tol=tol,
            max_iter=max_iter,
            max_time=max_time,
            fit_intercept=fit_intercept,
            engine=engine,
            representation=representation,
            n_shards=n_shards,
            n_jobs=n_jobs,
            random_state=random_state,
            verbose=verbose,
        )
        self.class_weight = class_weight
