"""Multinomial logistic regression with a trace-norm constraint."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.special import log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from dfwtrace._typing import Array, FloatArray
from dfwtrace.engines import Engine, is_frame, number_labels
from dfwtrace.estimators.base import TraceNormEstimator, check_rows_and_targets, read_weights
from dfwtrace.files.checkpoint import Checkpoint
from dfwtrace.lmo import LMO
from dfwtrace.result import Result
from dfwtrace.solvers.steps import Step
from dfwtrace.tasks import Multinomial


class ClassifierMethods(ClassifierMixin):  # type: ignore[misc]  # untyped
    """What a fitted classifier can do, however its radius was found."""

    def _task(self) -> Multinomial:
        return Multinomial(n_classes=len(self.classes_))

    def _read(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, dict[str, Any]]:
        if is_frame(X):
            numbered = number_labels(X, y, self.class_weight, sample_weight)
            self.classes_ = numbered.classes
            self._check_classes()
            more = {"label": numbered.label, "sample_weight": numbered.weight}
            return numbered.frame, None, more
        X, y = check_rows_and_targets(self, X, y)
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        self._check_classes()
        weights = self._weights(y, numbers, read_weights(X, sample_weight))
        return X, numbers.astype(np.int64), {"sample_weight": weights}

    def _check_classes(self) -> None:
        if len(self.classes_) < 2:
            raise ValueError(
                f"y must hold at least two classes, got one class: {self.classes_.tolist()[0]!r}."
            )

    def _weights(self, y: Array, numbers: Array, sample_weight: Array | None) -> Array | None:
        """The weight of each row: its own times its class's."""
        counts = np.bincount(numbers, weights=sample_weight, minlength=len(self.classes_))
        if not counts.min() > 0.0:
            empty = self.classes_.tolist()[int(np.argmin(counts))]
            raise ValueError(f"sample_weight must not be zero for all rows of class {empty!r}.")
        if self.class_weight is None:
            return sample_weight
        # Older versions of scikit-learn count rows where their weights should be summed.
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            of_classes = counts.sum() / (len(counts) * counts)
        else:
            of_classes = compute_class_weight(self.class_weight, classes=self.classes_, y=y)
        weights: Array = of_classes[numbers]
        return weights if sample_weight is None else weights * sample_weight

    def decision_function(self, X: Any) -> Array:
        """Return the scores of the classes; of two classes, the second's less the first's.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)

        Returns
        -------
        ndarray of shape (n, m), or (n,) for two classes
        """
        scores: Array = self._scores(self._check_rows(X))
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict(self, X: Any) -> Array:
        """Predict the most likely class of each row.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)

        Returns
        -------
        ndarray of shape (n,)
        """
        X = self._check_rows(X)
        best = np.empty(X.shape[0], np.intp)
        for rows, scores in self._score_blocks(X):
            scores.argmax(axis=1, out=best[rows])
        labels: Array = self.classes_[best]
        return labels

    def predict_proba(self, X: Any) -> Array:
        """Return the probabilities of the classes, in the order of `classes_`.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)

        Returns
        -------
        ndarray of shape (n, m)
        """
        probabilities: Array = softmax(self._scores(self._check_rows(X)), axis=1)
        return probabilities

    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithms of the probabilities, finite also where those underflow.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)

        Returns
        -------
        ndarray of shape (n, m)
        """
        logarithms: Array = log_softmax(self._scores(self._check_rows(X)), axis=1)
        return logarithms

    def _full_intercept(self, result: Result) -> FloatArray:
        """b with mean 0: a number added to all classes would change nothing."""
        b: FloatArray = super()._full_intercept(result)
        centred: FloatArray = b - b.mean()
        return centred

    def _width(self, y: Array) -> int:
        return len(self.classes_)

    def _shaped_intercept(self, b: FloatArray) -> FloatArray:
        return b[1:] - b[:1] if b.size == 2 else b

    def _shaped_coefficients(self, dense: Array) -> Array:
        return dense[1:] - dense[:1] if dense.shape[0] == 2 else np.ascontiguousarray(dense)


class TraceNormClassifier(ClassifierMethods, TraceNormEstimator):
    """Logistic regression on many classes, with ‖W‖_* ≤ radius.

    Minimises Σ_i log Σ_c exp(x_iᵀw_c + b_c) - x_iᵀw_{y_i} - b_{y_i}. The bound on the trace norm
    makes W low-rank: classes share a few directions, and the model is small.

    Parameters
    ----------
    radius : float, default=10.0
        Bound of the trace norm of W. `TraceNormClassifierCV` finds one from the data.
    solver : {"accelerated", "dfw"}, default="accelerated"
        As for `dfwtrace.solve`.
    tol : float or None, default=1e-4
        The fit ends when the certified gap is at most `tol` times the objective at W = 0.
    max_iter : int, default=None
        Maximum number of epochs; if None, 1000 for "accelerated" and 100 for "dfw".
    max_time : float, default=None
        Wall-clock limit in seconds, checked after each epoch.
    fit_intercept : bool, default=True
        Whether to learn b, which is not constrained.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, by which those of their rows are multiplied.
    engine : "local" or Engine, default="local"
        Where the fit runs: this process, or for instance ``SparkEngine(spark)``.
    representation : {"auto", "implicit", "dense", "factored"}, default="auto"
        What a shard keeps; see `dfwtrace.plan`.
    n_shards : int, default=None
        Logical shards of the local engine; if None, 8, or 1 for less than a mebibyte of features,
        for which a second thread does not pay. The same number gives the same bits.
    n_jobs : int, default=None
        Threads of the local engine; None and -1 are all processors.
    warm_start : bool, default=False
        Whether to start from the last solution.
    random_state : int, RandomState or None, default=None
        Seed of the solver. None is the same seed in every fit.
    verbose : int, default=0
        Show a progress bar if not zero.
    checkpoint : str, path-like or Checkpoint, default=None
        A file to continue from if the fit is killed; see `dfwtrace.Checkpoint`.
    lmo : str or oracle, default=None
        Linear minimisation oracle of solver "dfw"; as for `dfwtrace.solve`.
    step : str, float, callable or step size, default=None
        Step size of solver "dfw"; as for `dfwtrace.solve`.

    Attributes
    ----------
    classes_ : ndarray of shape (m,)
        Labels of the classes, sorted.
    low_rank_ : LowRankMatrix of shape (d, m)
        W as factors; a column for every class, also of two.
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
    radius_ : float
        The radius.
    result_ : Result
        All that the solver returned.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X had names.

    See Also
    --------
    TraceNormClassifierCV : Finds the radius by cross-validation.
    TraceNormRegressor : Least squares on many targets.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> X, y, _ = dt.datasets.make_multiclass(n=300, d=20, m=6, rank=3, seed=0)
    >>> model = dt.TraceNormClassifier(radius=20.0).fit(X, y)
    >>> model.status_, model.predict_proba(X).shape, bool(model.score(X, y) > 0.8)
    ('optimal', (300, 6), True)
    """

    def __init__(
        self,
        radius: float = 10.0,
        *,
        solver: str = "accelerated",
        tol: float | None = 1e-4,
        max_iter: int | None = None,
        max_time: float | None = None,
        fit_intercept: bool = True,
        class_weight: Mapping[object, float] | str | None = None,
        engine: str | Engine = "local",
        representation: str = "auto",
        n_shards: int | None = None,
        n_jobs: int | None = None,
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
        checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
        lmo: str | LMO | None = None,
        step: str | float | Callable[[int], float] | Step | None = None,
    ) -> None:
        super().__init__(
            radius,
            solver=solver,
            tol=tol,
            max_iter=max_iter,
            max_time=max_time,
            fit_intercept=fit_intercept,
            engine=engine,
            representation=representation,
            n_shards=n_shards,
            n_jobs=n_jobs,
            warm_start=warm_start,
            random_state=random_state,
            verbose=verbose,
            checkpoint=checkpoint,
            lmo=lmo,
            step=step,
        )
        self.class_weight = class_weight
