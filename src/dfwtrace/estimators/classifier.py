"""Multinomial logistic regression with a trace-norm constraint."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.callback import with_callbacks
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from dfwtrace._typing import Array
from dfwtrace.engines import is_frame, number_labels
from dfwtrace.estimators.base import TraceNormEstimator
from dfwtrace.estimators.following import Following
from dfwtrace.estimators.inputs import check_rows_and_targets
from dfwtrace.estimators.refusals import as_before_if_refused
from dfwtrace.estimators.regressor import read_weights
from dfwtrace.result import Result
from dfwtrace.tasks import Multinomial


class ClassifierMethods(ClassifierMixin):  # type: ignore[misc]  # untyped
    """What a fitted classifier can do, however its radius was found."""

    def _task(self) -> Multinomial:
        return Multinomial(n_classes=len(self.classes_))

    def _read_labels(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, dict[str, Any]]:
        """X, numbered labels and further arguments as the solver takes them; sets `classes_`."""
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

    def _weights(self, y: Array, numbers: Array, sample_weight: Any) -> Any:
        """The weight of each row: its own times its class's."""
        if sample_weight is not None:
            counted = np.bincount(numbers, weights=sample_weight, minlength=len(self.classes_))
            if not counted.min() > 0.0:
                empty = self.classes_.tolist()[int(np.argmin(counted))]
                raise ValueError(f"sample_weight must not be zero for all rows of class {empty!r}.")
        if self.class_weight is None:
            return sample_weight
        of_classes = compute_class_weight(
            self.class_weight, classes=self.classes_, y=y, sample_weight=sample_weight
        )
        own = of_classes[numbers]
        return own if sample_weight is None else own * sample_weight

    def decision_function(self, X: Any) -> Array:
        """Scores of the classes; of two classes, how much the second is ahead.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)

        Returns
        -------
        array of shape (n, m), or (n,) for two classes
        """
        scores: Array = self._scores(self._check_rows(X))
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict(self, X: Any) -> Array:
        """The likeliest class of each row.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)

        Returns
        -------
        array of shape (n,)
        """
        X = self._check_rows(X)
        best = np.empty(X.shape[0], np.intp)
        for rows, scores in self._score_blocks(X):
            scores.argmax(axis=1, out=best[rows])
        labels: Array = self.classes_[best]
        return labels

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of the classes, in the order of `classes_`.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)

        Returns
        -------
        array of shape (n, m)
        """
        probabilities: Array = softmax(self._scores(self._check_rows(X)), axis=1)
        return probabilities

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of the probabilities, also of those too small for a number.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)

        Returns
        -------
        array of shape (n, m)
        """
        logarithms: Array = log_softmax(self._scores(self._check_rows(X)), axis=1)
        return logarithms

    def _full_intercept(self, result: Result) -> Array:
        """b with mean 0: a number added to all classes would change nothing."""
        b: Array = super()._full_intercept(result)
        centred: Array = b - b.mean()
        return centred

    def _width(self, y: Array) -> int:
        return len(self.classes_)

    def _shaped_intercept(self, b: Array) -> Any:
        return b[1:] - b[:1] if b.size == 2 else b

    def _shaped_coefficients(self, dense: Array) -> Array:
        return dense[1:] - dense[:1] if dense.shape[0] == 2 else np.ascontiguousarray(dense)


class TraceNormClassifier(ClassifierMethods, TraceNormEstimator):
    """Logistic regression on many classes, with ‖W‖_* ≤ radius.

    Minimises Σ_i log Σ_c exp(x_iᵀw_c + b_c) - x_iᵀw_{y_i} - b_{y_i}. The bound on the trace norm
    makes W low-rank: classes share a few directions, and the model is small.

    Parameters
    ----------
    radius : float
        Bound of the trace norm of W. `TraceNormClassifierCV` finds one from the data.
    solver : {"accelerated", "dfw"}
        As for `dfwtrace.solve`.
    tol : float or None
        The fit ends when the certified gap is at most tol times the objective at W = 0.
    max_iter : int, optional
        Epochs at the most; by default, 1000 for "accelerated" and 100 for "dfw".
    max_time : float, optional
        Seconds after which no further epoch begins.
    fit_intercept : bool
        Whether to learn b; it is not constrained.
    class_weight : dict, "balanced" or None
        Weights of the classes, by which those of their rows are multiplied.
    engine : "local" or an engine
        Where the fit runs: this process, or for instance ``SparkEngine(spark)``.
    representation : {"auto", "implicit", "dense", "factored"}
        What a shard keeps; see `dfwtrace.plan`.
    n_shards : int, optional
        Logical shards of the local engine; by default 8, and 1 for less than a mebibyte of
        features, which no second thread would be worth. The same number gives the same bits.
    n_jobs : int, optional
        Threads of the local engine; by default all processors, and so for -1.
    warm_start : bool
        Start from the last solution.
    random_state : int, RandomState or None
        Seed of the solver. None is the same seed in every fit.
    verbose : int
        Show a progress bar if not zero.
    checkpoint : str or path, optional
        A file to continue from if the fit is killed; see `dfwtrace.solve`.
    lmo, step : optional
        For solver "dfw"; as for `dfwtrace.solve`.

    Attributes
    ----------
    classes_ : array of shape (m,)
    low_rank_ : LowRankMatrix
        W of shape (d, m), as factors; a column for every class, also of two.
    coef_ : array of shape (m, d), or (1, d) for two classes
        W transposed, dense, built each time it is asked for; the difference of two classes.
    intercept_ : array of shape (m,), or (1,)
    n_iter_, history_, duality_gap_, status_, radius_, result_, n_features_in_, feature_names_in_
        As for `TraceNormRegressor`.

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
        class_weight: Any = None,
        engine: Any = "local",
        representation: str = "auto",
        n_shards: int | None = None,
        n_jobs: int | None = None,
        warm_start: bool = False,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: Any = None,
        lmo: Any = None,
        step: Any = None,
    ) -> None:
        self.radius = radius
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.max_time = max_time
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.engine = engine
        self.representation = representation
        self.n_shards = n_shards
        self.n_jobs = n_jobs
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint
        self.lmo = lmo
        self.step = step

    @with_callbacks
    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, features: Any = None
    ) -> TraceNormClassifier:
        """Learn from rows and their classes.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n, d), or Spark DataFrame
        y : array of shape (n,), numbers or strings; the name of the column if X is a Spark
            DataFrame
        sample_weight : array of shape (n,), or the name of a column, optional
        features : str or list of str, optional
            Columns of a Spark DataFrame; see `dfwtrace.solve`.

        Returns
        -------
        self
        """
        following = Following(self, X, y, sample_weight)
        with as_before_if_refused(self):
            X, y, more = self._read_labels(X, y, sample_weight)
            self._solve(following, X, y, features=features, **more)
        return self
