"""Which columns of a Spark DataFrame are read, and how their cells become NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import scipy.sparse as sp

from dfwtrace._typing import Array, Matrix
from dfwtrace.validation import describe

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

#: Says where a row of a batch is, for error messages.
Place = Callable[[int], str]
#: Columns of numbers, or one column of arrays or of MLlib vectors.
ColumnKind = Literal["numbers", "array", "vector"]

_NUMBERS = ("float", "double", "tinyint", "smallint", "int", "bigint", "boolean")
_NAMES_LISTED = 20


class BadRowsError(ValueError):
    """Rows that cannot be used: nulls, NaN or infinity, or rows that differ in length."""


@dataclass(frozen=True)
class Source:
    """Where the features, or the targets, are."""

    argument: str  # that named the columns
    names: tuple[str, ...]
    kind: ColumnKind
    slots: tuple[int, ...]  # the places of the columns in the batches that are read
    alone: bool  # one column of numbers was named by itself and not in a list

    def __str__(self) -> str:
        if len(self.names) == 1:
            return f"column {self.names[0]!r}"
        between = "and" if len(self.names) == 2 else "to"
        return f"columns {self.names[0]!r} {between} {self.names[-1]!r}"

    def read(self, batch: pa.RecordBatch, place: Place) -> Matrix:
        """The batch's rows of these columns, an array or a CSR matrix of two dimensions."""
        columns = [
            _Cells(batch.column(slot), self.argument, name, place)
            for slot, name in zip(self.slots, self.names, strict=True)
        ]
        if self.kind == "vector":
            return columns[0].vectors()
        if self.kind == "array":
            return columns[0].arrays()
        if len(columns) == 1:
            return columns[0].numbers()[:, None]
        return np.column_stack([column.numbers() for column in columns])


@dataclass(frozen=True)
class Reading:
    """How rows are read from a DataFrame: made by `choose_columns`, sent to where the rows are."""

    features: Source
    label: Source | None
    names: tuple[str, ...]  # the columns that are read, each once
    positions: tuple[int, ...]  # their places in the DataFrame

    def select(self, frame: DataFrame) -> DataFrame:
        """The columns that are read, and only these.

        They are picked by place and get plain names: a name with a dot, a backtick or a twin that
        differs in case only is trouble for Spark, and `mapInArrow` does not quote names.
        """
        plain = frame.toDF(*[f"c{i}" for i in range(len(frame.columns))])
        return plain.select(*[f"c{i}" for i in self.positions])

    def read(
        self, batch: pa.RecordBatch, place: Place = "row {}".format
    ) -> tuple[Matrix, Array | None]:
        """X and y of a batch of the columns `names`, in Arrow's own memory where it allows that.

        X is float32 or float64 as stored, whole numbers are int64; it is a csr_array if any row is
        a sparse vector, and may be read-only. y has the shape (n,) if one column of numbers was
        named, else (n, m). Raises BadRowsError.
        """
        X = self.features.read(batch, place)
        if self.label is None:
            return X, None
        y = self.label.read(batch, place)
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
                X, y = self.read(batch, partial(row_place, partition, start))
                yield start, X, y
                start += batch.num_rows


def row_place(partition: int, start: int, row: int = 0) -> str:
    """A row of a DataFrame, for error messages."""
    return f"row {start + row} of partition {partition}"


