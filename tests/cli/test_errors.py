"""Whatever is wrong is said in one sentence, with the right exit code and without a traceback."""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.commands import COMMAND, call, done, flowers, kept_checkpoint

import dfwtrace as dt
from dfwtrace.cli.app import run
from dfwtrace.cli.output import guarded, sentence_of


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


BY_SPECIES = "-t species "

# What is wrong with a fit of train.csv, and words that the sentence must have.
FITS = {
    BY_SPECIES + "--cv 1": "--cv 2",
    BY_SPECIES + "--cv 51": "--cv 51 rows of any class (30): --radius auto",
    BY_SPECIES + "--impute mode": "'--impute': 'mode' is not one of 'mean',",
    "--target specis": "train.csv 'specis' 'species'",
    "": "--target train.csv 'sepal' 'species'",
    BY_SPECIES + "--features z*": "train.csv 'z*'",
    BY_SPECIES + "--weight w": "train.csv column 'w'",
    BY_SPECIES + "--task regression": "'species' text ('setosa') numbers",
    "-t sepal --features petal --task classification": "label --task",
    "-t sepal,petal --features width --task classification": "one target got 2",
    BY_SPECIES + "--radius -1": "--radius above 0 -1",
    BY_SPECIES + "--radius nan": "--radius nan",
    BY_SPECIES + "--radius 1 --radii 3": "--radius --radii",
    BY_SPECIES + "--radii 0": "--radii '0'",
    BY_SPECIES + "--radii 1,x": "--radii '1,x'",
    BY_SPECIES + "--radii 2.5": "--radii '2.5'",
    BY_SPECIES + "--lmo power-2": "--lmo --solver dfw",
    BY_SPECIES + "--step 0.1": "--step --solver dfw",
    "--radius 1 --solver dfw --lmo best": "--lmo must be one of",
    "--radius 1 --solver dfw --step long": "--step must be",
    "--solver dfw": "--solver dfw needs --radius",
    "--max-time 5": "--max-time needs --radius",
    "--checkpoint c": "--checkpoint needs --radius",
    "--radius 1 --max-time 0": "--max-time above 0",
    "--tol -1": "--tol at least 0",
    "--solver best": "--solver 'best'",
    "--max-iter 0": "--max-iter",
    "--frobnicate": "--frobnicate",
    "--master local[2]": "--master --engine spark",
    "--engine spark --spill .": "--spill --engine local",
    BY_SPECIES + "--spill nowhere": "--spill folder nowhere",
    BY_SPECIES + "--out nowhere/m": "--out nowhere/m written folder",
    BY_SPECIES + "--out .": "--out written folder",
    BY_SPECIES + "--report no/r.html": "--report no/r.html written",
    BY_SPECIES + "--out train.csv": "--out data same train.csv",
    BY_SPECIES + "--out m --report ./m": "--report --out same",
    BY_SPECIES + "--test gone.csv": "gone.csv not there",
    BY_SPECIES + "--test other.csv": "other.csv 'sepal'",
    BY_SPECIES + "--radius 1 --representation gram": "representation must be",
    BY_SPECIES + "--n-jobs 0": "--n-jobs 0",
    "-t sepal --features petal --radius 1 --class-weight balanced": "--class-weight classification",
    BY_SPECIES + "--cv 60": "60",
}
OTHERS = {
    "fit": "TRAIN",
    "frobnicate": "'frobnicate'",
    "fit gone.csv -t y": "gone.csv not there",
    "fit notes.txt -t y": "notes.txt format",
    "fit pipe.csv -t y": "pipe.csv regular file",
    "fit cut.parquet -t y": "cut.parquet Parquet",
    "plan gone.csv -t y": "gone.csv not there",
    "plan train.csv": "--target train.csv",
    "plan train.csv -t species --lmo naive": "--lmo --solver",
    "plan train.csv -t species --representation gram": "representation must be",
    "path train.csv -t species --out no/p": "--out no/p written",
    "inspect gone": "gone No such file",
    "inspect .": "folder",
    "inspect train.csv": "train.csv safetensors",
    "inspect pipe": "pipe regular file",
    "predict pipe train.csv -o p.csv": "pipe regular file",
    "predict gone train.csv -o p.csv": "gone No such file",
    "predict train.csv train.csv -o p.csv": "train.csv safetensors",
    "predict MODEL gone.csv -o p.csv": "gone.csv not there",
    "predict MODEL few.csv -o p.csv": "few.csv 'petal' 'width'",
    "predict MODEL train.csv --out p.doc": "--out .csv .npy .parquet p.doc",
    "predict MODEL train.csv --out no/p.csv": "--out no/p.csv written",
    "predict MODEL train.csv --out train.csv": "same file",
    "predict MODEL train.csv --out p.npy --top 2": "--top .csv .parquet",
    "predict MODEL train.csv --out p.csv --top 0": "--top",
    "predict MODEL train.csv --out p.csv --top 2 --proba": "--proba --top exclude",
    "evaluate MODEL few.csv": "few.csv",
    "evaluate MODEL train.csv -t kind": "train.csv 'kind'",
    "evaluate MODEL train.csv -t sepal,petal": "one target train.csv 2",
}


