"""Our time over a peer's, to the same test error and to the same objective.

Peers with a penalty instead of a ball (LogisticRegression of scikit-learn and of Spark MLlib,
Ridge) and the paper's solver run against the accelerated one to the same *test error*: the worse
of the two best ones on either curve, and 1 % more. Peers that solve the same problem (the paper's
solver, copt, cvxpy, projected gradient with full SVDs) run against it to the same *objective*:
F* + 1e-2·F(0) and F* + 1e-3·F(0), where F* is certified to 1e-6·F(0). A peer that is not there
after ten times our time, and no less than 5 s nor more than 30 s, is stopped: `reached` is then 0,
and the ratio is our time over the time that it was given.

``python -m benchmarks.peers FILE`` prints the table of a file of results in Markdown.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dfwtrace as dt
from benchmarks import peers_curves, peers_same
from benchmarks.harness import Row, Scale
from benchmarks.peers_curves import Curve, Look, Runner
from benchmarks.peers_problems import Problem, problems, small_problems
from benchmarks.spark_session import NoSparkError

RATIO = "accelerated / peer, time"
TIMED = True

_TOLERANCES = [1e-2, 1e-3]
_MARGIN = 1.01
_CERTIFIED = 1e-6
_TIMES_OURS = 10.0
# Seconds that a peer is given: no less, and no more.
_PATIENCE = {"toy": (0.2, 0.4), "full": (5.0, 30.0)}
# Seconds of the reference, and of all the rounds of one row.
_REFERENCE_TIME = 30.0
_ROUNDS_TIME = 6.0


class Reference(NamedTuple):
    """F*, as far as it is certified, and F(0)."""

    optimum: float
    at_zero: float
    gap: float


def run(scale: Scale, repeat: int) -> list[Row]:
    rows = []
    for problem in problems(scale):
        reference = _reference(problem)
        for name, peer in _penalised(problem).items():
            rows.append(_to_the_same_error(problem, name, peer, scale, repeat))
        for name, peer in peers_same.peers(problem).items():
            rows += _to_the_same_objective(problem, reference, name, peer, scale, repeat)
    for problem in small_problems(scale):
        reference = _reference(problem)
        for name, peer in peers_same.small_peers().items():
            rows += _to_the_same_objective(problem, reference, name, peer, scale, repeat)
    return rows


def _penalised(problem: Problem) -> dict[str, Runner]:
    """The peers that are compared by their test error."""
    found: dict[str, Runner] = {"dfw": peers_curves.dfw("error")}
    if not problem.multiclass:
        return {**found, "Ridge": peers_curves.ridge}
    found["LogisticRegression"] = peers_curves.logistic_regression
    try:
        found["MLlib LogisticRegression"] = peers_curves.mllib(problem)
    except NoSparkError as lacking:
        print(f"MLlib is left out: {lacking}.")
    return found


def _reference(problem: Problem) -> Reference:
    """The optimum. A run in the data's precision comes first: it compiles, and is nearly there."""
    solve = partial(
        dt.solve,
        problem.task,
        radius=problem.radius,
        solver="accelerated",
        max_time=_REFERENCE_TIME,
        progress=False,
    )
    near = solve(problem.X, problem.y)
    y = problem.y if problem.multiclass else problem.y.astype(np.float64)
    result = solve(problem.X.astype(np.float64), y, start=near.W, tol=_CERTIFIED)
    return Reference(result.objective, result.objective_at_zero, result.relative_gap)


def _to_the_same_error(problem: Problem, name: str, peer: Runner, scale: Scale, repeat: int) -> Row:
    def ours(curve: Curve) -> list[Look]:
        return peers_curves.ours(problem, curve, "error")

    def target(mine: Curve, theirs: Curve) -> float:
        return _MARGIN * max(mine.best, theirs.best)

    measured = _measure(ours, partial(peer, problem), target, scale, repeat)
    best, their_best = measured.ours[0].best, measured.theirs[0].best
    details = {
        "target": measured.target,
        "test error": measured.ours[0].at(measured.target),
        "their test error": measured.theirs[0].at(measured.target),
        "best": best,
        "their best": their_best,
    }
    return measured.row(f"{problem.name}, {name}, test error", problem, measured.target, details)