def this_partition() -> int:
    """The partition that this Spark task works on."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None  # this is called within a task
    return int(context.partitionId())


def uneven(
    argument: str, name: str, width: int, place: str, other: int, elsewhere: str
) -> BadRowsError:
    """The refusal of rows that differ in length."""
    return BadRowsError(
        f"{argument} must have as many numbers in every row, but column {name!r} has {width} in "
        f"{place} and {other} in {elsewhere}."
    )


def choose_columns(schema: StructType, features: Any, label: Any) -> Reading:
    """Check the names of the columns against a DataFrame's schema.

    `features` is a column of arrays, of MLlib vectors or of numbers, or a list of columns of
    numbers, "features" by default; `label` is the same for the targets, none by default.
    """
    wanted = "features" if features is None else features
    sides = [_named("features", wanted)] + ([] if label is None else [_named("label", label)])
    names = tuple(dict.fromkeys(name for _, side, _ in sides for name in side))
    sources = []
    for argument, side, listed in sides:
        kinds = [_kind(argument, name, _look_up(argument, name, schema), listed) for name in side]
        slots = tuple(names.index(name) for name in side)
        alone = not listed and kinds[0] == "numbers"
        sources.append(Source(argument, side, kinds[0], slots, alone))
    positions = tuple(schema.names.index(name) for name in names)
    return Reading(sources[0], sources[1] if len(sources) > 1 else None, names, positions)


def _named(argument: str, value: Any) -> tuple[str, tuple[str, ...], bool]:
    """An argument, the names that it gives, and whether they came in a list."""
    if isinstance(value, str):
        return argument, (value,), False
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise TypeError(
            f"{argument} must be the name of a column or a list of names, got {describe(value)}."
        )
    if not value:
        raise ValueError(f"{argument} must name at least one column, got an empty list.")
    for i, name in enumerate(value):
        if name in value[:i]:
            raise ValueError(f"{argument} must name each column once, but has {name!r} twice.")
    return argument, tuple(value), True


def _look_up(argument: str, name: str, schema: StructType) -> DataType:
    count = schema.names.count(name)
    if count == 1:
        return schema.fields[schema.names.index(name)].dataType
    if count > 1:
        raise ValueError(
            f"{argument} names the column {name!r}, but the DataFrame has {count} of that name."
        )
    if name.partition(".")[0] in schema.names:
        hint = "a field of a struct has to be selected as a column first"
    elif len(schema.names) <= _NAMES_LISTED:
        hint = f"it has {', '.join(map(repr, schema.names)) or 'no columns'}"
    else:
        hint = f"it has {len(schema.names)} others"
    raise ValueError(
        f"{argument} names the column {name!r}, which the DataFrame does not have: {hint}."
    )


def _kind(argument: str, name: str, kind: DataType, listed: bool) -> ColumnKind:
    from pyspark.sql.types import ArrayType, DecimalType, UserDefinedType

    if kind.simpleString() in _NUMBERS:
        return "numbers"
    numbers: DataType = kind
    if isinstance(kind, ArrayType):
        numbers = kind.elementType
        if not listed and numbers.simpleString() in _NUMBERS:
            return "array"
    # Both pyspark.ml.linalg and pyspark.mllib.linalg have one; neither is worth importing for this.
    vector = isinstance(kind, UserDefinedType) and type(kind).__name__ == "VectorUDT"
    if vector and not listed:
        return "vector"
    wanted = "columns of numbers" if listed else "a column of numbers, of arrays or of vectors"
    advice = ""
    if isinstance(numbers, DecimalType):
        advice = ": cast it to double"
    elif listed and (vector or numbers.simpleString() in _NUMBERS):
        advice = ": name it by itself, not in a list"
    type_name = "a vector" if vector else kind.simpleString()
    raise TypeError(f"{argument} must name {wanted}, but column {name!r} is {type_name}{advice}.")


@dataclass(frozen=True)
class _Cells:
    """One column of a batch, with its names for error messages."""

    cells: pa.Array
    argument: str
    name: str
    place: Place

    def numbers(self) -> Array:
        self._refuse_null(self.cells)
        return self._finite(_widened(self.cells))

    def arrays(self) -> Array:
        self._refuse_null(self.cells)
        return self._rectangle(self.cells)

    def vectors(self) -> Matrix:
        """The struct behind VectorUDT: type (0 sparse, 1 dense), size, indices and values."""
        self._refuse_null(self.cells)
        kinds, sizes, indices, values = (self.cells.field(i) for i in range(4))
        dense = kinds.to_numpy() == 1
        if dense.all():
            return self._rectangle(values)
        bounds, data = _bounds(values), _inner(values).to_numpy()
        lengths, columns = np.diff(bounds), _inner(indices).to_numpy()
        widths = np.where(dense, lengths, sizes.fill_null(0).to_numpy())
        self._refuse_uneven(widths)
        self._refuse_invalid(np.diff(_bounds(indices)) != np.where(dense, 0, lengths))
        self._finite(data, bounds)
        if dense.any():
            bounds, columns, data = _sparsified(dense, lengths, columns, data)
        self._refuse_invalid(_rows_with((columns < 0) | (columns >= widths[0]), bounds))
        X = sp.csr_array((data, columns, bounds), shape=(len(dense), int(widths[0])))
        return X if X.has_sorted_indices else X.sorted_indices()

    def _rectangle(self, lists: pa.Array) -> Array:
        bounds, values = _bounds(lists), _inner(lists)
        if values.null_count:
            self._refuse_first(_rows_with(_nulls(values), bounds), "hold no nulls", "holds one")
        self._refuse_uneven(np.diff(bounds))
        return self._finite(_widened(values).reshape(len(lists), -1))

    def _refuse_null(self, cells: pa.Array) -> None:
        if cells.null_count:
            self._refuse_first(_nulls(cells), "hold no nulls", "holds one")

    def _refuse_invalid(self, bad: Array) -> None:
        self._refuse_first(bad, "hold valid vectors", "holds an invalid one")

    def _refuse_uneven(self, widths: Array) -> None:
        self._refuse_first(widths == 0, "have at least one number in a row", "has none")
        if (widths != widths[0]).any():
            row = int(np.argmax(widths != widths[0]))
            first, other = int(widths[0]), int(widths[row])
            raise uneven(self.argument, self.name, first, self.place(0), other, self.place(row))

    def _finite(self, values: Array, bounds: Array | None = None) -> Array:
        """The values, checked. A sum is finite if all are; only else every one is looked at."""
        if values.dtype.kind != "f":
            return values
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(values.sum()):
                return values
        rows = np.arange(len(values) + 1) if bounds is None else bounds
        flat = values.reshape(len(values), -1)
        for kind, test in (("NaN", np.isnan), ("infinity", np.isinf)):
            bad = np.asarray(test(flat).any(axis=1))
            self._refuse_first(_rows_with(bad, rows), "be finite", f"holds {kind}")
        return values

    def _refuse_first(self, bad: Array, duty: str, fault: str) -> None:
        if bad.any():
            where = self.place(int(np.argmax(bad)))
            raise BadRowsError(
                f"{self.argument} must {duty}, but column {self.name!r} {fault} in {where}."
            )


def _widened(values: pa.Array) -> Array:
    """Numbers of an Arrow array without nulls: floating ones as they are, whole ones as int64."""
    numbers: Array = values.to_numpy(zero_copy_only=False)  # only bits are copied
    return numbers.astype(np.int64, copy=False) if numbers.dtype.kind == "i" else numbers


def _bounds(lists: pa.Array) -> Array:
    """Where the rows of an Arrow array of lists begin and end, counted from the first of them."""
    bounds: Array = lists.offsets.to_numpy() - lists.offsets[0].as_py()
    return bounds


def _inner(lists: pa.Array) -> pa.Array:
    """The values of all rows of an Arrow array of lists, which may itself be a slice of others."""
    offsets = lists.offsets
    start, stop = offsets[0].as_py(), offsets[-1].as_py()
    return lists.values.slice(start, stop - start)


def _nulls(values: pa.Array) -> Array:
    nulls: Array = values.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _rows_with(marked: Array, bounds: Array) -> Array:
    """For each row whether any of its values, bounds[i]..bounds[i+1], is marked."""
    rows = np.zeros(len(bounds) - 1, bool)
    rows[np.searchsorted(bounds, np.flatnonzero(marked), side="right") - 1] = True
    return rows


def _sparsified(
    dense: Array, lengths: Array, columns: Array, data: Array
) -> tuple[Array, Array, Array]:
    """CSR arrays of rows of both kinds: dense ones lose their zeros, sparse ones stay as stored."""
    row_of = np.repeat(np.arange(len(dense)), lengths)
    starts = np.cumsum(lengths) - lengths
    every_column = (np.arange(len(data)) - starts[row_of]).astype(np.int32)
    every_column[~dense[row_of]] = columns  # dense rows have no indices of their own
    kept = ~dense[row_of] | (data != 0)
    counts = np.bincount(row_of[kept], minlength=len(dense))
    bounds = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    return bounds, every_column[kept], data[kept]
