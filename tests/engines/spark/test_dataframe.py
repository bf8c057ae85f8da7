"""Columns of a DataFrame as NumPy arrays, without Spark itself: schemas and Arrow batches only."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pyspark.ml.linalg import VectorUDT
from pyspark.mllib.linalg import VectorUDT as OldVectorUDT
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from dfwtrace.engines.spark.dataframe import BadRowsError, Reading, choose_columns

VECTOR = pa.struct(
    [
        pa.field("type", pa.int8(), nullable=False),
        pa.field("size", pa.int32()),
        pa.field("indices", pa.list_(pa.field("element", pa.int32(), nullable=False))),
        pa.field("values", pa.list_(pa.field("element", pa.float64(), nullable=False))),
    ]
)


def schema_of(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def dense(*values: float) -> dict[str, Any]:
    return {"type": 1, "size": None, "indices": None, "values": list(values)}


def sparse(size: int, indices: list[int], values: list[float]) -> dict[str, Any]:
    return {"type": 0, "size": size, "indices": indices, "values": values}


def lists(rows: Any, kind: Any = None) -> Any:
    return pa.array(rows, pa.list_(kind or pa.float64()))


def batch_of(**columns: Any) -> Any:
    return pa.record_batch(list(columns.values()), names=list(columns))


def read_features(column: Any, kind: DataType) -> Any:
    return choose_columns(schema_of(features=kind), None, None).read(batch_of(features=column))[0]


def same(one: Any, other: Any) -> bool:
    """The same numbers, of the same dtype and shape."""
    return one.dtype == other.dtype and one.shape == other.shape and np.array_equal(one, other)


# Which columns.


def test_a_list_of_columns_and_a_label_are_found_in_the_schema() -> None:
    schema = schema_of(b=FloatType(), y=IntegerType(), a=DoubleType())
    reading = choose_columns(schema, ["a", "b"], "y")
    assert reading.positions == (2, 0, 1)
    assert pickle.loads(pickle.dumps(reading)) == reading


def test_columns_are_called_by_their_names() -> None:
    schema = schema_of(a=DoubleType(), b=DoubleType(), c=DoubleType())
    called = [
        str(choose_columns(schema, names, None).features) for names in ("a", ["a", "b"], [*"abc"])
    ]
    assert called == ["column 'a'", "columns 'a' to 'b'", "columns 'a' to 'c'"]


def test_features_and_label_may_be_the_same_column(spark: Any) -> None:
    frame = spark.createDataFrame([([1.0, 2.0],)], "x array<double>")
    reading = choose_columns(frame.schema, "x", "x")
    (batch,) = reading.select(frame).toArrow().to_batches()
    X, y = reading.read(batch)
    assert np.array_equal(X, [[1.0, 2.0]])
    assert np.array_equal(y, X)


SCHEMA = schema_of(
    features=ArrayType(DoubleType()),
    vector=VectorUDT(),
    text=StringType(),
    price=DecimalType(10, 2),
    prices=ArrayType(DecimalType(10, 2)),
    words=ArrayType(StringType()),
    x=DoubleType(),
    s=schema_of(t=DoubleType()),
)


@pytest.mark.parametrize(
    ("features", "label", "kind", "message"),
    [
        (5, None, TypeError, "features must be the name of a column or a list of names, got 5."),
        (["x", 3], None, TypeError, "features must be the name of a column or a list of names"),
        ([], None, ValueError, r"features must name at least one column, each once, got \[\]."),
        (None, (), ValueError, r"label must name at least one column, each once, got \(\)."),
        (["x", "x"], None, ValueError, r"each once, got \['x', 'x'\]."),
        (
            "q",
            None,
            ValueError,
            "features names the column 'q', of which the DataFrame has 0: its columns are 'feat",
        ),
        (None, "X", ValueError, "label names the column 'X', of which the DataFrame has 0"),
        (None, "s.t", ValueError, "label names the column 's.t', of which the DataFrame has 0"),
        ("text", None, TypeError, "features must name a column of numbers, .* 'text' is string."),
        ("words", None, TypeError, "column 'words' is array<string>."),
        ("s", None, TypeError, "column 's' is struct<t:double>."),
        ("price", None, TypeError, r"'price' is decimal\(10,2\)."),
        ("prices", None, TypeError, r"is array<decimal\(10,2\)>."),
        (None, ["x", "price"], TypeError, "label must name columns of numbers, but column 'price'"),
        (["features"], None, TypeError, "name columns of numbers, but .* is array<double>."),
        (["vector"], None, TypeError, "name columns of numbers, but .* is vector."),
    ],
)
def test_bad_names_are_refused_in_one_sentence(
    features: Any, label: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message) as caught:
        choose_columns(SCHEMA, features, label)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_a_name_that_two_columns_have_is_refused() -> None:
    schema = StructType([StructField("x", DoubleType()), StructField("x", DoubleType())])
    with pytest.raises(ValueError, match="'x', of which the DataFrame has 2"):
        choose_columns(schema, "x", None)


def test_not_all_of_many_columns_are_listed() -> None:
    schema = schema_of(**{f"x{i}": DoubleType() for i in range(300)})
    with pytest.raises(ValueError, match=r"'features', of which .* 'x19', …\.$"):
        choose_columns(schema, None, None)


# Numbers.


@pytest.mark.parametrize(
    ("arrow", "spark", "dtype"),
    [
        (pa.float32(), FloatType(), np.float32),
        (pa.float64(), DoubleType(), np.float64),
        (pa.int8(), ByteType(), np.int64),
        (pa.int16(), ShortType(), np.int64),
        (pa.int32(), IntegerType(), np.int64),
        (pa.int64(), LongType(), np.int64),
        (pa.bool_(), BooleanType(), np.bool_),
    ],
)
def test_numbers_and_arrays_of_every_type(arrow: Any, spark: DataType, dtype: Any) -> None:
    rows = [[True, False, True], [False, False, True]] if arrow == pa.bool_() else [[1, 2, 3]] * 2
    expected = np.array(rows, dtype)
    assert same(read_features(lists(rows, arrow), ArrayType(spark)), expected)
    column = pa.array(rows[0], arrow)
    assert same(read_features(column, spark), expected[0][:, None])
    reading = choose_columns(schema_of(a=spark, b=spark), "a", "b")
    assert same(reading.read(batch_of(a=column, b=column))[1], expected[0])


@pytest.mark.parametrize(
    ("kinds", "dtype"),
    [
        (["float32", "float32"], np.float32),
        (["float32", "bool"], np.float32),
        (["float32", "float64"], np.float64),
        (["float32", "int32"], np.float64),
        (["int8", "int32"], np.int64),
        (["int8", "bool"], np.int64),
    ],
)
def test_columns_side_by_side_take_the_type_that_holds_them_all(
    kinds: list[str], dtype: Any
) -> None:
    spark = {
        "float32": FloatType(),
        "float64": DoubleType(),
        "int8": ByteType(),
        "int32": IntegerType(),
        "bool": BooleanType(),
    }
    columns = [np.array([1, 0, 1], kind) for kind in kinds]
    schema = schema_of(a=spark[kinds[0]], b=spark[kinds[1]])
    a, b = map(pa.array, columns)
    X, y = choose_columns(schema, ["b", "a"], ["a"]).read(pa.record_batch([b, a, a], [*"xyz"]))
    assert same(X, np.column_stack(columns[::-1]).astype(dtype))
    assert X.flags.c_contiguous
    assert y is not None
    assert y.shape == (3, 1)


@given(
    hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=2), elements=st.floats(-1e9, 1e9)),
    st.data(),
)
def test_a_slice_of_a_batch_has_the_rows_of_the_slice(X: Any, data: Any) -> None:
    a = data.draw(st.integers(0, len(X) - 1))
    b = data.draw(st.integers(a + 1, len(X)))
    batch = batch_of(x=lists(X.tolist()), v=pa.array([dense(*row) for row in X], VECTOR))
    for name, kind in (("x", ArrayType(DoubleType())), ("v", VectorUDT())):
        schema = schema_of(x=kind, v=kind)
        found, _ = choose_columns(schema, name, None).read(batch.select([name]).slice(a, b - a))
        assert same(found, X[a:b])


def test_arrays_are_read_without_a_copy() -> None:
    values = pa.array(np.arange(6.0))
    column = pa.ListArray.from_arrays(pa.array([0, 3, 6], pa.int32()), values)
    X = read_features(column, ArrayType(DoubleType()))
    assert np.shares_memory(X, values.to_numpy())
    column = pa.LargeListArray.from_arrays(pa.array([0, 3, 6], pa.int64()), values)
    assert np.shares_memory(read_features(column, ArrayType(DoubleType())), values.to_numpy())


# Vectors.


@st.composite
def vectors(draw: Any) -> tuple[list[dict[str, Any]], Any, list[Any]]:
    """Vectors of both kinds, the matrix that they are, and the entries that each one stores."""
    n, d = draw(st.integers(1, 8)), draw(st.integers(1, 6))
    numbers = st.sampled_from([0.0, -0.0, 1.5, -2.0])
    rows, matrix, stored = [], np.zeros((n, d)), []
    for i in range(n):
        if draw(st.booleans()):
            values = draw(st.lists(numbers, min_size=d, max_size=d))
            rows.append(dense(*values))
            matrix[i] = values
            stored.append([j for j in range(d) if values[j]])
        else:
            indices = sorted(draw(st.sets(st.integers(0, d - 1))))
            values = draw(st.lists(numbers, min_size=len(indices), max_size=len(indices)))
            rows.append(sparse(d, indices, values))
            matrix[i, indices] = values
            stored.append(indices)
    return rows, matrix, stored


@given(vectors(), st.data())
def test_vectors_of_both_kinds(drawn: Any, data: Any) -> None:
    rows, matrix, stored = drawn
    a = data.draw(st.integers(0, len(rows) - 1))
    X = read_features(pa.array(rows, VECTOR).slice(a), OldVectorUDT())
    assert X.dtype == np.float64
    if all(row["type"] == 1 for row in rows[a:]):
        assert same(X, matrix[a:])
        return
    assert isinstance(X, sp.csr_array)
    assert X.indices.dtype == X.indptr.dtype == np.int32
    assert same(X.toarray(), matrix[a:])
    found = [X.indices[X.indptr[i] : X.indptr[i + 1]].tolist() for i in range(X.shape[0])]
    assert found == stored[a:]  # in order; zeros that a sparse vector stores stay


def test_indices_out_of_order_are_sorted() -> None:
    X = read_features(pa.array([sparse(3, [2, 0], [5.0, 6.0])], VECTOR), VectorUDT())
    assert X.indices.tolist() == [0, 2]
    assert X.data.tolist() == [6.0, 5.0]


def test_targets_from_sparse_vectors_are_dense() -> None:
    reading = choose_columns(schema_of(x=DoubleType(), y=VectorUDT()), "x", "y")
    column = pa.array([sparse(3, [1], [5.0]), dense(1.0, 2.0, 3.0)], VECTOR)
    _, y = reading.read(batch_of(x=pa.array([1.0, 2.0]), y=column))
    assert same(y, np.array([[0.0, 5.0, 0.0], [1.0, 2.0, 3.0]]))


# Refusals.

ARRAY = ArrayType(DoubleType())


@pytest.mark.parametrize(
    ("column", "kind", "message"),
    [
        (pa.array([1.0, None]), DoubleType(), "hold no nulls, but .* holds one in row 1."),
        (pa.array([1, None], pa.int32()), IntegerType(), "no nulls, .* holds one in row 1."),
        (lists([[1.0], None]), ARRAY, "hold no nulls, but .* holds one in row 1."),
        (lists([[], [1.0, 2.0], [3.0, None]]), ARRAY, "no nulls, but .* holds one in row 2."),
        (lists([[1, 2], [3, None]], pa.int64()), ArrayType(LongType()), "holds one in row 1."),
        (pa.array([dense(1.0), None], VECTOR), VectorUDT(), "no nulls, .* holds one in row 1."),
        (
            pa.array([1.0, np.nan]),
            DoubleType(),
            "be finite, but .* holds NaN or infinity in row 1.",
        ),
        (
            pa.array([1.0, -np.inf]),
            DoubleType(),
            "be finite, but .* holds NaN or infinity in row 1.",
        ),
        (lists([[1.0, 2.0], [3.0, np.inf]]), ARRAY, "finite, .* holds NaN or infinity in row 1."),
        (lists([[np.inf], [-np.inf]]), ARRAY, "be finite, but .* holds NaN or infinity in row 0."),
        (
            pa.array([dense(1.0), dense(np.nan)], VECTOR),
            VectorUDT(),
            "holds NaN or infinity in row 1.",
        ),
        (
            pa.array([sparse(2, [], []), sparse(2, [0, 1], [1.0, np.nan])], VECTOR),
            VectorUDT(),
            "be finite, but .* holds NaN or infinity in row 1.",
        ),
        (
            lists([[1.0, 2.0], [3.0, 4.0], [5.0]]),
            ARRAY,
            "have as many numbers in every row, but .* has 2 in row 0 and 1 in row 2.",
        ),
        (pa.array([dense(1.0), dense(1.0, 2.0)], VECTOR), VectorUDT(), "1 in row 0 and 2 in row 1"),
        (
            pa.array([sparse(3, [], []), sparse(4, [], [])], VECTOR),
            VectorUDT(),
            "has 3 in row 0 and 4 in row 1.",
        ),
        (
            pa.array([sparse(3, [], []), dense(1.0, 2.0)], VECTOR),
            VectorUDT(),
            "has 3 in row 0 and 2 in row 1.",
        ),
        (lists([[], []]), ARRAY, "have at least one number in a row, but .* has none in row 0."),
        (pa.array([sparse(0, [], [])], VECTOR), VectorUDT(), "at least one number .* in row 0."),
        (
            pa.array([sparse(2, [0], [1.0]), sparse(2, [2], [1.0])], VECTOR),
            VectorUDT(),
            "hold valid vectors, but .* holds an invalid one in row 1.",
        ),
        (pa.array([sparse(2, [0], [1.0, 2.0])], VECTOR), VectorUDT(), "an invalid one in row 0."),
    ],
)
def test_bad_rows_are_refused_with_the_column_and_the_row(
    column: Any, kind: DataType, message: str
) -> None:
    for name, argument in (("my features", "features"), ("my label", "label")):
        schema = StructType([StructField(name, kind), StructField("other", DoubleType())])
        names = (name, "other") if argument == "features" else ("other", name)
        batch = batch_of(**{name: column, "other": pa.array(np.ones(len(column)))})
        with pytest.raises(BadRowsError, match=message) as caught:
            choose_columns(schema, *names).read(batch.select(list(names)))
        assert str(caught.value).startswith(f"{argument} must ")
        assert f"column {name!r}" in str(caught.value)
        assert str(caught.value).endswith(".")


def test_large_numbers_whose_sum_overflows_are_fine() -> None:
    X = read_features(lists([[1e308, 1e308]] * 3), ARRAY)
    assert np.array_equal(X, np.full((3, 2), 1e308))


def test_rows_outside_a_slice_are_not_looked_at() -> None:
    column = lists([[np.nan, 1.0], None, [1.0, 2.0], [3.0, 4.0], [None], [1.0]]).slice(2, 2)
    assert np.array_equal(read_features(column, ARRAY), [[1.0, 2.0], [3.0, 4.0]])


def test_a_partition_is_walked_through_batch_by_batch() -> None:
    reading: Reading = choose_columns(schema_of(x=DoubleType()), "x", None)
    batches = [batch_of(x=pa.array(values, pa.float64())) for values in ([1, 2], [], [3], [None])]
    walk = reading.walk(batches, partition=7)
    assert [(start, X.tolist()) for start, X, _ in (next(walk), next(walk))] == [
        (0, [[1.0], [2.0]]),
        (2, [[3.0]]),
    ]
    with pytest.raises(BadRowsError, match="holds one in row 3 of partition 7"):
        next(walk)
