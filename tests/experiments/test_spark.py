"""The experiments on Spark: the same rows, and what only Spark can measure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli.commands import child, done
from tests.cli.test_spark import AT_HOME

import dfwtrace as dt
from dfwtrace.experiments import figure1, figure4
from dfwtrace.experiments.exhibits import Setting
from dfwtrace.experiments.store import Rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_speed_up_is_measured_and_simulated(spark: SparkSession, tmp_path: Path) -> None:
    setting = Setting("toy", "local", dt.LocalEngine, spark=spark)
    rows = Rows(tmp_path)
    own = [rows.of(run) for run in figure4.runs(setting)]
    assert {row["settings"]["engine"] for row in own} == {"in process", "Spark", "simulation"}
    shown = figure4.exhibit(own)
    names = ["in process, 400×12×12", "Spark, 400×12×12", "simulation, 4,000×12×10"]
    assert list(shown.panels[0].lines) == names  # two problems, told apart
    assert shown.panels[0].dashed == (names[-1], "perfect")
    assert 96 in shown.panels[0].lines[names[-1]][0]
    (simulated,) = (row for row in own if row["settings"]["engine"] == "simulation")
    checks = simulated["values"]["predicted_over_measured"]
    assert list(checks) == ["1"]  # at the toy's size, one worker only
    assert all(0.0 < share < 100.0 for share in checks.values())
    assert f"over what was measured: {checks['1']:.2f} with one worker." in shown.notes[0]
    claims = figure4.claims(own)
    assert all(claim.holds is not None for claim in claims)
    assert claims[-1].text == "Epochs scale to 96 cores (simulated, each with its own memory)."


def test_a_method_gives_the_same_objectives_on_spark(spark: SparkSession) -> None:
    def on_spark(shards: int) -> dt.SparkEngine:
        return dt.SparkEngine(spark, shards)

    def objectives(setting: Setting) -> list[float]:
        (run,) = (
            run
            for run in figure1.runs(setting)
            if (run.settings["method"], run.settings["d"]) == ("SVA", 10)
        )
        found: list[float] = run.measure()["objective"]
        return found

    here = objectives(Setting("toy", "local", dt.LocalEngine))
    assert objectives(Setting("toy", "spark", on_spark)) == here


@pytest.mark.spark
def test_the_command_runs_on_spark(tmp_path: Path) -> None:
    words = ("reproduce", "--scale", "toy", "--only", "table 1", "--engine", "spark")
    ended = child(*words, "--master", "local[2]", "--out", "there", cwd=tmp_path, more=AT_HOME)
    assert "Traceback" not in ended.stderr
    there = list(Rows(tmp_path / "there"))
    done("reproduce", "--scale", "toy", "--only", "table 1", "--out", tmp_path / "here", "--quiet")
    here = list(Rows(tmp_path / "here"))
    assert {row["settings"]["engine"] for row in there} == {"spark"}
    for name in ("objective", "rounds", "numbers_sent"):
        assert [row["values"][name] for row in there] == [row["values"][name] for row in here]
    assert (tmp_path / "there" / "report.html").exists()
