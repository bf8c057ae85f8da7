"""Low-rank matrices under a trace-norm constraint, learned from data cut into shards."""

import warnings
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str
    from dfwtrace import datasets, lmo, losses, plotting, report
    from dfwtrace.api import path, plan, solve
    from dfwtrace.data.shards import Shard
    from dfwtrace.engines import LocalEngine, SparkEngine, SparkMapReduceEngine
    from dfwtrace.engines.base import RowsChangedError, WorkerError
    from dfwtrace.estimators.cv import TraceNormClassifierCV, TraceNormRegressorCV
    from dfwtrace.estimators.linear import TraceNormClassifier, TraceNormRegressor
    from dfwtrace.estimators.saving import load
    from dfwtrace.files.checkpoint import Checkpoint, CheckpointError
    from dfwtrace.files.container import ModelFormatError
    from dfwtrace.linalg.certificate import Certificate
    from dfwtrace.linalg.lowrank import LowRankMatrix, RankOne
    from dfwtrace.result import History, Path, Result
    from dfwtrace.solvers.steps import Harmonic, LineSearch
    from dfwtrace.tasks import LeastSquares, Multinomial, ScoresTask, Task
    from dfwtrace.tasks.check import check_task
    from dfwtrace.tasks.planning import Plan

# fmt: off
__all__ = [
    "Certificate", "Checkpoint", "CheckpointError", "Harmonic", "History", "LeastSquares",
    "LineSearch", "LocalEngine", "LowRankMatrix", "ModelFormatError", "Multinomial", "Path", "Plan",
    "RankOne", "Result", "RowsChangedError", "ScoresTask", "Shard", "SparkEngine",
    "SparkMapReduceEngine", "Task", "TraceNormClassifier", "TraceNormClassifierCV",
    "TraceNormRegressor", "TraceNormRegressorCV", "WorkerError", "__version__", "check_task",
    "datasets", "lmo", "load", "losses", "path", "plan", "plotting", "report", "solve",
]
# fmt: on

# Where each name is, but for the modules.
_HOMES = {
    "api": "path plan solve",
    "data.shards": "Shard",
    "engines": "LocalEngine RowsChangedError SparkEngine SparkMapReduceEngine WorkerError",
    "estimators.cv": "TraceNormClassifierCV TraceNormRegressorCV",
    "estimators.linear": "TraceNormClassifier TraceNormRegressor",
    "estimators.saving": "load",
    "files.checkpoint": "Checkpoint CheckpointError",
    "files.container": "ModelFormatError",
    "linalg.certificate": "Certificate",
    "linalg.lowrank": "LowRankMatrix RankOne",
    "result": "History Path Result",
    "solvers.steps": "Harmonic LineSearch",
    "tasks": "LeastSquares Multinomial ScoresTask Task",
    "tasks.check": "check_task",
    "tasks.planning": "Plan",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Import a name when it is first used: a worker needs few, and starts sooner without."""
    if name == "plots":
        warnings.warn("dfwtrace.plots: use dfwtrace.plotting.", DeprecationWarning, stacklevel=2)
        return import_module("dfwtrace.plotting")
    if name not in __all__:
        raise AttributeError(f"module 'dfwtrace' has no attribute {name!r}.")
    if name == "__version__":  # only here: it takes time
        return import_module("importlib.metadata").version("dfwtrace")
    if name not in _HOME_OF:
        return import_module(f"dfwtrace.{name}")
    globals()[name] = value = getattr(import_module(f"dfwtrace.{_HOME_OF[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
