"""Our time over a peer's, to the same test error and to the same objective.

Peers with a penalty instead of a ball (LogisticRegression of scikit-learn and of Spark MLlib,
Ridge) and the paper's solver run against the accelerated one to the same *test error*: the worse
of the two best ones on either curve, and 1 % more. Peers that solve the same problem (the paper's
solver, copt, cvxpy, projected gradient with full SVDs) run against it to the same *objective*:
F* + 1e-2·F(0) and F* + 1e-3·F(0), where F* is certified to 1e-6·F(0). A peer that is not there
after ten times our time, and no less than 5 s nor more than 30 s, is stopped: `reached` is then 0,
and the ratio is our time over the time that it was given.

Both sides run before they are timed. To the same test error that is a run to their own end, which
tells the bests; where the cap ended a peer's whose best is the worse of the two, `cut short` is 1.

``python -m benchmarks.peers FILE`` prints the table of a file of results in Markdown.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

import dfwtrace as dt
from benchmarks import peers_curves, peers_rounds, peers_same, peers_spark
from benchmarks.harness import Row, Scale
from benchmarks.peers_curves import Curve, Ours, Runner
from benchmarks.peers_problems import Problem, problems, small_problems
from benchmarks.peers_table import markdown
from benchmarks.spark_session import NoSparkError

RATIO = "accelerated / peer, time"
TIMED = True

_TOLERANCES = [1e-2, 1e-3]
_MARGIN = 1.01
_CERTIFIED = 1e-6
_TIMES_OURS = 10.0
# Seconds that a peer is given: no less, and no more.
_PATIENCE = {"toy": (0.2, 0.4), "full": (5.0, 30.0)}
# Seconds of the reference.
_REFERENCE_TIME = 30.0


class Reference(NamedTuple):
    """F*, as far as it is certified, and F(0)."""

    optimum: float
    at_zero: float
    gap: float


def run(scale: Scale, repeat: int) -> list[Row]:
    rows = []
    for problem in problems(scale):
        reference = _reference(problem)
        rows += _to_the_same_error(problem, scale, repeat)
        for name, peer in peers_same.peers(problem).items():
            _warm_up(peer, problem)
            rows += _to_the_same_objective(problem, reference, name, peer, scale, repeat)
    small_peers = peers_same.small_peers()
    for problem, smaller in zip(small_problems(scale), small_problems("toy"), strict=True):
        reference = _reference(problem)
        for name, peer in small_peers.items():
            _warm_up(peer, smaller)  # cannot be stopped on its way
            rows += _to_the_same_objective(problem, reference, name, peer, scale, repeat)
    return rows


def _reference(problem: Problem) -> Reference:
    """The optimum. A run in the data's precision comes first: it compiles, and is nearly there."""
    solve = partial(
        dt.solve,
        problem.task,
        radius=problem.radius,
        solver="accelerated",
        max_time=_REFERENCE_TIME,
        verbose=False,
    )
    near = solve(problem.X, problem.y)
    y = problem.y if problem.multiclass else problem.y.astype(np.float64)
    result = solve(problem.X.astype(np.float64), y, start=near.W, tol=_CERTIFIED)
    if not result.relative_gap <= _CERTIFIED:
        print(f"{problem.name}: F* is certified to {result.relative_gap:.1g}·F(0) only.")
    return Reference(result.objective, result.objective_at_zero, result.relative_gap)


def _cap(scale: Scale, ours: Curve) -> float:
    """Seconds that a peer is given."""
    least, most = _PATIENCE[scale]
    return min(max(least, _TIMES_OURS * ours.seconds[-1]), most)


