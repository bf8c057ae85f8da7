"""The record of a run, as rows, as columns and as a table; results in files."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dfwtrace as dt
from dfwtrace.files.container import read_container, write_container


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


# Files


@pytest.fixture(scope="module")
def result() -> dt.Result:
    X, y, _ = dt.datasets.make_multiclass(n=60, d=6, m=4, rank=2, random_state=0)
    return dt.solve(
        dt.Multinomial(),
        X,
        y,
        radius=5.0,
        fit_intercept=True,
        certify_every=2,
        callback=lambda W, record: {"norm": np.float64(W.trace_norm)},
    )


def assert_same(one: dt.Result, other: dt.Result) -> None:
    for factor in ("U", "s", "V"):
        assert getattr(one.W, factor).tobytes() == getattr(other.W, factor).tobytes()
    assert (one.intercept is None) == (other.intercept is None)
    if one.intercept is not None and other.intercept is not None:
        assert one.intercept.tobytes() == other.intercept.tobytes()
    for name in ("status", "objective_at_zero", "certificate", "plan", "setup_seconds", "message"):
        assert getattr(one, name) == getattr(other, name), name
    for name in ("objective", "gap"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for name in ("history", "rounds"):
        records, others = getattr(one, name), getattr(other, name)
        assert type(others) is dt.History
        assert records.columns == others.columns
        for column in records.columns:
            np.testing.assert_array_equal(records.column(column), others.column(column))


def test_a_result_comes_back_from_its_file(result: dt.Result, tmp_path: Path) -> None:
    file = tmp_path / "result.safetensors"
    result.save(file)
    again = dt.Result.load(str(file))
    assert_same(result, again)
    assert len(again.rounds) > len(again.history) > 0
    assert "norm" in again.history.columns
    assert again.plan.costs
    again.save(file)  # in place of the first
    assert_same(result, dt.Result.load(file))


def test_so_does_one_of_an_interrupted_run_without_an_intercept(tmp_path: Path) -> None:
    def interrupt(W: dt.LowRankMatrix, record: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    X, Y, _ = dt.datasets.make_multitask(n=30, d=5, m=4, rank=2, random_state=0)
    result = dt.solve(dt.LeastSquares(), X, Y, radius=1.0, solver="dfw", callback=interrupt)
    assert (result.certificate, result.intercept, math.isnan(result.gap)) == (None, None, True)
    result.save(tmp_path / "result")
    assert_same(result, dt.Result.load(tmp_path / "result"))


def test_of_a_callbacks_values_numbers_and_strings_are_kept(tmp_path: Path) -> None:
    X, Y, _ = dt.datasets.make_multitask(n=30, d=5, m=4, rank=2, random_state=0)
    more = {"array": np.ones(3), "number": np.float32(1.5), "word": "a", "object": object()}
    solved = dt.solve(dt.LeastSquares(), X, Y, radius=1.0, callback=lambda W, record: more)
    solved.save(tmp_path / "result")
    record = dt.Result.load(tmp_path / "result").history[0]
    assert (record["number"], record["word"]) == (1.5, "a")
    assert not {"array", "object"} & record.keys()


def test_a_file_of_a_result_says_who_reads_it(result: dt.Result, tmp_path: Path) -> None:
    file = tmp_path / "result"
    result.save(file)
    words = "holds a result, not a {}: dfwtrace.Result.load reads it."
    with pytest.raises(dt.ModelFormatError, match=words.format("model")):
        dt.load(file)
    X = np.eye(3)
    with pytest.raises(dt.CheckpointError, match=words.format("checkpoint")):
        dt.solve(dt.LeastSquares(), X, X, radius=1.0, checkpoint=file)
    model = tmp_path / "model"
    dt.TraceNormRegressor(1.0).fit(X, X).save(model)
    with pytest.raises(dt.ModelFormatError, match=r"a model, not a result: dfwtrace\.load "):
        dt.Result.load(model)


def test_a_damaged_file_is_refused(result: dt.Result, tmp_path: Path) -> None:
    file = tmp_path / "result"
    result.save(file)
    content = file.read_bytes()
    for damaged in (content[:-8], content[:-1] + bytes([content[-1] ^ 1]), b"", content[:100]):
        file.write_bytes(damaged)
        with pytest.raises(dt.ModelFormatError, match=r"^[^\n]*\.$"):
            dt.Result.load(file)
    with pytest.raises(FileNotFoundError):
        dt.Result.load(tmp_path / "nothing")


WRONG: dict[str, dict[str, Any]] = {
    "status": {"status": "fine"},
    "gap": {"gap": "small"},
    "objective": {"objective": None},
    "history": {"history": [3]},
    "plan": {"plan": {}},
    "workload": {"plan": {"representation": "gram", "reason": "", "workload": {"rows": 3}}},
    "rounds": {"rounds": 3},
    "certificate": {"certificate": {"gap": 1.0}},
}


@pytest.mark.parametrize("what", [*WRONG, "U", "intercept", "nan"])
def test_content_that_is_no_result_is_refused(what: str, result: dt.Result, tmp_path: Path) -> None:
    file = tmp_path / "result"
    result.save(file)
    header, arrays = read_container(file, "result")
    header |= WRONG.get(what, {})
    if what == "nan":
        arrays["s"][0] = np.nan
    elif what in arrays:
        arrays[what] = arrays[what][:-1] if what == "intercept" else arrays[what][:, :-1]
    write_container(file, "result", header, arrays)
    with pytest.raises(dt.ModelFormatError, match=r"/result is not a whole result: [^\n]*\.$"):
        dt.Result.load(file)


def test_the_former_word_for_the_end_of_all_epochs_is_understood(tmp_path: Path) -> None:
    X, Y, _ = dt.datasets.make_multitask(n=30, d=5, m=4, rank=2, noise=0.5, random_state=0)
    model, file = dt.TraceNormRegressor(1.0, max_iter=1, tol=None).fit(X, Y), tmp_path / "model"
    assert model.status_ == "max_iter"
    model.save(file)
    header, arrays = read_container(file, "model")
    write_container(file, "model", header | {"status": "max_epochs"}, arrays)
    assert dt.load(file).status_ == "max_iter"
