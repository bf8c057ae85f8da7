"""F on one shard: tasks, and the representations that they take."""

from dfwtrace.tasks.features.scores import LeastSquares, Multinomial, ScoresTask, as_task
from dfwtrace.tasks.program import ShardProgram
from dfwtrace.tasks.task import Centre, Summary, Task, join_weights

# fmt: off
__all__ = [
    "Centre", "LeastSquares", "Multinomial", "ScoresTask", "ShardProgram", "Summary", "Task",
    "as_task", "join_weights",
]
# fmt: on
