"""When a run ends."""

from __future__ import annotations

from dataclasses import dataclass

from dfwtrace.validation import check_count, check_positive, check_tolerance


@dataclass(frozen=True)
class StoppingCriteria:
    """When a run ends, and when its gap is certified beside at the end."""

    epochs: int
    tol: float | None = None  # stop when the certified gap is at most tol·|F(0)|
    max_time: float | None = None  # wall-clock limit in seconds, checked after each epoch
    certify_every: int | None = None  # epochs

    def __post_init__(self) -> None:
        check_count("epochs", self.epochs, 0)
        check_tolerance(self.tol)
        if self.max_time is not None:
            check_positive("max_time", self.max_time)
        if self.certify_every is not None:
            check_count("certify_every", self.certify_every, 1)
