"""The first pass over a DataFrame's rows, where they are: checks them and measures them."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dfwtrace._typing import Array, Matrix
from dfwtrace.data.rows import Examine, Facts, Targets
from dfwtrace.engines.spark.dataframe import (
    BadRowsError,
    Reading,
    choose_columns,
    row_place,
    this_partition,
    uneven,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row

_REFUSALS = (BadRowsError, TypeError, ValueError)


@dataclass(frozen=True)
class FrameRows:
    """Rows in a Spark DataFrame, examined.

    Row r of all rows is row r - Σ counts[:p] of partition p, which is the order of
    ``frame.toPandas()``.
    """

    frame: DataFrame  # only the columns that are read, as `Reading.select` names them
    reading: Reading
    examine: Examine
    facts: Facts
    counts: tuple[int, ...]  # rows in each partition, up to the last one with rows


def survey(
    frame: DataFrame,
    features: Any,
    label: Any,
    examine: Examine,
    collect: Callable[[DataFrame], list[Row]] | None = None,
) -> FrameRows:
    """Check and measure all rows in one Spark job; one small row of each partition comes back.

    `examine` is called on the workers, with the rows of one Arrow batch at a time; `collect` runs
    the job. What the first partition with bad rows has to say is raised.
    """
    reading = choose_columns(frame.schema, features, label)
    chosen = reading.select(frame)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        partition = this_partition()
        report = survey_batches(batches, reading, examine, partition)
        columns = [pa.array([partition], pa.int32()), pa.array([pickle.dumps(report)], pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, ["partition", "report"])

    reporting = chosen.mapInArrow(task, "partition int, report binary")
    found = reporting.collect() if collect is None else collect(reporting)
    reports = {int(row["partition"]): pickle.loads(row["report"]) for row in found}
    facts, counts = merge(reports, reading)
    return FrameRows(chosen, reading, examine, facts, counts)


class Measured(NamedTuple):
    """What is known of some rows. Two such add up to what is known of both."""

    facts: Facts
    nonzeros: int
    widths: tuple[int, int]  # numbers in a row of X and of y, as they are in the DataFrame
    place: str  # of the first row

    @classmethod
    def of(cls, X: Matrix, y: Array | None, examine: Examine, place: str) -> Measured:
        widths = (int(X.shape[1]), 0 if y is None else int(np.prod(y.shape[1:])))
        X, y, (d, m) = examine(X, y)
        sparse = bool(sp.issparse(X))
        nonzeros = int(X.nnz) if sparse else int(np.count_nonzero(X))
        targets = None if y is None else Targets(y.dtype, tuple(map(int, y.shape[1:])))
        n, columns = map(int, X.shape)
        stored = nonzeros if sparse else n * columns
        facts = Facts(n, columns, stored, sparse, X.dtype, (int(d), int(m)), targets)
        return cls(facts, nonzeros, widths, place)

    def joined(self, other: Measured, reading: Reading) -> Measured:
        for source, width, width_there in zip(
            (reading.features, reading.label), self.widths, other.widths, strict=True
        ):
            if source is not None and width != width_there:
                name = source.names[0]
                raise uneven(source.argument, name, width, self.place, width_there, other.place)
        a, b = self.facts, other.facts
        for name, here, there in (
            ("X", (a.n_columns,), (b.n_columns,)),
            ("y", a.targets and a.targets.row, b.targets and b.targets.row),
        ):
            if here != there:
                raise ValueError(
                    f"{name} must have rows of one shape, but the task's check made {here} of "
                    f"{self.place} and {there} of {other.place}."
                )
        targets = a.targets
        if a.targets is not None and b.targets is not None:
            targets = Targets(np.result_type(a.targets.dtype, b.targets.dtype), a.targets.row)
        n, sparse = a.n_rows + b.n_rows, a.sparse or b.sparse
        nonzeros = self.nonzeros + other.nonzeros
        facts = replace(
            a,
            n_rows=n,
            stored=nonzeros if sparse else n * a.n_columns,
            sparse=sparse,
            dtype=np.result_type(a.dtype, b.dtype),
            shape=(max(a.shape[0], b.shape[0]), max(a.shape[1], b.shape[1])),
            targets=targets,
        )
        return self._replace(facts=facts, nonzeros=nonzeros)


#: A partition's sizes, or what was refused, or None without rows.
Report = Measured | Exception | None


def merge(reports: dict[int, Report], reading: Reading) -> tuple[Facts, tuple[int, ...]]:
    """The facts of all rows, and the rows of each partition, from the partitions' reports."""
    total: Measured | None = None
    counts: list[int] = []
    for partition, report in sorted(reports.items(), key=lambda item: item[0]):
        if isinstance(report, Exception):
            raise report
        if report is not None:
            counts += [0] * (partition - len(counts)) + [report.facts.n_rows]
            total = report if total is None else total.joined(report, reading)
    if total is None:
        raise ValueError("X must have at least one row, but the DataFrame has none.")
    return total.facts, tuple(counts)


def survey_batches(
    batches: Iterator[pa.RecordBatch], reading: Reading, examine: Examine, partition: int
) -> Report:
    """One partition's report.

    A refusal is returned and not raised: Spark would wrap it in its own traceback, and try again.
    """
    total: Measured | None = None
    try:
        for start, X, y in reading.walk(batches, partition):
            measured = Measured.of(X, y, examine, row_place(partition, start))
            total = measured if total is None else total.joined(measured, reading)
    except _REFUSALS as error:
        kind = next(kind for kind in _REFUSALS if isinstance(error, kind))
        return kind(_with_column(str(error), reading))
    return total


def _with_column(message: str, reading: Reading) -> str:
    """A task's sentence about X or y, with the name of the column."""
    source = {"X ": reading.features, "y ": reading.label}.get(message[:2])
    if source is None:
        return message
    return f"{message.removesuffix('.')} ({source})."
