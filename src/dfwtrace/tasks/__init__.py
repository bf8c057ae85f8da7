"""F on one shard: tasks, and the representations that they take."""

from dfwtrace.tasks.features.representation import join_weights
from dfwtrace.tasks.features.scores import LeastSquares, Multinomial, ScoresTask
from dfwtrace.tasks.program import ShardProgram
from dfwtrace.tasks.task import Centre, Objective, Summary, Task, as_task

__all__ = [
    "Centre",
    "LeastSquares",
    "Multinomial",
    "Objective",
    "ScoresTask",
    "ShardProgram",
    "Summary",
    "Task",
    "as_task",
    "join_weights",
]
