"""Estimators that find their radius by cross-validation along a path of warm starts."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass
from functools import partial
from inspect import signature
from typing import ClassVar, Self

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv

from dfwtrace._typing import Data, FloatArray
from dfwtrace.api import search_radii
from dfwtrace.engines import is_frame
from dfwtrace.estimators.base import (
    TOL_OF_REGRESSION,
    Named,
    TraceNormEstimator,
    read_weights,
    with_callbacks,
)
from dfwtrace.estimators.linear import ClassifierMethods, RegressorMethods
from dfwtrace.result import Result
from dfwtrace.solvers.search import Interrupted, Score
from dfwtrace.validation import check_count, describe


@dataclass(eq=False, repr=False)
class CrossValidated(TraceNormEstimator):
    """A grid of radii, folds, fits along a path, and the choice among them."""

    _coarse: ClassVar[bool] = True  # else all fits are certified, also to all rows for each radius

    radii: int | Sequence[float] | FloatArray = 10
    _: KW_ONLY
    cv: object = None
    scoring: object = None

    @with_callbacks
    def fit(
        self,
        X: Data,
        y: Data,
        sample_weight: Data = None,
        *,
        groups: Data = None,
        features: str | list[str] | None = None,
    ) -> Self:
        """Find the radius and fit the model to all rows.

        Parameters
        ----------
        X, y, sample_weight : object
            Features, targets or labels, and weights; as for `TraceNormRegressor.fit`.
        groups : array of shape (n,) or None, default=None
            Groups of rows, for a `cv` that keeps groups together, such as GroupKFold.
        features : str, list of str or None, default=None
            Columns of features of a Spark DataFrame; see `dfwtrace.solve`.

        Returns
        -------
        self
            The estimator, fitted to all rows with the best radius.
        """
        search = partial(self._search, sample_weight=sample_weight, groups=groups)
        self._fit(X, y, sample_weight, features, search)
        return self

    def _search(
        self, X: Data, y: Data, data: Named, _: object, sample_weight: Data, groups: Data
    ) -> Result:
        """Fit along the path and choose a radius; the result is the fit to all rows with it."""
        labels = self.classes_[y] if is_classifier(self) and not is_frame(X) else y
        if self.scoring is not None and is_frame(X):
            raise TypeError("scoring must be None where X is a DataFrame: the loss is used.")
        # Once: a splitter that shuffles would make others the next time.
        folds, scoring = self._folds(X, labels, groups), None
        if self.scoring is not None:  # with the rows' weights alone, without those of their classes
            scoring = self._scoring(folds, X, labels, read_weights(X, sample_weight))
        rows = X, y, data["features"], data.get("label"), data["sample_weight"]
        asked = self._settings(X)
        form = (asked[k] for k in ("representation", "engine", "fit_intercept", "standardize"))
        limits = (asked[k] for k in ("max_iter", "tol", "max_time"))
        seed, verbose = asked["random_state"], asked["verbose"]
        try:
            found, best = search_radii(
                self._task(), rows, tuple(form), tuple(limits), self.radii, folds, scoring,
                seed, verbose, coarse=self._coarse,
            )  # fmt: skip
        except Interrupted as ended:
            for name in ("path_", "validation_", "radii_", "scores_"):  # of a fit before
                self.__dict__.pop(name, None)
            return ended.result
        assert found.validation is not None  # because of the folds
        self.path_, self.validation_, self.radii_ = found, found.validation, found.radii
        self.scores_ = -found.validation if found.scores is None else found.scores
        return found.results[found.best] if best is None else best

    def _folds(self, X: Data, y: Data, groups: Data) -> Data:
        """The number of folds, or each row's."""
        if is_frame(X):
            if groups is not None:
                raise TypeError("groups must be None where X is a DataFrame: its folds are random.")
            return check_count("cv", 5 if self.cv is None else self.cv, 2)
        splitter = check_cv(self.cv, y, classifier=is_classifier(self))
        sound, fold_of = [], np.full(X.shape[0], -1)
        for fold, (learn, validate) in enumerate(splitter.split(X, y, groups)):
            once = (fold_of[validate] < 0).all()
            fold_of[validate] = fold
            left_out = np.ones(X.shape[0], bool)
            left_out[learn] = False
            sound += [once, np.array_equal(left_out, fold_of == fold), np.unique(left_out).size > 1]
        if not sound or not all(sound):
            raise ValueError(
                f"cv must leave out each row at most once, some in each split, and learn from all "
                f"others, as KFold does, got {describe(self.cv)}."
            )
        return fold_of

    def _scoring(self, folds: Data, X: Data, y: Data, sample_weight: Data) -> Score:
        """Return what scores a fit without a fold's rows on these rows."""
        scorer = check_scoring(self, self.scoring)
        # A custom function may take no weights.
        weighted = sample_weight is not None and "sample_weight" in signature(scorer).parameters

        def score(fold: int, result: Result) -> float:
            rows, fitted = np.flatnonzero(folds == fold), copy(self)
            weights = {"sample_weight": sample_weight[rows]} if weighted else {}
            fitted.__dict__.pop("feature_names_in_", None)  # the rows have no names here
            fitted._keep(result)
            score: float = scorer(fitted, X[rows], y[rows], **weights)
            return score

        return score