@pytest.mark.parametrize(
    ("command", "words"),
    [*((f"fit train.csv {options}", words) for options, words in FITS.items()), *OTHERS.items()],
)
def test_typical_mistakes(
    command: str, words: str, classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    flowers(tmp_path / "train.csv")
    (tmp_path / "other.csv").write_text("a,b,species\n1,2,setosa\n")
    (tmp_path / "few.csv").write_text("sepal,species\n1,setosa\n")
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "cut.parquet").write_bytes(b"PAR1 and no more")
    for name in ("pipe", "pipe.csv"):
        os.mkfifo(tmp_path / name)
    before = sorted(tmp_path.iterdir())
    sentence = refused(*(str(classifier) if word == "MODEL" else word for word in command.split()))
    assert [word for word in words.split() if word not in sentence] == []
    assert sorted(tmp_path.iterdir()) == before


def test_what_a_regressor_cannot_do(regressor: Path, sensors: Path, tmp_path: Path) -> None:
    for option in (["--proba"], ["--top", "2"]):
        words = ["predict", regressor, sensors, "-o", tmp_path / "p.csv", *option]
        assert f"{option[0]} needs a classifier, but" in refused(*words)
    wrong = refused("evaluate", regressor, sensors, "-t", "y0")
    assert wrong == "the model predicts 3 targets, but sensors has 1."


def test_targets_of_another_kind_than_the_models(
    regressor: Path, sensors: Path, tmp_path: Path
) -> None:
    (tmp_path / "words.csv").write_text(
        ",".join(f"x{j}" for j in range(6)) + ",y\n" + "1,2,3,4,5,6,high\n"
    )
    words = ("evaluate", regressor, tmp_path / "words.csv", "-t", "y")
    assert "words.csv holds text ('high'), but the model needs numbers" in refused(*words)
    X, y, _ = dt.datasets.make_multiclass(n=60, d=6, m=3, rank=2, random_state=0)
    np.savez(tmp_path / "numbers.npz", X=X, y=y)
    done("fit", tmp_path / "numbers.npz", "--radius", 5, "-o", tmp_path / "m")
    words = ("evaluate", tmp_path / "m", tmp_path / "words.csv", "-t", "y")
    assert "words.csv holds text ('high'), but the model needs numbers" in refused(*words)
    (tmp_path / "wide.csv").write_text("a,b\n1,2\n")
    wide = refused("predict", tmp_path / "m", tmp_path / "wide.csv", "-o", tmp_path / "p.csv")
    assert "wide.csv has 2 features" in wide


def test_a_damaged_model_is_refused(classifier: Path, tmp_path: Path, train: Path) -> None:
    content = bytearray(classifier.read_bytes())
    content[-3] ^= 0xFF
    (tmp_path / "damaged").write_bytes(content)
    assert "checksum" in refused("inspect", tmp_path / "damaged")
    assert "checksum" in refused("evaluate", tmp_path / "damaged", train)


def test_a_checkpoint_of_another_run_is_refused(train: Path, tmp_path: Path) -> None:
    kept = kept_checkpoint(tmp_path)
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
    refused("fit", train, "-t", "species", "--cv", 60, "-o", out)
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


