"""The tables of speed on the pages: what the rows say, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks import page
from benchmarks.__main__ import SUITE
from benchmarks.harness import Row
from benchmarks.report import record


def kept(case: str, ratio: float, date: str, **options: Any) -> dict[str, Any]:
    sizes = options.pop("sizes", {"n": 3})
    row = Row(options.pop("benchmark", "memory"), case, sizes, ratio, options.pop("target", 0.1))
    return record(row, judged=True, date=date, commit="abc")


@pytest.mark.parametrize(("name", "kind"), [place for *place, _ in page.TABLES])
def test_a_page_has_the_table_that_its_command_writes(name: str, kind: str) -> None:
    text = (page.ROOT / name).read_text(encoding="utf-8")
    assert text == page.with_table(text, name, kind, page.read())
    assert f"<!-- {kind}: begin -->\n\n| " in text


def test_lines_are_of_benchmarks_that_there_are() -> None:
    assert {line.benchmark for line in page.LINES} <= set(SUITE)
    assert sum(line.front for line in page.LINES) <= 10
    assert len({line.text for line in page.LINES}) == len(page.LINES)


def test_the_last_run_counts() -> None:
    rows = [
        kept("a", 0.5, "2026-01-02"),
        kept("a", 0.01, "2026-01-03"),
        kept("b", 0.2, "2026-01-03"),
    ]
    (line,) = page.markdown(rows, front=False).splitlines()[2:]
    assert line.endswith(" | 0.01, 0.2 | ≤ 0.1, missed | 2026-01-03 abc |")
    (line,) = page.markdown(rows[:2], front=True).splitlines()[2:]
    assert line.endswith(" | 0.01 |")


def test_only_rows_of_those_sizes_count() -> None:
    rows = [
        kept("job", 0.3, "2026-01-02", benchmark="spark_rounds", sizes={"numbers": size})
        for size in (1000, 100_000)
    ]
    (line,) = page.markdown(rows, front=True).splitlines()[2:]
    assert line.endswith(" | 0.3 |")
    assert page.markdown(rows[1:], front=True).splitlines()[2:] == []


def test_many_rows_are_a_median_and_the_worst() -> None:
    rows = [kept(str(k), k / 10, "2026-01-02", benchmark="corpus", target=1.3) for k in range(1, 6)]
    (line,) = page.markdown(rows, front=False).splitlines()[2:]
    assert " | 0.3, 0.5 | ≤ 1.3 | " in line


def test_all_files_are_read_by_date(tmp_path: Path) -> None:
    for name, date in (("a", "2026-02-02"), ("b", "2026-01-01")):
        line = json.dumps(kept(name, 0.1, date))
        (tmp_path / f"{name}.jsonl").write_text(line + "\n", encoding="utf-8")
    assert [row["case"] for row in page.read(tmp_path)] == ["b", "a"]
