"""Multi-task least squares with a trace-norm constraint."""

from __future__ import annotations

from sklearn.base import MultiOutputMixin, RegressorMixin

from dfwtrace._typing import Array, Data
from dfwtrace.engines import is_frame
from dfwtrace.estimators.base import FixedRadius, Named, read_weights
from dfwtrace.tasks import LeastSquares


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
        """Predict the targets of rows, of shape (n, m), or (n,) if y had one dimension."""
        scores: Array = self._scores(X)
        return scores[:, 0] if self._one_target else scores

    def _shaped(self, part: Array) -> Array:
        return part[0, ...] if self._one_target else part


class TraceNormRegressor(RegressorMethods, FixedRadius):
    """Linear regression on many targets at once, with ‖W‖_* ≤ radius.

    Minimises ½‖XW + 1bᵀ - Y‖². The bound on the trace norm makes W low-rank, so that targets with
    little data learn from the others.

    Parameters
    ----------
    radius : float, default=10.0
        Bound of the trace norm of W. `TraceNormRegressorCV` finds one from the data.
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
    n_shards, n_jobs : int, default=None
        Shards of the local engine, by default 8, or 1 of less than a mebibyte; and its threads,
        None and -1 for all processors. The same number of shards gives the same bits.
    random_state : int, RandomState or None, default=None
        Seed of the solver. None is the same seed in every fit.
    verbose : int, default=0
        Show a progress bar if not zero.
    solver : {"accelerated", "dfw"}, default="accelerated"
        As for `dfwtrace.solve`.
    warm_start : bool, default=False
        Whether to start from the last solution.
    checkpoint : str, path-like or Checkpoint, default=None
        A file to continue from if the fit is killed; see `dfwtrace.Checkpoint`.
    lmo, step : object, default=None
        Oracle and step size of solver "dfw"; as for `dfwtrace.solve`.

    Attributes
    ----------
    low_rank_ : LowRankMatrix of shape (d, m)
        W as factors.
    coef_ : ndarray of shape (m, d), or (d,)
        W transposed and dense, built on every access.
    intercept_ : ndarray of shape (m,), or float
        b.
    n_iter_, n_features_in_ : int
        Number of epochs, and of features.
    history_ : History
        A record for each epoch.
    duality_gap_, radius_ : float
        Certified upper bound of the objective less its optimum, and the radius.
    status_ : str
        "optimal" if the gap is within `tol`; see `dfwtrace.Result`.
    result_ : Result
        All that the solver returned.
    feature_names_in_ : ndarray of str
        Names of the features, if X had names.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> X, Y, _ = dt.datasets.make_multitask(n=300, d=20, m=10, rank=3, noise=0.01, seed=0)
    >>> model = dt.TraceNormRegressor(radius=0.9).fit(X, Y)
    >>> model.status_, model.low_rank_.rank, bool(model.score(X, Y) > 0.9)
    ('optimal', 3, True)
    """
