"""Low-rank matrices under a trace-norm constraint, learned from data cut into shards."""

from importlib.metadata import version

from dfwtrace import datasets, lmo, losses
from dfwtrace.certificate import Certificate
from dfwtrace.engines import (
    LocalEngine,
    RowsChangedError,
    SparkEngine,
    SparkMapReduceEngine,
    WorkerError,
)
from dfwtrace.history import History
from dfwtrace.lowrank import LowRankMatrix, RankOne
from dfwtrace.path import Path, path
from dfwtrace.planning import Plan
from dfwtrace.result import Result
from dfwtrace.shards import Shard
from dfwtrace.solve import plan, solve
from dfwtrace.steps import Harmonic, LineSearch
from dfwtrace.tasks import LeastSquares, Multinomial, ScoresTask, Task

__version__ = version("dfwtrace")

__all__ = [
    "Certificate",
    "Harmonic",
    "History",
    "LeastSquares",
    "LineSearch",
    "LocalEngine",
    "LowRankMatrix",
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
    "WorkerError",
    "__version__",
    "datasets",
    "lmo",
    "losses",
    "path",
    "plan",
    "solve",
]
