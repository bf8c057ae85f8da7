"""The command line as a test calls it: in this process, or in one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from typer.main import get_command
from typer.testing import CliRunner

import dfwtrace as dt
from dfwtrace.cli.app import app

COMMAND = [sys.executable, "-m", "dfwtrace"]
SPECIES = ("setosa", "versicolor", "virginica")


_HERE = get_command(app)  # CliRunner.invoke would put it together again for every call


class Ended(NamedTuple):
    """What a command has said, and how it ended."""

    exit_code: int
    stdout: str
    stderr: str


def call(*words: object) -> Ended:
    """Run a command here."""
    with CliRunner().isolation() as (out, err, _):
        code = None
        try:
            _HERE.main([str(word) for word in words], prog_name="dfwtrace")
        except SystemExit as ended:
            code = ended.code
        sys.stdout.flush()
        sys.stderr.flush()
        assert isinstance(code, int)
        return Ended(code, out.getvalue().decode(), err.getvalue().decode())


def done(*words: object, code: int = 0) -> Ended:
    """Run a command that must end with this exit code."""
    result = call(*words)
    assert result.exit_code == code, result.stdout + result.stderr
    return result


def told(*words: object, code: int = 0) -> Any:
    """The JSON object of a command, which must be all that it says."""
    result = done(*words, "--json", code=code)
    assert result.stderr == ""
    assert result.stdout.count("\n") == 1
    return json.loads(result.stdout, parse_constant=_no_constant)


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def child(
    *words: object,
    cwd: Path,
    code: int = 0,
    more: Mapping[str, str] | None = None,
    before: Callable[[], None] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    finished = subprocess.run(
        [*COMMAND, *map(str, words)],
        cwd=cwd,
        env=environment() | dict(more or {}),
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        preexec_fn=before,
    )
    assert finished.returncode == code, finished.stdout + finished.stderr
    return finished


def environment() -> dict[str, str]:
    """Without what would tell rich to believe in a terminal, or not to."""
    hints = ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS")
    return {k: v for k, v in os.environ.items() if k not in hints} | {"TERM": "xterm"}


def flowers(path: Path, rows: int = 90, seed: int = 0) -> Path:
    """A CSV file of three kinds of flowers that can be told apart, most of the time."""
    rng = np.random.default_rng(seed)
    lines = ["sepal,petal,width,species"]
    for i in range(rows):
        kind = i % 3
        sepal, petal, width = rng.normal([5 + kind, 1 + 2 * kind, 0.2 + kind], 0.5)
        lines.append(f"{sepal:.2f},{petal:.2f},{width:.2f},{SPECIES[kind]}")
    path.write_text("\n".join(lines) + "\n")
    return path


def kept_checkpoint(folder: Path) -> Path:
    """A checkpoint of a short run."""
    X, y, _ = dt.datasets.make_multiclass(n=60, d=6, m=3, rank=2, random_state=0)
    kept = dt.Checkpoint(folder / "run.ckpt", epochs=1)
    dt.solve(dt.Multinomial(), X, y, radius=1.0, solver="dfw", max_iter=2, checkpoint=kept)
    return folder / "run.ckpt"
