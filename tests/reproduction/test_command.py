"""The command: what it measures, keeps and draws."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from reproduction.__main__ import DOCS, EXPERIMENTS, RESULTS, main, measure, with_claims
from reproduction.methods import COMPARED, SHOWN, Options
from reproduction.page import claims_table, parts

from reproduction import figure1, figure3, figure4, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything at toy size, as if there were no Spark."""
    out = tmp_path_factory.mktemp("toy")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pyspark", None)
        assert measure(list(EXPERIMENTS.values()), Options("toy"), out) == []
    return out


def test_every_run_leaves_a_row_that_says_where_it_was_made(folder: Path) -> None:
    found = rows.read(folder)
    wanted = [run for module in EXPERIMENTS.values() for run in module.runs(Options("toy"))]
    made = [row["settings"] for row in found]
    missing = [run for run in wanted if run not in made]
    assert {run["engine"] for run in missing} == {"Spark", "simulation"}
    for row in found:
        assert 0.0 <= row["other_work"] <= 1.0
        assert {"python", "dfwtrace", "numpy"} <= set(row["versions"])
        assert row["cores"] >= 1


def test_a_known_row_is_not_measured_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (folder / "rows.jsonl").read_bytes()
    assert measure([figure1], Options("toy"), folder) == []
    assert (folder / "rows.jsonl").read_bytes() == before
    progress = [line for line in capsys.readouterr().out.splitlines() if line.startswith("[")]
    assert len(progress) == 2 * len(COMPARED) + 4
    assert all(line.endswith("(known)") for line in progress)