@pytest.mark.parametrize(
    "command",
    ["fit train.csv -t species --radius 8 --json", "predict MODEL train.csv", "--version"],
)
def test_a_full_device_is_one_sentence(
    command: str, classifier: Path, train: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(train.parent)
    words = [str(classifier) if word == "MODEL" else word for word in command.split()]
    errors = io.StringIO()
    with open("/dev/full", "w") as full, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", full)
        patched.setattr(sys, "stderr", errors)
        with pytest.raises(SystemExit) as ended:
            run(words)
    assert ended.value.code == 1
    *_, line = errors.getvalue().splitlines()
    assert line == "Error: No space left on device."
    assert "Traceback" not in errors.getvalue()


def test_the_interpreter_has_nothing_to_add_about_a_full_device(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [*COMMAND, "inspect", "gone", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            cwd=tmp_path,
        )
    assert (ended.returncode, ended.stderr) == (2, "Error: gone: No such file or directory.\n")


def test_a_reader_that_has_seen_enough_is_no_error(classifier: Path, tmp_path: Path) -> None:
    """Nothing runs after it: what threads of Arrow would do then is a matter of luck."""
    flowers(tmp_path / "many.csv", rows=1500)  # more than a buffer holds
    late = "import atexit, runpy, sys; atexit.register(lambda: print('late', file=sys.stderr)); "
    words = ["predict", str(classifier), str(tmp_path / "many.csv")]
    program = f"sys.argv[1:] = {words!r}; runpy.run_module('dfwtrace', run_name='__main__')"
    reading, writing = os.pipe()
    os.close(reading)
    words = [sys.executable, "-c", late + program]
    ended = subprocess.run(words, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (1, "")


class OddError(Exception):
    """Nobody expects it."""


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (OddError("a\n  b"), 1, "Error: OddError: a b"),
        (OddError("a\x1b[2Jb"), 1, r"Error: OddError: a\x1b[2Jb"),
        (OddError(), 1, "Error: OddError: OddError"),
        (KeyError("key"), 1, "Error: KeyError: 'key'"),
        (OSError(28, "No space left on device", "m"), 1, "Error: m: No space left on device."),
        (ImportError("Spark needs pyspark."), 1, "Error: Spark needs pyspark."),
        (MemoryError(), 1, "Error: the memory is not enough; --dtype float32"),
        (KeyboardInterrupt(), 130, "Interrupted: nothing was saved."),
    ],
)
def test_what_nobody_expected(
    error: BaseException, code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> Any:
        raise error

    assert guarded(fail, as_json=False, debug=False) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(sentence)
    assert shown.err.count("\n") == 1
    if code == 1:
        guarded(fail, as_json=False, debug=True)
        assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_a_traceback_of_a_worker_is_cut_to_what_it_was() -> None:
    text = "Thrown:\nTraceback (most recent call last):\n  File x\nValueError: bad row\n\n\tat java"
    assert sentence_of(RuntimeError(text)) == "ValueError: bad row"
    assert len(sentence_of(RuntimeError("x" * 5000))) == 600


def test_debug_may_stand_anywhere(train: Path) -> None:
    assert call("fit", train, "--debug").stderr == call("--debug", "fit", train).stderr


def test_a_target_of_one_class_is_refused(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("a,fruit\n1,fig\n2,fig\n")
    sentence = "the target holds one class only, 'fig': there is nothing to tell apart."
    assert refused("fit", tmp_path / "one.csv", "-t", "fruit") == sentence
    assert refused("path", tmp_path / "one.csv", "-t", "fruit") == sentence


def test_more_folds_than_rows_are_refused(tmp_path: Path) -> None:
    (tmp_path / "two.csv").write_text("a,b\n1,0.5\n2,1.5\n")
    said = refused("fit", tmp_path / "two.csv", "-t", "b")
    assert said.startswith("--cv 5 is more than there are rows (2): ")


def test_a_row_of_another_length_is_named(tmp_path: Path) -> None:
    (tmp_path / "ragged.csv").write_text("a,b\n1,0.5\n2,1.5,3\n")
    said = refused("fit", tmp_path / "ragged.csv", "-t", "b")
    assert said.endswith("has 2 columns, but row 3 (the header is row 1) has 3: "
                         "check its separators and quotes.")  # fmt: skip
    (tmp_path / "empty.csv").write_text("")
    assert refused("fit", tmp_path / "empty.csv", "-t", "b").endswith("empty.csv has no rows.")


def test_path_names_no_option_of_fit(train: Path) -> None:
    said = done("path", train, "-t", "species", "--radii", "1,8", "--cv", 2, "--tol", 0.01)
    assert said.stdout.splitlines()[1].endswith(" over 2 radii in 2 folds.")
