"""What a solver hands out after every epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from dfwtrace.linalg.lowrank import LowRankMatrix


class Iterate(NamedTuple):
    """W after so many epochs, with F(W) and ⟨W, ∇F(W)⟩, and how the last epoch got there.

    `gap_estimate`, `sigma`, `gamma` and `power_iterations` belong to the step that led to W: the
    oracle saw the gradient where the epoch began. `memory` tells what the solver needs, beside W
    and its value, to go on from here: `None`, numbers, arrays, and lists and dictionaries of them.
    """

    epoch: int
    W: LowRankMatrix
    objective: float
    inner: float
    gap_estimate: float
    sigma: float
    gamma: float
    power_iterations: int
    memory: Callable[[], dict[str, Any]] = dict