def test_the_command_draws_what_was_measured(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for row in rows.read(folder):
        if row["experiment"] in ("figure 3", "figure 4", "table 1"):
            rows.add(tmp_path, row)
    arguments = ["--scale", "toy", "--only", "table 1", "--out", str(tmp_path)]
    assert main(arguments) == 0
    for name, methods in (("figure-3", SHOWN), ("figure-3-accelerated", COMPARED)):
        texts = [e.text for e in ET.parse(tmp_path / f"{name}.svg").iter() if e.text]
        assert set(methods) <= set(texts)
    page = (tmp_path / "report.html").read_text("utf-8")
    assert 'src="figure-3-accelerated.svg"' in page
    assert "There are no rows of Spark, which the simulation needs." in page
    printed = capsys.readouterr().out
    assert (
        "holds (paper): Numbers and rounds of every epoch are the formula's for 8 of 8" in printed
    )


def test_signs_make_a_difference(folder: Path) -> None:
    """With few rows for each of many workers, the paper's signs let pairs cancel."""
    own = [row for row in rows.read(folder) if row["experiment"] == "figure 1"]
    methods = figure1.group(own)["d = m = 16"]
    papers, ours = (
        methods[name]["values"]["objective"][-1]
        for name in ("SVA (many workers)", "SVA (agreement, many workers)")
    )
    assert papers > 1.05 * ours


def experiment(
    name: str, run: Callable[[rows.Settings], Mapping[str, Any]], count: int = 3
) -> ModuleType:
    """An experiment of `count` runs."""
    module = ModuleType(name)
    module.NAME, module.KEYS = name, ("place",)  # type: ignore[attr-defined]
    module.runs = lambda options: [{"place": place} for place in range(count)]  # type: ignore[attr-defined]
    module.measure = lambda options, settings: run(settings)  # type: ignore[attr-defined]
    return module


def test_an_interrupt_loses_no_row_and_the_same_command_goes_on(tmp_path: Path) -> None:
    measured = []

    def run(settings: rows.Settings) -> dict[str, Any]:
        measured.append(settings["place"])
        if len(measured) == 2:
            raise KeyboardInterrupt
        return {"value": 1.0}

    for _ in range(2):
        try:
            measure([experiment("a", run)], Options("toy"), tmp_path)
        except KeyboardInterrupt:
            assert [row["settings"]["place"] for row in rows.read(tmp_path)] == [0]
    assert measured == [0, 1, 1, 2]
    assert [row["settings"]["place"] for row in rows.read(tmp_path)] == [0, 1, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


def test_an_experiment_that_fails_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(settings: rows.Settings) -> dict[str, Any]:
        if settings["place"] == 1:
            raise MemoryError("too large")
        return {}

    experiments = [experiment("a", fail), experiment("b", lambda settings: {})]
    assert measure(experiments, Options("toy"), tmp_path) == ["a"]
    kept = [(row["experiment"], row["settings"]["place"]) for row in rows.read(tmp_path)]
    assert kept == [("a", 0), ("b", 0), ("b", 1), ("b", 2)]
    assert "a cannot be measured: MemoryError: too large" in capsys.readouterr().err


def test_what_is_not_finite_is_no_row_and_spoils_none(tmp_path: Path) -> None:
    values = iter([1.0, np.nan])
    with pytest.raises(ValueError, match="JSON"):
        measure([experiment("a", lambda s: {"v": next(values)})], Options("toy"), tmp_path)
    assert [row["values"] for row in rows.read(tmp_path)] == [{"v": 1.0}]


@pytest.mark.parametrize(
    ("line", "arguments", "words"),
    [
        ("{", [], "line 1 is no row"),
        ('{"experiment": "figure 1"}', [], "line 1 is no row"),
        ("", ["--draw-only"], "no rows to draw"),
    ],
)
def test_bad_folders_are_refused(
    line: str, arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.jsonl").write_text(line)
    assert main([*arguments, "--scale", "toy", "--out", str(tmp_path)]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_rows_of_another_scale_are_refused(name: str) -> None:
    module = EXPERIMENTS[name]
    small, paper = (module.runs(Options(scale)) for scale in ("small", "paper"))
    kept = [{"experiment": name, "settings": settings} for settings in small]
    rows.refuse_mixture(kept, name, module.KEYS, small)
    with pytest.raises(ValueError, match="name another folder"):
        rows.refuse_mixture(kept, name, module.KEYS, paper)


def test_features_of_imagenet_are_measured_where_they_are(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    source = tmp_path / "features"
    source.mkdir()
    for part, n in (("train", 80), ("val", 20)):
        np.save(source / f"X_{part}.npy", rng.standard_normal((n, 5)).astype(np.float32))
        np.save(source / f"y_{part}.npy", 7 + np.arange(n) % 6)
    options = Options("toy", intents=None, imagenet=source)
    out = tmp_path / "out"
    assert measure([figure3], options, out) == []
    found = figure3.group(rows.read(out))
    assert list(found) == ["ImageNet (ResNet50 features), μ = 30", "stand-in: synthetic, μ = 30"]
    assert found["ImageNet (ResNet50 features), μ = 30"]["Naive"]["values"]["m"] == 6
    np.save(source / "y_val.npy", np.full(20, 99))
    # Other data beside rows that are kept.
    arguments = ["--scale", "toy", "--only", "figure 3", "--out", str(out)]
    assert main([*arguments, "--imagenet", str(source)]) == 2


@pytest.mark.parametrize("scale", ["small", "paper"])
def test_what_is_kept_is_what_its_rows_give(scale: str) -> None:
    found = parts(list(EXPERIMENTS.values()), rows.read(RESULTS / scale))
    assert (RESULTS / scale / "claims.md").read_text("utf-8") == claims_table(found)
    page = (RESULTS / scale / "report.html").read_text("utf-8")
    figures = {f"{p.anchor}{ending}.svg": p for p in found for ending in p.shown.figures}
    kept = {path.name for path in (RESULTS / scale).iterdir()}
    assert kept == {"rows.jsonl", "claims.md", "report.html", *figures}
    for name, part in figures.items():
        assert f'src="{name}"' in page
        texts = {e.text for e in ET.parse(RESULTS / scale / name).iter()}
        ending = name.removeprefix(part.anchor).removesuffix(".svg")
        for panel in part.shown.figures[ending]:
            assert {panel.title, *(series.label for series in panel.series)} <= texts


def test_the_documentation_has_the_verdicts_of_the_kept_rows() -> None:
    page = DOCS.read_text("utf-8")
    assert page.count("| holds |") > 10
    assert with_claims(page) == page


def test_speed_up_is_measured_on_spark_and_simulated(spark: SparkSession, tmp_path: Path) -> None:
    assert measure([figure4], Options("toy"), tmp_path) == []
    found = rows.read(tmp_path)
    assert {row["settings"]["engine"] for row in found} == {"in process", "Spark", "simulation"}
    (simulated,) = (r["values"] for r in found if r["settings"]["engine"] == "simulation")
    assert len(simulated["seconds_an_epoch"]) == len(simulated["cores"])
    assert json.dumps(simulated["predicted_over_measured"])
    ends = {
        row["values"]["objective"][-1] for row in found if row["settings"]["engine"] != "simulation"
    }
    assert len(ends) == 1  # the same bits on every engine, for every number of cores
