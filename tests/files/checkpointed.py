"""Runs that are stopped on purpose, and compared bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import dfwtrace as dt

# What depends on the clock, and on what really travelled.
MEASURED = {
    "seconds",
    "bytes_on_wire",
    "compute_seconds",
    "wait_seconds",
    "reduce_seconds",
}


class StopError(Exception):
    """Raised by a callback."""


class StopAfter:
    """A callback that ends the process's interest in a run after so many epochs."""

    def __init__(self, epoch: int, error: BaseException | None = None) -> None:
        self.epoch = epoch
        self.error = StopError() if error is None else error

    def __call__(self, W: dt.LowRankMatrix, record: dict[str, Any]) -> None:
        if record["epoch"] == self.epoch:
            raise self.error


def stopped(task: Any, X: Any, y: Any, epoch: int, **options: Any) -> None:
    """A run that an error ends after so many epochs, before their last one is written."""
    try:
        dt.solve(task, X, y, callback=StopAfter(epoch), **options)
    except StopError:
        return
    raise AssertionError(f"the run ended before epoch {epoch}")


def every_epoch(path: Path) -> dt.Checkpoint:
    return dt.Checkpoint(path, epochs=1)


def assert_same_run(result: dt.Result, expected: dt.Result) -> None:
    """The same bits wherever no clock is involved."""
    assert result.status == expected.status
    for name in ("U", "s", "V"):
        assert_same_bits(getattr(result.W, name), getattr(expected.W, name))
    for name in ("objective", "gap", "objective_at_zero"):
        assert_same_bits(getattr(result, name), getattr(expected, name))
    if expected.intercept is None:
        assert result.intercept is None
    else:
        assert_same_bits(result.intercept, expected.intercept)
    assert result.certificate == expected.certificate
    assert result.history.columns == expected.history.columns
    for name in set(expected.history.columns) - MEASURED:
        assert_same_bits(result.history.column(name), expected.history.column(name))
    assert rounds_of(result) == rounds_of(expected)


def rounds_of(result: dt.Result) -> list[tuple[Any, ...]]:
    """What every round was; but for those that tell a checkpoint's rows from others."""
    names = ("epoch", "oracle", "method", "numbers_sent")
    made = [tuple(record[name] for name in names) for record in result.rounds]
    return [each for each in made if each[2] != "digest"]


def assert_same_bits(one: Any, other: Any) -> None:
    one, other = np.asarray(one), np.asarray(other)
    assert (one.dtype, one.shape) == (other.dtype, other.shape)
    if one.dtype.kind == "f":  # there are many NaNs, and they all mean the same
        one, other = (np.where(np.isnan(each), np.nan, each) for each in (one, other))
    assert one.tobytes() == other.tobytes(), (one, other)
