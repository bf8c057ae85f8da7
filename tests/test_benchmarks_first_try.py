"""Defaults against defaults: the data, the rows and the page about them."""

from __future__ import annotations

import re
import runpy
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from benchmarks import first_try
from benchmarks.first_try_data import CLASSIFICATION, REGRESSION, clinc150, cut, data_set, text
from benchmarks.harness import Row

ROOT = Path(__file__).resolve().parents[1]


def test_data_are_of_many_kinds_and_cut_alike() -> None:
    assert len(CLASSIFICATION) + len(REGRESSION) + 1 >= 16
    for name in [*CLASSIFICATION, *REGRESSION]:
        if name.startswith("text"):  # the largest; see below
            continue
        data = data_set(name)
        assert data.task == ("classification" if name in CLASSIFICATION else "regression")
        n, n_test = data.X_train.shape[0], data.X_test.shape[0]
        assert (len(data.y_train), len(data.y_test)) == (n, n_test)
        assert n_test == np.ceil(0.25 * (n + n_test))
        if data.task == "classification":
            assert set(data.y_train) == set(data.y_test)
    intents = clinc150()
    assert len(set(intents.y_train)) == 150
    assert set(intents.y_train) == set(intents.y_test)


def test_text_is_sparse_with_rows_of_unit_length() -> None:
    data = cut("text", "classification", text(n=300, m=6, words=80))
    assert sp.issparse(data.X_train)
    np.testing.assert_allclose(sp.linalg.norm(data.X_train, axis=1), 1.0)
    assert len(set(data.y_train)) == 6


def test_rows_are_judged_by_the_score_unless_there_is_a_warning() -> None:
    rows = first_try.run("toy", 1)
    names = [name for toy in ("iris", "diabetes", "noise") for name in (toy, f"{toy} CV")]
    assert [row.case for row in rows] == names
    for row in rows:
        allowed = 0.02 if row.case.startswith("iris") else 0.05
        behind = row.detail["their score"] - row.detail["score"]
        assert row.ratio == pytest.approx(behind / allowed)
        assert row.target == (None if row.messages else 1.0)
        assert set(row.seconds) == {"ours", "theirs"}
    assert rows[0].detail["their score"] > 0.9
    assert abs(rows[-1].detail["score"]) < 0.05  # nothing to learn from noise


@pytest.mark.filterwarnings("error")
def test_warnings_are_kept_by_their_first_sentence_and_not_raised() -> None:
    class Warns:
        def fit(self, *rows: object) -> Warns:
            import warnings

            for category in (RuntimeWarning, RuntimeWarning, FutureWarning):
                warnings.warn("A radius of 0.5\n is small. Try more.", category, stacklevel=2)
            return self

        def score(self, *rows: object) -> float:
            return 0.5

    fit = first_try.measure(Warns, data_set("iris"))
    assert (fit.score, fit.said) == (0.5, ("A radius of 0.5 is small",))


def row(case: str, ours: float, theirs: float, allowed: float, *messages: str) -> Row:
    detail = {"score": ours, "their score": theirs, "allowed": allowed, "they warned": 0.0}
    seconds = {"ours": 1.5, "theirs": 0.25}
    sizes = {"n": 9, "d": 3, "m": 2}
    return Row("first_try", case, sizes, (theirs - ours) / allowed, None, seconds, detail, messages)


def records(*rows: Row, date: str = "2") -> list[dict[str, Any]]:
    return [{**asdict(row), "date": date} for row in rows]


def test_the_tables_have_a_line_for_each_data_set() -> None:
    kept = records(
        row("a", 0.95, 0.9, 0.02),
        row("a CV", 0.8, 0.9, 0.02, "Too small"),
        row("b", 0.7, 0.8, 0.02),
        row("b CV", 0.9, 0.8, 0.02),
        row("c", -0.01, -0.01, 0.05),
        row("c CV", -0.05, -0.01, 0.05),
    )
    old = records(row("gone", 0.5, 0.5, 0.02), row("gone CV", 0.5, 0.5, 0.02), date="1")
    other = {**kept[0], "benchmark": "growth", "date": "3"}
    lines = first_try.markdown([*old, *kept, other]).splitlines()
    times = "1.5, 0.25"
    assert lines[2:4] == [
        f"| a, 9×3×2 | 0.950 | 0.900 | +0.050 | 0.800 | 0.900 | -0.100 | {times} | {times} "
        f"| CV | behind, warned |",
        f"| b, 9×3×2 | 0.700 | 0.800 | -0.100 | 0.900 | 0.800 | +0.100 | {times} | {times} "
        f"|  | **behind** |",
    ]
    assert lines[7] == (
        f"| c, 9×3×2 | -0.010 | -0.010 | +0.000 | -0.050 | -0.010 | -0.040 | {times} | {times} "
        f"|  | level or ahead |"
    )
    assert lines[8:] == ["", "- a CV: “Too small”"]
    assert {line.count("|") for line in lines[:8] if line} == {12}
    with pytest.raises(ValueError, match="no rows of first_try"):
        first_try.markdown([other])


def test_the_page_shows_what_its_command_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "first-try.md").read_text("utf-8")
    (name,) = re.findall(r"python -m benchmarks\.first_try (\S+\.jsonl)", page)
    monkeypatch.setattr(sys, "argv", ["first_try", str(ROOT / name)])
    runpy.run_path(str(first_try.__file__), run_name="__main__")
    assert f"\n{capsys.readouterr().out}" in page
