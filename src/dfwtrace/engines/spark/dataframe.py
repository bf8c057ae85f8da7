"""Which columns of a Spark DataFrame are read, and how their cells become NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dfwtrace._typing import Array, Data, Matrix
from dfwtrace.validation import describe

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import TaskContext
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

#: Says where a row of a batch is, for error messages.
Place = Callable[[int], str]

_NUMBERS = ("float", "double", "tinyint", "smallint", "int", "bigint", "boolean")
# What can be read, by the name of its type.
_KINDS = {
    **dict.fromkeys(_NUMBERS, "numbers"),
    **dict.fromkeys([f"array<{number}>" for number in _NUMBERS], "array"),
    "vector": "vector",  # of pyspark.ml.linalg or pyspark.mllib.linalg
}
_NAMES_LISTED = 20
_STANDS_FOR = "dfwtrace_stands_for"  # in the metadata of a column that is not the user's
# More classes than this are taken for the targets of a regression.
_MOST_CLASSES = 100_000


class BadRowsError(ValueError):
    """Rows that cannot be used: nulls, NaN or infinity, or rows that differ in length."""


@dataclass(frozen=True)
class Source:
    """Where the features, or the targets, are."""

    argument: str  # that named the columns
    names: tuple[str, ...]
    kind: str  # "numbers" of one or more columns, or one column of an "array" or a "vector" each
    alone: bool  # one column of numbers was named by itself and not in a list

    def __str__(self) -> str:
        first, last = self.names[0], self.names[-1]
        return f"column {first!r}" if first == last else f"columns {first!r} to {last!r}"

    def read(self, cells: list[pa.Array], place: Place) -> Matrix:
        """The rows of these columns, an array or a CSR matrix of two dimensions."""
        columns = [
            _Cells(column, self.argument, name, place)
            for column, name in zip(cells, self.names, strict=True)
        ]
        if self.kind == "vector":
            return columns[0].vectors()
        if self.kind == "array":
            return columns[0].rectangle(columns[0].cells)
        if len(columns) == 1:  # without a copy
            return columns[0].numbers()[:, None]
        return np.column_stack([column.numbers() for column in columns])


@dataclass(frozen=True)
class Reading:
    """How rows are read from a DataFrame: made by `choose_columns`, sent to where the rows are."""

    features: Source
    label: Source | None
    positions: tuple[int, ...]  # in the DataFrame, of the columns that are read

    def select(self, frame: DataFrame) -> DataFrame:
        # Picked by place and with plain names: one with a dot, a backtick or a twin that differs
        # in case only is trouble for Spark, and `mapInArrow` does not quote names.
        plain = frame.toDF(*[f"c{i}" for i in range(len(frame.columns))])
        chosen = plain.select(*[f"c{i}" for i in self.positions])
        return chosen.toDF(*[f"c{i}" for i in range(len(self.positions))])

    def read(
        self, batch: pa.RecordBatch, place: Place = "row {}".format
    ) -> tuple[Matrix, Array | None]:
        """X and y of a batch of these columns, in Arrow's own memory where it allows that.

        Floats are as stored, whole numbers int64. X is a csr_array if any row is a sparse vector; y
        has the shape (n,) if one column of numbers was named, else (n, m).
        """
        n_features = len(self.features.names)
        X = self.features.read(batch.columns[:n_features], place)
        if self.label is None:
            return X, None
        y = self.label.read(batch.columns[n_features:], place)
        if sp.issparse(y):
            y = y.toarray()
        return X, y[:, 0] if self.label.alone else y

    def walk(
        self, batches: Iterable[pa.RecordBatch], partition: int
    ) -> Iterator[tuple[int, Matrix, Array | None]]:
        """A partition's batches that have rows: the first row's place in it, X and y."""
        start = 0
        for batch in batches:
            if batch.num_rows:
                yield start, *self.read(batch, partial(row_place, partition, start))
                start += batch.num_rows


def row_place(partition: int, start: int, row: int = 0) -> str:
    return f"row {start + row} of partition {partition}"


def task_context() -> TaskContext:
    """That of the Spark task which calls this."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return context


def uneven(
    argument: str, name: str, width: int, place: str, other: int, elsewhere: str
) -> BadRowsError:
    return BadRowsError(
        f"{argument} must have as many numbers in every row, but column {name!r} has {width} in "
        f"{place} and {other} in {elsewhere}."
    )


