"""What is shown of a fit while it runs."""

from __future__ import annotations

import io
import math
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.cli.commands import COMMAND, done, environment

from dfwtrace.cli.app import app
from dfwtrace.cli.output import Monitor
from dfwtrace.solvers.progress import Aim, Quiet, display


class Clock:
    """A clock that is set by hand."""

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
    assert re.fullmatch(r"epoch 1 · objective .* · gap .* · rank \d · .*s", line)
    assert done(*words, "--verbose", "--quiet").stderr == ""


def test_a_line_has_the_gap_and_whether_it_is_an_estimate(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    monitor = Monitor(lines=True, clock=clock)
    monitor.begin(Aim(10, tol=1e-3, objective_at_zero=50.0))
    clock.now = 2.0
    monitor.show(record(1))
    line = "epoch 1 · objective 12.5 · gap ≈ 1.0e-02 · rank 3 · 2 s\n"
    assert capsys.readouterr().err == line
    clock.now = 4.0
    monitor.show(record(2, gap=5.0))
    assert "gap 1.0e-01" in capsys.readouterr().err


def test_lines_come_every_two_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    monitor = Monitor(lines=True, clock=clock)
    monitor.begin(Aim(10, objective_at_zero=1.0))
    for epoch in range(1, 41):
        clock.now = 0.1 * epoch
        monitor.show(record(epoch))
    shown = capsys.readouterr().err.splitlines()
    assert [line.split(" · ")[0] for line in shown] == ["epoch 1", "epoch 21"]


def seconds_left(runs: int, *events: Aim | dict[str, Any]) -> int | None:
    """The time left that a terminal shows after runs that begin and epochs of ten seconds."""
    clock = Clock()
    screen = io.StringIO()
    monitor = Monitor(runs, Console(file=screen, force_terminal=True, width=120), clock=clock)
    with monitor.following():
        for event in events:
            if isinstance(event, Aim):
                monitor.begin(event)
            else:
                clock.now += 10.0
                monitor.show(event)
    text = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", screen.getvalue())
    shown = re.findall(r"left ([-\d:]+)", text)[-1]
    if shown == "-:--:--":
        return None
    hours, minutes, seconds = map(int, shown.split(":"))
    return 3600 * hours + 60 * minutes + seconds


AIM = Aim(1000, tol=1e-4, objective_at_zero=1.0)


@pytest.mark.parametrize(
    ("runs", "events", "seconds"),
    [
        (1, [AIM, record(1, 1e-1), record(2, 1e-2), record(3, 1e-3)], 10),
        (1, [AIM, record(1, 1e-1), record(2, 1e-2), record(3, 5e-2)], 20),
        (1, [Aim(10), record(1), record(2), record(3), record(4)], 60),
        (1, [AIM._replace(max_time=5.0), record(1), record(2), record(3)], 20),
        (6, [Aim(0), AIM, record(1, 1e-4), AIM, record(1, 1e-4), AIM, record(1, 1e-4)], 30),
        (1, [AIM], None),
    ],
)
def test_the_time_left(runs: int, events: list[Any], seconds: int | None) -> None:
    assert seconds_left(runs, *events) == (seconds and pytest.approx(seconds, abs=1))


@pytest.mark.parametrize("runs", [1, 60])
def test_a_line_fits_into_80_columns(runs: int) -> None:
    screen = io.StringIO()
    monitor = Monitor(runs, Console(file=screen, force_terminal=True, width=80))
    with monitor.following():
        monitor.begin(Aim(1000, objective_at_zero=1.0))
        monitor.show(record(999, estimate=1e-5) | {"objective": 0.0046891, "rank": 999})
    assert "rank 999" in screen.getvalue()
    assert "…" not in screen.getvalue()


def test_runs_are_shown_as_usual_afterwards() -> None:
    monitor = Monitor()

    def fail() -> None:
        with monitor.following(), display(Aim(10), wanted=False) as shown:
            assert shown is monitor
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert type(display(Aim(10), wanted=False)) is Quiet
