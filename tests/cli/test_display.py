"""What is shown of a fit while it runs."""

from __future__ import annotations

import math
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.commands import COMMAND, done, environment

from dfwtrace.cli.app import app
from dfwtrace.cli.following import followed_by
from dfwtrace.cli.monitors import Monitor, PlainLines
from dfwtrace.cli.time_left import TimeLeft
from dfwtrace.solvers.progress import Aim, Quiet, display


class Clock:
    """Tells the time that it is told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def record(epoch: int, gap: float = math.nan, estimate: float = 0.5) -> dict[str, Any]:
    values = {"epoch": epoch, "objective": 12.5, "gap_estimate": estimate, "gap": gap}
    return values | {"rank": 3, "seconds": float(epoch)}


def on_terminal(*words: str, cwd: Path) -> str:
    """What a command writes to standard error, if that is a terminal."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *words], cwd=cwd, stdout=subprocess.DEVNULL, stderr=slave, env=environment()
    )
    os.close(slave)
    written = b""
    try:
        while chunk := os.read(master, 4096):
            written += chunk
    except OSError:  # how Linux says that the other end is closed
        pass
    finally:
        os.close(master)
    assert process.wait(timeout=60) == 0
    return written.decode()


def test_a_live_line_on_a_terminal(train: Path) -> None:
    words = ("fit", train.name, "-t", "species", "--radius", "8", "--solver", "dfw")
    written = on_terminal(*words, "--max-iter", "30", cwd=train.parent)
    assert re.search(r"epoch 30 · objective [\d.]+ · gap [≈\d]", written)
    assert "rank " in written
    assert "left " in written
    hide, show = "\x1b[?25l", "\x1b[?25h"
    assert written.rfind(show) > written.rfind(hide) >= 0


def test_nothing_on_a_terminal_beside_json(
    train: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, whose standard error is a terminal meanwhile."""
    for name in os.environ.keys() - environment().keys():
        monkeypatch.delenv(name)
    words = ["fit", str(train), "-t", "species", "--radius", "8", "-o", str(train.with_name("m"))]
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as terminal, monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", terminal)
        with pytest.raises(SystemExit, match="0"):
            app([*words, "--json"])
        terminal.write("done")
    assert os.read(master, 4096) == b"done"
    os.close(master)
    assert capsys.readouterr().out.startswith("{")


def test_lines_without_a_terminal_only_if_asked_for(train: Path, tmp_path: Path) -> None:
    words = ["fit", train, "-t", "species", "--radius", 8, "-o", tmp_path / "m"]
    assert done(*words).stderr == "Classification with radius 8.\n"
    first, line = done(*words, "--verbose").stderr.splitlines()[:2]
    assert first == "Classification with radius 8."
    assert re.fullmatch(r"epoch 1 · objective .* · gap .* · rank \d · .* · left —", line)
    assert done(*words, "--verbose", "--quiet").stderr == ""


def test_a_monitor_tells_the_gap_and_whether_it_is_an_estimate() -> None:
    clock = Clock()
    monitor = Monitor(clock=clock)
    assert monitor.line() == "starting"
    monitor.begin(Aim(10, tol=1e-3, objective_at_zero=50.0))
    clock.now = 2.0
    monitor.show(record(1))
    assert monitor.line() == "epoch 1 · objective 12.5 · gap ≈ 1.0e-02 · rank 3 · 2 s · left —"
    monitor.show(record(2, gap=5.0))
    assert "gap 1.0e-01" in monitor.line()


def test_the_time_left_is_no_more_than_the_limit() -> None:
    monitor = Monitor(clock=Clock())
    monitor.begin(Aim(10, tol=1e-3, max_time=60.0, objective_at_zero=1.0))
    monitor.show(record(20))
    assert monitor.line().endswith("left ≈ 40 s")


def test_of_many_runs_the_time_left_is_told_by_counting() -> None:
    clock = Clock()
    monitor = Monitor(runs=6, clock=clock)
    monitor.begin(Aim(0))  # a look at W = 0 is no run
    for run in range(1, 5):
        monitor.begin(Aim(10, tol=1e-3, objective_at_zero=1.0))
        clock.now += 10.0
        monitor.show(record(1))
        assert monitor.line().startswith(f"run {run} of 6 · ")
        assert monitor.line().endswith("left —" if run < 4 else "left ≈ 40 s")


def test_plain_lines_come_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    lines = PlainLines(clock=clock)
    lines.begin(Aim(10, objective_at_zero=1.0))
    for epoch in range(1, 41):
        clock.now = 0.1 * epoch
        lines.show(record(epoch))
    shown = capsys.readouterr().err.splitlines()
    assert [line.split(" · ")[0] for line in shown] == ["epoch 1", "epoch 21"]


def test_runs_are_shown_as_usual_afterwards() -> None:
    monitor = Monitor()

    def fail() -> None:
        with followed_by(monitor), display(Aim(10), wanted=False) as shown:
            assert shown is monitor
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert type(display(Aim(10), wanted=False)) is Quiet


@given(st.floats(0.1, 5.0), st.floats(1e-6, 1e-2), st.integers(4, 600))
def test_the_time_left_of_a_gap_that_falls_evenly(rate: float, target: float, count: int) -> None:
    left = TimeLeft(target)
    gaps = [math.exp(-rate * 0.01 * k) for k in range(count)]
    for k, gap in enumerate(gaps):
        left.add(0.01 * k, gap)
    expected = max(0.0, math.log(gaps[-1] / target) / rate)
    found = left.seconds()
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("target", [None, 0.0])
def test_without_a_tolerance_nobody_can_tell(target: float | None) -> None:
    left = TimeLeft(target)
    for k in range(10):
        left.add(float(k), 0.5**k)
    assert left.seconds() is None


def test_a_gap_that_does_not_fall_tells_nothing() -> None:
    left = TimeLeft(1e-3)
    for gap in (0.5, math.nan, -1.0, 0.5, 0.5, 0.7, 0.9):
        left.add(1.0, gap)
    assert left.seconds() is None  # all at one time
    for k in range(50):
        left.add(2.0 + k, 0.8)
    assert left.seconds() is None
