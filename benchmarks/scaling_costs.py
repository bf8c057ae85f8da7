"""What the model of scaling is fed with, measured once for all benchmarks that ask."""

from __future__ import annotations

from functools import cache

from benchmarks import spark_session
from benchmarks.harness import Scale
from dfwtrace.experiments import scaling_costs
from dfwtrace.experiments.other_work import OtherWork
from dfwtrace.experiments.scaling_costs import Measured, Sizes

_MOST_TURNS = 3
_SIZES = {
    "toy": Sizes(40, 30, (20, 60, 120), 90, spark_session.WORKERS),
    # The rows that 4096, 256 and 64 workers would hold of the paper's data, about.
    "full": Sizes(2048, 1000, (313, 5000, 20_000), 10_000, spark_session.WORKERS),
}


@cache
def measure(scale: Scale, repeat: int) -> tuple[Measured, float | None]:
    """All, `repeat` times in turn but three at the most; and the share of other work, if known."""
    with OtherWork() as others:
        turns = min(repeat, _MOST_TURNS)
        measured = scaling_costs.measure(spark_session.session(), _SIZES[scale], turns)
    return measured, others.share
