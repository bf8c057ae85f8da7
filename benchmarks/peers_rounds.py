"""Rounds of both sides in turn, and the row that they make."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from benchmarks.harness import Row, rest
from benchmarks.peers_curves import Curve, Ours, Run
from benchmarks.peers_problems import Problem

#: Runs a peer on its problem, notes its curve, and tells what else is known of it.
Theirs = Callable[[Curve], Mapping[str, float]]

# After so many seconds no further round begins.
_ROUNDS_TIME = 20.0


class Rounds(NamedTuple):
    """The curves of either side, round by round, and what is known of the first round."""

    ours: list[Curve]
    theirs: list[Curve]
    run: Run
    known: Mapping[str, float]

    def row(self, case: str, problem: Problem, target: float, details: Mapping[str, float]) -> Row:
        """The median of the rounds' ratios, with the least and the largest of several."""
        mine = [seconds for curve in self.ours if (seconds := curve.time_to(target)) is not None]
        if len(mine) < len(self.ours):
            raise RuntimeError(f"{case}: the accelerated solver did not reach {target:g}.")
        reached = all(curve.time_to(target) is not None for curve in self.theirs)
        theirs = [curve.time_to(target) or curve.seconds[-1] for curve in self.theirs]
        ratios = np.divide(mine, theirs)
        spread = {"least ratio": float(ratios.min()), "largest ratio": float(ratios.max())}
        first = self.ours[0]
        rank = self.run.looks[first.values.index(first.at(target))].rank
        return Row(
            "peers",
            case,
            problem.sizes,
            float(np.median(ratios)),
            None,
            {"accelerated": float(np.median(mine)), "peer": float(np.median(theirs))},
            {
                "reached": float(reached),
                "rounds": float(len(ratios)),
                **(spread if len(ratios) > 1 else {}),
                **details,
                "radius": problem.radius,
                "setup": self.run.setup,
                "rank": float(rank),
                "numbers": float(rank * (sum(problem.shape) + 1)),
                **self.known,
            },
        )


def take(ours: Ours, theirs: Theirs, wanted: float, cap: float, repeat: int) -> Rounds:
    """Both sides in turn, until there were rounds enough or they took long enough.

    Both have run before: neither pays here for what it imports or compiles.
    """
    began = time.perf_counter()
    mine: list[Curve] = []
    others: list[Curve] = []
    runs, knowns = [], []
    while not mine or (len(mine) < repeat and time.perf_counter() - began < _ROUNDS_TIME):
        mine.append(Curve(wanted))
        rest()
        runs.append(ours(mine[-1]))
        others.append(Curve(wanted, cap))
        rest()
        knowns.append(theirs(others[-1]))
    return Rounds(mine, others, runs[0], knowns[0])
