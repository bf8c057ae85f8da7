"""Curves and rounds of the benchmark of peers: clocks, caps, warm-ups and marks."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

# `benchmarks` is run from the checkout and never installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import peers, peers_curves, peers_rounds, peers_same
from benchmarks.peers_curves import Curve, Look, Run
from benchmarks.peers_problems import Problem, small_problems
from tests.peer_rows import check, record_of


def test_a_curves_clock_stands_still_while_a_value_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(peers_curves, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    curve = Curve(wanted=1.0)

    def slow() -> float:
        now[0] += 100.0
        return 2.0

    now[0] = 1.0
    assert not curve.note(slow)
    now[0] += 3.0
    assert curve.note(lambda: 0.5)
    assert curve.seconds == [1.0, 4.0]
    assert curve.best == 0.5
    assert curve.at(2.5) == 2.0
    assert curve.at(0.1) == 0.5  # the least one
    assert curve.time_to(2.0) == 1.0
    assert curve.time_to(0.1) is None


def test_a_run_ends_at_its_cap() -> None:
    curve = Curve(cap=5.0)
    assert not curve.add(4.0, 1.0)
    assert not curve.stopped
    assert curve.add(5.0, 1.0)
    assert curve.stopped
    there = Curve(wanted=1.0, cap=5.0)
    assert there.add(5.0, 1.0)
    assert not there.stopped  # it has what it wanted


def test_a_peer_that_does_not_get_there_is_stopped() -> None:
    problem = small_problems("toy")[1]

    def never(problem: Problem, curve: Curve) -> Mapping[str, float]:
        for second in range(100):
            if curve.add(float(second), 1e9):
                break
        return {"their numbers": 1.0, "their steps": float(len(curve.values))}

    reference = peers._reference(problem)
    rows = peers._to_the_same_objective(problem, reference, "never", never, "toy", 1)
    for row in rows:
        assert row.detail["reached"] == 0.0
        assert row.detail["their steps"] < 100.0
        assert row.ratio == row.seconds["accelerated"] / row.seconds["peer"]
    assert "| > 1 s | < " in peers.markdown([record_of(row) for row in rows])


def constant(*values: float) -> peers_curves.Ours:
    """A run of ours that takes a second for each of these values."""

    def run(curve: Curve) -> Run:
        for epoch, value in enumerate(values, 1):
            if curve.add(float(epoch), value):
                break
        return Run([Look(epoch, epoch) for epoch in range(1, len(curve.values) + 1)], 0.5)

    return run


def falling(values: list[float], seconds: float = 1.0) -> peers_curves.Runner:
    """A peer whose errors these are, each after so many seconds more."""

    def run(problem: Problem, curve: Curve) -> Mapping[str, float]:
        for step, value in enumerate(values, 1):
            if curve.add(seconds * step, value):
                break
        return {"their numbers": 7.0, "their steps": float(len(curve.values))}

    return run


@pytest.mark.parametrize(
    ("errors", "cap", "cut_short"),
    [
        ([0.5, 0.4, 0.35, 0.31], 3.0, True),  # the cap came first, and 0.35 is worse than ours
        ([0.5, 0.4, 0.35], 9.0, False),  # ended by itself
        ([0.5, 0.2, 0.2, 0.2], 3.0, False),  # better than ours when it was stopped
    ],
)
def test_a_best_that_the_cap_cut_short_is_marked(
    errors: list[float], cap: float, cut_short: bool
) -> None:
    problem, peer = small_problems("toy")[0], falling(errors)
    ours = constant(0.6, 0.3)
    mine = Curve()
    ours(mine)
    theirs = peers._to_its_end(peer, problem, cap)
    row = peers._error_row(problem, "peer", ours, mine, peer, theirs, 1)
    check(row)
    assert row.detail["cut short"] == float(cut_short)
    assert row.detail["their best"] == min(errors[: int(cap)])
    assert (" † |" in peers.markdown([record_of(row)])) == cut_short


def test_rounds_tell_how_many_there_were_and_how_far_they_lie_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(peers_rounds, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    problem, taken = small_problems("toy")[0], iter([2.0, 5.0, 4.0, 1.0])

    def theirs(curve: Curve) -> Mapping[str, float]:
        now[0] += 8.0
        curve.add(next(taken), 0.0)
        return {"their numbers": 7.0, "their steps": 1.0}

    # The third round begins after 16 s, and a fourth would after 24.
    rounds = peers_rounds.take(constant(0.0), theirs, 0.0, 9.0, repeat=5)
    row = rounds.row("a, b, test error", problem, 0.0, {})
    assert row.ratio == 0.25
    assert row.detail["rounds"] == 3.0
    assert (row.detail["least ratio"], row.detail["largest ratio"]) == (0.2, 0.5)
    assert "| 0.25 (0.2–0.5) |" in peers.markdown(
        [{**record_of(row), "detail": {**row.detail, "target": 0.0}}]
    )
    alone = peers_rounds.take(constant(0.0), theirs, 0.0, 9.0, repeat=1)
    assert alone.row("a, b, test error", problem, 0.0, {}).detail["rounds"] == 1.0


def test_a_peer_has_run_before_it_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DFWTRACE_DATA", str(tmp_path))
    calls: list[tuple[int, float]] = []  # rows and cap

    def peer(problem: Problem, curve: Curve) -> Mapping[str, float]:
        calls.append((problem.sizes["n"], curve.cap))
        curve.add(1.0, -np.inf if curve.wanted == -np.inf else curve.wanted)
        return {"their numbers": 7.0, "their steps": 1.0}

    monkeypatch.setattr(peers, "_to_the_same_error", lambda *_: [])
    monkeypatch.setattr(peers_same, "peers", lambda problem: {"peer": peer})
    monkeypatch.setattr(peers_same, "small_peers", lambda: {"peer": peer})
    assert all(row.detail["rounds"] == 2.0 for row in peers.run("toy", 2))
    large, small = [200] * 3, [60] * 3  # a call to warm up and two rounds, for either task
    assert [n for n, _ in calls] == [*large, *large, *small, *small]
    assert all((cap == 0.0) == (call % 3 == 0) for call, (_, cap) in enumerate(calls))
