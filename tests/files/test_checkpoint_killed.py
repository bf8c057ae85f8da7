"""Processes that are killed in the middle of anything, Ctrl-C, and disks that are full."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.files.checkpointed import assert_same_run, every_epoch, stopped

import dfwtrace as dt

# A process that has imported and compiled all it needs forks one that runs, again and again.
CHILD = """
import json, os, sys, time
import dfwtrace as dt

X, y, _ = dt.datasets.make_multiclass(n=90, d=12, m=6, rank=3, random_state=5)
for solver in ("dfw", "accelerated"):
    dt.solve(dt.Multinomial(), X, y, radius=1.0, representation="implicit", max_iter=2,
             engine=dt.LocalEngine(3, 1), solver=solver, fit_intercept=True)
for line in sys.stdin:
    path, rules, options = json.loads(line)
    pid = os.fork()
    if pid == 0:
        print(os.getpid(), flush=True)
        pauses = iter([0.01] * 15)  # and then wait for the end, however late it comes
        dt.solve(
            dt.Multinomial(), X, y, checkpoint=dt.Checkpoint(path, **rules), **options,
            engine=dt.LocalEngine(3, 1), callback=lambda W, record: time.sleep(next(pauses, 600.0))
        )
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def data() -> tuple[Any, Any]:
    X, y, _ = dt.datasets.make_multiclass(n=90, d=12, m=6, rank=3, random_state=5)
    return X, y


@pytest.fixture(scope="module")
def forking() -> Iterator[subprocess.Popen[str]]:
    """Runs what it is told in a process of its own; says its number, and how it ended."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.communicate()
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("rules", "options"),
    [
        ({"epochs": 1}, {"solver": "dfw", "lmo": "power-2", "fit_intercept": True}),
        ({"seconds": 0.05}, {"solver": "accelerated", "tol": 0.0}),
    ],
    ids=["every epoch", "by the clock"],
)
def test_a_run_killed_at_random_moments_ends_with_the_same_bits(
    rules: dict[str, Any],
    options: dict[str, Any],
    forking: subprocess.Popen[str],
    data: Any,
    tmp_path: Path,
) -> None:
    given: dict[str, Any] = {"radius": 30.0, "representation": "implicit", **options}
    given["max_iter"] = 10**6  # more than there is time for
    rng = random.Random(7)
    path = tmp_path / "run.ckpt"
    reached = []
    assert forking.stdin is not None
    assert forking.stdout is not None
    for _ in range(5):
        before = written(path)
        forking.stdin.write(json.dumps([str(path), rules, given]) + "\n")
        forking.stdin.flush()
        pid = int(forking.stdout.readline())
        while written(path) == before:
            time.sleep(0.002)
        time.sleep(rng.uniform(0.0, 0.06))
        os.kill(pid, signal.SIGKILL)
        assert int(forking.stdout.readline()) == -signal.SIGKILL
        reached.append(path.read_bytes())
    assert len(set(reached)) == 5  # each has gone on from the one before
    given["engine"] = dt.LocalEngine(3, 1)
    checkpoint = dt.Checkpoint(path, **rules)
    left: list[int] = []

    def some_more(W: dt.LowRankMatrix, record: dict[str, Any]) -> bool:
        left.append(record["epoch"])
        return len(left) == 5

    result = dt.solve(dt.Multinomial(), *data, checkpoint=checkpoint, callback=some_more, **given)
    assert left[0] > 5
    expected = dt.solve(
        dt.Multinomial(), *data, callback=lambda W, record: record["epoch"] == left[-1], **given
    )
    assert_same_run(result, expected)


def written(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


# Ctrl-C


class PressCtrlC:
    """A callback that sends this process the signal of Ctrl-C after so many epochs."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def __call__(self, W: dt.LowRankMatrix, record: dict[str, Any]) -> None:
        if record["epoch"] == self.epoch:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1.0)  # until it arrives


OPTIONS: dict[str, Any] = {
    "radius": 30.0,
    "solver": "dfw",
    "representation": "implicit",
    "engine": dt.LocalEngine(3, 1),
}


@pytest.mark.parametrize("solver", ["dfw", "accelerated"])
def test_ctrl_c_leaves_a_checkpoint_to_go_on_from(solver: str, data: Any, tmp_path: Path) -> None:
    options = {**OPTIONS, "max_iter": 8, "solver": solver, "tol": 0.0}
    expected = dt.solve(dt.Multinomial(), *data, **options)
    options["checkpoint"] = every_epoch(tmp_path / "run.ckpt")
    interrupted = dt.solve(dt.Multinomial(), *data, callback=PressCtrlC(4), **options)
    assert interrupted.status == "interrupted"
    assert len(interrupted.history) == 4
    assert_same_run(dt.solve(dt.Multinomial(), *data, **options), expected)


