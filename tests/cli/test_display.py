"""What is shown of a fit while it runs."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.commands import COMMAND, done, environment, told

from dfwtrace.cli.app import app


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
    assert re.search(r"30/30  F [\d.]+  gap [≈\d].*rank ", written)
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


def test_a_line_for_each_run_without_a_terminal_only_if_asked_for(
    train: Path, tmp_path: Path
) -> None:
    words = ["fit", train, "-t", "species", "-o", tmp_path / "m"]
    assert done(*words, "--radius", 8).stderr == ""
    (said,) = filter(None, done(*words, "--radius", 8, "-v").stderr.splitlines())
    assert re.fullmatch(r"dfwtrace \S+ +\d+/\d+  F \S+  gap .*  rank \d .*", said)
    assert told("inspect", tmp_path / "m")["settings"] == {"radius": 8.0}
    search = done(*words, "--radii", "1,8", "--cv", 2, "-v").stderr
    runs = re.findall(r"radius \d(?:, \d/2)?(?= )", search)
    in_turn = [f"radius {radius}, {k}/2" for radius in (1, 8) for k in (1, 2)]
    assert runs in ([*in_turn, "radius 1"], [*in_turn, "radius 8"])  # only the best is refitted
    assert done(*words, "--radius", 8, "--verbose", "--quiet").stderr == ""
