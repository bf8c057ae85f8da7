"""Solvers yield iterates; the runner follows them to a result."""

from dfwtrace.solvers.frank_wolfe import frank_wolfe
from dfwtrace.solvers.intercept import Intercept
from dfwtrace.solvers.problem import Iterate, Problem, Start, Value
from dfwtrace.solvers.runner import Callback, Runner
from dfwtrace.solvers.solver import Accelerated, FrankWolfe, Solver, StoppingCriteria, resolve

# fmt: off
__all__ = [
    "Accelerated", "Callback", "FrankWolfe", "Intercept", "Iterate", "Problem", "Runner", "Solver",
    "Start", "StoppingCriteria", "Value", "frank_wolfe", "resolve",
]
# fmt: on
