"""F on one shard: tasks, and the representations that they take."""

from dfwtrace.tasks.features.scores import LeastSquares, Multinomial, ScoresTask
from dfwtrace.tasks.task import Task

__all__ = ["LeastSquares", "Multinomial", "ScoresTask", "Task"]
