"""Where shards live, and rounds over them. Engines know nothing of the maths."""

from dfwtrace.engines.blas import single_threaded_blas
from dfwtrace.engines.engine import Cost, Engine, Workers
from dfwtrace.engines.failures import RowsChangedError, WorkerError
from dfwtrace.engines.ledger import Ledger, Round, Traffic
from dfwtrace.engines.local import LocalEngine, LocalWorkers
from dfwtrace.engines.spark.engine import SparkEngine
from dfwtrace.engines.spark.labels import number_labels
from dfwtrace.engines.spark.mapreduce.engine import SparkMapReduceEngine
from dfwtrace.engines.spark.session import is_frame
from dfwtrace.engines.tree import Node, TreeSum

__all__ = [
    "Cost",
    "Engine",
    "Ledger",
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
