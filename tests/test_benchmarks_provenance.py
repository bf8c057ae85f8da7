"""Whose commit a row has, and whether the work of other programs is told from its own."""

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

# `benchmarks` is run from the checkout and never installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.provenance import OtherWork, commit


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


def test_other_work_is_seen() -> None:
    with busy_stranger(), OtherWork() as others:
        time.sleep(0.5)
    assert 0.0 < others.share <= 1.0


def test_a_share_is_one_at_most_however_short_the_block() -> None:
    with busy_stranger(), busy_stranger():
        for _ in range(50):
            with OtherWork() as others:
                time.sleep(0.004)
            assert 0.0 <= others.share <= 1.0


def test_descendants_work_is_own_work() -> None:
    """What a child and its child do is counted once, also while they run."""
    busy = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ninput()"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}])"
    with (
        OtherWork() as others,
        subprocess.Popen(
            [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process,
    ):
        assert process.stdout is not None
        process.stdout.readline()  # it has worked
        others.add()
        assert 0.45 <= others.own_seconds < 2.0
        others.add()
        assert others.own_seconds < 2.0
        process.communicate(b"\n")


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org")
    done = subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, check=True)
    return done.stdout.decode().strip()


def test_a_commit_is_marked_if_what_is_measured_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Neither the user's settings, such as signatures, nor a repository that a hook works on.
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")

    def now() -> str:
        commit.cache_clear()
        return commit(tmp_path)

    assert now() == "unknown"
    git(tmp_path, "init", "--quiet")
    results = tmp_path / "reproduction" / "results"
    for folder in (tmp_path / "src", results):
        folder.mkdir(parents=True)
        (folder / "file").write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    head = git(tmp_path, "rev-parse", "--short", "HEAD")
    assert now() == head
    (results / "file").write_text("rows, not what is measured")
    assert now() == head
    (tmp_path / "src" / "file").write_text("2")
    assert now() == f"{head}-dirty"
    commit.cache_clear()
