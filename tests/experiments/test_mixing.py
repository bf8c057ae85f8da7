"""Rows of different sizes, data or machines are not compared with each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dfwtrace as dt
from dfwtrace.experiments.exhibits import Setting
from dfwtrace.experiments.features import find_intents
from dfwtrace.experiments.mixing import refuse_mixture
from dfwtrace.experiments.reproduction import EXPERIMENTS
from dfwtrace.experiments.runs import Row

ALL = list(EXPERIMENTS.values())
SMALL = Setting("small", "local", dt.LocalEngine, find_intents(), spark=True)
PAPER = replace(SMALL, scale="paper")


def rows_of(name: str, setting: Setting, **changed: Any) -> list[Row]:
    """All rows of an experiment, but for what they measured."""
    return [
        {"experiment": name, "settings": {**run.settings, **changed}, "values": {}}
        for run in EXPERIMENTS[name].runs(setting)
    ]


def refused(rows: Sequence[Row], setting: Setting, drawn_only: bool = False) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the sentence is what is tested
        refuse_mixture(ALL, setting, rows, drawn_only)
    return str(caught.value)


@pytest.mark.parametrize("drawn_only", [False, True])
@pytest.mark.parametrize("setting", [SMALL, PAPER])
@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_own_rows_are_at_home(name: str, setting: Setting, drawn_only: bool) -> None:
    refuse_mixture(ALL, setting, rows_of(name, setting), drawn_only)
    refuse_mixture(ALL, setting, rows_of(name, setting)[:2], drawn_only)


@pytest.mark.parametrize("drawn_only", [False, True])
@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_rows_of_another_scale_are_refused(name: str, drawn_only: bool) -> None:
    assert f"rows of {name} with " in refused(rows_of(name, SMALL), PAPER, drawn_only)


def test_what_differs_is_said() -> None:
    said = refused(rows_of("figure 1", SMALL), PAPER)
    assert said == "rows of figure 1 with epochs 60, not 100"
    said = refused(rows_of("figure 2", SMALL, engine="spark"), SMALL)
    assert said == "rows of figure 2 with engine spark, not local"


def test_other_real_data_are_refused_as_new_rows_would_stand_beside_them() -> None:
    rows = rows_of("figure 3", SMALL)
    elsewhere = replace(SMALL, intents=Path("all.npz"))
    assert "with source clinc150, not all.npz" in refused(rows, elsewhere)
    refuse_mixture(ALL, elsewhere, rows, drawn_only=True)


def test_rows_of_another_machine_may_be_drawn() -> None:
    rows = [
        {**row, "settings": {**row["settings"], "shards": 64}} for row in rows_of("figure 4", SMALL)
    ]
    refuse_mixture(ALL, SMALL, rows, drawn_only=True)
    assert "with shards 64, not " in refused(rows, SMALL)


def test_two_rows_for_one_place_are_refused() -> None:
    rows = rows_of("table 1", SMALL)
    assert refused([*rows, rows[0]], SMALL) == "two rows of table 1 for Naive"