def _to_the_same_error(problem: Problem, scale: Scale, repeat: int) -> list[Row]:
    """A row for each peer that is compared by its test error, on Spark for either place of ours."""
    ours = partial(peers_curves.ours, problem, kind="error")
    mine = Curve()
    ours(mine)
    cap = _cap(scale, mine)
    named: dict[str, Runner] = {"dfw": peers_curves.dfw("error")}
    if problem.multiclass:
        named["LogisticRegression"] = peers_curves.logistic_regression
    else:
        named["Ridge"] = peers_curves.ridge
    rows = [
        _error_row(problem, name, ours, mine, peer, _to_its_end(peer, problem, cap), repeat)
        for name, peer in named.items()
    ]
    if problem.multiclass:
        rows += _mllib_rows(problem, ours, mine, cap, scale, repeat)
    return rows


def _mllib_rows(
    problem: Problem, ours: Ours, mine: Curve, cap: float, scale: Scale, repeat: int
) -> list[Row]:
    """MLlib against ours in this process, and against ours on the same Spark."""
    try:
        there = peers_spark.on_spark(problem)
    except NoSparkError as lacking:
        print(f"MLlib is left out: {lacking}.")
        return []
    mine_there = Curve()
    there.ours(mine_there)
    cap = max(cap, _cap(scale, mine_there))  # it takes us longer there
    theirs = _to_its_end(there.mllib, problem, cap)
    places: dict[str, tuple[Ours, Curve]] = {
        "ours in process": (ours, mine),
        "ours on the same Spark": (there.ours, mine_there),
    }
    rows = [
        _error_row(
            problem, f"MLlib LogisticRegression ({place})", *own, there.mllib, theirs, repeat
        )
        for place, own in places.items()
    ]
    there.forget()
    return rows


def _to_its_end(peer: Runner, problem: Problem, cap: float) -> Curve:
    curve = Curve(cap=cap)
    peer(problem, curve)
    return curve


def _error_row(
    problem: Problem,
    name: str,
    ours: Ours,
    mine: Curve,
    peer: Runner,
    theirs: Curve,
    repeat: int,
) -> Row:
    """Rounds to an error that either side has reached on its curve to its own end."""
    target = _MARGIN * max(mine.best, theirs.best)
    rounds = peers_rounds.take(ours, partial(peer, problem), target, theirs.cap, repeat)
    details = {
        "target": target,
        "test error": rounds.ours[0].at(target),
        "their test error": rounds.theirs[0].at(target),
        "best": mine.best,
        "their best": theirs.best,
        # Had it had more time, the target might have been a lower one.
        "cut short": float(theirs.stopped and theirs.best > mine.best),
    }
    return rounds.row(f"{problem.name}, {name}, test error", problem, target, details)


def _warm_up(peer: Runner, problem: Problem) -> None:
    """One step: what is imported and compiled is no part of a round."""
    peer(problem, Curve(cap=0.0))


def _to_the_same_objective(
    problem: Problem, reference: Reference, name: str, peer: Runner, scale: Scale, repeat: int
) -> list[Row]:
    """A row for each tolerance, all of them from the same rounds."""
    targets = {tol: reference.optimum + tol * reference.at_zero for tol in _TOLERANCES}
    lowest = min(targets.values())
    # It must not end by its own tolerance before it has what is wanted.
    ours = partial(peers_curves.ours, problem, kind="objective", tol=0.1 * min(targets))
    before = Curve(lowest)
    ours(before)  # warms up, and tells how long a peer may take
    cap = _cap(scale, before)
    rounds = peers_rounds.take(ours, partial(peer, problem), lowest, cap, repeat)

    def excess(F: float) -> float:
        return (F - reference.optimum) / reference.at_zero

    return [
        rounds.row(
            f"{problem.name}, {name}, {tol:g}",
            problem,
            target,
            {
                "excess": excess(rounds.ours[0].at(target)),
                "their excess": excess(rounds.theirs[0].at(target)),
                "reference gap": reference.gap,
            },
        )
        for tol, target in targets.items()
    ]


if __name__ == "__main__":
    stored = Path(sys.argv[1]).read_text(encoding="utf-8")
    print(markdown(json.loads(line) for line in stored.splitlines()))
