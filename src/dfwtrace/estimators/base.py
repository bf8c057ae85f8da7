"""What all estimators share: settings, data checks, the call to the solver, callbacks."""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from functools import partial
from inspect import cleandoc
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    is_classifier,
)
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from dfwtrace._typing import Array, Data, DType, FloatArray, Matrix
from dfwtrace.api import solve
from dfwtrace.data.shards import default_shards
from dfwtrace.engines import Engine, LocalEngine, is_frame
from dfwtrace.estimators.advice import concerns
from dfwtrace.files.checkpoint import Checkpoint
from dfwtrace.linalg.lowrank import LowRankMatrix
from dfwtrace.lmo import LMO
from dfwtrace.result import Result
from dfwtrace.solvers.early_stopping import SCORE, EarlyStopping
from dfwtrace.solvers.steps import Step
from dfwtrace.tasks.features.scores import ScoresTask
from dfwtrace.validation import (
    check_not_masked,
    check_positive,
    check_seed,
    check_weights,
    describe,
)

Fit = TypeVar("Fit")
#: Arguments of `dfwtrace.solve`, or attributes of an estimator, by name.
Named: TypeAlias = dict[str, Any]
#: Called after an epoch with what makes the attributes of a fit that ended there, on demand.
EpochEnded: TypeAlias = Callable[[Callable[[], Named | None]], bool]
#: Takes X, y and further arguments of `dfwtrace.solve`.
Find: TypeAlias = Callable[[Data, Data, Named, EpochEnded | None], Result]

try:
    from sklearn.callback import CallbackSupportMixin
    from sklearn.callback import with_callbacks as with_callbacks  # for the other modules

    HAS_CALLBACKS = True
except ImportError:  # scikit-learn before 1.9
    HAS_CALLBACKS = False

    class CallbackSupportMixin:  # type: ignore[no-redef]  # in place of the import that failed
        """Stands for scikit-learn's mixin, which this version lacks."""

    def with_callbacks(fit: Fit) -> Fit:
        """Stand for scikit-learn's decorator."""
        return fit


# Epochs of least squares are few and cheap, and in raw units predictions need more of them.
TOL_OF_REGRESSION = 1e-4

# What several estimators document alike: it takes the place of the key in their docstrings.
_SHARED_DOCS = {
    "<settings>": """\
tol : float or None, default=<tol>
    The fit ends when the certified gap is at most `tol` times the objective at W = 0. Finer ones
    change predictions by little, but W may have a lower rank.
max_iter : int or None, default=None
    Maximum number of epochs of a fit. If None, 1000 for solver "accelerated" and 100 for "dfw".
max_time : float or None, default=None
    Wall-clock limit of a fit in seconds, checked after each epoch.
fit_intercept : bool, default=True
    Whether to learn b, which is not constrained.
standardize : bool, default=False
    Whether to divide every feature by its standard deviation during the fit. The radius then bounds
    the trace norm of diag(scale_) W; all attributes are for features in their own units.
engine : "local" or Engine, default="local"
    Where a fit runs: in this process, or for instance on ``SparkEngine(spark)``.
representation : {"auto", "gram", "implicit", "dense", "factored"}, default="auto"
    What a shard keeps, see `dfwtrace.plan`; "gram" is for regression only.
n_shards : int or None, default=None
    Shards of the local engine. If None, 8, or 1 for data below a mebibyte. The same number of
    shards gives the same bits.
n_jobs : int or None, default=None
    Threads of the local engine; None and -1 for all processors.
random_state : int, RandomState or None, default=None
    Seed of the solver. If None, the same seed in every fit.
verbose : int, default=0
    Show a progress bar if not zero.""",
    "<solver>": """\
solver : {"accelerated", "dfw"}, default="accelerated"
    As for `dfwtrace.solve`.
warm_start : bool, default=False
    Whether to start from the last solution.
checkpoint : str, path-like, Checkpoint or None, default=None
    A file to continue from if the fit is killed; see `dfwtrace.Checkpoint`.
early_stopping : bool, default=False
    Whether to leave out some rows, and to end the fit when it no longer does better on them. The
    model is the one after the epoch that did best. `tol` and `max_iter` may end it before.
validation_fraction : float, default=0.1
    Share of the rows left out for early stopping, the same of every class.
n_iter_no_change : int, default=10
    Number of epochs in a row without a better validation score that end the fit.
lmo : str, LMO or None, default=None
    Oracle of solver "dfw"; see `dfwtrace.solve`.
step : str, float, callable, Step or None, default=None
    Step size of solver "dfw"; see `dfwtrace.solve`.""",
    "<attributes>": """\
low_rank_ : LowRankMatrix of shape (d, m)
    W as factors, with a column for every target, or for every class, even for two classes.
coef_ : ndarray of shape (m, d), or (d,) for one target, (1, d) for two classes
    W transposed and dense, built on every access; for two classes, their difference.
intercept_ : ndarray of shape (m,) or (1,), or float
    b, for the same targets or classes as `coef_`.
scale_ : ndarray of shape (d,) or None
    Standard deviations of the features, 1 for a constant one; None unless `standardize` is set.
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
    Names of the features, if X had names.""",
    "<validation>": """\
validation_scores_ : ndarray of shape (n_iter_,) or None
    Minus the mean loss of the rows left out, after each epoch; None without early stopping, or if
    no epoch was needed.
best_validation_score_ : float or None
    The largest of them, which is that of the model.""",
    "<search>": """\
radii_ : ndarray of shape (n_radii,)
    All radii that were tried.
scores_ : ndarray of shape (n_radii, n_folds)
    Scores on the rows left out; higher is better.
validation_ : ndarray of shape (n_radii, n_folds)
    Mean loss of a row left out.
path_ : Path
    The fits without each fold; that to all rows is `result_`.""",
}


