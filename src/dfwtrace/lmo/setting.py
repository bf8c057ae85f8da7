"""What an oracle is, and what it may know of the run that it serves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from math import nan
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from dfwtrace._typing import FloatArray, Memory
from dfwtrace.linalg.golub_kahan import Pair, uniform_on_sphere
from dfwtrace.linalg.gradient import GradientOperator


class Constants(NamedTuple):
    """The constants in the theorem.

    Attributes
    ----------
    lipschitz, curvature : float
        L ≥ σ₁(∇F(W)) over the ball, and C_F.
    """

    lipschitz: float = nan
    curvature: float = nan


@dataclass(frozen=True)
class Setting:
    """What an oracle may know of a run.

    Attributes
    ----------
    radius : float
        μ.
    shape : (d, m)
    seed : int
        The seed that all workers share.
    constants : callable
        Bounds the theorem's constants, in a few rounds.
    """

    radius: float
    shape: tuple[int, int]
    seed: int
    constants: Callable[[], Constants]

    def random_start(self, t: int) -> FloatArray:
        """v₀ of epoch t: uniform on the unit sphere of Rᵐ, the same wherever it is drawn."""
        return uniform_on_sphere(self.shape[1], self.seed, t)


class Oracle(Protocol):
    """Minimises ⟨S, G⟩ over the ball: a pair (u, v) with uᵀGv near σ₁(G), for S = -μ uvᵀ."""

    def __call__(self, gradient: GradientOperator, t: int) -> Pair: ...


@runtime_checkable
class RememberingOracle(Protocol):
    """An oracle whose next pairs depend on earlier epochs; a checkpoint keeps its memory."""

    def memory(self) -> Memory:
        """What a resumed run must know."""

    def restore(self, memory: Memory) -> None:
        """Continue from there."""


class LMO(ABC):
    """An oracle's settings, which can be used for many runs, and what the oracle needs.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> isinstance(dt.lmo.Naive(), dt.lmo.LMO)
    True
    """

    @abstractmethod
    def begin(self, setting: Setting) -> Oracle:
        """The oracle of one run."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Methods beyond the products that the task must have."""
        return ()

    @property
    def local(self) -> bool:
        """Whether the shards' own gradients are needed, not only their sum."""
        return False

    @property
    def gathers(self) -> bool:
        """Whether the dense gradient is gathered."""
        return False

    def mean_products(self, epochs: int) -> float:
        """Mean number of products with a gradient in an epoch, for the cost model."""
        return 0.0


def zero_pair(shape: tuple[int, int]) -> Pair:
    """What an oracle answers for a zero gradient."""
    return Pair(np.zeros(shape[0]), np.zeros(shape[1]), 0.0, 1)
