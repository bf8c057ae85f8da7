"""The first pass over a DataFrame's rows, where they are: checks them and measures them."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dfwtrace._typing import Array, Matrix
from dfwtrace.data.shards import ArrayRows, Examine, Facts, Targets
from dfwtrace.engines.spark.dataframe import (
    BadRowsError,
    Reading,
    choose_columns,
    row_place,
    task_context,
    uneven,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row

_REFUSALS = (BadRowsError, TypeError, ValueError)


@dataclass(frozen=True)
class FrameRows:
    """Rows in a Spark DataFrame, examined, in the order of ``frame.toPandas()``."""

    frame: DataFrame | None  # the columns that are read, as `Reading.select` names them
    reading: Reading
    examine: Examine
    facts: Facts
    counts: tuple[int, ...]  # rows in each partition, up to the last one with rows


def survey(
    frame: DataFrame,
    features: object,
    label: object,
    examine: Examine,
    collect: Callable[[DataFrame], list[Row]] | None = None,
) -> FrameRows:
    """Check and measure all rows in one Spark job, which `collect` runs; raises the first refusal.

    `examine` is called on the workers, with the rows of one Arrow batch at a time.
    """
    reading = choose_columns(frame.schema, features, label)
    chosen = reading.select(frame)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        partition = task_context().partitionId()
        report = survey_batches(batches, reading, examine, partition)
        columns = [pa.array([partition], pa.int32()), pa.array([pickle.dumps(report)], pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, ["partition", "report"])

    reporting = chosen.mapInArrow(task, "partition int, report binary")
    found = reporting.collect() if collect is None else collect(reporting)
    reports = {int(row["partition"]): pickle.loads(row["report"]) for row in found}
    return FrameRows(chosen, reading, examine, *merge(reports, reading))


class Measured(NamedTuple):
    """What is known of some rows. Two such add up to what is known of both."""

    facts: Facts
    nonzeros: int
    widths: tuple[int, int]  # numbers in a row of X and of y, as they are in the DataFrame
    place: str  # of the first row

    @classmethod
    def of(cls, X: Matrix, y: Array | None, examine: Examine, place: str) -> Measured:
        widths = (int(X.shape[1]), 0 if y is None else int(np.prod(y.shape[1:])))
        rows = ArrayRows.examined(X, y, examine)
        nonzeros = rows.facts.stored if rows.facts.sparse else int(np.count_nonzero(rows.X))
        return cls(rows.facts, nonzeros, widths, place)

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
        targets = None
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
    for partition in sorted(reports):
        report = reports[partition]
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
    """One partition's report. A refusal is returned: Spark would wrap and repeat what is raised."""
    total: Measured | None = None
    try:
        for start, X, y in reading.walk(batches, partition):
            measured = Measured.of(X, y, examine, row_place(partition, start))
            total = measured if total is None else total.joined(measured, reading)
    except _REFUSALS as error:
        kind, message = next(kind for kind in _REFUSALS if isinstance(error, kind)), str(error)
        # A task's sentence about X or y gets the name of the column.
        source = {"X ": reading.features, "y ": reading.label}.get(message[:2])
        return kind(message if source is None else f"{message.removesuffix('.')} ({source}).")
    return total