def _to_the_same_objective(
    problem: Problem, reference: Reference, name: str, peer: Runner, scale: Scale, repeat: int
) -> list[Row]:
    targets = {tol: reference.optimum + tol * reference.at_zero for tol in _TOLERANCES}
    lowest = min(targets.values())

    def ours(curve: Curve) -> list[Look]:
        # It must not end by its own tolerance before it has what is wanted.
        return peers_curves.ours(problem, curve, "objective", tol=0.1 * min(targets))

    measured = _measure(ours, partial(peer, problem), lambda *_: lowest, scale, repeat, lowest)

    def excess(F: float) -> float:
        return (F - reference.optimum) / reference.at_zero

    return [
        measured.row(
            f"{problem.name}, {name}, {tol:g}",
            problem,
            target,
            {
                "excess": excess(measured.ours[0].at(target)),
                "their excess": excess(measured.theirs[0].at(target)),
                "reference gap": reference.gap,
            },
        )
        for tol, target in targets.items()
    ]


class Measured(NamedTuple):
    """The curves of either side, round by round, and what is known of the first round."""

    target: float
    ours: list[Curve]
    theirs: list[Curve]
    looks: list[Look]
    known: Mapping[str, float]

    def row(self, case: str, problem: Problem, target: float, details: Mapping[str, float]) -> Row:
        mine = [seconds for curve in self.ours if (seconds := curve.time_to(target)) is not None]
        if len(mine) < len(self.ours):
            raise RuntimeError(f"{case}: the accelerated solver did not reach {target:g}.")
        reached = all(curve.time_to(target) is not None for curve in self.theirs)
        theirs = [curve.time_to(target) or curve.seconds[-1] for curve in self.theirs]
        rank = self.looks[self.ours[0].values.index(self.ours[0].at(target))].rank
        return Row(
            "peers",
            case,
            problem.sizes,
            float(np.median(np.divide(mine, theirs))),
            None,
            {"accelerated": float(np.median(mine)), "peer": float(np.median(theirs))},
            {
                "reached": float(reached),
                **details,
                "radius": problem.radius,
                "rank": float(rank),
                "numbers": float(rank * (sum(problem.shape) + 1)),
                **self.known,
            },
        )


def _measure(
    ours: Callable[[Curve], list[Look]],
    theirs: Callable[[Curve], Mapping[str, float]],
    goal: Callable[[Curve, Curve], float],
    scale: Scale,
    repeat: int,
    wanted: float = -np.inf,
) -> Measured:
    """Both sides in turn, until there were rounds enough or they took long enough.

    The first round tells the cap and the goal, and counts: what compiles has run before.
    """
    began = time.perf_counter()
    mine = [Curve(wanted)]
    looks = ours(mine[0])
    least, most = _PATIENCE[scale]
    cap = min(max(least, _TIMES_OURS * mine[0].seconds[-1]), most)
    others = [Curve(wanted, cap)]
    known = theirs(others[0])
    target = goal(mine[0], others[0])
    while len(mine) < repeat and time.perf_counter() - began < _ROUNDS_TIME:
        mine.append(Curve(target))
        ours(mine[-1])
        others.append(Curve(target, cap))
        theirs(others[-1])
    return Measured(target, mine, others, looks, known)


def markdown(records: Iterable[Mapping[str, Any]]) -> str:
    """The table of the last run among these records."""
    rows = {(r["case"], *r["sizes"].values()): r for r in records if r["benchmark"] == "peers"}
    lines = [
        "| problem | n×d×m | peer | to | accelerated | peer's time | ratio | numbers, peer's |",
        "|---|---|---|---|--:|--:|--:|--:|",
    ]
    for record in rows.values():
        problem, peer, goal = record["case"].split(", ")
        detail, seconds = record["detail"], record["seconds"]
        bound = "" if detail["reached"] else "< "
        goal = f"{goal} {detail['target']:.3g}" if "target" in detail else f"F* + {goal}·F(0)"
        cells = [
            problem,
            "×".join(str(record["sizes"][letter]) for letter in "ndm"),
            peer,
            goal,
            _time(seconds["accelerated"]),
            ("> " if bound else "") + _time(seconds["peer"]),
            f"{bound}{record['ratio']:.2g}",
            f"{detail['numbers']:.0f}, {detail['their numbers']:.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1.0 else f"{1e3 * seconds:.3g} ms"


if __name__ == "__main__":
    stored = Path(sys.argv[1]).read_text(encoding="utf-8")
    print(markdown(json.loads(line) for line in stored.splitlines()))
