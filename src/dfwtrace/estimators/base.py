"""What all estimators share: settings, data checks, the call to the solver, callbacks."""

from __future__ import annotations

import functools
import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self, TypeVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from dfwtrace._typing import Array, FloatArray, Matrix
from dfwtrace.api import solve
from dfwtrace.data.shards import default_shards, slice_rows
from dfwtrace.engines import Engine, LocalEngine, is_frame
from dfwtrace.files.checkpoint import Checkpoint
from dfwtrace.linalg.lowrank import LowRankMatrix
from dfwtrace.lmo import LMO
from dfwtrace.result import Record, Result
from dfwtrace.solvers.steps import Step
from dfwtrace.tasks import ScoresTask
from dfwtrace.validation import check_count, check_positive, check_weights, describe

Fit = TypeVar("Fit", bound=Callable[..., Any])

try:
    from sklearn.callback import CallbackSupportMixin
    from sklearn.callback import with_callbacks as with_callbacks  # for the other modules

    HAS_CALLBACKS = True
except ImportError:  # scikit-learn before 1.9
    HAS_CALLBACKS = False

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Stands for scikit-learn's mixin, which this version lacks."""

    def with_callbacks(fit: Fit) -> Fit:
        """Stand for scikit-learn's decorator, with as many frames as it has, for warnings."""

        @functools.wraps(fit)
        def called(*args: Any, **kwargs: Any) -> Any:
            return fit(*args, **kwargs)

        return called  # type: ignore[return-value]


# Rows that are multiplied at once when scores are not kept: their scores stay in cache.
_ROWS_AT_ONCE = 1024
# What a fit knows of its data before it has solved anything.
_OF_DATA = ("classes_", "n_features_in_", "feature_names_in_", "_one_target")


