"""The file of rows: nothing that was measured is lost, and nothing else is taken for a row."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.commands import call

import dfwtrace as dt
from dfwtrace.experiments.methods import ACCELERATED, Problem, follow
from dfwtrace.experiments.problems import classification, multiclass
from dfwtrace.experiments.runs import Run
from dfwtrace.experiments.store import Rows, RunFailedError


def test_an_interrupt_loses_no_row(tmp_path: Path) -> None:
    def interrupted() -> dict[str, float]:
        raise KeyboardInterrupt

    rows = Rows(tmp_path)
    rows.of(Run("figure 1", {"method": "SVA"}, lambda: {"objective": 1.0}))
    with pytest.raises(KeyboardInterrupt):
        rows.of(Run("figure 1", {"method": "Naive"}, interrupted))
    assert [row["settings"]["method"] for row in Rows(tmp_path)] == ["SVA"]


def test_what_is_not_finite_is_no_row(tmp_path: Path) -> None:
    rows = Rows(tmp_path)
    with pytest.raises(ValueError, match="JSON"):
        rows.of(Run("figure 1", {}, lambda: {"objective": float("nan")}))
    assert len(Rows(tmp_path)) == 0


def test_what_two_processes_measure_is_all_kept(tmp_path: Path) -> None:
    one, other = Rows(tmp_path), Rows(tmp_path)
    one.of(Run("figure 1", {"method": "SVA"}, lambda: {"objective": 1.0}))
    other.of(Run("figure 1", {"method": "Naive"}, lambda: {"objective": 2.0}))
    again = one.of(Run("figure 1", {"method": "Naive"}, lambda: {"objective": 3.0}))
    assert again["values"] == {"objective": 2.0}
    assert [row["settings"]["method"] for row in Rows(tmp_path)] == ["SVA", "Naive"]


def test_a_run_without_an_epoch_leaves_no_row(tmp_path: Path) -> None:
    problem = classification(multiclass(60, 5, 4), 1.0)
    far = Problem(problem.task, problem.X * np.float32(1e30), problem.y, 1.0, problem.look)

    def run() -> dict[str, object]:
        return follow(far, ACCELERATED, epochs=3, step="harmonic", engine=dt.LocalEngine(2))

    with pytest.raises(RunFailedError, match="figure 3: accelerated") as failed:
        Rows(tmp_path).of(Run("figure 3", {"method": ACCELERATED}, run))
    assert "accelerated ended before its first epoch: " in str(failed.value.__cause__)
    assert len(Rows(tmp_path)) == 0


WHOLE = {
    "experiment": "figure 1",
    "settings": {},
    "values": {},
    "seconds": 1.0,
    "other_work": 0.0,
    "commit": "unknown",
    "date": "2026-01-01",
    "versions": {},
    "blas": [],
    "cpu": "one",
    "cores": 2,
}


def without(part: str) -> bytes:
    return json.dumps({name: value for name, value in WHOLE.items() if name != part}).encode()


@pytest.mark.parametrize(
    "line",
    [
        b'{"experiment": "figure 1"',
        b"[]",
        json.dumps({**WHOLE, "settings": []}).encode(),
        json.dumps({**WHOLE, "cpu": "\u00e9"}, ensure_ascii=False).encode("latin-1"),
        *(without(part) for part in WHOLE),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "rows.jsonl").write_bytes(line + b"\n")
    with pytest.raises(ValueError, match=r"rows\.jsonl: line 1 is no row"):
        Rows(tmp_path)
    ended = call("reproduce", "--draw-only", "--out", tmp_path)
    assert ended.exit_code == 2
    assert "line 1 is no row of an experiment" in ended.stderr
    assert (tmp_path / "rows.jsonl").read_bytes() == line + b"\n"


def test_blank_lines_and_rare_separators_are_no_damage(tmp_path: Path) -> None:
    row = {**WHOLE, "cpu": "a\u2028b\x85"}
    line = json.dumps(row, ensure_ascii=False).encode()
    (tmp_path / "rows.jsonl").write_bytes(line + b"\n\n")
    assert list(Rows(tmp_path)) == [row]
