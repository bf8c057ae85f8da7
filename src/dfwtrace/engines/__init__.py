"""Where shards live, and rounds over them. Engines know nothing of the maths."""

from importlib import import_module
from typing import TYPE_CHECKING

from dfwtrace.engines.base import Cost, Engine, Round, RowsChangedError, WorkerError, Workers
from dfwtrace.engines.local import LocalEngine, LocalWorkers, single_threaded_blas
from dfwtrace.engines.tree import Node, TreeSum

if TYPE_CHECKING:
    from dfwtrace.engines.spark.engine import SparkEngine
    from dfwtrace.engines.spark.mapreduce import SparkMapReduceEngine

# fmt: off
__all__ = [
    "Cost", "Engine", "LocalEngine", "LocalWorkers", "Node", "Round", "RowsChangedError",
    "SparkEngine", "SparkMapReduceEngine", "TreeSum", "WorkerError", "Workers", "is_frame",
    "single_threaded_blas",
]
# fmt: on

_SPARK = {"SparkEngine": "engine", "SparkMapReduceEngine": "mapreduce"}


def is_frame(X: object) -> bool:
    """Whether X is a Spark DataFrame, found out without importing pyspark."""
    return type(X).__module__.startswith("pyspark.sql.") and type(X).__name__ == "DataFrame"


def __getattr__(name: str) -> object:
    if name not in _SPARK:
        raise AttributeError(f"module 'dfwtrace.engines' has no attribute {name!r}.")
    return getattr(import_module(f"dfwtrace.engines.spark.{_SPARK[name]}"), name)
