"""Low-rank matrices under a trace-norm constraint, learned from data cut into shards."""

import warnings
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dfwtrace import datasets, lmo, losses, plotting, report
    from dfwtrace.api import path, plan, solve
    from dfwtrace.checkpoints import Checkpoint, CheckpointError
    from dfwtrace.data.shards import Shard
    from dfwtrace.engines import (
        LocalEngine,
        RowsChangedError,
        SparkEngine,
        SparkMapReduceEngine,
        WorkerError,
    )
    from dfwtrace.estimators import (
        TraceNormClassifier,
        TraceNormClassifierCV,
        TraceNormRegressor,
        TraceNormRegressorCV,
        load,
    )
    from dfwtrace.io.frame import ModelFormatError
    from dfwtrace.linalg.certificate import Certificate
    from dfwtrace.linalg.lowrank import LowRankMatrix, RankOne
    from dfwtrace.result import History, Path, Result
    from dfwtrace.solvers.steps import Harmonic, LineSearch
    from dfwtrace.tasks import LeastSquares, Multinomial, ScoresTask, Task
    from dfwtrace.tasks.planning import Plan

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
    "plotting",
    "report",
    "solve",
]

# Where each name is, but for the modules.
_HOMES = {
    "linalg.certificate": ["Certificate"],
    "checkpoints": ["Checkpoint", "CheckpointError"],
    "engines": [
        *("LocalEngine", "RowsChangedError", "SparkEngine", "SparkMapReduceEngine", "WorkerError"),
    ],
    "estimators": [
        *("TraceNormClassifier", "TraceNormClassifierCV", "TraceNormRegressor"),
        *("TraceNormRegressorCV", "load"),
    ],
    "io.frame": ["ModelFormatError"],
    "linalg.lowrank": ["LowRankMatrix", "RankOne"],
    "tasks.planning": ["Plan"],
    "result": ["History", "Path", "Result"],
    "data.shards": ["Shard"],
    "api": ["path", "plan", "solve"],
    "solvers.steps": ["Harmonic", "LineSearch"],
    "tasks": ["LeastSquares", "Multinomial", "ScoresTask", "Task"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = {"datasets", "lmo", "losses", "plotting", "report"}


def __getattr__(name: str) -> Any:
    """Names are looked up once they are asked for: a worker needs few, and starts far sooner."""
    if name == "plots":
        warnings.warn(
            "dfwtrace.plots is deprecated: use dfwtrace.plotting.", DeprecationWarning, stacklevel=2
        )
        name = "plotting"
    if name in _MODULES:
        return import_module(f"dfwtrace.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'dfwtrace' has no attribute {name!r}.")
    value = getattr(import_module(f"dfwtrace.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
