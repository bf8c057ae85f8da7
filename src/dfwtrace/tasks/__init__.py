"""What one shard can do: tasks and the representations that they take."""

from dfwtrace.tasks.gram import GramTask, folds_of
from dfwtrace.tasks.moments import Centre, Moments
from dfwtrace.tasks.program import ShardProgram
from dfwtrace.tasks.scores import LeastSquares, Multinomial, ScoresTask
from dfwtrace.tasks.task import Task, missing_methods
from dfwtrace.tasks.weights import join_weights

__all__ = [
    "Centre",
    "GramTask",
    "LeastSquares",
    "Moments",
    "Multinomial",
    "ScoresTask",
    "ShardProgram",
    "Task",
    "folds_of",
    "join_weights",
    "missing_methods",
]
