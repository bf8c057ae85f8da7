"""Ctrl-C: what there is of a model is kept."""

from __future__ import annotations

import io
import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from tests.cli.commands import COMMAND, environment, told

import dfwtrace as dt
from dfwtrace.cli.app import app
from dfwtrace.cli.fit import fitted
from dfwtrace.cli.output import Output


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    X, y, _ = dt.datasets.make_multiclass(n=2000, d=40, m=20, rank=5, random_state=0)
    path = tmp_path_factory.mktemp("interrupts") / "train.npz"
    np.savez(path, X=X, y=y)
    return path


def test_the_best_model_so_far_is_saved(data: Path) -> None:
    """In a process on a terminal, whose bar tells when there is a model."""
    master, slave = pty.openpty()
    words = ["fit", data.name, "--radius", "50", "--solver", "dfw", "--max-iter", "100000000"]
    command = [*COMMAND, *words, "--out", "best"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=data.parent, env=environment(), stdout=pipe, stderr=slave, text=True
    ) as process:
        try:
            os.close(slave)
            said = ""
            while "rank" not in said:
                said += os.read(master, 4096).decode(errors="replace")
            process.send_signal(signal.SIGINT)
            with suppress(OSError):  # how Linux says that the other end is closed
                while chunk := os.read(master, 4096):
                    said += chunk.decode(errors="replace")
            out, _ = process.communicate(timeout=60)
        finally:
            process.kill()
            os.close(master)
    assert process.returncode == 130
    last = said.splitlines()[-1]
    assert last.endswith("Interrupted: the model was saved to best.")
    assert "Traceback" not in said
    assert "result" not in out
    seen = told("inspect", data.parent / "best")
    assert seen["status"] == "interrupted"
    assert seen["epochs"] >= 1
    assert told("evaluate", data.parent / "best", data)["scores"]["accuracy"] > 0.05


class PressesCtrlC(io.StringIO):
    """A terminal that sends this process the signal once a certain text has been written.

    So it arrives there and nowhere else, however slow the machine is.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text, self.presses = text, 0

    def flush(self) -> None:
        super().flush()
        if not self.presses and self.text in self.getvalue():
            self.presses += 1
            signal.raise_signal(signal.SIGINT)

    def isatty(self) -> bool:
        return True


def said(at: str, *words: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines of a command that Ctrl-C ends after this one."""
    terminal = PressesCtrlC(at)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", terminal)
        patched.setattr(sys, "stderr", terminal)
        with pytest.raises(SystemExit) as ended:
            app(list(words))
    assert ended.value.code == 130
    assert terminal.presses == 1
    return terminal.getvalue().splitlines()


@pytest.mark.parametrize("module", ["typer", "numba", "dfwtrace.cli.fit", "sklearn.exceptions"])
def test_while_modules_are_imported(module: str, data: Path) -> None:
    program = f"""if True:
        import signal, sys
        class PressesCtrlC:
            def find_spec(self, name, path=None, target=None):
                if name == {module!r}:
                    signal.raise_signal(signal.SIGINT)
        sys.meta_path.insert(0, PressesCtrlC())
        sys.argv[1:] = ["fit", {data.name!r}, "--radius", "50", "--out", "never", "--quiet"]
        import runpy
        runpy.run_module("dfwtrace", run_name="__main__")
    """
    words = [sys.executable, "-c", program]
    ended = subprocess.run(words, capture_output=True, text=True, check=False, cwd=data.parent)
    assert (ended.returncode, ended.stdout) == (130, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("Interrupted")
    assert not (data.parent / "never").exists()


def test_before_the_first_epoch_nothing_is_saved(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = "Classification into 16 classes with radius 50."
    words = ("fit", str(data), "--radius", "50", "--out", str(tmp_path / "none"))
    lines = said(begun, *words, monkeypatch=monkeypatch)
    assert lines[1:] == [begun, "Interrupted: nothing was saved."]
    assert list(tmp_path.iterdir()) == []


def test_within_the_first_epoch_nothing_is_saved() -> None:
    def press(t: int) -> float:
        signal.raise_signal(signal.SIGINT)
        return 0.5

    X, y, _ = dt.datasets.make_multiclass(n=60, d=6, m=3, rank=2, random_state=0)
    given = {"radius": 5.0, "solver": "dfw", "step": press}
    with pytest.raises(KeyboardInterrupt):
        fitted("classification", (X, y), given, Output(quiet=True), verbose=False)


def test_cross_validation_saves_the_best_so_far(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("fit", str(data), "--out", str(tmp_path / "cv"), "--tol", "0")
    lines = said(", 3/5", *words, monkeypatch=monkeypatch)
    assert lines[-1].endswith(f"Interrupted: the model was saved to {tmp_path / 'cv'}.")
    assert dt.load(tmp_path / "cv").status_ == "interrupted"


def test_after_the_fit_the_model_is_there_and_named(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, report = tmp_path / "m", tmp_path / "r.html"
    words = ["fit", str(data), "--radius", "50", "--max-iter", "1", "--tol", "1e-9"]
    words += ["--out", str(out), "--report", str(report)]
    lines = said("Warning: Ended", *words, monkeypatch=monkeypatch)  # before the report
    assert lines[-1] == f"Interrupted: the model was saved to {out}."
    assert not report.exists()
    assert told("inspect", out)["epochs"] == 1
    words = ["fit", str(data), "--radius", "50", "--out", str(tmp_path / "none")]
    lines = said("Classification", *words, monkeypatch=monkeypatch)  # of another command
    assert lines[-1].endswith("nothing was saved.")


def test_the_second_one_ends_at_once() -> None:
    program = (
        "import time\n"
        "from dfwtrace.cli.output import guarded\n"
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
