"""What one shard can do: tasks and the representations that they take."""

from dfwtrace.tasks.gram import GramTask, Moments, folds_of
from dfwtrace.tasks.program import ShardProgram
from dfwtrace.tasks.scores import LeastSquares, Multinomial, ScoresTask
from dfwtrace.tasks.task import Task, missing_methods

__all__ = [
    "GramTask",
    "LeastSquares",
    "Moments",
    "Multinomial",
    "ScoresTask",
    "ShardProgram",
    "Task",
    "folds_of",
    "missing_methods",
]
