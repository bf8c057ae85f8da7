"""The progress bar: there on a terminal, absent elsewhere."""

import io
import math
import os
import pty
import subprocess
import sys
from typing import Any

import pytest
from rich.console import Console

from dfwtrace.solvers.progress import Aim, Bar, Quiet, display

RUN = """
import dfwtrace as dt
X, Y, _ = dt.datasets.make_multitask(n=200, d=10, m=8, rank=2, seed=0)
result = dt.solve(dt.LeastSquares(), X, Y, radius=1.0, epochs=25)
assert len(result.history) == 25
"""


def record(epoch: int, gap: float = math.nan) -> dict[str, Any]:
    return {"epoch": epoch, "objective": 12.5, "gap_estimate": 0.25, "gap": gap, "rank": epoch}


def environment() -> dict[str, str]:
    """Without what would make rich believe in a terminal, or not to."""
    hints = ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "JUPYTER_COLUMNS")
    return {k: v for k, v in os.environ.items() if k not in hints} | {"TERM": "xterm"}


def run_on_terminal() -> str:
    """What a run writes to standard error if that is a terminal."""
    master, slave = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", RUN], stderr=slave, env=environment())
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


def test_bar_on_a_terminal() -> None:
    written = run_on_terminal()
    assert "dfwtrace" in written
    assert "25/25" in written
    assert "rank" in written


def test_nothing_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in os.environ.keys() - environment().keys():
        monkeypatch.delenv(name)
    exec(RUN, {})
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("gap", "shown"), [(0.125, "gap 0.12"), (math.nan, "gap ≈ 0.25")])
def test_bar_shows_the_gap_and_whether_it_is_an_estimate(gap: float, shown: str) -> None:
    file = io.StringIO()
    with Bar(10, Console(file=file, force_terminal=True, width=120)) as bar:
        bar.show(record(4, gap))
    written = file.getvalue()
    assert "4/10" in written
    assert "F 12.5" in written
    assert shown in written
    assert "rank 4" in written


def test_bar_gives_the_cursor_back_after_an_error() -> None:
    file = io.StringIO()

    def fail() -> None:
        with Bar(10, Console(file=file, force_terminal=True, width=120)):
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    hide, show = "\x1b[?25l", "\x1b[?25h"
    assert file.getvalue().rfind(show) > file.getvalue().rfind(hide) >= 0


def test_display_follows_the_wish() -> None:
    assert isinstance(display(Aim(10), wanted=True), Bar)
    assert type(display(Aim(10), wanted=False)) is Quiet


def test_quiet_is_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    with Quiet() as shown:
        shown.show(record(1))
    assert capfd.readouterr() == ("", "")