class TraceNormEstimator(
    CallbackSupportMixin,  # type: ignore[misc]  # scikit-learn's classes are untyped
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """A linear model with a matrix of coefficients of bounded trace norm."""

    def __init__(
        self,
        radius: float = 10.0,
        *,
        solver: str = "accelerated",
        tol: float | None = 1e-4,
        max_iter: int | None = None,
        max_time: float | None = None,
        fit_intercept: bool = True,
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

    # What the regressors and the classifiers define

    @abstractmethod
    def _task(self) -> ScoresTask:
        """What is minimised."""

    @abstractmethod
    def _read(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, dict[str, Any]]:
        """X, y and further arguments as `dfwtrace.solve` takes them."""

    @abstractmethod
    def _width(self, y: Array) -> int:
        """The number of columns of W."""

    @abstractmethod
    def _shaped_intercept(self, b: FloatArray) -> float | FloatArray:
        """b as scikit-learn's linear models show it."""

    @abstractmethod
    def _shaped_coefficients(self, dense: Array) -> Array:
        """The coefficients as scikit-learn's linear models show them, from (m, d)."""

    def _full_intercept(self, result: Result) -> FloatArray:
        return np.zeros(result.W.shape[1]) if result.intercept is None else result.intercept

    def _intercept_at(
        self, W: LowRankMatrix, X: Matrix, y: Array, sample_weight: Array | None
    ) -> FloatArray | None:
        """The best b for W; None where finding it takes an optimisation."""
        return None

    # Fitting

    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, features: Any = None) -> Self:
        """Fit the model to rows and their targets or labels.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n, d), or Spark DataFrame
            Features.
        y : array of shape (n, m) or (n,), str, or list of str
            Targets of a regressor, or labels of a classifier, numbers or strings; the names of
            their columns if X is a Spark DataFrame.
        sample_weight : array of shape (n,), or str, default=None
            Weights of the rows; the name of their column if X is a Spark DataFrame.
        features : str or list of str, default=None
            Columns of features of a Spark DataFrame; see `dfwtrace.solve`.

        Returns
        -------
        object
            The estimator itself.
        """
        self._fit(X, y, sample_weight, features)
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any, features: Any, groups: Any = None) -> None:
        """Check the data, solve, and keep the result; on failure keep the one before."""
        callbacks = FitCallbacks(self, X, y, sample_weight)
        with _unchanged_on_failure(self):
            X, y, data = self._read(X, y, sample_weight)
            data["features"] = features
            result, radius = self._find(callbacks, X, y, data, sample_weight, groups)
            self._keep(result, radius)
            # User-requested stops do not warn.
            if result.status not in ("optimal", "stopped") and self.tol is not None:
                warnings.warn(
                    f"{result.message} Raise max_iter or tol, or scale the features.",
                    ConvergenceWarning,
                    stacklevel=4,
                )
            callbacks.end()

    def _find(
        self,
        callbacks: FitCallbacks,
        X: Any,
        y: Any,
        data: dict[str, Any],
        sample_weight: Any,
        groups: Any,
    ) -> tuple[Result, float]:
        """The result and its radius; `data` are further arguments of `dfwtrace.solve`."""
        radius = check_positive("radius", self.radius)

        def attributes_at(W: LowRankMatrix, record: Record) -> dict[str, Any] | None:
            return self._attributes_at(W, record, X, y, data["sample_weight"])

        result = solve(
            self._task(),
            X,
            y,
            radius=radius,
            intercept=self.fit_intercept,
            solver=self.solver,
            lmo=self.lmo,
            step=self.step,
            epochs=self._epochs(),
            tol=self.tol,
            max_time=self.max_time,
            representation=self.representation,
            engine=self._engine(X),
            start=self._start(X, y, radius) if self.warm_start else None,
            seed=self._seed(),
            callback=callbacks.after_epoch(attributes_at),
            progress=bool(self.verbose),
            checkpoint=self.checkpoint,
            **data,
        )
        return result, radius

    def _keep(self, result: Result, radius: float) -> None:
        """Set the attributes that a fit has."""
        self.result_ = result
        self.low_rank_ = result.W
        self.n_features_in_ = result.W.shape[0]
        self._b = self._full_intercept(result)
        self.intercept_ = self._shaped_intercept(self._b)
        self.radius_ = radius
        self.n_iter_ = len(result.history)
        self.history_ = result.history
        self.duality_gap_ = result.gap
        self.status_ = result.status

    def _attributes_at(
        self, W: LowRankMatrix, record: Record, X: Any, y: Any, sample_weight: Array | None
    ) -> dict[str, Any] | None:
        """What a fit that ended here would know, for callbacks; None if b is not known."""
        b: FloatArray | None = np.zeros(W.shape[1])
        if self.fit_intercept:
            b = None if is_frame(X) else self._intercept_at(W, X, y, sample_weight)
        if b is None:
            return None
        return {
            "low_rank_": W.compress(),
            "n_features_in_": W.shape[0],
            "_b": b,
            "intercept_": self._shaped_intercept(b),
            "n_iter_": record["epoch"],
            "duality_gap_": record["gap"],
        }

    def _epochs(self) -> int | None:
        return None if self.max_iter is None else check_count("max_iter", self.max_iter, 0)

    def _engine(self, X: Any) -> Engine | None:
        """The engine; None for the one that `dfwtrace.solve` takes by itself."""
        if not isinstance(self.engine, str):
            return self.engine
        if self.engine != "local":
            raise ValueError(
                f"engine must be 'local' or an engine such as SparkEngine(spark), "
                f"got {describe(self.engine)}."
            )
        if is_frame(X):
            return None
        n_shards = self.n_shards
        if n_shards is None:
            n_shards = default_shards((X.data if sp.issparse(X) else X).nbytes)
        return LocalEngine(check_count("n_shards", n_shards, 1), n_threads(self.n_jobs))

    def _seed(self) -> int:
        """The workers' common seed; the same in every fit unless `random_state` says otherwise."""
        if self.random_state is None:
            return 0
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def _start(self, X: Any, y: Any, radius: float) -> LowRankMatrix | None:
        """The last solution, scaled into the present ball."""
        known: LowRankMatrix | None = vars(self).get("low_rank_")
        if known is None:
            return None
        if not is_frame(X) and known.shape != (X.shape[1], self._width(y)):
            raise ValueError(
                f"warm_start needs as many features and targets as in the last fit, {known.shape}, "
                f"got {(X.shape[1], self._width(y))}."
            )
        return known if known.trace_norm <= radius else known * (radius / known.trace_norm)

    # Using

    def transform(self, X: Any) -> Array:
        """Project rows on the left singular vectors of W: X U.

        Singular vectors have no sign of their own; here the largest entry of each is positive.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)

        Returns
        -------
        ndarray of shape (n, rank)
        """
        X = self._check_rows(X)
        U = self.low_rank_.U
        largest = np.take_along_axis(U, np.abs(U).argmax(axis=0, keepdims=True), axis=0)
        product: Array = np.asarray(X @ (U * np.sign(largest)).astype(X.dtype))
        return product

    @property
    def _n_features_out(self) -> int:
        return int(self.low_rank_.rank)

    @property
    def coef_(self) -> Array:
        """Dense coefficients, built on demand; `low_rank_` has their factors."""
        check_is_fitted(self)
        return self._shaped_coefficients(self.low_rank_.to_dense().T)

    def _check_rows(self, X: Any) -> Matrix:
        check_is_fitted(self)
        refuse_masked("X", X)
        dtypes = [np.float64, np.float32]
        checked: Matrix = validate_data(self, X, accept_sparse="csr", dtype=dtypes, reset=False)
        return checked

    def _scores(self, X: Matrix) -> Array:
        """XW + 1bᵀ through the factors, in the precision of X."""
        scores = np.empty((X.shape[0], self.low_rank_.shape[1]), X.dtype)
        for rows, block in self._score_blocks(X):
            scores[rows] = block
        return scores

    def _score_blocks(self, X: Matrix) -> Iterator[tuple[slice, Array]]:
        """The scores of a few rows at a time: all of them may not fit in memory."""
        left, right, b = self._factors(X.dtype)
        for start in range(0, X.shape[0], _ROWS_AT_ONCE):
            stop = min(start + _ROWS_AT_ONCE, X.shape[0])
            block = (slice_rows(X, start, stop) @ left) @ right
            block += b
            yield slice(start, stop), block

    def _factors(self, dtype: np.dtype[Any]) -> tuple[Array, Array, Array]:
        W, b = self.low_rank_, self._b
        return (W.U * W.s).astype(dtype), np.ascontiguousarray(W.V.T, dtype), b.astype(dtype)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file, which `dfwtrace.load` reads.

        The file is written whole or not at all: a previous one stays until the new one is complete.

        Parameters
        ----------
        path : str or path-like

        Raises
        ------
        OSError
            The file cannot be written.
        TypeError
            The estimator is of a derived class, or its classes are no numbers or strings.
        """
        from dfwtrace.estimators.saving import save

        save(self, path)

    def to_onnx(self) -> Any:
        """Return the fitted model as an ONNX graph, for any runtime of that format.

        Its input is "X", a float32 matrix with any number of rows. A classifier's outputs are
        "label" and "probabilities", a regressor's is "prediction". Needs ``dfwtrace[onnx]``.

        Returns
        -------
        onnx.ModelProto
        """
        from dfwtrace.estimators.onnx import to_onnx

        return to_onnx(self)

    def __sklearn_is_fitted__(self) -> bool:
        # Not by any name that ends in _: a fit that fails leaves some behind.
        return "low_rank_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class FitCallbacks:
    """scikit-learn's callbacks of an estimator, called after every epoch; none before 1.9.

    `X`, `y` and `sample_weight` are as given to `fit`: a callback that scores the estimator needs
    names of features and labels as they are. A Spark DataFrame is not passed on.
    """

    def __init__(self, estimator: TraceNormEstimator, X: Any, y: Any, sample_weight: Any) -> None:
        self._estimator = estimator
        metadata = None if sample_weight is None else {"sample_weight": sample_weight}
        self._data = {} if is_frame(X) else {"X": X, "y": y, "metadata": metadata}
        if HAS_CALLBACKS:
            # The number of epochs is not known: a run ends when its gap is small enough.
            self._context = estimator._init_callback_context(max_subtasks=None)
            self._context.call_on_fit_task_begin(estimator=estimator, **self._data)

    def after_epoch(
        self, attributes_at: Callable[[LowRankMatrix, Record], dict[str, Any] | None]
    ) -> Callable[[LowRankMatrix, Record], bool] | None:
        """A callback for `dfwtrace.solve`."""
        if not HAS_CALLBACKS:
            return None

        def after_epoch(W: LowRankMatrix, record: Record) -> bool:
            context = self._context.subcontext(task_name="epoch")
            context.call_on_fit_task_begin(estimator=self._estimator, **self._data)
            stop = context.call_on_fit_task_end(
                estimator=self._estimator,
                reconstruction_attributes=lambda: attributes_at(W, record),  # on demand
                **self._data,
            )
            return bool(stop)

        return after_epoch

    def end(self) -> None:
        """Announce that the estimator is fitted."""
        if HAS_CALLBACKS:
            self._context.call_on_fit_task_end(
                estimator=self._estimator, reconstruction_attributes={}, **self._data
            )


@contextmanager
def _unchanged_on_failure(estimator: TraceNormEstimator) -> Iterator[None]:
    """Keep an earlier fit usable if the present one is refused or fails."""
    known: dict[str, Any] = estimator.__dict__
    before, result = {k: known[k] for k in _OF_DATA if k in known}, known.get("result_")
    try:
        yield
    except BaseException:
        # A fit that fails after it has its result keeps what belongs to that.
        if known.get("result_") is result:
            for name in _OF_DATA:
                known.pop(name, None)
            known.update(before)
        raise


def check_rows_and_targets(
    estimator: TraceNormEstimator, X: Any, y: Any, **targets: bool
) -> tuple[Matrix, Array]:
    """Return X and y checked by scikit-learn, X in float32 or float64 as it comes."""
    refuse_masked("X", X)
    refuse_masked("y", y)
    checked: tuple[Matrix, Array] = validate_data(
        estimator,
        X,
        y,
        accept_sparse="csr",
        dtype=[np.float64, np.float32],
        accept_large_sparse=True,
        **targets,
    )
    X, y = checked
    return (X.tocsr() if sp.issparse(X) else X), y


def refuse_masked(name: str, array: object) -> None:
    """Refuse a masked array, which scikit-learn would take with the values under its mask."""
    if np.ma.isMaskedArray(array):
        raise TypeError(f"{name} must not be a masked array; fill or drop the masked entries.")


def read_weights(X: Any, sample_weight: Any) -> Any:
    """Return one weight for each row; a single number stands for that weight of all rows."""
    if sample_weight is None or is_frame(X):
        return sample_weight
    if np.asarray(sample_weight).ndim == 0:
        sample_weight = np.full(X.shape[0], sample_weight)
    return check_weights(sample_weight, X.shape[0])


def n_threads(n_jobs: int | None) -> int | None:
    """Return a number of threads as scikit-learn counts them: -1 is all processors."""
    if n_jobs is None:
        return None
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, int | np.integer):
        raise TypeError(f"n_jobs must be a whole number or None, got {describe(n_jobs)}.")
    if n_jobs == 0:
        raise ValueError("n_jobs must not be 0: -1 is all processors.")
    return int(n_jobs) if n_jobs > 0 else max(1, (os.cpu_count() or 1) + 1 + int(n_jobs))