def test_ctrl_c_at_any_moment_also_while_it_is_written(data: Any, tmp_path: Path) -> None:
    options = {**OPTIONS, "max_iter": 60}
    expected = dt.solve(dt.Multinomial(), *data, **options)
    options["checkpoint"] = every_epoch(tmp_path / "run.ckpt")
    rng, presses = random.Random(3), 0
    for _ in range(8):
        before = written(tmp_path / "run.ckpt")
        pressing = threading.Thread(
            target=press_soon, args=(tmp_path / "run.ckpt", before, rng.uniform(0.0, 0.03))
        )
        pressing.start()
        try:
            result = dt.solve(dt.Multinomial(), *data, **options)
            presses += result.status == "interrupted"
            pressing.join()
        except KeyboardInterrupt:  # before its first epoch, or after its last
            presses += 1
            pressing.join()
        if presses == 4:
            break
    assert presses == 4
    assert [path.name for path in tmp_path.iterdir()] == ["run.ckpt"]
    assert_same_run(dt.solve(dt.Multinomial(), *data, **options), expected)


def press_soon(path: Path, before: int, seconds: float) -> None:
    """Ctrl-C some time after the file has been written anew."""
    deadline = time.monotonic() + 20.0
    while written(path) == before and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(seconds)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


# Full disks


def test_a_run_goes_on_without_room_for_its_checkpoint(
    small_disk: Path, tmp_path: Path, data: Any
) -> None:
    path = small_disk / "run.ckpt"
    options = {**OPTIONS, "max_iter": 30}
    expected = dt.solve(dt.Multinomial(), *data, **options)
    stopped(dt.Multinomial(), *data, 5, checkpoint=every_epoch(path), **options)
    content = path.read_bytes()
    (small_disk / "other.bin").write_bytes(b"x" * (64 * 1024 - len(content) - 8192))
    with pytest.warns(RuntimeWarning) as caught:
        result = dt.solve(dt.Multinomial(), *data, checkpoint=every_epoch(path), **options)
    message = str(only(caught).message)
    assert message.startswith(f"checkpoint {path} cannot be written: No space left on device; ")
    assert "\n" not in message
    assert_same_run(result, expected)
    assert path.read_bytes() == content
    assert sorted(os.listdir(small_disk)) == ["other.bin", "run.ckpt"]
    (tmp_path / "run.ckpt").write_bytes(content)
    checkpoint = every_epoch(tmp_path / "run.ckpt")
    assert_same_run(dt.solve(dt.Multinomial(), *data, checkpoint=checkpoint, **options), expected)


@pytest.mark.parametrize("solver", ["dfw", "accelerated"])
def test_a_checkpoint_is_written_again_once_there_is_room(
    solver: str, data: Any, tmp_path: Path
) -> None:
    """A limit on the size of files, as a quota has it, from epoch 3 on and until epoch 7."""
    path, contents = tmp_path / "run.ckpt", []
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit_files(W: dt.LowRankMatrix, record: dict[str, Any]) -> None:
        contents.append(path.read_bytes() if path.exists() else b"")
        limits = {3: (1000, before[1]), 7: before}
        if record["epoch"] in limits:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits[record["epoch"]])

    options = {**OPTIONS, "max_iter": 9, "solver": solver, "tol": 0.0}
    try:
        with pytest.warns(RuntimeWarning, match=r"run\.ckpt cannot be written: File") as caught:
            result = dt.solve(
                dt.Multinomial(),
                *data,
                checkpoint=every_epoch(path),
                callback=limit_files,
                **options,
            )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    only(caught)
    assert_same_run(result, dt.solve(dt.Multinomial(), *data, **options))
    assert contents[0] == b""
    # The callback of an epoch sees the checkpoint of the one before.
    kept = contents[2]  # of epoch 2
    assert contents[3:7] == [kept] * 4
    assert len({kept, *contents[7:], path.read_bytes()}) == 4  # and of epochs 7, 8 and 9
    assert os.listdir(tmp_path) == ["run.ckpt"]
    assert_same_run(
        dt.solve(dt.Multinomial(), *data, checkpoint=every_epoch(path), **options), result
    )


def only(caught: Any) -> Any:
    (warning,) = caught
    return warning
