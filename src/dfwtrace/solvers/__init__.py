"""Solvers hand out iterates; a watch follows them to an outcome."""

from dfwtrace.solvers.accelerated import accelerated
from dfwtrace.solvers.frank_wolfe import frank_wolfe
from dfwtrace.solvers.intercept import Intercept
from dfwtrace.solvers.iterate import Iterate
from dfwtrace.solvers.problem import Problem, Value
from dfwtrace.solvers.solver import Accelerated, FrankWolfe, GoingOn, Solver, resolve
from dfwtrace.solvers.watch import Callback, Outcome, Rules, Watch

__all__ = [
    "Accelerated",
    "Callback",
    "FrankWolfe",
    "GoingOn",
    "Intercept",
    "Iterate",
    "Outcome",
    "Problem",
    "Rules",
    "Solver",
    "Value",
    "Watch",
    "accelerated",
    "frank_wolfe",
    "resolve",
]
