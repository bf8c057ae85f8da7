"""Problems of many kinds: passes to a certified gap of 1e-4, over those of our solver before.

A run that ends with a larger gap counts as so many times more passes. The details have the same of
two peers: dense accelerated projected gradient, and L-BFGS of SciPy on the factors. Seconds are of
processors. The runs before and those of the peers are recorded ones.
"""

from __future__ import annotations

from benchmarks.corpus import methods, runs
from benchmarks.corpus.problems import NAMES, TOY, load_all
from benchmarks.harness import Row, Scale

RATIO = "passes / before"
TIMED = False
TARGET = runs.TARGET


def run(scale: Scale, repeat: int) -> list[Row]:
    """A row for each problem; one run each."""
    methods.warm_up()
    names, others = NAMES if scale == "full" else TOY, runs.recorded()
    return [runs.row(runs.run_on(problem, "ours"), others) for problem in load_all(names)]