@dataclass(eq=False, repr=False)
class TraceNormRegressorCV(RegressorMethods, CrossValidated):
    """`TraceNormRegressor` with the radius that does best on rows it has not seen.

    All fits are made by the solver "accelerated".

    Parameters
    ----------
    radii : int or array of float, default=10
        Radii to try. If an int, the number of radii on a grid in units of the data, which grows
        while its best is at an end and is left early once larger radii only do worse.
    <settings>
    cv : int, splitter, iterable of splits or None, default=None
        Folds, as everywhere in scikit-learn; each row is left out at most once. If None, 5 folds.
    scoring : str, callable or None, default=None
        What the best radius maximises. If None, minus the mean squared error.

    Attributes
    ----------
    <search>
    <attributes>

    Examples
    --------
    >>> import dfwtrace as dt
    >>> X, Y, _ = dt.datasets.make_multitask(n=200, d=15, m=10, rank=2, noise=0.3, random_state=0)
    >>> model = dt.TraceNormRegressorCV(radii=[0.1, 0.3, 1.0, 3.0]).fit(X, Y)
    >>> model.radius_, model.scores_.shape
    (1.0, (4, 5))
    """

    _: KW_ONLY
    tol: float | None = TOL_OF_REGRESSION


@dataclass(eq=False, repr=False)
class TraceNormClassifierCV(ClassifierMethods, CrossValidated):
    """`TraceNormClassifier` with the radius that does best on rows it has not seen.

    All fits are made by the solver "accelerated".

    Parameters
    ----------
    radii : int or array of float, default=10
        Radii to try. If an int, the number of radii on a grid in units of the data, which grows
        while its best is at an end and is left early once larger radii only do worse.
    <settings>
    cv : int, splitter, iterable of splits or None, default=None
        Folds, as everywhere in scikit-learn; each row is left out at most once. If None, 5 folds
        with the classes evenly spread.
    scoring : str, callable or None, default=None
        What the best radius maximises, such as "accuracy". If None, minus the log loss.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, by which those of their rows are multiplied.

    Attributes
    ----------
    classes_ : ndarray of shape (m,)
        Labels of the classes, sorted.
    <search>
    <attributes>

    Examples
    --------
    >>> import dfwtrace as dt
    >>> X, y, _ = dt.datasets.make_multiclass(n=200, d=15, m=4, rank=2, random_state=0)
    >>> model = dt.TraceNormClassifierCV(radii=[1.0, 10.0, 100.0], cv=3).fit(X, y)
    >>> model.radius_, model.scores_.shape
    (10.0, (3, 3))
    """