@dataclass(eq=False, repr=False)  # for the constructor; the rest is scikit-learn's
class TraceNormEstimator(
    CallbackSupportMixin,  # type: ignore[misc]  # scikit-learn's classes are untyped
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]  # untyped
    TransformerMixin,  # type: ignore[misc]  # untyped
    BaseEstimator,  # type: ignore[misc]  # untyped
):
    """A linear model with a matrix of coefficients of bounded trace norm."""

    _: KW_ONLY
    tol: float | None = 1e-2
    max_iter: int | None = None
    max_time: float | None = None
    fit_intercept: bool = True
    standardize: bool = False
    engine: str | Engine = "local"
    representation: str = "auto"
    n_shards: int | None = None
    n_jobs: int | None = None
    random_state: int | np.random.RandomState | None = None
    verbose: int = 0

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        doc = cleandoc(cls.__doc__ or "")
        for key, text in _SHARED_DOCS.items():
            doc = doc.replace(key, text)
        cls.__doc__ = doc.replace("<tol>", "1e-4" if cls.tol == TOL_OF_REGRESSION else f"{cls.tol}")

    @abstractmethod
    def _task(self) -> ScoresTask:
        """What is minimised."""

    @abstractmethod
    def _read(self, X: Data, y: Data, sample_weight: Data) -> tuple[Data, Data, Named]:
        """X, y and further arguments as `dfwtrace.solve` takes them."""

    @abstractmethod
    def _shaped(self, part: Array) -> Array:
        """W transposed, or b, with the axes of scikit-learn's linear models."""

    def _fit(self, X: Data, y: Data, sample_weight: Data, features: object, find: Find) -> None:
        """Check the data, solve, and keep the result; on failure keep the one before."""
        with _announced(self, X, y, sample_weight) as epoch_ended:
            before = dict(vars(self))
            try:
                X, y, data = self._read(X, y, sample_weight)
                result = find(X, y, {"features": features, **data}, epoch_ended)
                if result.status == "interrupted" and not (result.history or result.search):
                    raise KeyboardInterrupt  # there is nothing to keep
                self._keep(result)
            except BaseException:
                self.__dict__.clear()
                self.__dict__.update(before)
                raise
            if result.status == "interrupted":  # with the best model so far set
                raise KeyboardInterrupt
            for category, sentence in concerns(self, result, X):
                warnings.warn(sentence, category, stacklevel=3 + HAS_CALLBACKS)

    def _keep(self, result: Result) -> None:
        """Set the attributes that a fit has."""
        b = np.zeros(result.W.shape[1]) if result.intercept is None else result.intercept
        if is_classifier(self):  # a number added to all classes changes nothing
            b = b - b.mean()
        self.result_, self.radius_ = result, result.radius
        self.history_, self.status_ = result.history, result.status
        self.scale_ = result.scale
        self.__dict__.update(self._attributes(result.W, b, len(result.history), result.gap))

    def _attributes(self, W: LowRankMatrix, b: FloatArray, epochs: int, gap: float) -> Named:
        intercept = self._shaped(b)
        return {
            "low_rank_": W,
            "n_features_in_": W.shape[0],
            "_b": b,
            "intercept_": intercept if intercept.ndim else float(intercept),
            "n_iter_": epochs,
            "duality_gap_": gap,
        }

    def _settings(self, X: Data) -> Named:
        """Arguments of `dfwtrace.solve` and `dfwtrace.path` alike."""
        return {
            "fit_intercept": self.fit_intercept,
            "standardize": self.standardize,
            "max_iter": self.max_iter,
            "tol": self.tol,
            "max_time": self.max_time,
            "representation": self.representation,
            "verbose": bool(self.verbose),
            "engine": self.engine if self.engine != "local" else self._local_engine(X),
            "random_state": check_seed(self.random_state),
        }

    def _local_engine(self, X: Data) -> Engine | None:
        if is_frame(X):  # the engine of its session
            return None
        n_shards, n_jobs = self.n_shards, self.n_jobs
        if n_shards is None:
            n_shards = default_shards((X.data if sp.issparse(X) else X).nbytes)
        if isinstance(n_jobs, int | np.integer) and n_jobs < 0:  # -1 is all processors
            n_jobs = max(1, (os.cpu_count() or 1) + 1 + int(n_jobs))
        return LocalEngine(n_shards, n_jobs)

    def transform(self, X: Data) -> Array:
        """Project rows on the left singular vectors of W.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)
            Features.

        Returns
        -------
        ndarray of shape (n, rank)
            X U, with the signs of U such that the largest entry of each column is positive; with
            `standardize`, the rows of U are divided by `scale_`, which scales X.
        """
        X = self._check_rows(X)
        U = self.low_rank_.U
        largest = np.take_along_axis(U, np.abs(U).argmax(axis=0, keepdims=True), axis=0)
        return np.asarray(X @ (U * np.sign(largest)).astype(X.dtype))

    @property
    def _n_features_out(self) -> int:
        return int(self.low_rank_.rank)

    @property
    def coef_(self) -> Array:
        """Dense coefficients, built on demand; `low_rank_` has their factors."""
        check_is_fitted(self)
        return np.ascontiguousarray(self._shaped(self.low_rank_.to_dense().T))

    def _check_rows(self, X: Data) -> Matrix:
        check_is_fitted(self)
        return self._validated(X, reset=False)

    def _validated(self, X: Data, *y: Data, **how: bool) -> Data:
        """X, or X and y, checked by scikit-learn; X in float32 or float64 as it comes."""
        for name, array in zip("Xy", (X, *y), strict=False):
            check_not_masked(name, array)  # scikit-learn would take the hidden values
        dtypes = [np.float64, np.float32]
        return validate_data(self, X, *y, accept_sparse="csr", dtype=dtypes, **how)

    def _scores(self, X: Data) -> Array:
        return self._scores_of(self._check_rows(X))

    def _scores_of(self, X: Matrix) -> Array:
        """XW + 1bᵀ through the factors, in the precision of X."""
        left, right, b = self._factors(X.dtype)
        scores: Array = (X @ left) @ right
        scores += b
        return scores

    def _factors(self, dtype: DType) -> tuple[Array, Array, Array]:
        W, b = self.low_rank_, self._b
        return (W.U * W.s).astype(dtype), np.ascontiguousarray(W.V.T, dtype), b.astype(dtype)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file, which `dfwtrace.load` reads.

        Parameters
        ----------
        path : str or path-like
            The file, written whole or not at all: a previous one stays until it is complete.

        Raises
        ------
        TypeError
            The estimator is of a derived class, or its labels are not numbers or strings.
        """
        from dfwtrace.estimators.saving import save

        save(self, path)

    def to_onnx(self) -> Any:
        """Convert the fitted model to ONNX; needs ``dfwtrace[onnx]``.

        Returns
        -------
        onnx.ModelProto
            Its input is "X", a float32 matrix with any number of rows. A classifier's outputs are
            "label" and "probabilities", a regressor's is "prediction".
        """
        from dfwtrace.estimators.saving import to_onnx

        return to_onnx(self)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


@dataclass(eq=False, repr=False)
class FixedRadius(TraceNormEstimator):
    """An estimator with one radius, given or found from the data."""

    radius: float | str = "auto"
    _: KW_ONLY
    solver: str = "accelerated"
    warm_start: bool = False
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None
    early_stopping: bool = False
    validation_fraction: float = 0.1
    n_iter_no_change: int = 10
    lmo: str | LMO | None = None
    step: str | float | Callable[[int], float] | Step | None = None

    @with_callbacks
    def fit(
        self,
        X: Data,
        y: Data,
        sample_weight: Data = None,
        *,
        features: str | list[str] | None = None,
    ) -> Self:
        """Fit the model to rows and their targets or labels.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n, d), or Spark DataFrame
            Features.
        y : array of shape (n, m) or (n,), str, or list of str
            Targets or labels, numbers or strings; names of columns if X is a Spark DataFrame.
        sample_weight : array of shape (n,), str or None, default=None
            Weights of the rows; the name of their column if X is a Spark DataFrame.
        features : str, list of str or None, default=None
            Columns of features of a Spark DataFrame; see `dfwtrace.solve`.

        Returns
        -------
        self
            The fitted estimator.
        """
        self._fit(X, y, sample_weight, features, self._find)
        return self

    def _find(self, X: Data, y: Data, data: Named, epoch_ended: EpochEnded | None) -> Result:
        def callback(W: LowRankMatrix, record: Named) -> bool:
            attributes = partial(self._attributes_at, W, record, X, y, data["sample_weight"])
            return epoch_ended is not None and epoch_ended(attributes)

        watch = callback if epoch_ended else None
        stopping = self.validation_fraction, self.n_iter_no_change, is_classifier(self)
        early = EarlyStopping(*stopping, callback=watch)
        if not isinstance(self.early_stopping, bool | np.bool_):
            got = describe(self.early_stopping)
            raise TypeError(f"early_stopping must be True or False, got {got}.")
        start: LowRankMatrix | None = vars(self).get("low_rank_") if self.warm_start else None
        # The norm of standardised features is known only during the fit, which shrinks it then.
        if start is not None and not isinstance(self.radius, str) and not self.standardize:
            radius = check_positive("radius", self.radius)
            start = start * min(1.0, radius / (start.trace_norm or radius))
        return solve(
            self._task(), X, y, radius=self.radius, solver=self.solver, lmo=self.lmo,
            step=self.step, start=start, callback=early if self.early_stopping else watch,
            checkpoint=self.checkpoint, **self._settings(X), **data,
        )  # fmt: skip

    def _keep(self, result: Result) -> None:
        super()._keep(result)
        scores = result.history.column(SCORE) if SCORE in result.history.columns else None
        self.validation_scores_ = scores
        self.best_validation_score_ = None if scores is None else float(scores.max())

    def _attributes_at(
        self, W: LowRankMatrix, record: Named, X: Data, y: Data, sample_weight: Array | None
    ) -> Named | None:
        """Attributes of a fit that ended at W; None where b is not known here."""
        b = np.zeros(W.shape[1])
        if self.fit_intercept:
            if is_classifier(self) or is_frame(X) or self.early_stopping:
                return None
            weights = np.ones(len(y)) if sample_weight is None else sample_weight
            x_sum, y_sum = weights @ X, weights @ y.reshape(len(y), -1)
            b = (y_sum - np.asarray(x_sum) @ W) / weights.sum()
        W = W if self.standardize else W.compress()
        return self._attributes(W, b, record["epoch"], record["gap"])


@contextmanager
def _announced(
    estimator: TraceNormEstimator, X: Data, y: Data, sample_weight: Data
) -> Iterator[EpochEnded | None]:
    """Announce begin and end of a fit to scikit-learn's callbacks; yield what does an epoch's."""
    if not HAS_CALLBACKS:
        yield None
        return
    metadata = None if sample_weight is None else {"sample_weight": sample_weight}
    data: Named = {} if is_frame(X) else {"X": X, "y": y, "metadata": metadata}
    data["estimator"] = estimator
    # The number of epochs is not known: a run ends when its gap is small enough.
    fit = estimator._init_callback_context(max_subtasks=None)
    fit.call_on_fit_task_begin(**data)

    def epoch_ended(attributes: Callable[[], Named | None]) -> bool:
        epoch = fit.subcontext(task_name="epoch")
        epoch.call_on_fit_task_begin(**data)
        return bool(epoch.call_on_fit_task_end(reconstruction_attributes=attributes, **data))

    yield epoch_ended
    fit.call_on_fit_task_end(reconstruction_attributes={}, **data)


def read_weights(X: Matrix, sample_weight: Data) -> Array | None:
    """Return one weight for each row; a single number stands for that weight of all rows."""
    if sample_weight is None:
        return None
    if np.asarray(sample_weight).ndim == 0:
        sample_weight = np.full(X.shape[0], sample_weight)
    return check_weights(sample_weight, X.shape[0])
