"""The first pass over a DataFrame's rows, where they are: checks them and measures them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from dfwtrace._typing import Array, Matrix
from dfwtrace.engines.spark.dataframe import (
    BadRowsError,
    Reading,
    choose_columns,
    row_place,
    this_partition,
    uneven,
)
from dfwtrace.rows import Examine, Facts, Targets

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row

_REFUSALS: dict[str, type[Exception]] = {
    kind.__name__: kind for kind in (BadRowsError, TypeError, ValueError)
}


@dataclass(frozen=True)
class FrameRows:
    """Rows in a Spark DataFrame, examined.

    Row r of all rows is row r - Σ counts[:p] of partition p, which is the order of
    ``frame.toPandas()``.

    Attributes
    ----------
    frame : pyspark.sql.DataFrame
        Only the columns that are read, as `Reading.select` names them.
    reading : Reading
    examine : Examine
    facts : Facts
    counts : tuple of int
        Rows in each partition. Partitions that come after the last one with rows are left out.
    """

    frame: DataFrame
    reading: Reading
    examine: Examine
    facts: Facts
    counts: tuple[int, ...]


def survey(
    frame: DataFrame,
    features: Any,
    label: Any,
    examine: Examine,
    collect: Callable[[DataFrame], list[Row]] | None = None,
) -> FrameRows:
    """Check and measure all rows in one Spark job; one small row of each partition comes back.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
    features, label : str, list of str, or None
        See `choose_columns`.
    examine : callable
        Called on the workers, with the rows of one Arrow batch at a time.
    collect : callable, optional
        Runs the job; ``DataFrame.collect`` by default.

    Raises
    ------
    BadRowsError, ValueError, TypeError
        For the first partition with bad rows.
    """
    reading = choose_columns(frame.schema, features, label)
    chosen = reading.select(frame)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        partition = this_partition()
        report = survey_batches(batches, reading, examine, partition)
        if report is not None:
            yield pa.RecordBatch.from_pydict(
                {
                    "partition": pa.array([partition], pa.int32()),
                    "report": pa.array([json.dumps(report)], pa.string()),
                }
            )

    reporting = chosen.mapInArrow(task, "partition int, report string")
    found = reporting.collect() if collect is None else collect(reporting)
    reports = {row["partition"]: json.loads(row["report"]) for row in found}
    facts, counts = merge(reports, reading)
    return FrameRows(chosen, reading, examine, facts, counts)


def merge(reports: dict[int, dict[str, Any]], reading: Reading) -> tuple[Facts, tuple[int, ...]]:
    """The facts of all rows, and the rows of each partition, from the partitions' reports."""
    total: _Sizes | None = None
    counts = [0] * (1 + max(reports, default=-1))
    for partition, report in sorted(reports.items()):
        if "refusal" in report:
            raise _REFUSALS[report["refusal"]](report["message"])
        sizes = _Sizes.from_json(report)
        counts[partition] = sizes.n_rows
        total = sizes if total is None else total.joined(sizes, reading)
    if total is None:
        raise ValueError("X must have at least one row, but the DataFrame has none.")
    return total.facts(), tuple(counts)


def survey_batches(
    batches: Iterator[pa.RecordBatch], reading: Reading, examine: Examine, partition: int
) -> dict[str, Any] | None:
    """One partition's report, fit for JSON: its sizes, or what was refused; None without rows.

    A refusal is returned and not raised: Spark would wrap it in its own traceback, and try again.
    """
    total: _Sizes | None = None
    try:
        for start, X, y in reading.walk(batches, partition):
            sizes = _Sizes.of(X, y, examine, row_place(partition, start))
            total = sizes if total is None else total.joined(sizes, reading)
    except tuple(_REFUSALS.values()) as error:
        kind = next(kind for kind in _REFUSALS.values() if isinstance(error, kind))
        return {"refusal": kind.__name__, "message": _with_column(str(error), reading)}
    return None if total is None else asdict(total)


def _with_column(message: str, reading: Reading) -> str:
    """A task's sentence about X or y, with the name of the column."""
    source = {"X ": reading.features, "y ": reading.label}.get(message[:2])
    if source is None:
        return message
    return f"{message.removesuffix('.')} ({source})."


@dataclass(frozen=True)
class _Sizes:
    """What is known of some rows. Two such add up to what is known of both."""

    n_rows: int
    place: str  # of the first of them
    read: tuple[int, int]  # numbers in a row of X and of y, as they are in the DataFrame
    n_columns: int
    nonzeros: int
    sparse: bool
    dtype: str
    shape: tuple[int, int]
    target_dtype: str | None
    target_row: tuple[int, ...]

    @classmethod
    def of(cls, X: Matrix, y: Array | None, examine: Examine, place: str) -> _Sizes:
        read = (int(X.shape[1]), 0 if y is None else int(np.prod(y.shape[1:])))
        X, y, shape = examine(X, y)
        sparse = bool(sp.issparse(X))
        return cls(
            n_rows=int(X.shape[0]),
            place=place,
            read=read,
            n_columns=int(X.shape[1]),
            nonzeros=int(X.nnz) if sparse else int(np.count_nonzero(X)),
            sparse=sparse,
            dtype=X.dtype.str,
            shape=(int(shape[0]), int(shape[1])),
            target_dtype=None if y is None else y.dtype.str,
            target_row=() if y is None else tuple(map(int, y.shape[1:])),
        )

    @classmethod
    def from_json(cls, report: dict[str, Any]) -> _Sizes:
        lists = {name: tuple(report[name]) for name in ("read", "shape", "target_row")}
        return cls(**{**report, **lists})

    def joined(self, other: _Sizes, reading: Reading) -> _Sizes:
        for source, width, width_there in zip(
            (reading.features, reading.label), self.read, other.read, strict=True
        ):
            if source is not None and width != width_there:
                name = source.names[0]
                raise uneven(source.argument, name, width, self.place, width_there, other.place)
        for name, here, there in (
            ("X", (self.n_columns,), (other.n_columns,)),
            ("y", self.target_row, other.target_row),
            ("y", self.target_dtype is None, other.target_dtype is None),
        ):
            if here != there:
                raise ValueError(
                    f"{name} must have rows of one shape, but the task's check made {here} of "
                    f"{self.place} and {there} of {other.place}."
                )
        return replace(
            self,
            n_rows=self.n_rows + other.n_rows,
            nonzeros=self.nonzeros + other.nonzeros,
            sparse=self.sparse or other.sparse,
            dtype=np.result_type(self.dtype, other.dtype).str,
            shape=(max(self.shape[0], other.shape[0]), max(self.shape[1], other.shape[1])),
            target_dtype=_wider(self.target_dtype, other.target_dtype),
        )

    def facts(self) -> Facts:
        targets = None
        if self.target_dtype is not None:
            targets = Targets(np.dtype(self.target_dtype), self.target_row)
        return Facts(
            n_rows=self.n_rows,
            n_columns=self.n_columns,
            stored=self.nonzeros if self.sparse else self.n_rows * self.n_columns,
            sparse=self.sparse,
            dtype=np.dtype(self.dtype),
            shape=self.shape,
            targets=targets,
        )


def _wider(one: str | None, other: str | None) -> str | None:
    return None if one is None or other is None else np.result_type(one, other).str
