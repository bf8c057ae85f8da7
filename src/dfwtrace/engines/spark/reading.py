"""Which columns of a Spark DataFrame are read, and as what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import scipy.sparse as sp

from dfwtrace._typing import Array, Matrix
from dfwtrace.engines.spark.cells import Column, Place, side_by_side
from dfwtrace.validation import describe

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

_NUMBERS = ("float", "double", "tinyint", "smallint", "int", "bigint", "boolean")
_NAMES_LISTED = 20


@dataclass(frozen=True)
class Source:
    """Where the features, or the targets, are.

    Attributes
    ----------
    argument : str
        The argument that named the columns, for error messages.
    names : tuple of str
    kind : {"numbers", "array", "vector"}
        One or more columns of numbers, or one column of arrays or of MLlib vectors.
    slots : tuple of int
        The places of the columns in the batches that are read.
    alone : bool
        True if one column of numbers was named by itself and not in a list.
    """

    argument: str
    names: tuple[str, ...]
    kind: Literal["numbers", "array", "vector"]
    slots: tuple[int, ...]
    alone: bool

    def __str__(self) -> str:
        if len(self.names) == 1:
            return f"column {self.names[0]!r}"
        between = "and" if len(self.names) == 2 else "to"
        return f"columns {self.names[0]!r} {between} {self.names[-1]!r}"

    def read(self, batch: pa.RecordBatch, place: Place) -> Matrix:
        """The batch's rows of these columns, an array or a CSR matrix of two dimensions."""
        columns = [
            Column(batch.column(slot), self.argument, name, place)
            for slot, name in zip(self.slots, self.names, strict=True)
        ]
        if self.kind == "numbers":
            return side_by_side([column.numbers() for column in columns])
        return columns[0].vectors() if self.kind == "vector" else columns[0].arrays()


@dataclass(frozen=True)
class Reading:
    """How rows are read from a DataFrame: made by `choose_columns`, sent to where the rows are.

    Attributes
    ----------
    features : Source
    label : Source or None
    names : tuple of str
        The columns that are read, each once.
    positions : tuple of int
        Their places in the DataFrame.
    """

    features: Source
    label: Source | None
    names: tuple[str, ...]
    positions: tuple[int, ...]

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

        Parameters
        ----------
        batch : pyarrow.RecordBatch
            At least one row.
        place : callable, optional
            Tells where row i of the batch is, for error messages.

        Returns
        -------
        X : array, or csr_array if any row is a sparse vector
            float32 or float64 as stored; whole numbers as int64. It may be read-only.
        y : array or None
            Of shape (n,) if one column of numbers was named, else (n, m).

        Raises
        ------
        BadRowsError
            If there are nulls, NaN, infinity, or rows that differ in length.
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
    """How error messages speak of a row of a DataFrame."""
    return f"row {start + row} of partition {partition}"


def partition_here() -> int:
    """The partition that this Spark task works on."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None  # this is called within a task
    return int(context.partitionId())


def choose_columns(schema: StructType, features: Any, label: Any) -> Reading:
    """Check the names of the columns against a DataFrame's schema.

    Parameters
    ----------
    schema : pyspark.sql.types.StructType
    features : str, list of str, or None
        A column of arrays, of MLlib vectors or of numbers, or a list of columns of numbers;
        "features" by default.
    label : str, list of str, or None
        The same for the targets; none by default.

    Raises
    ------
    TypeError, ValueError
        In one sentence that names the argument and the column.
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


def _kind(
    argument: str, name: str, kind: DataType, listed: bool
) -> Literal["numbers", "array", "vector"]:
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
