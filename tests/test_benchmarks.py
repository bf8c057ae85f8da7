"""Every benchmark at a toy size: the shape of its rows and what does not depend on the clock."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse as sp

import dfwtrace as dt

# `benchmarks` is run from the checkout and never installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import __main__ as command
from benchmarks import (
    accelerated,
    accelerated_dense,
    data,
    default_tol,
    epoch_floor,
    estimators_clinc,
    growth,
    imagenet_size,
    lmo_accuracy,
    memory,
    scaling,
    scaling_costs,
    spark_loading,
)
from benchmarks.growth import FORMS
from benchmarks.harness import Row, epoch_seconds, in_turn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_TARGETS = ("TARGET", "TARGET_OF_SEARCH", "TARGET_OF_ROUNDS")


def check(row: Row, benchmark: str, sizes: Sequence[str] = "ndm") -> None:
    assert row.benchmark == benchmark
    assert row.case
    assert set(row.sizes) == set(sizes)
    assert all(size > 0 for size in row.sizes.values())
    assert math.isfinite(row.ratio)
    assert row.ratio > 0.0
    module = command.SUITE[benchmark]
    targets = [getattr(module, name, None) for name in _TARGETS]
    assert row.target in (None, *targets)
    assert row.met is (None if row.target is None else row.ratio <= row.target)
    assert all(math.isfinite(seconds) and seconds > 0.0 for seconds in row.seconds.values())
    assert all(math.isfinite(number) for number in row.detail.values())


def test_the_representation_chosen_is_compared_with_all_others() -> None:
    rows = command.SUITE["plan_choice"].run("toy", 1)
    for row in rows:
        check(row, "plan_choice")
        chosen = row.case.partition(": ")[2].partition(",")[0]
        assert row.ratio == row.seconds[chosen] / min(row.seconds.values())
        assert len(row.detail) == len(row.seconds)
    assert [len(row.seconds) for row in rows] == [4, 3]


@pytest.mark.filterwarnings("ignore:The best radius", "ignore:At the radius")  # labels at random
def test_prediction_through_factors_is_that_of_the_dense_matrix() -> None:
    (row,) = command.SUITE["prediction"].run("toy", 1)
    check(row, "prediction")
    assert row.detail["equal predictions"] > 0.99


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
        ("implicit", 2.0, 15 / 10, 15 / 10),  # 4n(d + m) + nd + nm
        ("dense", 2.0, 2.0, 2.0),  # ndm, once n is large
        ("factored", 2.0, 40 / 35, 65 / 35),  # 4n(d + 6m) + nd + 6nm
    ],
)
def test_growth_predictions(representation: str, n: float, d: float, m: float) -> None:
    operations = FORMS[representation].operations
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
        assert row.met is True  # bytes do not depend on the clock


def test_lanczos_is_never_worse_than_power() -> None:
    rows = lmo_accuracy.run("toy", 1)
    for row in rows:
        check(row, "lmo_accuracy")
        assert row.detail["Lanczos error"] <= row.detail["power error"] * (1.0 + 1e-9)
    assert rows[0].ratio == pytest.approx(1.0)  # one iteration of either is the same
    assert rows[-1].ratio < 1e-3


def test_the_accelerated_solver_is_compared_with_the_papers() -> None:
    rows = accelerated.run("toy", 1)
    assert [row.case for row in rows] == [
        "to dfw's objective after 20 epochs",
        "to a certified relative gap of 0.001",
        "to a certified relative gap of 0.0001",
    ]
    for row in rows:
        check(row, "accelerated", [*"ndm", "radius"])
        assert row.ratio == row.seconds["accelerated"] / row.seconds["dfw"]
    assert [row.target for row in rows] == [0.1, None, None]
    for row, tol in zip(rows[1:], (1e-3, 1e-4), strict=True):
        assert row.detail["gap"] <= tol  # it does not depend on the clock
        assert row.detail["dfw's gap"] >= 0.0


def test_the_accelerated_solver_is_compared_with_a_dense_one() -> None:
    (row,) = accelerated_dense.run("toy", 1)
    check(row, "accelerated_dense")
    assert row.ratio == row.seconds["accelerated"] / row.seconds["dense"]
    assert 1 <= row.detail["dense steps"] < 200  # it got there


def test_least_squares_are_compared_with_products_and_with_ridge() -> None:
    pytest.importorskip("sklearn")
    rows = command.SUITE["accelerated_least_squares"].run("toy", 1)
    assert [row.case for row in rows] == ["to 1e-6, / products", "to 1e-6, / ridge"]
    for row in rows:
        check(row, "accelerated_least_squares")
        assert row.detail["gap"] <= 1e-6


def test_without_real_data_there_are_no_rows_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DFWTRACE_DATA", str(tmp_path))
    assert data.folder() == tmp_path
    assert data.clinc150() is None
    assert data.udhr() is None
    assert estimators_clinc.run("toy", 1) == []


def test_real_data_are_read_as_they_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DFWTRACE_DATA", str(tmp_path))
    rng = np.random.default_rng(0)
    parts = {"train": 12, "val": 5, "test": 4}
    arrays: dict[str, Any] = {f"X_{name}": rng.random((n, 3)) for name, n in parts.items()}
    arrays |= {f"y_{name}": np.arange(n) % 3 for name, n in parts.items()}
    np.savez(tmp_path / "clinc150_minilm.npz", **arrays)
    split = data.clinc150()
    assert split is not None
    assert split.X.dtype == np.float32
    assert split.y.dtype == np.int64
    for name, X, y in zip(parts, split[::2], split[1::2], strict=True):
        np.testing.assert_array_equal(X, arrays[f"X_{name}"].astype(np.float32))
        np.testing.assert_array_equal(y, arrays[f"y_{name}"])
    counts = sp.csr_array(rng.integers(1, 5, (50, 4)))
    np.savez(
        tmp_path / "udhr_langid.npz",
        X_data=counts.data,
        X_indices=counts.indices,
        X_indptr=counts.indptr,
        X_shape=np.array(counts.shape),
        y=np.arange(50),
    )
    split = data.udhr()
    assert split is not None
    assert [len(y) for y in split[1::2]] == [40, 5, 5]
    assert sorted(np.concatenate(split[1::2])) == list(range(50))
    for X, y in zip(split[::2], split[1::2], strict=True):
        assert X.dtype == np.float32
        expected = counts.toarray()[y] / np.linalg.norm(counts.toarray()[y], axis=1, keepdims=True)
        np.testing.assert_allclose(X.toarray(), expected, rtol=1e-6)


def test_estimators_are_compared_with_those_of_scikit_learn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DFWTRACE_DATA", str(tmp_path))
    X, y, _ = dt.datasets.make_multiclass(n=2000, d=6, m=3, rank=2, random_state=0)
    arrays: dict[str, Any] = {f"X_{name}": X for name in ("train", "val", "test")}
    arrays |= {f"y_{name}": y for name in ("train", "val", "test")}
    np.savez(tmp_path / "clinc150_minilm.npz", **arrays)
    rows = estimators_clinc.run("toy", 1)
    fit, search = (
        [f"CLINC150, {what}, {clock} time" for clock in ("wall", "processor")]
        for what in ("fit", "search")
    )
    assert [row.case for row in rows] == [*fit, "CLINC150, rounds an epoch", *search]
    assert rows[2].ratio > 1.0
    for row in rows:
        check(row, "estimators_clinc")
        assert row.detail["accuracy"] > 0.5


def test_scores_by_tolerance_are_a_table() -> None:
    rows = command.SUITE["default_tol"].run("toy", 1)
    assert len(rows) == 2 * 5
    assert {row.target for row in rows} == {None, 1.0}
    for row in rows:
        assert row.detail["reached"] == 1.0
    finest = rows[4]
    assert (finest.ratio, finest.detail["tol"]) == (0.0, 1e-4)
    lines = default_tol.markdown([asdict(row) for row in rows]).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| iris", "| diabetes"]
    assert len({line.count("|") for line in lines}) == 1


def test_imagenets_size_is_measured_in_memory_and_passes() -> None:
    (row,) = imagenet_size.run("toy", 1)
    check(row, "imagenet_size")
    assert row.ratio < 1.0
    assert row.seconds["pass"] == row.seconds["stats"] + row.seconds["tangent"]
    assert row.detail["objective / F(0)"] < 1.0


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
        assert set(record["versions"]) >= {"python", "dfwtrace", "numpy", "scipy", "numba"}
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


def test_names_are_given_by_their_beginning(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--scale", "toy", "--repeat", "1", "--only", "least", "--only", "lmo"]
    assert command.main(arguments) == 0
    printed = capsys.readouterr().out
    assert [name for name in command.SUITE if f"{name}: " in printed] == [
        "least_squares",
        "lmo_accuracy",
    ]


def test_left_out_without_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)  # as if it were not installed
    arguments = ["--scale", "toy", "--only", "spark", "--only", "scaling"]
    scaling_costs.measure.cache_clear()
    assert command.main([*arguments, "--results", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert printed.count("left out: pyspark is not installed") == 6
    assert not list(tmp_path.iterdir())


def test_measures_take_turns_after_a_warm_up() -> None:
    calls: list[str] = []

    def measure(name: str) -> float:
        calls.append(name)
        return float(len(calls))

    times = in_turn(2, {"a": lambda: measure("a"), "b": lambda: measure("b")})
    assert calls == ["a", "b"] * 3
    assert times["a"].tolist() == [3.0, 5.0]
    assert times["b"].tolist() == [4.0, 6.0]


def test_measures_may_be_of_several_numbers() -> None:
    numbers = iter(range(6))
    times = in_turn(2, {"pair": lambda: [next(numbers), next(numbers)]})
    assert times["pair"].tolist() == [[2, 4], [3, 5]]


def test_epoch_seconds_leave_out_the_start() -> None:
    X, Y, _ = dt.datasets.make_multitask(n=30, d=4, m=3, rank=2, random_state=0)
    result = dt.solve(dt.LeastSquares(), X, Y, radius=1.0, solver="dfw", max_iter=6, verbose=False)
    seconds = result.history.column("seconds")
    assert epoch_seconds(result, skip=2).tolist() == (seconds[3:] - seconds[2:-1]).tolist()


# With Spark


def test_rounds_are_compared_with_two_kinds_of_job(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--scale", "toy", "--repeat", "1", "--only", "spark_rounds"]
    assert command.main([*arguments, "--results", str(tmp_path)]) == 0
    assert "≤ 0.01" in capsys.readouterr().out
    (path,) = tmp_path.iterdir()
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [record["case"] for record in records] == [
        "job: map-reduce engine",
        "job: map and collect",
    ]
    for record in records:
        assert record["sizes"] == {"numbers": 10, "workers": 2}
        assert record["ratio"] == record["seconds"]["resident"] / record["seconds"]["job"]
        assert {"pyspark", "pyarrow"} <= set(record["versions"])
    assert spark.range(3).count() == 3  # a session that was there before is not stopped


def test_epochs_on_spark_are_compared_with_local_ones(spark: SparkSession) -> None:
    resident, jobs = command.SUITE["spark_epoch"].run("toy", 1)
    for row in (resident, jobs):
        check(row, "spark_epoch")
        assert set(row.seconds) == {"epoch", "against", "compute", "wait", "reduce"}
    assert resident.target == 1.3
    assert jobs.target is None


def test_late_epochs_of_a_long_run_are_compared_with_early_ones(spark: SparkSession) -> None:
    (row,) = command.SUITE["spark_long"].run("toy", 1)
    check(row, "spark_long")
    assert row.ratio == row.seconds["late"] / row.seconds["early"]


def test_loading_is_compared_with_reading(spark: SparkSession) -> None:
    (row,) = spark_loading.run("toy", 1)
    check(row, "spark_loading")
    seconds = row.seconds
    assert row.ratio == (seconds["survey"] + seconds["start"]) / seconds["pyarrow"]


def test_parquet_is_read_as_it_was_written(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    X = np.arange(30.0, dtype=np.float32).reshape(10, 3)
    y = np.arange(10)
    spark_loading.write(tmp_path, X, y)
    assert len(list(tmp_path.iterdir())) == 4
    X_read, y_read = spark_loading.read(tmp_path)
    assert X_read.dtype == np.float32
    assert np.array_equal(X_read, X)
    assert np.array_equal(y_read, y)


def test_scaling_is_predicted_and_checked(spark: SparkSession) -> None:
    checks = command.SUITE["scaling_check"].run("toy", 1)
    assert [row.case for row in checks] == ["N=1", "N=2"]
    for row in checks:
        check(row, "scaling_check")
        assert row.ratio == row.seconds["predicted"] / row.seconds["measured"]
        assert 0.5 < row.detail["numbers / bytes on wire"] < 1.0  # vectors of 30 and 40 numbers
    forecasts = scaling.run("toy", 1)
    assert [row.case for row in forecasts] == [f"N={2**k}" for k in range(13)]
    for row in forecasts:
        check(row, "scaling")
        assert row.seconds["star, 1 Gb/s"] > row.seconds["star, 10 Gb/s"] > row.seconds["compute"]
        assert row.seconds["tree, 1 Gb/s"] > row.seconds["tree, 10 Gb/s"] > row.seconds["compute"]
    assert forecasts[-1].seconds["tree, 1 Gb/s"] < forecasts[-1].seconds["star, 1 Gb/s"]
    lines = scaling.markdown([asdict(row) for row in forecasts]).splitlines()
    assert len(lines) == 2 + len(forecasts)
    assert lines[-1].startswith("| 4096 |")
    assert len({line.count("|") for line in lines}) == 1
