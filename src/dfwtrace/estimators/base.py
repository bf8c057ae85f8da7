"""What all estimators share: settings, the call to the solver, what is known after it."""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.callback import CallbackSupportMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from dfwtrace._typing import Array, FloatArray, Matrix
from dfwtrace.api import solve
from dfwtrace.data.shards import slice_rows
from dfwtrace.engines import Engine, is_frame
from dfwtrace.estimators.engines import engine_for
from dfwtrace.estimators.following import Following
from dfwtrace.linalg.lowrank import LowRankMatrix
from dfwtrace.result import Record, Result
from dfwtrace.tasks import ScoresTask
from dfwtrace.validation import check_count, check_positive

# Rows that are multiplied at once when scores are not kept: their scores stay in cache.
_ROWS_AT_ONCE = 1024


class TraceNormEstimator(
    CallbackSupportMixin,  # type: ignore[misc]  # scikit-learn's classes are untyped
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """A linear model with a matrix of coefficients of small trace norm."""

    # Set by the subclasses' constructors, as scikit-learn has it.
    radius: Any
    solver: str
    tol: float | None
    max_iter: int | None
    max_time: float | None
    fit_intercept: bool
    engine: Any
    representation: str
    n_shards: int | None
    n_jobs: int | None
    warm_start: bool
    random_state: Any
    verbose: int
    checkpoint: Any
    lmo: Any
    step: Any

    @abstractmethod
    def _task(self) -> ScoresTask:
        """What is minimised."""

    # Fitting

    def _solve(self, following: Following, X: Any, y: Any, **data: Any) -> None:
        """Solve, and keep what is known then; `data` are further arguments of `dfwtrace.solve`."""
        radius = check_positive("radius", self.radius)

        def known(W: LowRankMatrix, record: Record) -> dict[str, Any] | None:
            return self._known_at(W, record, X, y, data.get("sample_weight"))

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
            callback=following.callback(known),
            progress=bool(self.verbose),
            checkpoint=self.checkpoint,
            **data,
        )
        self._keep(result, radius)
        following.end()

    def _keep(self, result: Result, radius: float) -> None:
        self._restore(result, radius)
        # Who asked for the end needs no warning of it.
        if result.status not in ("optimal", "stopped") and self.tol is not None:
            warnings.warn(
                f"{result.message} Raise max_iter or tol, or scale the features.",
                ConvergenceWarning,
                stacklevel=5,
            )

    def _restore(self, result: Result, radius: float) -> None:
        """Know what a fit has found out."""
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

    def _full_intercept(self, result: Result) -> FloatArray:
        width = result.W.shape[1]
        return np.zeros(width) if result.intercept is None else result.intercept

    @abstractmethod
    def _shaped_intercept(self, b: FloatArray) -> Any:
        """b as scikit-learn's linear models show it."""

    def _epochs(self) -> int | None:
        return None if self.max_iter is None else check_count("max_iter", self.max_iter, 0)

    def _known_at(
        self, W: LowRankMatrix, record: Record, X: Any, y: Any, sample_weight: Any
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

    def _intercept_at(
        self, W: LowRankMatrix, X: Matrix, y: Array, sample_weight: Any
    ) -> FloatArray | None:
        """The best b for W; None where finding it takes an optimisation."""
        return None

    def _engine(self, X: Any) -> Engine | None:
        return engine_for(self.engine, X, self.n_shards, self.n_jobs)

    def _seed(self) -> int:
        """The workers' common seed; the same in every fit unless `random_state` says otherwise."""
        if self.random_state is None:
            return 0
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def _start(self, X: Any, y: Any, radius: float) -> LowRankMatrix | None:
        """The last solution, drawn into the present ball."""
        known: LowRankMatrix | None = getattr(self, "low_rank_", None)
        if known is None:
            return None
        if not is_frame(X) and known.shape != (X.shape[1], self._width(y)):
            raise ValueError(
                f"warm_start needs as many features and targets as in the last fit, {known.shape}, "
                f"got {(X.shape[1], self._width(y))}."
            )
        if known.trace_norm <= radius:
            return known
        drawn_in: LowRankMatrix = known * (radius / known.trace_norm)
        return drawn_in

    @abstractmethod
    def _width(self, y: Array) -> int:
        """How many columns W has."""

    # Using

    def transform(self, X: Any) -> Array:
        """The rows in the model's own few dimensions: X U, with the left singular vectors of W.

        Singular vectors have no sign of their own; here the largest entry of each is positive.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)

        Returns
        -------
        array of shape (n, rank)
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
        """The dense coefficients, built on demand; `low_rank_` has their factors."""
        check_is_fitted(self)
        return self._shaped_coefficients(self.low_rank_.to_dense().T)

    @abstractmethod
    def _shaped_coefficients(self, dense: Array) -> Array:
        """The coefficients as scikit-learn's linear models show them, from (m, d)."""

    def _check_rows(self, X: Any) -> Matrix:
        check_is_fitted(self)
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

    def _factors(self, dtype: Any) -> tuple[Array, Array, Array]:
        W, b = self.low_rank_, self._b
        return (W.U * W.s).astype(dtype), np.ascontiguousarray(W.V.T, dtype), b.astype(dtype)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file, which `dfwtrace.load` reads.

        The file is written whole or not at all: what was there stays until the new one is complete.

        Parameters
        ----------
        path : str or path
        """
        from dfwtrace.estimators.saving import save

        save(self, path)

    def to_onnx(self) -> Any:
        """The fitted model as an ONNX graph, for any runtime of that format.

        Its input is "X", a float32 matrix with any number of rows. A classifier's outputs are
        "label" and "probabilities", a regressor's is "prediction". Needs ``dfwtrace[onnx]``.

        Returns
        -------
        onnx.ModelProto
        """
        from dfwtrace.estimators.onnx import to_onnx

        return to_onnx(self)

    def __sklearn_is_fitted__(self) -> bool:
        # Not by any name that ends in _: a fit that is refused leaves some behind.
        return hasattr(self, "low_rank_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
