"""Where shards live, and rounds over them. Engines know nothing of the maths."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dfwtrace.engines.base import (
    Cost,
    Engine,
    Round,
    RowsChangedError,
    Traffic,
    WorkerError,
    Workers,
)
from dfwtrace.engines.blas import single_threaded_blas
from dfwtrace.engines.local import LocalEngine, LocalWorkers
from dfwtrace.engines.tree import Node, TreeSum

if TYPE_CHECKING:
    from dfwtrace.engines.spark.engine import SparkEngine
    from dfwtrace.engines.spark.labels import number_labels
    from dfwtrace.engines.spark.mapreduce import SparkMapReduceEngine

__all__ = [
    "Cost",
    "Engine",
    "LocalEngine",
    "LocalWorkers",
    "Node",
    "Round",
    "RowsChangedError",
    "SparkEngine",
    "SparkMapReduceEngine",
    "Traffic",
    "TreeSum",
    "WorkerError",
    "Workers",
    "is_frame",
    "number_labels",
    "single_threaded_blas",
]

_SPARK = {
    "SparkEngine": "engine",
    "SparkMapReduceEngine": "mapreduce",
    "number_labels": "labels",
}


def is_frame(X: object) -> bool:
    """Whether X is a Spark DataFrame, found out without importing pyspark.

    Examples
    --------
    >>> is_frame([[1.0, 2.0]])
    False
    """
    return type(X).__module__.startswith("pyspark.sql.") and type(X).__name__ == "DataFrame"


def __getattr__(name: str) -> Any:
    """Load what is for Spark when it is asked for."""
    if name not in _SPARK:
        raise AttributeError(f"module 'dfwtrace.engines' has no attribute {name!r}.")
    return getattr(import_module(f"dfwtrace.engines.spark.{_SPARK[name]}"), name)
