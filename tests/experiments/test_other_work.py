"""Whether the work of other programs is told from that of a measurement itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dfwtrace.experiments.other_work import OtherWork, OwnTime
from dfwtrace.experiments.runs import Run
from dfwtrace.experiments.store import Rows

needs_proc = pytest.mark.skipif(not Path("/proc/stat").exists(), reason="the system does not tell")


@contextmanager
def busy_stranger() -> Iterator[None]:
    """A process at work that is no descendant of this one."""
    # The shell ends at once, and nobody is left who could count its child as a descendant.
    order = '"$0" -c "while True: pass" >/dev/null & echo $!'
    shell = subprocess.run(["sh", "-c", order, sys.executable], stdout=subprocess.PIPE, check=True)
    try:
        yield
    finally:
        os.kill(int(shell.stdout), signal.SIGKILL)


@needs_proc
def test_other_work_is_seen() -> None:
    with busy_stranger(), OtherWork() as others:
        time.sleep(0.5)
    assert others.share is not None
    assert 0.0 < others.share <= 1.0


@needs_proc
@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("looks_while_it_runs", [True, False])
def test_descendants_work_is_own_work(waits: bool, looks_while_it_runs: bool) -> None:
    busy = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ninput()"
    ignore = "" if waits else "signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
    parent = (
        f"import signal, subprocess, sys; {ignore}"
        f"subprocess.Popen([sys.executable, '-c', {busy!r}]).wait(); print(flush=True); input()"
    )
    own = OwnTime()
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()  # it has worked
        if looks_while_it_runs:
            own.look()
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()  # it has ended
        own.look()
        process.communicate(b"\n")
    if waits or looks_while_it_runs:
        assert 0.45 <= own.seconds < 0.95  # all of it, and only once
    else:
        assert own.seconds < 0.95  # nobody can tell any more, unless it was seen by chance


@needs_proc
def test_a_row_tells_of_other_work(tmp_path: Path) -> None:
    def wait() -> dict[str, float]:
        time.sleep(0.5)
        return {"waited": 0.5}

    with busy_stranger():
        row = Rows(tmp_path).of(Run("figure 1", {}, wait))
    assert 0.0 < row["other_work"] <= 1.0


@needs_proc
def test_a_share_is_one_at_most_however_short_the_block() -> None:
    with busy_stranger(), busy_stranger():
        shares = []
        for _ in range(100):
            with OtherWork() as others:
                time.sleep(0.004)
            shares.append(others.share)
    known = [share for share in shares if share is not None]
    assert known
    assert all(0.0 <= share <= 1.0 for share in known)
