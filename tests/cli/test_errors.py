"""Whatever is wrong is said in one sentence, with the right exit code and without a traceback."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.commands import COMMAND, call, done, flowers

import dfwtrace as dt
from dfwtrace.cli.guard import guarded, sentence_of


def refused(*words: object, code: int = 2) -> str:
    """The one line of an error, the same with --json."""
    plain = done(*words, code=code)
    line = plain.stderr.splitlines()[-1]  # above it, maybe, what was about to be done
    assert line.startswith("Error: ")
    assert "Traceback" not in plain.stderr
    coded = done(*words, "--json", code=code)
    assert coded.stderr == ""
    if "--json" not in line:
        assert json.loads(coded.stdout) == {"error": line.removeprefix("Error: ")}
    return line.removeprefix("Error: ")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--target", "specis"], "train.csv has no column 'specis'; did you mean 'species'?"),
        (
            [],
            "--target is missing: which column of train.csv is it, 'sepal', 'petal', 'width', "
            "'species'?",
        ),
        (["-t", "species", "--features", "z*"], "no column of train.csv matches the pattern 'z*'."),
        (["-t", "species", "--weight", "w"], "train.csv has no column 'w'; it has 'sepal', "),
        (
            ["-t", "species", "--task", "regression"],
            "target 'species' holds text ('setosa'): regression needs numbers.",
        ),
        (
            ["-t", "sepal", "--features", "petal", "--task", "classification"],
            "which is no label: --task regression?",
        ),
        (
            ["-t", "sepal,petal", "--features", "width", "--task", "classification"],
            "classification takes one target, got 2.",
        ),
        (["-t", "species", "--radius", "-1"], "--radius must be a finite number above 0, got -1.0"),
        (["-t", "species", "--radius", "nan"], "--radius must be a finite number above 0, got nan"),
        (["-t", "species", "--radius", "1", "--radii", "3"], "--radius and --radii exclude each"),
        (["-t", "species", "--radii", "0"], "--radii must be how many to try, such as 10, or a"),
        (["-t", "species", "--radii", "1,x"], "--radii must be how many to try, such as 10, or a"),
        (["-t", "species", "--radii", "2.5"], "got '2.5'."),
        (["-t", "species", "--lmo", "power-2"], "--lmo belongs to --solver dfw."),
        (["-t", "species", "--step", "0.1"], "--step belongs to --solver dfw."),
        (["--radius", "1", "--solver", "dfw", "--lmo", "best"], "--lmo must be one of "),
        (["--radius", "1", "--solver", "dfw", "--step", "long"], "--step must be "),
        (["--solver", "dfw"], "--solver dfw needs --radius: it does not go with cross-validation."),
        (["--max-time", "5"], "--max-time needs --radius: it does not go with cross-validation."),
        (["--radius", "1", "--max-time", "0"], "--max-time must be a finite number above 0"),
        (["--tol", "-1"], "tol must be a finite number of at least 0"),
        (["--solver", "best"], "Invalid value for '--solver'"),
        (["--max-iter", "0"], "Invalid value for '--max-iter'"),
        (["--frobnicate"], "No such option: --frobnicate"),
        (["--master", "local[2]"], "--master belongs to --engine spark."),
        (["--engine", "spark", "--spill", "."], "--spill belongs to --engine local"),
        (["-t", "species", "--spill", "nowhere"], "--spill: there is no folder nowhere."),
        (["-t", "species", "--out", "nowhere/m"], "--out: nowhere/m cannot be written: there is"),
        (["-t", "species", "--out", "."], "--out: . cannot be written: it is a folder."),
        (["-t", "species", "--report", "no/r.html"], "--report: no/r.html cannot be written"),
        (["-t", "species", "--out", "train.csv"], "--out and the data are the same file, train.c"),
        (["-t", "species", "--out", "m", "--report", "./m"], "--report and --out are the same fi"),
        (["-t", "species", "--test", "gone.csv"], "gone.csv is not there."),
        (["-t", "species", "--test", "other.csv"], "other.csv lacks features of the model: 'sepa"),
        (
            ["-t", "species", "--radius", "1", "--representation", "gram"],
            "representation must be ",
        ),
        (["-t", "species", "--n-jobs", "0"], "n_jobs must not be 0: -1 is all processors."),
        (
            ["-t", "sepal", "--features", "petal", "--radius", "1", "--class-weight", "balanced"],
            "--class-weight belongs to classification.",
        ),
        (["-t", "species", "--folds", "60"], "n_splits=60 cannot be greater than the number of"),
    ],
)
def test_a_fit_is_refused(
    words: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    flowers(tmp_path / "train.csv")
    (tmp_path / "other.csv").write_text("a,b,species\n1,2,setosa\n")
    assert sentence in refused("fit", "train.csv", *words)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.csv", "train.csv"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["fit"], "Missing argument 'TRAIN'."),
        (["frobnicate"], "No such command 'frobnicate'."),
        (["fit", "gone.csv", "-t", "y"], "gone.csv is not there."),
        (["fit", "notes.txt", "-t", "y"], "notes.txt is of no known format"),
        (["fit", "cut.parquet", "-t", "y"], "cut.parquet is not a Parquet file, or is cut short"),
        (["plan", "gone.csv", "-t", "y"], "gone.csv is not there."),
        (["plan", "train.csv"], "--target is missing: which column of train.csv is it"),
        (["plan", "train.csv", "-t", "species", "--lmo", "naive"], "--lmo belongs to --solver"),
        (["path", "train.csv", "-t", "species", "--out", "no/p"], "--out: no/p cannot be written"),
        (["inspect", "gone"], "gone is not there."),
        (["inspect", "."], ". is a folder, not a file."),
        (["inspect", "train.csv"], "train.csv is not a safetensors file."),
        (["predict", "gone", "train.csv", "-o", "p.csv"], "gone is not there."),
        (
            ["predict", "train.csv", "train.csv", "-o", "p.csv"],
            "train.csv is not a safetensors file.",
        ),
        (["predict", "MODEL", "gone.csv", "-o", "p.csv"], "gone.csv is not there."),
        (
            ["predict", "MODEL", "few.csv", "-o", "p.csv"],
            "few.csv lacks features of the model: 'petal', 'width'.",
        ),
        (["predict", "MODEL", "train.csv", "--out", "p.doc"], "--out must end in .csv, .npy or"),
        (["predict", "MODEL", "train.csv", "--out", "no/p.csv"], "--out: no/p.csv cannot be wri"),
        (["predict", "MODEL", "train.csv", "--out", "train.csv"], "are the same file"),
        (["predict", "MODEL", "train.csv", "--out", "p.npy", "--top", "2"], "--top needs a .csv"),
        (["predict", "MODEL", "train.csv", "--out", "p.csv", "--top", "0"], "Invalid value for"),
        (
            ["predict", "MODEL", "train.csv", "--out", "p.csv", "--top", "2", "--proba"],
            "--proba and --top exclude each other",
        ),
        (["evaluate", "MODEL", "few.csv"], "few.csv lacks features of the model"),
        (["evaluate", "MODEL", "train.csv", "-t", "kind"], "train.csv has no column 'kind'"),
        (["evaluate", "MODEL", "train.csv", "-t", "sepal,petal"], "takes one target, got 2."),
    ],
)
def test_a_command_is_refused(
    words: list[str],
    sentence: str,
    classifier: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    flowers(tmp_path / "train.csv")
    (tmp_path / "few.csv").write_text("sepal,species\n1,setosa\n")
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "cut.parquet").write_bytes(b"PAR1 and no more")
    before = sorted(tmp_path.iterdir())
    words = [str(classifier) if word == "MODEL" else word for word in words]
    assert sentence in refused(*words)
    assert sorted(tmp_path.iterdir()) == before


def test_what_a_regressor_cannot_do(regressor: Path, sensors: Path, tmp_path: Path) -> None:
    for option in (["--proba"], ["--top", "2"]):
        words = ["predict", regressor, sensors, "-o", tmp_path / "p.csv", *option]
        assert f"{option[0]} needs a classifier, but" in refused(*words)
    wrong = refused("evaluate", regressor, sensors, "-t", "y0")
    assert wrong == "the model predicts 3 targets, but --target has 1."


def test_targets_of_another_kind_than_the_models(
    regressor: Path, sensors: Path, tmp_path: Path
) -> None:
    (tmp_path / "words.csv").write_text(
        ",".join(f"x{j}" for j in range(6)) + ",y\n" + "1,2,3,4,5,6,high\n"
    )
    words = ("evaluate", regressor, tmp_path / "words.csv", "-t", "y")
    assert (
        refused(*words)
        == "the target holds text ('high'), but TraceNormRegressor predicts numbers."
    )
    X, y, _ = dt.datasets.make_multiclass(n=60, d=6, m=3, rank=2, seed=0)
    np.savez(tmp_path / "numbers.npz", X=X, y=y)
    done("fit", tmp_path / "numbers.npz", "--radius", 5, "-o", tmp_path / "m")
    words = ("evaluate", tmp_path / "m", tmp_path / "words.csv", "-t", "y")
    assert "but the model's classes are numbers such as 0." in refused(*words)
    (tmp_path / "wide.csv").write_text("a,b\n1,2\n")
    wide = refused("predict", tmp_path / "m", tmp_path / "wide.csv", "-o", tmp_path / "p.csv")
    assert wide == "wide.csv has 2 features, but the model was fitted on 6."


def test_a_damaged_model_is_refused(classifier: Path, tmp_path: Path, train: Path) -> None:
    content = bytearray(classifier.read_bytes())
    content[-3] ^= 0xFF
    (tmp_path / "damaged").write_bytes(content)
    assert "checksum" in refused("inspect", tmp_path / "damaged")
    assert "checksum" in refused("evaluate", tmp_path / "damaged", train)


def test_a_checkpoint_of_another_run_is_refused(train: Path, tmp_path: Path) -> None:
    X, y, _ = dt.datasets.make_multiclass(n=60, d=6, m=3, rank=2, seed=0)
    kept = tmp_path / "run.ckpt"
    dt.solve(dt.Multinomial(), X, y, radius=1.0, epochs=2, checkpoint=dt.Checkpoint(kept, epochs=1))
    words = ["fit", train, "-t", "species", "--radius", 3, "-o", tmp_path / "m"]
    assert "belongs to another run" in refused(*words, "--checkpoint", kept)
    seen = done("inspect", kept).stdout
    rows = [row.rsplit(maxsplit=1) for row in seen.splitlines()]
    assert ["kind", "checkpoint"] in rows
    assert ["epochs", "2"] in rows
    assert "holds a checkpoint, not a model" in refused("predict", kept, train, "-o", "p.csv")


def test_an_output_stays_what_it_was_if_the_fit_fails(train: Path, tmp_path: Path) -> None:
    out = tmp_path / "m"
    out.write_text("old")
    refused("fit", train, "-t", "species", "--folds", 60, "-o", out)
    assert out.read_text() == "old"


def test_a_full_disk_is_one_sentence(classifier: Path, train: Path) -> None:
    """With a limit on the size of files, which the system answers like a full disk."""
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    out = train.with_name("m")
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, usual[1]))
    try:
        line = refused("fit", train, "-t", "species", "--radius", 8, "-o", out, code=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert line == f"{out} cannot be written: File too large."
    assert not out.exists()


def test_a_reader_that_has_seen_enough_is_no_error(classifier: Path, tmp_path: Path) -> None:
    flowers(tmp_path / "many.csv", rows=1500)  # more than a buffer holds
    reading, writing = os.pipe()
    os.close(reading)
    words = [*COMMAND, "predict", str(classifier), str(tmp_path / "many.csv")]
    ended = subprocess.run(words, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (1, "")
    # Nothing runs after it: what threads of Arrow would do then is a matter of luck.
    late = "import atexit, runpy, sys; atexit.register(lambda: print('late', file=sys.stderr)); "
    run = f"sys.argv[1:] = {words[3:]!r}; runpy.run_module('dfwtrace', run_name='__main__')"
    reading, writing = os.pipe()
    os.close(reading)
    words = [sys.executable, "-c", late + run]
    ended = subprocess.run(words, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (1, "")


class OddError(Exception):
    """Nobody expects it."""


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (OddError("a\n  b"), 1, "Error: OddError: a b"),
        (OddError(), 1, "Error: OddError: OddError"),
        (KeyError("key"), 1, "Error: KeyError: key"),
        (OSError(28, "No space left on device", "m"), 1, "Error: m: No space left on device."),
        (ImportError("Spark needs pyspark."), 1, "Error: Spark needs pyspark."),
        (MemoryError(), 1, "Error: the memory is not enough; --dtype float32"),
        (KeyboardInterrupt(), 130, "Interrupted: nothing was saved."),
    ],
)
def test_what_nobody_expected(
    error: BaseException, code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def run() -> Any:
        raise error

    assert guarded(run, as_json=False, debug=False) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(sentence)
    assert shown.err.count("\n") == 1
    if code == 1:
        guarded(run, as_json=False, debug=True)
        assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_a_traceback_of_a_worker_is_cut_to_what_it_was() -> None:
    text = "Thrown:\nTraceback (most recent call last):\n  File x\nValueError: bad row\n\n\tat java"
    assert sentence_of(RuntimeError(text)) == "ValueError: bad row"
    assert len(sentence_of(RuntimeError("x" * 5000))) == 600


def test_debug_may_stand_anywhere(train: Path) -> None:
    assert call("fit", train, "--debug").stderr == call("--debug", "fit", train).stderr