def choose_columns(schema: StructType, features: object, label: object) -> Reading:
    """Check the names of the columns against a DataFrame's schema.

    `features` is a column of arrays, of MLlib vectors or of numbers, or a list of columns of
    numbers, "features" by default; `label` is the same for the targets, none by default.
    """
    X = _source("features", "features" if features is None else features, schema)
    y = None if label is None else _source("label", label, schema)
    names = X.names + (() if y is None else y.names)
    y = None if y is None else replace(y, names=_shown(y.names, schema))
    return Reading(X, y, tuple(map(schema.names.index, names)))


def _shown(names: Iterable[str], schema: StructType) -> tuple[str, ...]:
    """The user's names of columns, also of those that `number_labels` has added."""
    return tuple(schema[name].metadata.get(_STANDS_FOR, name) for name in names)


def _source(argument: str, value: object, schema: StructType) -> Source:
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise TypeError(
            f"{argument} must be the name of a column or a list of names, got {describe(value)}."
        )
    if not names or len(set(names)) < len(names):
        raise ValueError(f"{argument} must name at least one column, each once, got {value!r}.")
    listed = not isinstance(value, str)
    kind, *_ = [_kind(argument, name, schema, listed) for name in names]
    return Source(argument, tuple(names), kind, alone=not listed and kind == "numbers")


def _kind(argument: str, name: str, schema: StructType, listed: bool) -> str:
    names = schema.names
    if names.count(name) != 1:
        own = [field.name for field in schema.fields if _STANDS_FOR not in field.metadata]
        known = ", ".join(map(repr, own[:_NAMES_LISTED]))
        raise ValueError(
            f"{argument} names the column {name!r}, of which the DataFrame has "
            f"{own.count(name)}: its columns are {known}{', …' * (len(own) > _NAMES_LISTED)}."
        )
    type_name = schema.fields[names.index(name)].dataType.simpleString()
    kind = _KINDS.get(type_name)
    if kind is None or (listed and kind != "numbers"):
        wanted = "columns of numbers" if listed else "a column of numbers, of arrays or of vectors"
        raise TypeError(f"{argument} must name {wanted}, but column {name!r} is {type_name}.")
    return kind


class _Cells(NamedTuple):
    """One column of a batch, with its names for error messages."""

    cells: pa.Array
    argument: str
    name: str
    place: Place

    def numbers(self) -> Array:
        self._refuse_null(self.cells)
        return self._finite(_widened(self.cells))

    def vectors(self) -> Matrix:
        """The struct behind VectorUDT: type (0 sparse, 1 dense), size, indices and values."""
        self._refuse_null(self.cells)
        kinds, sizes, indices, values = (self.cells.field(i) for i in range(4))
        dense, bounds = kinds.to_numpy() == 1, _bounds(values)
        widths = np.where(dense, np.diff(bounds), sizes.fill_null(0).to_numpy())
        self._refuse_uneven(widths)
        if dense.all():
            return self.rectangle(values)
        if dense.any():
            rows = np.concatenate((np.flatnonzero(dense), np.flatnonzero(~dense)))
            parts = [self._taken(part).vectors() for part in np.split(rows, [dense.sum()])]
            return sp.vstack([sp.csr_array(part) for part in parts])[np.argsort(rows)]
        data, columns = values.flatten().to_numpy(), indices.flatten().to_numpy()
        invalid = ("hold valid vectors", "holds an invalid one")
        self._refuse_first(np.diff(_bounds(indices)) != np.diff(bounds), *invalid)
        outside = (columns < 0) | (columns >= widths[0])
        self._refuse_first(_rows_with(outside, bounds), *invalid)
        self._finite(data, bounds)
        X = sp.csr_array((data, columns, bounds), shape=(len(dense), int(widths[0])))
        return X if X.has_sorted_indices else X.sorted_indices()

    def _taken(self, rows: Array) -> _Cells:
        return self._replace(cells=self.cells.take(rows), place=lambda i: self.place(int(rows[i])))

    def rectangle(self, lists: pa.Array) -> Array:
        self._refuse_null(lists)
        bounds, values = _bounds(lists), lists.flatten()
        self._refuse_null(values, bounds)
        self._refuse_uneven(np.diff(bounds))
        return self._finite(_widened(values).reshape(len(lists), -1))

    def _refuse_null(self, cells: pa.Array, bounds: Array | None = None) -> None:
        if cells.null_count:
            nulls = cells.is_null().to_numpy(zero_copy_only=False)
            bad = nulls if bounds is None else _rows_with(nulls, bounds)
            self._refuse_first(bad, "hold no nulls", "holds one")

    def _refuse_uneven(self, widths: Array) -> None:
        self._refuse_first(widths == 0, "have at least one number in a row", "has none")
        if (widths != widths[0]).any():
            row = int(np.argmax(widths != widths[0]))
            first, other = int(widths[0]), int(widths[row])
            raise uneven(self.argument, self.name, first, self.place(0), other, self.place(row))

    def _finite(self, values: Array, bounds: Array | None = None) -> Array:
        finite = np.isfinite(values)
        bad: Array = ~finite if finite.ndim == 1 else ~np.asarray(finite.all(axis=1))
        bad = bad if bounds is None else _rows_with(bad, bounds)
        self._refuse_first(bad, "be finite", "holds NaN or infinity")
        return values

    def _refuse_first(self, bad: Array, duty: str, fault: str) -> None:
        if bad.any():
            fault = f"column {self.name!r} {fault} in {self.place(int(np.argmax(bad)))}"
            raise BadRowsError(f"{self.argument} must {duty}, but {fault}.")


