"""The ablation of the accelerated solver: its settings, its runs and its table."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import ablation
from benchmarks.corpus.problems import NAMES

from dfwtrace.solvers import accelerated


def test_every_constant_of_the_solver_has_a_row() -> None:
    found = {
        f"{file}.{name}"
        for file, module in ablation.MODULES.items()
        for name in ablation.constants_of(module)
    }
    assert found == set(ablation.CONSTANTS)
    labels = [setting.label for setting in ablation.settings()]
    assert len(labels) == len(set(labels))
    for name in found:
        assert sum(label.startswith(f"`{name}` =") for label in labels) >= 2


def test_every_setting_changes_what_is_there() -> None:
    for setting in ablation.settings():
        for target, name, _ in setting.patches:
            assert hasattr(target, name), setting.label


def test_the_page_names_no_constant_that_is_gone() -> None:
    page = ablation.PAGE.read_text(encoding="utf-8")
    table = page.partition(ablation.BEGIN)[2].partition(ablation.END)[0]
    named = {line.split("`")[1] for line in table.splitlines() if line.startswith("| `")}
    assert named <= set(ablation.CONSTANTS)


def test_a_table_is_measured_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, file = tmp_path / "page.md", tmp_path / "rows.jsonl"
    page.write_text(f"above\n{ablation.BEGIN}old\n{ablation.END}below\n", encoding="utf-8")
    names = ("squares, intercept, n ≪ d", "wine")
    known = accelerated._PATIENCE
    options = [str(file), "--only", r"_PATIENCE.*off|_TRIM.*off|no metric", "--write", str(page)]
    assert ablation.main([*options, "--problems", *names]) == 0
    assert known == accelerated._PATIENCE
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"above\n{ablation.BEGIN}\n| | set to |")
    assert text.endswith(f"\n{ablation.END}below\n")
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert [line.split(" | ")[0] for line in lines[2:]] == [
        "| today",
        "| no metric",
        "| `accelerated._TRIM`",
        "| `accelerated._PATIENCE`",
    ]
    assert len({line.count("|") for line in lines}) == 1
    assert capsys.readouterr().out.startswith("today ")
    records = ablation.read(file)
    assert set(records["today"].passes) == set(names)
    # A run without the metric takes more of them, so it was another one.
    assert records["no metric"].passes != records["today"].passes
    # Nothing but the table again, from what is kept.
    assert ablation.main([str(file), "--only", "nothing"]) == 0
    assert ablation.read(file) == records


def test_a_gap_that_was_missed_counts(tmp_path: Path) -> None:
    today = ablation.Record("today", {"a": 10.0, "b": 10.0}, {"a": 1.0, "b": 1.0}, ())
    other = ablation.Record("no frame", {"a": 10.0, "b": 40.0}, {"a": 1.0, "b": 4.0}, ("b",))
    lines = ablation.markdown({"today": today, "no frame": other}).splitlines()
    assert lines[2:] == ["| today | | 1 | 1 | | 0 |", "| no frame |  | 2.00 | 2.00 | 4: b | 1 |"]


def test_the_problems_are_of_the_corpus_and_many() -> None:
    names = ablation.subset()
    assert set(names) < set(NAMES)
    assert len(names) >= 40
