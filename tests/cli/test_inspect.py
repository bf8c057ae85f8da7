"""Files that others may have made are told of without harm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import call, done, kept_checkpoint, told

import dfwtrace as dt
from dfwtrace.files.container import read_container, write_container

CLEARS = "\x1b[2J\x9b31m\rgone"
Change = Callable[[dict[str, Any]], Any]


def changed(path: Path, folder: Path, change: Change, kind: str = "model") -> Path:
    """A copy of a file with another header."""
    header, arrays = read_container(path, kind)
    change(header)
    write_container(folder / "changed", kind, header, arrays)
    return folder / "changed"


STRINGS: dict[str, Change] = {
    "representation": lambda header: header["plan"].update(representation=CLEARS),
    "rows": lambda header: header["plan"]["workload"].update(n=CLEARS),
    "setting": lambda header: header["settings"].update(solver=CLEARS),
    "target": lambda header: header["notes"].update(target=[CLEARS]),
    "array": lambda header: header["notes"].update(array=CLEARS),
    "feature": lambda header: header["feature_names"].__setitem__(0, CLEARS),
}


@pytest.mark.parametrize("where", STRINGS)
def test_words_of_a_file_do_nothing_to_a_terminal(
    where: str, classifier: Path, tmp_path: Path
) -> None:
    shown = done("inspect", changed(classifier, tmp_path, STRINGS[where])).stdout
    assert r"\x1b[2J\x9b31m\rgone" in shown
    assert not set("\x1b\x9b\r") & set(shown)
    told("inspect", tmp_path / "changed")


def test_nor_do_those_of_a_checkpoint_or_an_error(classifier: Path, tmp_path: Path) -> None:
    kept = kept_checkpoint(tmp_path)
    more = {CLEARS: 1, "word": CLEARS, "shape": 3, "bytes": CLEARS, "target_names": [CLEARS]}
    path = changed(kept, tmp_path, lambda header: header["identity"].update(more), "checkpoint")
    shown = done("inspect", path).stdout
    assert shown.count("gone") == 3  # the size is what the disk says
    assert not set("\x1b\x9b\r") & set(shown)
    path = changed(
        classifier, tmp_path, lambda header: header["plan"]["workload"].update({CLEARS: 1})
    )
    ended = call("inspect", path)
    assert ended.exit_code == 2
    assert "gone" in ended.stderr
    assert not set("\x1b\x9b\r") & set(ended.stderr)


def test_nor_do_names_and_labels_of_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{i % 7},{i % 5},{'a' if i % 2 else 'b'}\x1b[2J\n" for i in range(30))
    (tmp_path / "d.csv").write_text("x\x1b[2J,z,y\x1b[2J\n" + rows)
    (tmp_path / "e.csv").write_text("x\x1b[2J,z,y\x1b[2J\n1,2,c\x1b[2J\n3,4,c\n")
    fit = ["fit", "d.csv", "-t", "y\x1b[2J", "--radius", "3", "-o", "m"]
    for words in (fit, ["inspect", "m"], ["evaluate", "m", "d.csv"], ["evaluate", "m", "e.csv"]):
        ended = done(*words)
        assert r"\x1b[2J" in ended.stdout + ended.stderr
        assert "\x1b" not in ended.stdout + ended.stderr
    refused = call("fit", "d.csv", "-t", "y\x1b[1m")
    assert refused.exit_code == 2
    assert "\x1b" not in refused.stderr


def test_a_history_with_text_for_seconds_is_refused(classifier: Path, tmp_path: Path) -> None:
    path = changed(classifier, tmp_path, lambda header: header.update(history=[{"seconds": "a"}]))
    assert "could not convert string to float" in told("inspect", path, code=2)["error"]


@pytest.mark.parametrize("key", ["history", "W", "seconds"])
def test_a_checkpoint_without_a_part_is_refused(key: str, tmp_path: Path) -> None:
    kept = kept_checkpoint(tmp_path)
    path = changed(kept, tmp_path, lambda header: header["memory"]["dict"].pop(key), "checkpoint")
    error = told("inspect", path, code=2)["error"]
    assert error == f"{path} is not a whole checkpoint: no {key!r}."


@pytest.mark.parametrize("note", [{"array": 3}, {"first_index": "1"}, {"target": "y"}])
def test_notes_of_other_types_are_refused(note: Any, classifier: Path, tmp_path: Path) -> None:
    path = changed(classifier, tmp_path, lambda header: header["notes"].update(note))
    error = told("inspect", path, code=2)["error"]
    assert error == f"{path} is not a whole model: its notes are of other types."


def test_a_result_is_told_of(tmp_path: Path) -> None:
    X, y, _ = dt.datasets.make_multiclass(n=60, d=6, m=3, rank=2, random_state=0)
    result, file = dt.solve(dt.Multinomial(), X, y, radius=1.0), tmp_path / "result"
    result.save(file)
    found = told("inspect", file)
    assert (found["kind"], found["shape"], found["status"]) == ("result", [6, 3], "optimal")
    assert (found["objective"], found["gap"]) == (result.objective, result.gap)
    assert (found["rank"], found["epochs"]) == (result.W.rank, len(result.history))
    assert "kind               result\n" in done("inspect", file).stdout
    ended = call("predict", file, file)
    assert ended.exit_code == 2
    assert "holds a result, not a model: dfwtrace.Result.load reads it." in ended.stderr
