"""Multi-task least squares with a trace-norm constraint."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin

from dfwtrace._typing import Array, FloatArray, Matrix
from dfwtrace.engines import is_frame
from dfwtrace.estimators.base import TraceNormEstimator, check_rows_and_targets, read_weights
from dfwtrace.linalg.lowrank import LowRankMatrix
from dfwtrace.tasks import LeastSquares
from dfwtrace.validation import describe


class RegressorMethods(MultiOutputMixin, RegressorMixin):  # type: ignore[misc]  # untyped
    """What a fitted regressor can do, however its radius was found."""

    def _task(self) -> LeastSquares:
        return LeastSquares()

    def _read(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, dict[str, Any]]:
        if is_frame(X):
            columns = [y] if isinstance(y, str) else y
            if not isinstance(columns, list | tuple) or any(
                not isinstance(c, str) for c in columns
            ):
                raise TypeError(
                    f"y must be the name of a column, or a list of names, where X is a DataFrame, "
                    f"got {describe(y)}."
                )
            self._one_target = isinstance(y, str)
            return X, None, {"label": y, "sample_weight": sample_weight}
        X, y = check_rows_and_targets(self, X, y, multi_output=True, y_numeric=True)
        self._one_target = y.ndim == 1
        return X, y, {"sample_weight": read_weights(X, sample_weight)}

    def predict(self, X: Any) -> Array:
        """Predict the targets of rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)

        Returns
        -------
        ndarray of shape (n, m), or (n,) if the targets had one dimension
        """
        scores: Array = self._scores(self._check_rows(X))
        return scores[:, 0] if self._one_target else scores

    def _width(self, y: Array) -> int:
        return 1 if y.ndim == 1 else int(y.shape[1])

    def _intercept_at(
        self, W: LowRankMatrix, X: Matrix, y: Array, sample_weight: Array | None
    ) -> FloatArray:
        """ȳ - Wᵀx̄, whatever W is."""
        weights = np.ones(X.shape[0]) if sample_weight is None else sample_weight
        x_mean, y_mean = ((weights @ part) / weights.sum() for part in (X, y.reshape(len(y), -1)))
        b: FloatArray = y_mean - np.asarray(x_mean) @ W
        return b

    def _shaped_intercept(self, b: FloatArray) -> float | FloatArray:
        return float(b[0]) if self._one_target else b

    def _shaped_coefficients(self, dense: Array) -> Array:
        return dense[0] if self._one_target else np.ascontiguousarray(dense)


class TraceNormRegressor(RegressorMethods, TraceNormEstimator):
    """Linear regression on many targets at once, with ‖W‖_* ≤ radius.

    Minimises ½‖XW + 1bᵀ - Y‖². The bound on the trace norm makes W low-rank, so that targets with
    little data learn from the others.

    Parameters
    ----------
    radius : float, default=10.0
        Bound of the trace norm of W. `TraceNormRegressorCV` finds one from the data.
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
    engine : "local" or Engine, default="local"
        Where the fit runs: this process, or for instance ``SparkEngine(spark)``.
    representation : {"auto", "gram", "implicit", "dense", "factored"}, default="auto"
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
    low_rank_ : LowRankMatrix of shape (d, m)
        W as factors.
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
    TraceNormRegressorCV : Finds the radius by cross-validation.
    TraceNormClassifier : Multinomial logistic regression.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> X, Y, _ = dt.datasets.make_multitask(n=300, d=20, m=10, rank=3, noise=0.01, seed=0)
    >>> model = dt.TraceNormRegressor(radius=0.9).fit(X, Y)
    >>> model.status_, model.low_rank_.rank, bool(model.score(X, Y) > 0.9)
    ('optimal', 3, True)
    """
