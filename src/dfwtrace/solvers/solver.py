"""What a solver is, and the two that there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Protocol

from dfwtrace import lmo as oracles
from dfwtrace import steps
from dfwtrace.lmo import LMO, Constants
from dfwtrace.lowrank import LowRankMatrix
from dfwtrace.solvers.accelerated import accelerated
from dfwtrace.solvers.frank_wolfe import frank_wolfe
from dfwtrace.solvers.iterate import Iterate
from dfwtrace.solvers.problem import Problem, Value
from dfwtrace.steps import Step
from dfwtrace.validation import describe


class GoingOn(NamedTuple):
    """A run that goes on: the epochs behind it, and what its iterate had to remember."""

    epochs: int
    memory: dict[str, Any]


class Solver(Protocol):
    """A way to minimise F over the ball, with what the plan of a run must know of it."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Methods beyond the products that the task must have."""

    @property
    def local(self) -> bool:
        """True if the shards' own gradients are looked at, not only their sum."""

    @property
    def gathers(self) -> bool:
        """True if the dense gradient is gathered."""

    @property
    def columns(self) -> int:
        """Vectors that are multiplied at once, about."""

    @property
    def deflates(self) -> bool:
        """True if W's factors end up along the gradient's leading singular vectors."""

    @property
    def default_epochs(self) -> int: ...

    @property
    def default_tol(self) -> float | None: ...

    def mean_products(self, epochs: int) -> float:
        """Products with a gradient in an epoch, on average over so many: for the cost model."""

    def iterates(
        self,
        problem: Problem,
        W: LowRankMatrix,
        start: Value,
        epochs: int,
        target: float,
        going_on: GoingOn | None = None,
    ) -> Iterator[Iterate]:
        """W_1, W_2, … from W, where the shards' states are; `target` is the gap aimed at."""


@dataclass(frozen=True)
class FrankWolfe:
    """DFW-Trace with an oracle and a step size."""

    lmo: LMO
    step: Step
    columns: ClassVar[int] = 1
    deflates: ClassVar[bool] = False
    default_epochs: ClassVar[int] = 100
    default_tol: ClassVar[float | None] = None

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

    def iterates(
        self,
        problem: Problem,
        W: LowRankMatrix,
        start: Value,
        epochs: int,
        target: float,
        going_on: GoingOn | None = None,
    ) -> Iterator[Iterate]:
        setting = problem.setting()
        if going_on is None:
            oracle = self.lmo.begin(setting)
            return frank_wolfe(problem, W, start, oracle, self.step, epochs)
        known = going_on.memory.get("constants")
        if known is not None:  # of where the run began
            setting = replace(setting, constants=lambda: Constants(*known))
        resumed: Any = self.lmo.begin(setting)
        if hasattr(resumed, "restore"):
            resumed.restore(going_on.memory)
        return frank_wolfe(problem, W, start, resumed, self.step, epochs, going_on.epochs)


@dataclass(frozen=True)
class Accelerated:
    """Quasi-Newton steps in the factors of W, with projected gradient steps."""

    needs: ClassVar[tuple[str, ...]] = ("loss",)
    local: ClassVar[bool] = False
    gathers: ClassVar[bool] = False
    columns: ClassVar[int] = 16
    deflates: ClassVar[bool] = True
    default_epochs: ClassVar[int] = 1000
    default_tol: ClassVar[float | None] = 1e-4

    def mean_products(self, epochs: int) -> float:
        return 2.0

    def iterates(
        self,
        problem: Problem,
        W: LowRankMatrix,
        start: Value,
        epochs: int,
        target: float,
        going_on: GoingOn | None = None,
    ) -> Iterator[Iterate]:
        if going_on is None:
            return accelerated(problem, W, start, epochs, target)
        return accelerated(problem, W, start, epochs, target, going_on.epochs, going_on.memory)


def resolve(
    solver: str,
    lmo: str | LMO | None = None,
    step: str | float | Callable[[int], float] | Step | None = None,
    log_factor: float = 1.0,
) -> Solver:
    """The solver of that name; `lmo` and `step` belong to "dfw".

    Examples
    --------
    >>> resolve("accelerated")
    Accelerated()
    """
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
