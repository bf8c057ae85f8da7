"""Least squares and multinomial logistic regression with a trace-norm constraint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass

import numpy as np
from scipy.special import log_softmax, softmax
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils import gen_batches
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from dfwtrace._typing import Array, Data
from dfwtrace.engines import is_frame
from dfwtrace.estimators.base import TOL_OF_REGRESSION, FixedRadius, Named, read_weights
from dfwtrace.tasks.features.scores import LeastSquares, Multinomial

_ROWS_AT_ONCE = 1024  # in the prediction of labels


class RegressorMethods(MultiOutputMixin, RegressorMixin):  # type: ignore[misc]  # untyped
    """What a fitted regressor can do, however its radius was found."""

    def _task(self) -> LeastSquares:
        return LeastSquares()

    def _read(self, X: Data, y: Data, sample_weight: Data) -> tuple[Data, Data, Named]:
        if is_frame(X):
            self._one_target = isinstance(y, str)
            return X, None, {"label": y, "sample_weight": sample_weight}
        X, y = self._validated(X, y, multi_output=True, y_numeric=True)
        self._one_target = y.ndim == 1
        return X, y, {"sample_weight": read_weights(X, sample_weight)}

    def predict(self, X: Data) -> Array:
        """Predict the targets of rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)
            Features.

        Returns
        -------
        ndarray of shape (n, m), or (n,) if y had one dimension
            Predicted targets.
        """
        scores: Array = self._scores(X)
        return scores[:, 0] if self._one_target else scores

    def _shaped(self, part: Array) -> Array:
        return part[0, ...] if self._one_target else part


@dataclass(eq=False, repr=False)
class TraceNormRegressor(RegressorMethods, FixedRadius):
    """Linear regression on many targets at once, with ‖W‖_* ≤ radius.

    Minimises ½‖XW + 1bᵀ - Y‖². The bound on the trace norm makes W low-rank, so that targets with
    little data learn from the others.

    Parameters
    ----------
    radius : float or "auto", default="auto"
        Bound of the trace norm of W. "auto" chooses one by short fits and rows left out, see
        `dfwtrace.solve`; `TraceNormRegressorCV` searches more thoroughly.
    <settings>
    <solver>

    Attributes
    ----------
    <attributes>
    <validation>

    Examples
    --------
    >>> import dfwtrace as dt
    >>> X, Y, _ = dt.datasets.make_multitask(n=300, d=20, m=10, rank=3, noise=0.01, random_state=0)
    >>> model = dt.TraceNormRegressor(radius=0.9).fit(X, Y)
    >>> model.status_, model.low_rank_.rank, bool(model.score(X, Y) > 0.9)
    ('optimal', 3, True)
    """

    _: KW_ONLY
    tol: float | None = TOL_OF_REGRESSION


@dataclass(eq=False, repr=False)
class ClassifierMethods(ClassifierMixin):  # type: ignore[misc]  # untyped
    """What a fitted classifier can do, however its radius was found."""

    _: KW_ONLY
    class_weight: Mapping[object, float] | str | None = None

    def _task(self) -> Multinomial:
        return Multinomial(n_classes=len(self.classes_))

    def _read(self, X: Data, y: Data, sample_weight: Data) -> tuple[Data, Data, Named]:
        if is_frame(X):
            from dfwtrace.engines.spark.dataframe import number_labels  # only here: needs pyspark

            numbered = number_labels(X, y, self.class_weight, sample_weight)
            X, y, self.classes_ = numbered.frame, None, numbered.classes
            data: Named = {"label": numbered.label, "sample_weight": numbered.weight}
        else:
            X, y = self._validated(X, y)
            check_classification_targets(y)
            self.classes_, numbers = np.unique(y, return_inverse=True)
            data = {"sample_weight": self._weights(y, numbers, read_weights(X, sample_weight))}
            y = numbers.astype(np.int64)
        if len(self.classes_) < 2:
            only = self.classes_.tolist()[0]
            raise ValueError(f"y must hold at least two classes, got one class: {only!r}.")
        return X, y, data

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

    def decision_function(self, X: Data) -> Array:
        """Compute the scores of the classes.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)
            Features.

        Returns
        -------
        ndarray of shape (n, m), or (n,) for two classes
            XW + 1bᵀ; for two classes, the second's scores less the first's.
        """
        scores: Array = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict(self, X: Data) -> Array:
        """Predict the most likely class of each row.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)
            Features.

        Returns
        -------
        ndarray of shape (n,)
            Labels out of `classes_`.
        """
        X = self._check_rows(X)
        # Some rows at a time, so that their scores stay in cache.
        blocks = (X[rows] for rows in gen_batches(X.shape[0], _ROWS_AT_ONCE))
        best = [self._scores_of(block).argmax(axis=1) for block in blocks]
        return np.asarray(self.classes_[np.concatenate(best)])

    def predict_proba(self, X: Data) -> Array:
        """Predict the probabilities of the classes.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)
            Features.

        Returns
        -------
        ndarray of shape (n, m)
            Probabilities, in the order of `classes_`.
        """
        return np.asarray(softmax(self._scores(X), axis=1))

    def predict_log_proba(self, X: Data) -> Array:
        """Predict the logarithms of the probabilities of the classes.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)
            Features.

        Returns
        -------
        ndarray of shape (n, m)
            Logarithms, finite also where a probability underflows.
        """
        return np.asarray(log_softmax(self._scores(X), axis=1))

    def _shaped(self, part: Array) -> Array:
        return part[1:] - part[:1] if len(part) == 2 else part


@dataclass(eq=False, repr=False)
class TraceNormClassifier(ClassifierMethods, FixedRadius):
    """Logistic regression on many classes, with ‖W‖_* ≤ radius.

    Minimises Σ_i log Σ_c exp(x_iᵀw_c + b_c) - x_iᵀw_{y_i} - b_{y_i}. The bound on the trace norm
    makes W low-rank: classes share a few directions, and the model is small.

    Parameters
    ----------
    radius : float or "auto", default="auto"
        Bound of the trace norm of W. "auto" chooses one by short fits and rows left out, see
        `dfwtrace.solve`; `TraceNormClassifierCV` searches more thoroughly.
    <settings>
    <solver>
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, by which those of their rows are multiplied.

    Attributes
    ----------
    classes_ : ndarray of shape (m,)
        Labels of the classes, sorted.
    <attributes>
    <validation>

    Examples
    --------
    >>> import dfwtrace as dt
    >>> X, y, _ = dt.datasets.make_multiclass(n=300, d=20, m=6, rank=3, random_state=0)
    >>> model = dt.TraceNormClassifier(radius=20.0).fit(X, y)
    >>> model.status_, model.predict_proba(X).shape, bool(model.score(X, y) > 0.8)
    ('optimal', (300, 6), True)
    """
