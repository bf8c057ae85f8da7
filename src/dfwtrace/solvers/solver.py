"""The two solvers, by name, and when a run ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from dfwtrace import lmo as oracles
from dfwtrace.linalg.lowrank import LowRankMatrix
from dfwtrace.lmo import LMO, Constants, RememberingOracle, Setting
from dfwtrace.result import Record
from dfwtrace.solvers import steps
from dfwtrace.solvers.accelerated import Descent
from dfwtrace.solvers.frank_wolfe import frank_wolfe
from dfwtrace.solvers.problem import Iterate, Problem, Start
from dfwtrace.solvers.steps import Rule, Step
from dfwtrace.validation import check_count, check_positive, describe

#: Called after every epoch with the iterate and its record; see `dfwtrace.solve`.
Callback = Callable[[LowRankMatrix, Record], Mapping[str, object] | bool | None]


@dataclass(frozen=True)
class StoppingCriteria:
    """When a run ends, and when its gap is certified beside at the end."""

    max_iter: int  # epochs; none only to evaluate F at the start
    tol: float | None = None  # stop when the certified gap is at most tol·|F(0)|
    max_time: float | None = None  # wall-clock limit in seconds, checked after each epoch
    certify_every: int | None = None  # epochs
    certified: bool = True  # else the run ends by the estimate of its gap

    def __post_init__(self) -> None:
        check_count("max_iter", self.max_iter, 0)
        if self.tol is not None:
            check_positive("tol", self.tol, or_zero=True)
        if self.max_time is not None:
            check_positive("max_time", self.max_time)
        if self.certify_every is not None:
            check_count("certify_every", self.certify_every, 1)


class FrankWolfe:
    """DFW-Trace with an oracle and a step size, and what the plan of a run depends on."""

    columns = 1  # vectors that are multiplied at once, about
    deflates = False  # W's factors end up along the gradient's leading vectors
    default_max_iter, default_tol = 100, None

    def __init__(self, lmo: LMO, step: Step) -> None:
        self.lmo, self.step = lmo, step

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(sorted({*self.lmo.needs, *self.step.needs}))

    def effort(self, epochs: int) -> tuple[float, bool, bool]:
        """The `products`, `gathers` and `local` of a workload."""
        return self.lmo.mean_products(epochs), self.lmo.gathers, self.lmo.local

    def iterates(self, problem: Problem, start: Start) -> Iterator[Iterate]:
        memory = start.memory or {}
        known = memory.get("constants")  # of where the run began
        constants = problem.constants if known is None else lambda: Constants(*known)
        oracle = self.lmo.begin(Setting(problem.radius, problem.shape, problem.seed, constants))
        if memory and isinstance(oracle, RememberingOracle):
            oracle.restore(memory)
        return frank_wolfe(problem, start, oracle, self.step)


class Accelerated:
    """Quasi-Newton steps in the factors of W, with projected gradient steps."""

    columns, deflates = 16, True
    default_max_iter, default_tol = 1000, 1e-4
    needs = ("loss",)

    def effort(self, epochs: int) -> tuple[float, bool, bool]:
        return 2.0, False, False

    def iterates(self, problem: Problem, start: Start) -> Iterator[Iterate]:
        return Descent(problem, start).iterates(start)


Solver = FrankWolfe | Accelerated


def resolve(
    solver: str,
    lmo: str | LMO | None = None,
    step: str | float | Rule | Step | None = None,
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
    oracle = oracles.resolve("power-log" if lmo is None else lmo, log_factor)
    return FrankWolfe(oracle, steps.resolve("linesearch" if step is None else step))
