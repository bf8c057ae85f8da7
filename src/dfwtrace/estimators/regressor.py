"""Multi-task least squares with a trace-norm constraint."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.callback import with_callbacks

from dfwtrace._typing import Array, FloatArray, Matrix
from dfwtrace.engines import is_frame
from dfwtrace.estimators.base import TraceNormEstimator
from dfwtrace.estimators.following import Following
from dfwtrace.estimators.inputs import check_rows_and_targets, label_columns
from dfwtrace.estimators.refusals import as_before_if_refused
from dfwtrace.linalg.lowrank import LowRankMatrix
from dfwtrace.tasks import LeastSquares
from dfwtrace.validation import check_weights


class RegressorMethods(MultiOutputMixin, RegressorMixin):  # type: ignore[misc]  # untyped
    """What a fitted regressor can do, however its radius was found."""

    def _task(self) -> LeastSquares:
        return LeastSquares()

    def _read_targets(self, X: Any, y: Any) -> tuple[Any, Any, dict[str, Any]]:
        """X, y and further arguments as the solver takes them."""
        if is_frame(X):
            self._one_target = isinstance(y, str)
            return X, None, {"label": label_columns(y)}
        X, y = check_rows_and_targets(self, X, y, multi_output=True, y_numeric=True)
        self._one_target = y.ndim == 1
        return X, y, {}

    def predict(self, X: Any) -> Array:
        """Targets of the rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)

        Returns
        -------
        array of shape (n, m), or (n,) if the targets had one dimension
        """
        scores: Array = self._scores(self._check_rows(X))
        return scores[:, 0] if self._one_target else scores

    def _width(self, y: Array) -> int:
        return 1 if y.ndim == 1 else int(y.shape[1])

    def _intercept_at(
        self, W: LowRankMatrix, X: Matrix, y: Array, sample_weight: Any
    ) -> FloatArray:
        """ȳ - Wᵀx̄, whatever W is."""
        weights = np.ones(X.shape[0]) if sample_weight is None else np.asarray(sample_weight)
        x_mean, y_mean = ((weights @ part) / weights.sum() for part in (X, y.reshape(len(y), -1)))
        b: FloatArray = y_mean - np.asarray(x_mean) @ W
        return b

    def _shaped_intercept(self, b: FloatArray) -> Any:
        return float(b[0]) if self._one_target else b

    def _shaped_coefficients(self, dense: Array) -> Array:
        return dense[0] if self._one_target else np.ascontiguousarray(dense)


class TraceNormRegressor(RegressorMethods, TraceNormEstimator):
    """Linear regression on many targets at once, with ‖W‖_* ≤ radius.

    Minimises ½‖XW + 1bᵀ - Y‖². The bound on the trace norm makes W low-rank, so that targets with
    little data learn from the others.

    Parameters
    ----------
    radius : float
        Bound of the trace norm of W. `TraceNormRegressorCV` finds one from the data.
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
    engine : "local" or an engine
        Where the fit runs: this process, or for instance ``SparkEngine(spark)``.
    representation : {"auto", "gram", "implicit", "dense", "factored"}
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
    low_rank_ : LowRankMatrix
        W of shape (d, m), as factors.
    coef_ : array of shape (m, d), or (d,)
        W transposed, dense, built each time it is asked for.
    intercept_ : array of shape (m,), or float
    n_iter_ : int
        Epochs.
    history_ : History
        A record for each epoch.
    duality_gap_ : float
        Certified upper bound of how far the objective is from its optimum.
    status_ : str
        "optimal" if the gap is within `tol`; see `dfwtrace.Result`.
    radius_ : float
    result_ : Result
        All that the solver returned.
    n_features_in_ : int
    feature_names_in_ : array
        If X had names.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> X, Y, _ = dt.datasets.make_multitask(n=300, d=20, m=10, rank=3, noise=0.01, seed=0)
    >>> model = dt.TraceNormRegressor(radius=0.9).fit(X, Y)
    >>> model.status_, model.low_rank_.rank, bool(model.score(X, Y) > 0.9)
    ('optimal', 3, True)
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
    ) -> TraceNormRegressor:
        """Learn from rows and their targets.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n, d), or Spark DataFrame
        y : array of shape (n, m) or (n,); the names of the columns if X is a Spark DataFrame
        sample_weight : array of shape (n,), or the name of a column, optional
        features : str or list of str, optional
            Columns of a Spark DataFrame; see `dfwtrace.solve`.

        Returns
        -------
        self
        """
        following = Following(self, X, y, sample_weight)
        with as_before_if_refused(self):
            X, y, more = self._read_targets(X, y)
            weights = read_weights(X, sample_weight)
            self._solve(following, X, y, sample_weight=weights, features=features, **more)
        return self


def read_weights(X: Any, sample_weight: Any) -> Any:
    """One weight for each row; a single number for all of them counts as one each."""
    if sample_weight is None or is_frame(X):
        return sample_weight
    if np.asarray(sample_weight).ndim == 0:
        sample_weight = np.full(X.shape[0], sample_weight)
    return check_weights(sample_weight, X.shape[0])
