"""Low-rank matrices under a trace-norm constraint, learned from data cut into shards."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dfwtrace import datasets, lmo, losses, plots, report
    from dfwtrace.certificate import Certificate
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
    from dfwtrace.files.checkpoint import Checkpoint, CheckpointError
    from dfwtrace.files.container import ModelFormatError
    from dfwtrace.history import History
    from dfwtrace.lowrank import LowRankMatrix, RankOne
    from dfwtrace.paths import Path, path
    from dfwtrace.planning import Plan
    from dfwtrace.result import Result
    from dfwtrace.shards import Shard
    from dfwtrace.solving import plan, solve
    from dfwtrace.steps import Harmonic, LineSearch
    from dfwtrace.tasks import LeastSquares, Multinomial, ScoresTask, Task

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
    "plots",
    "report",
    "solve",
]

# Where each name is, but for the modules.
_HOMES = {
    "certificate": ["Certificate"],
    "engines": [
        *("LocalEngine", "RowsChangedError", "SparkEngine", "SparkMapReduceEngine", "WorkerError"),
    ],
    "estimators": [
        *("TraceNormClassifier", "TraceNormClassifierCV", "TraceNormRegressor"),
        *("TraceNormRegressorCV", "load"),
    ],
    "files.checkpoint": ["Checkpoint", "CheckpointError"],
    "files.container": ["ModelFormatError"],
    "history": ["History"],
    "lowrank": ["LowRankMatrix", "RankOne"],
    "paths": ["Path", "path"],
    "planning": ["Plan"],
    "result": ["Result"],
    "shards": ["Shard"],
    "solving": ["plan", "solve"],
    "steps": ["Harmonic", "LineSearch"],
    "tasks": ["LeastSquares", "Multinomial", "ScoresTask", "Task"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = {"datasets", "lmo", "losses", "plots", "report"}


def __getattr__(name: str) -> Any:
    """Names are looked up once they are asked for: a worker needs few, and starts far sooner."""
    if name in _MODULES:
        return import_module(f"dfwtrace.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'dfwtrace' has no attribute {name!r}.")
    value = getattr(import_module(f"dfwtrace.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
