"""The progress bar: there on a terminal, absent elsewhere."""

import math
import os
import pty
import re
import subprocess
import sys
from typing import Any

import pytest

from dfwtrace.solvers.runner import display, share_done
from dfwtrace.solvers.solver import StoppingCriteria

RUN = """
import dfwtrace as dt
X, Y, _ = dt.datasets.make_multitask(n=200, d=10, m=8, rank=2, random_state=0)
result = dt.solve(dt.LeastSquares(), X, Y, radius=1.0, solver="dfw", max_iter=25)
assert len(result.history) == 25
"""


def record(epoch: int, gap: float = math.nan) -> dict[str, Any]:
    values = {"epoch": epoch, "objective": 0.0046891, "gap_estimate": 0.25, "gap": gap}
    return values | {"rank": 999, "seconds": float(epoch)}


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


@pytest.fixture
def no_hints(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ.keys() - environment().keys():
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.usefixtures("no_hints")
def test_nothing_without_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    exec(RUN, {})
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("no_hints")
@pytest.mark.parametrize(("gap", "shown"), [(5e-5, "gap 1.0e-05"), (math.nan, "gap ≈ 5.0e-02")])
def test_a_line_has_the_facts_and_fits_into_80_columns(
    gap: float, shown: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with display(StoppingCriteria(1000), 5.0, wanted=True, title="radius 1.2e+04, 3/5") as show:
        show(record(999, gap))
    out, line = capfd.readouterr()
    facts = (
        rf"radius 1\.2e\+04, 3/5 \S* *999/1000  F 0\.0046891  {shown}  rank 999 0:00:00 +[-\d:]+\n+"
    )
    assert re.fullmatch(facts, line)
    assert out == ""


def test_bar_gives_the_cursor_back_after_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")

    def fail() -> None:
        with display(StoppingCriteria(10), 1.0, wanted=True):
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    written, hide, show = capsys.readouterr().err, "\x1b[?25l", "\x1b[?25h"
    assert written.rfind(show) > written.rfind(hide) >= 0


@pytest.mark.parametrize(
    ("criteria", "epoch", "gap", "share"),
    [
        (StoppingCriteria(1000, tol=1e-4), 1, 1e-3, 0.75),
        (StoppingCriteria(10), 4, 1e-9, 0.4),
        (StoppingCriteria(10, tol=0.0), 4, 0.0, 0.4),
        (StoppingCriteria(1000, max_time=5.0), 3, 1.0, 0.6),
        (StoppingCriteria(1000, max_time=5.0), 9, 1.0, 1.0),
        (StoppingCriteria(10, tol=0.5), 1, 2.0, 0.1),
    ],
)
def test_the_share_that_is_done(
    criteria: StoppingCriteria, epoch: int, gap: float, share: float
) -> None:
    assert share_done(criteria, record(epoch), gap) == pytest.approx(share)