def _widened(values: pa.Array) -> Array:
    """Numbers of an Arrow array without nulls: floating ones as they are, whole ones as int64."""
    numbers: Array = values.to_numpy(zero_copy_only=False)  # only bits are copied
    return numbers.astype(np.int64, copy=False) if numbers.dtype.kind == "i" else numbers


def _bounds(lists: pa.Array) -> Array:
    """Where the rows of an Arrow array of lists begin and end, counted from the first of them."""
    bounds: Array = lists.offsets.to_numpy() - lists.offsets[0].as_py()
    return bounds


def _rows_with(marked: Array, bounds: Array) -> Array:
    """For each row whether any of its values, bounds[i]..bounds[i+1], is marked."""
    rows = np.zeros(len(bounds) - 1, bool)
    rows[np.searchsorted(bounds, np.flatnonzero(marked), side="right") - 1] = True
    return rows


class NumberedLabels(NamedTuple):
    """A frame with a column of numbers for its labels, and one of weights if there are any."""

    frame: Data
    label: str
    weight: str | None
    classes: Array


def number_labels(
    frame: Data, label: object, class_weight: object = None, sample_weight: str | None = None
) -> NumberedLabels:
    """Number a column's labels in their order; one Spark job adds up the weights of each.

    `sample_weight` is a column of weights, which those of the classes are multiplied by.
    """
    if not isinstance(label, str):
        raise TypeError(
            f"y must be the name of a column where X is a DataFrame, got {describe(label)}."
        )
    if label not in frame.columns:
        raise ValueError(f"y names the column {label!r}, which the DataFrame does not have.")
    if isinstance(sample_weight, str):
        _source("sample_weight", [sample_weight], frame.schema)
    from pyspark.sql import functions as sql

    column = sql.col(_quoted(label))
    own = sql.lit(1.0) if sample_weight is None else sql.col(_quoted(sample_weight)).cast("double")
    counted = frame.groupBy(column).agg(sql.sum(own)).limit(_MOST_CLASSES + 1).collect()
    if len(counted) > _MOST_CLASSES:
        raise ValueError(f"column {label!r} has more than {_MOST_CLASSES} classes.")
    counts = {row[0]: float(row[1] or 0.0) for row in counted}
    if None in counts or any(value != value for value in counts):
        raise ValueError(f"column {label!r} has rows without a label.")
    if not counts:
        raise ValueError("X must have at least one row, got an empty DataFrame.")
    classes = sorted(counts)
    places = sql.array_position(sql.array(*map(sql.lit, classes)), column)
    frame, number = _with_column(frame, places - 1, "dfwtrace_label", label)
    weight = sample_weight
    if class_weight is not None:
        of_each = sql.array(*map(sql.lit, _class_weights(class_weight, counts)))
        weights = sql.element_at(of_each, places.cast("int")) * own
        stands_for = sample_weight or "class_weight"
        frame, weight = _with_column(frame, weights, "dfwtrace_weight", stands_for)
    return NumberedLabels(frame, number, weight, np.array(classes))


def _with_column(frame: Data, column: Any, name: str, stands_for: str) -> tuple[Data, str]:
    """Add a column under a name that none has; errors call it by what it stands for."""
    taken = {each.lower() for each in frame.columns}
    while name in taken:
        name += "_"
    return frame.select("*", column.alias(name, metadata={_STANDS_FOR: stands_for})), name


def _class_weights(given: object, counts: dict[Any, float]) -> list[float]:
    """Of each class in their order; a class without a weight counts 1."""
    if isinstance(given, str) and given == "balanced":
        given = {c: sum(counts.values()) / (len(counts) * own) for c, own in counts.items()}
    if not isinstance(given, dict):
        raise TypeError(f"class_weight must be a dict, 'balanced' or None, got {describe(given)}.")
    return [float(given.get(c, 1.0)) for c in sorted(counts)]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
