"""Rows of different sizes, data or machines are not compared with each other."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import permutations
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
TOY = replace(SMALL, scale="toy")
PAPER = replace(SMALL, scale="paper")


def rows_of(name: str, setting: Setting, **changed: Any) -> list[Row]:
    """All rows of an experiment, but for what they measured."""
    return [
        {"experiment": name, "settings": {**run.settings, **changed}, "values": {}}
        for run in EXPERIMENTS[name].runs(setting)
    ]


def refused(rows: Sequence[Row], setting: Setting, measured: Collection[str] = EXPERIMENTS) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the sentence is what is tested
        refuse_mixture(ALL, setting, rows, measured)
    return str(caught.value)


@pytest.mark.parametrize("measured", [list(EXPERIMENTS), []])
@pytest.mark.parametrize("setting", [SMALL, PAPER])
@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_own_rows_are_at_home(name: str, setting: Setting, measured: list[str]) -> None:
    refuse_mixture(ALL, setting, rows_of(name, setting), measured)
    refuse_mixture(ALL, setting, rows_of(name, setting)[:2], measured)


@pytest.mark.parametrize("measured", [list(EXPERIMENTS), []])
@pytest.mark.parametrize("scales", list(permutations((TOY, SMALL, PAPER), 2)))
@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_rows_of_another_scale_are_refused(
    name: str, scales: tuple[Setting, Setting], measured: list[str]
) -> None:
    one, other = scales
    for row in rows_of(name, one)[:1]:  # also the first of a run that was interrupted
        assert f"rows of {name} with " in refused([row], other, measured)


def test_what_differs_is_said() -> None:
    said = refused(rows_of("figure 1", SMALL), PAPER)
    assert said == "rows of figure 1 with n 20000, not 100000"
    said = refused(rows_of("figure 2", SMALL, engine="spark"), SMALL)
    assert said == "rows of figure 2 with engine spark, not local"


def test_other_real_data_are_refused_only_where_new_rows_would_stand_beside_them(
    tmp_path: Path,
) -> None:
    rows = rows_of("figure 3", SMALL)
    namesake = tmp_path / "clinc150"  # the name alone does not tell data apart
    namesake.mkdir()
    (namesake / "train.npz").write_bytes(b"other rows")
    elsewhere = replace(SMALL, intents=namesake)
    said = refused(rows, elsewhere)
    assert re.search("with source clinc150 [0-9a-f]{12}, shuffled, not clinc150 [0-9a-f]{12}", said)
    refuse_mixture(ALL, elsewhere, rows, ["figure 1"])
    refuse_mixture(ALL, elsewhere, rows)
    refuse_mixture(ALL, replace(SMALL, intents=None), rows, EXPERIMENTS)  # none will be added
    other_scale = replace(PAPER, intents=None)
    assert "with scale small, not paper" in refused(rows, other_scale, [])


def test_rows_of_another_machine_may_be_drawn() -> None:
    rows = [
        {**row, "settings": {**row["settings"], "shards": 64}} for row in rows_of("figure 4", SMALL)
    ]
    refuse_mixture(ALL, SMALL, rows)
    assert "with shards 64, not " in refused(rows, SMALL)


def test_two_rows_for_one_place_are_refused() -> None:
    rows = rows_of("table 1", SMALL)
    assert refused([*rows, rows[0]], SMALL) == "two rows of table 1 for Naive"
