"""Solvers hand out iterates; a watch follows them to an outcome."""

from dfwtrace.solvers.frank_wolfe import frank_wolfe
from dfwtrace.solvers.iterate import Iterate
from dfwtrace.solvers.problem import Problem, Value
from dfwtrace.solvers.watch import Callback, Outcome, Rules, Watch

__all__ = ["Callback", "Iterate", "Outcome", "Problem", "Rules", "Value", "Watch", "frank_wolfe"]
