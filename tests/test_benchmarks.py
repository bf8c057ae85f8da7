"""Every benchmark at a toy size: the shape of its rows and what does not depend on the clock."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from pathlib import Path

import pytest

import dfwtrace as dt

# `benchmarks` is run from the checkout and never installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import __main__ as command
from benchmarks import epoch_floor, growth, lmo_accuracy, memory
from benchmarks.harness import Row, epoch_seconds, in_turn
from benchmarks.machine import OtherWork


def check(row: Row, benchmark: str) -> None:
    assert row.benchmark == benchmark
    assert row.case
    assert set(row.sizes) == {"n", "d", "m"}
    assert all(size > 0 for size in row.sizes.values())
    assert math.isfinite(row.ratio)
    assert row.ratio > 0.0
    assert row.target == getattr(command.SUITE[benchmark], "TARGET", None)
    assert row.met is (None if row.target is None else row.ratio <= row.target)
    assert all(math.isfinite(seconds) and seconds > 0.0 for seconds in row.seconds.values())
    assert all(math.isfinite(number) for number in row.detail.values())


@pytest.mark.parametrize("name", ["epoch_floor", "least_squares"])
def test_speed_is_a_ratio_of_times_with_a_target(name: str) -> None:
    rows = command.SUITE[name].run("toy", 1)
    assert rows
    for row in rows:
        check(row, name)
        assert row.target is not None
        assert len(row.seconds) >= 2  # both sides of the ratio


def test_floor_counts_ten_passes_over_memory() -> None:
    one_pass = 4 * 20_000 * 1000
    assert epoch_floor.bytes_to_move(20_000, 1000, 1000, iterations=2, itemsize=4) == 10 * one_pass


def test_growth_doubles_each_size_of_each_representation() -> None:
    rows = growth.run("toy", 1)
    for row in rows:
        check(row, "growth")
    assert [row.case for row in rows] == [
        f"{name}, {representation}, {letter} → 2{letter}"
        for name, task in (("least squares", dt.LeastSquares()), ("multinomial", dt.Multinomial()))
        for representation in task.representations
        for letter in "ndm"
    ]


@pytest.mark.parametrize(
    ("representation", "n", "d", "m"),
    [
        ("gram", 1.0, 14 / 6, 11 / 6),  # 4dm + d² + dm, at d = m
        ("implicit", 2.0, 13 / 9, 14 / 9),  # 4n(d + m) + nm
        ("dense", 2.0, 2.0, 2.0),  # ndm, once n is large
        ("factored", 2.0, 38 / 34, 64 / 34),  # 4n(d + 6m) + 6nm
    ],
)
def test_growth_predictions(representation: str, n: float, d: float, m: float) -> None:
    operations = growth.FORMS[representation].operations
    size = 10**6
    base = operations(size, size, size)
    assert operations(2 * size, size, size) / base == pytest.approx(n, rel=1e-5)
    assert operations(size, 2 * size, size) / base == pytest.approx(d, rel=1e-5)
    assert operations(size, size, 2 * size) / base == pytest.approx(m, rel=1e-5)


def test_memory_stays_far_below_a_dense_matrix() -> None:
    rows = memory.run("toy", 1)
    assert {row.case.split(",")[0] for row in rows} == {"least squares", "multinomial"}
    for row in rows:
        check(row, "memory")
        assert row.met  # bytes do not depend on the clock


def test_lanczos_is_never_worse_than_power() -> None:
    rows = lmo_accuracy.run("toy", 1)
    for row in rows:
        check(row, "lmo_accuracy")
        assert row.detail["Lanczos error"] <= row.detail["power error"] * (1.0 + 1e-9)
    assert rows[0].ratio == pytest.approx(1.0)  # one iteration of either is the same
    assert rows[-1].ratio < 1e-3


def test_command_prints_a_table_and_appends_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--scale", "toy", "--only", "least_squares", "--results", str(tmp_path)]
    for _ in range(2):
        assert command.main([*arguments, "--repeat", "1"]) == 0
    printed = capsys.readouterr().out
    assert "least_squares" in printed
    assert "≤ 1.3" in printed
    (path,) = tmp_path.iterdir()
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(records) == 2
    for record in records:
        assert path.name == f"{record['date'][:10]}-{record['commit']}.jsonl"
        assert record["benchmark"] == "least_squares"
        assert record["scale"] == "toy"
        assert record["target"] == 1.3
        assert set(record["sizes"]) == {"n", "d", "m"}
        assert set(record["seconds"]) == {"solve", "products"}
        assert set(record["versions"]) == {"python", "dfwtrace", "numpy", "scipy", "numba"}
        assert record["versions"]["dfwtrace"] == dt.__version__
        assert record["cpu"]
        assert record["cores"] >= 1
        assert 0.0 <= record["other_work"] <= 1.0
        assert record["met"] is None  # toy sizes are not judged


def test_toy_rows_are_not_kept_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "RESULTS", tmp_path)
    assert command.main(["--scale", "toy", "--only", "least_squares", "--repeat", "1"]) == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [["--repeat", "0"], ["--only", "nothing"]])
def test_command_refuses(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        command.main(arguments)
    assert refused.value.code == 2
    assert arguments[0] in capsys.readouterr().err


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="the system does not tell")
def test_other_work_is_seen() -> None:
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        with OtherWork() as others:
            time.sleep(0.5)
    finally:
        busy.kill()
        busy.wait()
    assert 0.0 < others.share <= 1.05  # the system counts in ticks of a hundredth of a second


def test_measures_take_turns_after_a_warm_up() -> None:
    calls: list[str] = []

    def measure(name: str) -> float:
        calls.append(name)
        return float(len(calls))

    times = in_turn(2, {"a": lambda: measure("a"), "b": lambda: measure("b")})
    assert calls == ["a", "b"] * 3
    assert times["a"].tolist() == [3.0, 5.0]
    assert times["b"].tolist() == [4.0, 6.0]


def test_epoch_seconds_leave_out_the_start() -> None:
    X, Y, _ = dt.datasets.make_multitask(n=30, d=4, m=3, rank=2, seed=0)
    result = dt.solve(dt.LeastSquares(), X, Y, radius=1.0, epochs=6, progress=False)
    seconds = result.history.column("seconds")
    assert epoch_seconds(result, skip=2).tolist() == (seconds[3:] - seconds[2:-1]).tolist()
