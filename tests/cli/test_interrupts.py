"""Ctrl-C, sent to real processes: what there is of a model is kept."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from tests.cli.commands import COMMAND, environment, told

import dfwtrace as dt


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    X, y, _ = dt.datasets.make_multiclass(n=2000, d=40, m=20, rank=5, seed=0)
    path = tmp_path_factory.mktemp("interrupts") / "train.npz"
    np.savez(path, X=X, y=y)
    return path


@contextmanager
def endless(data: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A fit that would never end, in a process that will."""
    run = [*COMMAND, "fit", data.name, "--radius", "50", "--solver", "dfw", "--verbose"]
    process = subprocess.Popen(
        [*run, "--max-iter", "100000000", *words],
        cwd=data.parent,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(text: str, process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(text):
            return
    raise AssertionError(f"{text!r} was never said")


def test_the_best_model_so_far_is_saved(data: Path) -> None:
    with endless(data, "--out", "best") as process:
        wait_for("epoch 1 ", process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    last = err.splitlines()[-1]
    assert last.startswith("Interrupted after ")
    assert last.endswith("the best model so far was saved to best.")
    assert "Traceback" not in err
    assert "result" not in out
    seen = told("inspect", data.parent / "best")
    assert seen["status"] == "interrupted"
    assert seen["epochs"] >= 1
    assert told("evaluate", data.parent / "best", data)["scores"]["accuracy"] > 0.05


def test_before_the_first_epoch_nothing_is_saved(data: Path) -> None:
    with endless(data, "--out", "none") as process:
        wait_for("Classification with radius 50.", process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    if "before the first epoch" in err:  # a machine may be quicker than the signal
        assert err.splitlines()[-1] == "Interrupted before the first epoch: nothing was saved."
        assert not (data.parent / "none").exists()
    else:
        assert "was saved to none" in err


def test_cross_validation_saves_nothing(data: Path) -> None:
    run = [*COMMAND, "fit", data.name, "--out", "cv", "--tol", "0", "--verbose"]
    with subprocess.Popen(
        run, cwd=data.parent, env=environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        wait_for("run 1 of 60", process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "Interrupted during cross-validation: nothing was saved."
    assert not (data.parent / "cv").exists()


def test_the_second_one_ends_at_once() -> None:
    program = (
        "import time\n"
        "from dfwtrace.cli.guard import guarded\n"
        "def run():\n"
        "    try:\n"
        "        print('go', flush=True)\n"
        "        time.sleep(60)\n"
        "    except KeyboardInterrupt:\n"
        "        while True:\n"
        "            try:\n"
        "                print('first', flush=True)\n"
        "                time.sleep(60)\n"
        "            except KeyboardInterrupt:\n"
        "                print('second', flush=True)\n"
        "guarded(run, as_json=False, debug=False)\n"
    )
    with subprocess.Popen(
        [COMMAND[0], "-c", program], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for said in ("go\n", "first\n"):
            assert process.stdout.readline() == said
            process.send_signal(signal.SIGINT)
        assert process.stdout.read() == ""
    assert process.returncode == -signal.SIGINT  # which a shell calls 130
