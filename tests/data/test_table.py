"""The choice of columns, and what targets ask for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dfwtrace.data.table import Choice, DataFileError, choose, is_classification, whole_as_integers

COLUMNS = ["x10", "id", "x2", "emb_a", "emb_b", "w", "label", "a,b", "x[0]"]


def chosen(**options: Any) -> Choice:
    return choose(COLUMNS, file="train.csv", **options)


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ("x*", ["x10", "x2", "x[0]"]),
        ("x?", ["x2"]),
        ("emb_?,x2", ["x2", "emb_a", "emb_b"]),  # in the order of the file
        (["emb_b", "x10"], ["x10", "emb_b"]),
        (["x2 , id"], ["id", "x2"]),
        ("a,b", ["a,b"]),
        ("x[0]", ["x[0]"]),
        ("x[12]*", ["x10", "x2"]),
        ("*", ["x10", "id", "x2", "emb_a", "emb_b", "w", "a,b", "x[0]"]),
    ],
)
def test_names_patterns_and_lists(features: Any, expected: list[str]) -> None:
    assert chosen(target="label", features=features) == Choice(expected, ["label"], None)


def test_everything_but_target_and_weight_by_default() -> None:
    left = ["x10", "id", "x2", "emb_a", "emb_b", "a,b", "x[0]"]
    assert chosen(target="label", weight="w") == Choice(left, ["label"], "w")
    assert choose(["a", "__index_level_0__"], file="t") == Choice(["a"], [], None)
    assert chosen(target=["emb*"], features="x2").targets == ["emb_a", "emb_b"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"features": "z*"}, "no column of train.csv matches the pattern 'z*'"),
        ({"target": "lable"}, "train.csv has no column 'lable'; did you mean 'label'?"),
        ({"target": "LABEL"}, "no column 'LABEL'; did you mean 'label'?"),
        ({"target": "qqq"}, "it has 'x10', 'id', 'x2', 'emb_a', 'emb_b', ..."),
        ({"weight": "ww"}, "no column 'ww'; did you mean 'w'?"),
        (
            {"target": "label", "features": "x2,label"},
            "'label' of train.csv is the target and cannot be a feature too.",
        ),
        ({"target": "label", "features": "labe?"}, "matches the pattern 'labe?'"),
        ({"target": "w", "weight": "w"}, "'w' of train.csv cannot be both target and weight"),
        ({"features": ""}, "no columns of train.csv were named"),
        ({"target": "*"}, "train.csv has no columns left"),
    ],
)
def test_bad_choices(options: dict[str, Any], words: str) -> None:
    with pytest.raises(DataFileError) as error:
        chosen(**options)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        (["a", "b", "c"], True),  # text, however many
        ([True, False], True),
        ([0, 1, 0, 1], True),
        ([0, 1, 2], False),  # each occurs but once
        ([1.0, 2.0, 1.0, 2.0], True),  # whole
        ([1.0, 2.5, 1.0, 2.5], False),
        (np.arange(100) % 20, True),
        (np.arange(100) % 25, True),
        (np.arange(100) % 26, False),
        (np.arange(60) % 20, True),
        (np.arange(60) % 21, False),
        (np.arange(10_000) % 1000, True),
        ([[1, 2], [1, 2]], False),
        (np.array([3, 4, 3, 4], dtype=np.uint8), True),
    ],
)
def test_the_rule_of_classification(y: Any, expected: bool) -> None:
    assert is_classification(np.array(y)) is expected


def test_only_whole_floats_become_integers() -> None:
    for y in (np.array([1.0, 2.5]), np.array([1e300]), np.array([np.nan]), np.array(["a"])):
        assert whole_as_integers(y) is y
    assert whole_as_integers(np.array([-1.0, 2.0])).tolist() == [-1, 2]
