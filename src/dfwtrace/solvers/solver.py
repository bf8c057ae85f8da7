"""What a solver is, and the two of them by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, ClassVar

from dfwtrace import lmo as oracles
from dfwtrace.lmo import LMO, Constants, RememberingOracle
from dfwtrace.lmo.setting import Requirements
from dfwtrace.solvers import steps
from dfwtrace.solvers.accelerated import accelerated
from dfwtrace.solvers.frank_wolfe import frank_wolfe
from dfwtrace.solvers.problem import Iterate, Problem, Start
from dfwtrace.solvers.steps import Step
from dfwtrace.validation import describe


class Solver(Requirements, ABC):
    """A way to minimise F over the ball, with what the plan of a run depends on."""

    columns: ClassVar[int] = 1  # vectors that are multiplied at once, about
    deflates: ClassVar[bool] = False  # W's factors end up along the gradient's leading vectors
    default_epochs: ClassVar[int] = 100
    default_tol: ClassVar[float | None] = None

    @abstractmethod
    def iterates(self, problem: Problem, start: Start) -> Iterator[Iterate]:
        """W_1, W_2, … from the start."""


class FrankWolfe(Solver):
    """DFW-Trace with an oracle and a step size."""

    def __init__(self, lmo: LMO, step: Step) -> None:
        self.lmo, self.step = lmo, step

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(sorted({*self.lmo.needs, *self.step.needs}))

    @property
    def local(self) -> bool:
        return self.lmo.local

    @property
    def gathers(self) -> bool:
        return self.lmo.gathers

    def mean_products(self, epochs: int) -> float:
        return self.lmo.mean_products(epochs)

    def iterates(self, problem: Problem, start: Start) -> Iterator[Iterate]:
        setting, memory = problem.setting(), start.memory or {}
        constants = memory.get("constants")
        if constants is not None:  # of where the run began
            setting = replace(setting, constants=lambda: Constants(*constants))
        oracle = self.lmo.begin(setting)
        if memory and isinstance(oracle, RememberingOracle):
            oracle.restore(memory)
        return frank_wolfe(problem, start, oracle, self.step)


class Accelerated(Solver):
    """Quasi-Newton steps in the factors of W, with projected gradient steps."""

    columns: ClassVar[int] = 16
    deflates: ClassVar[bool] = True
    default_epochs: ClassVar[int] = 1000
    default_tol: ClassVar[float | None] = 1e-4

    @property
    def needs(self) -> tuple[str, ...]:
        return ("loss",)

    def mean_products(self, epochs: int) -> float:
        return 2.0

    def iterates(self, problem: Problem, start: Start) -> Iterator[Iterate]:
        return accelerated(problem, start)


def resolve(
    solver: str,
    lmo: str | LMO | None = None,
    step: str | float | Callable[[int], float] | Step | None = None,
    log_factor: float = 1.0,
) -> Solver:
    """The solver of that name; `lmo` and `step` belong to "dfw"."""
    if isinstance(solver, str) and solver == "accelerated":
        for name, given in (("lmo", lmo), ("step", step)):
            if given is not None:
                raise TypeError(f"{name} belongs to solver='dfw', got {describe(given)}.")
        return Accelerated()
    if not isinstance(solver, str) or solver != "dfw":
        raise ValueError(f"solver must be 'dfw' or 'accelerated', got {describe(solver)}.")
    rule: Any = "linesearch" if step is None else step
    oracle = oracles.resolve("power-log" if lmo is None else lmo, log_factor)
    return FrankWolfe(oracle, steps.resolve(rule))
