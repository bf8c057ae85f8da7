"""The record of a run, as rows, as columns and as a table."""

from __future__ import annotations

import numpy as np
import pytest

import dfwtrace as dt


@pytest.fixture
def history() -> dt.History:
    records = dt.History()
    records.append({"epoch": 1, "objective": 4.0})
    records.append({"epoch": 2, "objective": 2.0, "test_error": 0.5})
    records.append({"epoch": 3, "objective": 1.0})
    return records


def test_it_is_a_sequence_of_records(history: dt.History) -> None:
    assert len(history) == 3
    assert history[0] == {"epoch": 1, "objective": 4.0}
    assert history[-1]["epoch"] == 3
    assert [record["epoch"] for record in history[1:]] == [2, 3]
    assert [record["epoch"] for record in history] == [1, 2, 3]
    assert [record["epoch"] for record in reversed(history)] == [3, 2, 1]
    with pytest.raises(IndexError):
        history[3]


def test_columns_are_arrays_with_nan_for_what_is_missing(history: dt.History) -> None:
    assert history.columns == ["epoch", "objective", "test_error"]
    np.testing.assert_array_equal(history.column("objective"), [4.0, 2.0, 1.0])
    np.testing.assert_array_equal(history.column("test_error"), [np.nan, 0.5, np.nan])
    assert history.column("epoch").dtype.kind == "i"
    with pytest.raises(KeyError, match="no column 'loss'"):
        history.column("loss")


def test_an_empty_history_has_empty_columns() -> None:
    records = dt.History()
    assert len(records) == 0
    assert not records
    assert records.columns == []
    assert records.column("objective").shape == (0,)
    assert repr(records) == "History(0 epochs: )"


def test_it_becomes_a_data_frame(history: dt.History) -> None:
    frame = history.to_pandas()
    assert list(frame.columns) == history.columns
    for name in history.columns:
        np.testing.assert_array_equal(frame[name], history.column(name))
