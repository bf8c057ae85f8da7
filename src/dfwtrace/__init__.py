"""Low-rank matrices under a trace-norm constraint, learned from data cut into shards."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from dfwtrace import datasets, lmo, losses
from dfwtrace.certificate import Certificate
from dfwtrace.checkpoints import Checkpoint, CheckpointError
from dfwtrace.engines import (
    LocalEngine,
    RowsChangedError,
    SparkEngine,
    SparkMapReduceEngine,
    WorkerError,
)
from dfwtrace.history import History
from dfwtrace.io.frame import ModelFormatError
from dfwtrace.lowrank import LowRankMatrix, RankOne
from dfwtrace.path import Path, path
from dfwtrace.planning import Plan
from dfwtrace.result import Result
from dfwtrace.shards import Shard
from dfwtrace.solve import plan, solve
from dfwtrace.steps import Harmonic, LineSearch
from dfwtrace.tasks import LeastSquares, Multinomial, ScoresTask, Task

if TYPE_CHECKING:
    from dfwtrace.estimators import (
        TraceNormClassifier,
        TraceNormClassifierCV,
        TraceNormRegressor,
        TraceNormRegressorCV,
        load,
    )

__version__ = version("dfwtrace")

__all__ = [
    "Certificate",
    "Checkpoint",
    "CheckpointError",
    "Harmonic",
    "History",
    "LeastSquares",
    "LineSearch",
    "LocalEngine",
    "LowRankMatrix",
    "ModelFormatError",
    "Multinomial",
    "Path",
    "Plan",
    "RankOne",
    "Result",
    "RowsChangedError",
    "ScoresTask",
    "Shard",
    "SparkEngine",
    "SparkMapReduceEngine",
    "Task",
    "TraceNormClassifier",
    "TraceNormClassifierCV",
    "TraceNormRegressor",
    "TraceNormRegressorCV",
    "WorkerError",
    "__version__",
    "datasets",
    "lmo",
    "load",
    "losses",
    "path",
    "plan",
    "solve",
]

# `from dfwtrace import estimators` would ask for the name below, and so on for ever.
_FROM_ESTIMATORS = {name for name in __all__ if name.startswith("TraceNorm") or name == "load"}


def __getattr__(name: str) -> Any:
    """The estimators, once they are asked for: workers need no scikit-learn, which takes long."""
    if name in _FROM_ESTIMATORS:
        return getattr(import_module("dfwtrace.estimators"), name)
    raise AttributeError(f"module 'dfwtrace' has no attribute {name!r}.")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
