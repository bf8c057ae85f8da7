"""Solvers yield iterates; the runner follows them to a result."""

from dfwtrace.solvers.accelerated import accelerated
from dfwtrace.solvers.frank_wolfe import frank_wolfe
from dfwtrace.solvers.intercept import Intercept
from dfwtrace.solvers.problem import Iterate, Problem, Value
from dfwtrace.solvers.runner import Callback, Runner, StoppingCriteria
from dfwtrace.solvers.solver import Accelerated, FrankWolfe, Resumed, Solver, resolve

__all__ = [
    "Accelerated",
    "Callback",
    "FrankWolfe",
    "Intercept",
    "Iterate",
    "Problem",
    "Resumed",
    "Runner",
    "Solver",
    "StoppingCriteria",
    "Value",
    "accelerated",
    "frank_wolfe",
    "resolve",
]
