"""The benchmark of peers at a toy size: its rows and its table, whatever the clock."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# `benchmarks` is run from the checkout and never installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import __main__ as command
from benchmarks import peers
from benchmarks.harness import Row
from benchmarks.peers_problems import problems
from tests.peer_rows import check, record_of


def test_every_peer_has_its_rows_and_what_is_missing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DFWTRACE_DATA", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pyspark", None)  # as if it were not installed
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    monkeypatch.setitem(sys.modules, "copt", None)
    arguments = ["--scale", "toy", "--repeat", "2", "--only", "peers", "--results", str(tmp_path)]
    assert command.main(arguments) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "CLINC150 is left out: there is no clinc150_minilm.npz in" in printed
    assert "MLlib is left out: pyspark is not installed" in printed
    for package in ("copt", "cvxpy"):
        assert f"{package} is left out: it is not installed" in printed
    (path,) = tmp_path.iterdir()
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [record["case"] for record in records] == [
        "multi-class, dfw, test error",
        "multi-class, LogisticRegression, test error",
        "multi-class, dfw, 0.01",
        "multi-class, dfw, 0.001",
        "multi-class, dense projected gradient, 0.01",
        "multi-class, dense projected gradient, 0.001",
        "multi-task, dfw, test error",
        "multi-task, Ridge, test error",
        "multi-task, dfw, 0.01",
        "multi-task, dfw, 0.001",
        "multi-task, dense projected gradient, 0.01",
        "multi-task, dense projected gradient, 0.001",
    ]
    for record in records:
        check(Row(**{name: record[name] for name in Row.__dataclass_fields__}))
        assert record["detail"]["rounds"] == 2.0
    lines = printed_by_the_command(path, monkeypatch, capsys)
    assert len(lines) == 2 + len(records)
    assert {line.count("|") for line in lines} == {8}
    assert [line.split("|")[1].strip() for line in lines[2:] if line[:4] != "|  |"] == [
        "multi-class, 200×12×5",
        "multi-task, 200×12×8",
    ]
    assert "| Ridge | test error" in lines[9]
    assert "| F* + 0.001·F(0) |" in lines[-1]


def printed_by_the_command(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    """The lines of ``python -m benchmarks.peers path``."""
    monkeypatch.setattr(sys, "argv", ["peers", str(path)])
    capsys.readouterr()
    runpy.run_path(str(peers.__file__), run_name="__main__")
    return capsys.readouterr().out.splitlines()


def test_the_page_shows_all_that_its_command_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Path(__file__).resolve().parents[1]
    page = (root / "docs" / "benchmarks.md").read_text("utf-8").splitlines()
    (name,) = re.findall(r"python -m benchmarks\.peers (\S+\.jsonl)", "\n".join(page))
    printed = printed_by_the_command(root / name, monkeypatch, capsys)
    begin = page.index(printed[0])
    assert page[begin : page.index("", begin)] == printed
    for tol in ("0.01", "0.001"):
        assert any(f"F* + {tol}·F(0)" in line for line in printed)


def test_the_table_is_that_of_the_last_run() -> None:
    def record(date: str, case: str) -> dict[str, Any]:
        sizes = dict.fromkeys("ndm", 9)
        row = Row("peers", case, sizes, 0.5, None, {"accelerated": 1.0, "peer": 2.0})
        detail = {"reached": 1.0, "target": 0.25, "numbers": 3.0, "their numbers": 4.0}
        return {**record_of(row), "detail": detail, "date": date}

    earlier, later = record("1", "a, gone, test error"), record("2", "a, here, test error")
    other = {**earlier, "benchmark": "growth", "date": "3"}
    lines = peers.markdown([earlier, later, other]).splitlines()
    assert lines[2:] == ["| a, 9×9×9 | here | test error 0.25 | 1 s | 2 s | 0.5 | 3, 4 |"]
    with pytest.raises(ValueError, match="no rows of peers"):
        peers.markdown([other])


def test_a_toy_of_real_data_has_three_of_its_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DFWTRACE_DATA", str(tmp_path))
    rng = np.random.default_rng(0)
    parts = {"train": 12, "val": 5, "test": 10}
    arrays: dict[str, Any] = {f"X_{name}": rng.random((n, 3)) for name, n in parts.items()}
    arrays |= {f"y_{name}": np.arange(n) % 5 for name, n in parts.items()}
    arrays["X_test"][1, 0] = -(2.0**-24)  # the least number of float16, which no side gets to see
    np.savez(tmp_path / "clinc150_minilm.npz", **arrays)
    _, toy, _ = problems("toy")
    assert (toy.name, toy.sizes) == ("CLINC150", {"n": 8, "d": 3, "m": 3})
    np.testing.assert_array_equal(toy.y_test, [0, 1, 2, 0, 1, 2])
    kept = arrays["X_test"][arrays["y_test"] < 3].astype(np.float32)
    assert kept[1, 0] != 0.0
    kept[1, 0] = 0.0
    np.testing.assert_array_equal(toy.X_test, kept)
