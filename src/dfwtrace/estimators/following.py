"""scikit-learn's callbacks, called after every epoch of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from dfwtrace.engines import is_frame
from dfwtrace.linalg.lowrank import LowRankMatrix
from dfwtrace.result import Record

if TYPE_CHECKING:
    from dfwtrace.estimators.base import TraceNormEstimator

#: The attributes of an estimator whose fit ends with this W and record; None if unknown.
Known: TypeAlias = Callable[[LowRankMatrix, Record], dict[str, Any] | None]


class Following:
    """Tells an estimator's callbacks of the fit and of each of its epochs.

    Parameters
    ----------
    estimator : TraceNormEstimator
    X, y, sample_weight
        What it is fitted on, as it was given: a callback that scores the estimator needs names of
        features and labels as they are. A Spark DataFrame is not passed on.
    """

    def __init__(self, estimator: TraceNormEstimator, X: Any, y: Any, sample_weight: Any) -> None:
        self._estimator = estimator
        metadata = None if sample_weight is None else {"sample_weight": sample_weight}
        self._data = {} if is_frame(X) else {"X": X, "y": y, "metadata": metadata}
        # How many epochs there will be is not known: a run ends when its gap is small enough.
        self._context = estimator._init_callback_context(max_subtasks=None)
        self._context.call_on_fit_task_begin(estimator=estimator, **self._data)
        self._followed = bool(getattr(estimator, "_skl_callbacks", ()))

    def callback(self, known: Known) -> Callable[[LowRankMatrix, Record], bool] | None:
        """For `dfwtrace.solve`; None if nobody wants to know."""
        if not self._followed:
            return None

        def epoch(W: LowRankMatrix, record: Record) -> bool:
            context = self._context.subcontext(task_name="epoch")
            context.call_on_fit_task_begin(estimator=self._estimator, **self._data)
            stop = context.call_on_fit_task_end(
                estimator=self._estimator,
                reconstruction_attributes=lambda: known(W, record),  # only if a callback asks
                **self._data,
            )
            return bool(stop)

        return epoch

    def end(self) -> None:
        """Tell that the estimator is fitted."""
        self._context.call_on_fit_task_end(
            estimator=self._estimator, reconstruction_attributes={}, **self._data
        )
