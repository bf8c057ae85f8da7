"""Rows as bytes and back, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, DoubleType, LongType, StructField, StructType
from tests.engines.spark.runs import as_they_are, assert_same_shards

from dfwtrace.data.shards import ArrayRows, Examined, Facts, Shard, shard_bounds, split_rows
from dfwtrace.engines.base import RowsChangedError
from dfwtrace.engines.spark import packing
from dfwtrace.engines.spark.dataframe import choose_columns
from dfwtrace.engines.spark.packing import FrameRows, assemble, pack, pack_batches

XS = ["float64", "float32", "int64", "sparse", "sparse32"]
YS = [None, "labels", "numbers", "columns"]


def data_of(n: int, d: int, x: str, y: str | None) -> tuple[Any, Any]:
    rng = np.random.default_rng(n)
    X = np.round(rng.standard_normal((n, d)), 1) * 10
    X[rng.random((n, d)) < 0.5] = 0.0
    if x.startswith("sparse"):
        X = sp.csr_array(X.astype(np.float32 if x == "sparse32" else np.float64))
        X.data[::3] = 0.0  # zeros that are stored
    else:
        X = X.astype(x)
    targets = {
        None: None,
        "labels": np.arange(n),
        "numbers": rng.standard_normal(n).astype(np.float32),
        "columns": rng.standard_normal((n, 3)),
    }
    return X, targets[y]


def ends_of(bounds: Sequence[tuple[int, int]]) -> Any:
    return np.array([stop for _, stop in bounds])


def packed_here(X: Any, y: Any, facts: Facts, bounds: Sequence[tuple[int, int]]) -> Any:
    """All rows in one table, with the groups' places for their keys."""
    batches = list(pack(X, y, 0, facts, ends_of(bounds), np.arange(len(bounds))))
    return pa.Table.from_batches(batches)


@given(
    st.integers(1, 20),
    st.integers(1, 5),
    st.sampled_from(XS),
    st.sampled_from(YS),
    st.integers(1, 9),
    st.integers(0, 9),
    st.randoms(use_true_random=False),
)
def test_rows_in_any_order_become_the_shards_of_the_whole(
    n: int, d: int, x: str, y: str | None, n_shards: int, n_first: int, random: Any
) -> None:
    X, targets = data_of(n, d, x, y)
    facts = ArrayRows.examined(X, targets, as_they_are).facts
    bounds = shard_bounds(n, n_shards)
    n_first = min(n_first, n_shards)
    groups = [
        (0, bounds[n_first - 1][1] if n_first else 0),
        (bounds[n_first - 1][1] if n_first else 0, n),
    ]
    table = packed_here(X, targets, facts, groups)
    found = []
    for key, (first, last) in enumerate([(0, n_first), (n_first, n_shards)]):
        places = np.flatnonzero(table["key"].to_numpy() == key).tolist()
        random.shuffle(places)
        mixed = table.take(pa.array(places, pa.int64())).combine_chunks()
        batches = mixed.to_batches(max_chunksize=random.randint(1, 6))  # slices, with offsets
        nothing = pa.RecordBatch.from_pylist([], schema=table.schema)
        batches.insert(random.randint(0, len(batches)), nothing)
        found += assemble(batches, facts, bounds[first:last], first)
    assert_same_shards(found, split_rows(X, targets, n_shards))


def test_a_packed_row_is_the_bytes_of_its_numbers() -> None:
    X, y = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32), np.array([[5], [6]])
    facts = ArrayRows.examined(X, y, as_they_are).facts
    rows = next(pack(X, y, 40, facts, np.array([41, 42]), np.array([7, 9]))).to_pylist()
    assert rows == [
        {"key": 7, "row": 40, "x": X[0].tobytes(), "y": y[0].tobytes()},
        {"key": 9, "row": 41, "x": X[1].tobytes(), "y": y[1].tobytes()},
    ]


def test_a_sparse_row_is_a_record_for_each_entry() -> None:
    X = sp.csr_array((np.array([5.0, 0.0]), [1, 2], [0, 2, 2]), shape=(2, 3))
    facts = ArrayRows.examined(X, None, as_they_are).facts
    rows = next(pack(X, None, 0, facts, np.array([2]), np.array([0]))).to_pylist()
    entries = np.array([(1, 5.0), (2, 0.0)], [("column", np.int32), ("value", np.float64)])
    assert [row["x"] for row in rows] == [entries.tobytes(), b""]
    assert [row["y"] for row in rows] == [b"", b""]


@pytest.mark.parametrize("x", ["float64", "sparse"])
def test_no_batch_is_larger_than_it_may_be(x: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_BATCH_BYTES", 300)
    X, y = data_of(50, 9, x, "labels")
    facts = ArrayRows.examined(X, y, as_they_are).facts
    batches = list(pack(X, y, 0, facts, np.array([50]), np.array([0])))
    cells = [sum(len(row["x"]) + len(row["y"]) for row in b.to_pylist()) for b in batches]
    assert len(batches) > 5
    assert max(cells) <= 300
    assert_same_shards(assemble(batches, facts, [(0, 50)], 0), split_rows(X, y, 1))


def test_a_row_that_is_larger_than_a_batch_may_be_goes_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packing, "_BATCH_BYTES", 30)
    X, _ = data_of(3, 9, "float64", None)
    facts = ArrayRows.examined(X, None, as_they_are).facts
    batches = list(pack(X, None, 0, facts, np.array([3]), np.array([0])))
    assert [batch.num_rows for batch in batches] == [1, 1, 1]


def test_large_binaries_are_read_too() -> None:
    X, y = data_of(6, 2, "float64", "labels")
    facts = ArrayRows.examined(X, y, as_they_are).facts
    table = packed_here(X, y, facts, [(0, 6)])
    kinds = [pa.int32(), pa.int64(), pa.large_binary(), pa.large_binary()]
    large = table.cast(pa.schema(list(zip(table.column_names, kinds, strict=True))))
    found = assemble(large.to_batches(max_chunksize=4), facts, [(0, 6)], 0)
    assert_same_shards(found, split_rows(X, y, 1))


@pytest.mark.parametrize("x", ["float64", "sparse"])
def test_missing_foreign_and_doubled_rows_are_noticed(x: str) -> None:
    X, y = data_of(10, 3, x, "labels")
    facts = ArrayRows.examined(X, y, as_they_are).facts
    table = packed_here(X, y, facts, [(0, 10)])

    def shards(table: Any, bounds: list[tuple[int, int]]) -> list[Shard]:
        return assemble(table.to_batches(), facts, bounds, 0)

    assert shards(table, [(0, 10)])
    with pytest.raises(RowsChangedError, match=r"but row 4 is missing: persist the DataFrame"):
        shards(pa.concat_tables([table.slice(0, 4), table.slice(5)]), [(0, 10)])
    with pytest.raises(RowsChangedError, match="row 2 is missing"):
        shards(table.slice(0, 0), [(2, 5)])
    with pytest.raises(RowsChangedError, match="some rows came twice"):
        shards(pa.concat_tables([table, table.slice(3, 1)]), [(0, 10)])
    for bounds in ([(0, 9)], [(1, 10)]):
        with pytest.raises(RowsChangedError, match="do not belong to"):
            shards(table, bounds)


def test_rows_of_another_length_are_noticed() -> None:
    X, y = data_of(4, 3, "float64", "labels")
    facts = ArrayRows.examined(X, y, as_they_are).facts
    table = packed_here(X[:, :2], y, facts, [(0, 4)])
    with pytest.raises(RowsChangedError, match="differ in length"):
        assemble(table.to_batches(), facts, [(0, 4)], 0)
    X, y = data_of(4, 3, "sparse", "labels")
    sparse_facts = ArrayRows.examined(X, y, as_they_are).facts
    with pytest.raises(RowsChangedError, match="differ in kind"):
        assemble(table.to_batches(), sparse_facts, [(0, 4)], 0)


def test_no_shards_of_no_rows() -> None:
    X, _ = data_of(4, 3, "sparse", None)
    facts = ArrayRows.examined(X, None, as_they_are).facts
    assert assemble([], facts, [], 5) == []
    (empty,) = assemble([], facts, [(2, 2)], 5)
    assert empty.index == 5
    assert empty.X.shape == (0, 3)


SCHEMA = StructType(
    [StructField("x", ArrayType(DoubleType())), StructField("y", ArrayType(LongType()))]
)


def pack_partition(
    X: Any, y: Any, facts: Facts, counts: list[int], partition: int, examine: Any = as_they_are
) -> list[Any]:
    """What a partition of these rows, read as arrays from two batches, is packed as."""
    columns = [pa.array(X.tolist()), pa.array(y.tolist(), pa.list_(pa.int64()))]
    batches = pa.table(columns, names=["x", "y"]).to_batches(max_chunksize=2)
    reading = choose_columns(SCHEMA, "x", "y")
    rows = FrameRows(None, reading, examine, facts, tuple(counts))
    return list(pack_batches(batches, rows, np.array([100]), np.array([3]), partition))


def test_a_partition_is_packed_with_the_rows_before_it_counted() -> None:
    X, y = np.arange(6.0).reshape(3, 2), np.arange(3)[:, None]
    facts = ArrayRows.examined(X, y, as_they_are).facts
    table = pa.Table.from_batches(pack_partition(X, y, facts, [5, 0, 3], 2))
    assert table["row"].to_pylist() == [5, 6, 7]
    assert table["x"].to_pylist() == [row.tobytes() for row in X]


def test_a_partition_without_targets_is_packed() -> None:
    X = np.arange(6.0).reshape(3, 2)
    facts = ArrayRows.examined(X, None, as_they_are).facts
    table = pa.Table.from_batches(
        pack_partition(X, np.zeros((3, 1)), facts, [3], 0, with_targets_gone)
    )
    assert table["x"].to_pylist() == [row.tobytes() for row in X]
    assert table["y"].to_pylist() == [b""] * 3


def with_targets_gone(X: Any, y: Any) -> Examined:
    return Examined(X, None, (2, 1))


def with_targets_wider(X: Any, y: Any) -> Examined:
    return Examined(X, np.tile(y, (1, 2)), (2, 1))


def with_features_wider(X: Any, y: Any) -> Examined:
    return Examined(np.tile(X, (1, 2)), y, (2, 1))


def with_features_sparse(X: Any, y: Any) -> Examined:
    return Examined(sp.csr_array(X), y, (2, 1))


def with_more_labels(X: Any, y: Any) -> Examined:
    return Examined(X, y, (2, 4001))


def with_more_features(X: Any, y: Any) -> Examined:
    return Examined(X, y, (3, 1))


def test_a_partition_that_is_not_what_it_was_is_refused() -> None:
    X, y = np.arange(6.0).reshape(3, 2), np.arange(3)[:, None]
    facts = ArrayRows.examined(X, y, as_they_are).facts
    with pytest.raises(RowsChangedError, match="partition 1 had 4 rows and now has 3: persist"):
        pack_partition(X, y, facts, [5, 4], 1)
    with pytest.raises(RowsChangedError, match="partition 1 had 1 rows and now has more"):
        pack_partition(X, y, facts, [5, 1], 1)
    with pytest.raises(RowsChangedError, match="partition 2 had 0 rows and now has more"):
        pack_partition(X, y, facts, [5, 1], 2)
    for examine in (
        with_targets_gone,
        with_targets_wider,
        with_features_wider,
        with_features_sparse,
        with_more_labels,
        with_more_features,
    ):
        with pytest.raises(RowsChangedError, match="differ in kind"):
            pack_partition(X, y, facts, [3], 0, examine)


def with_indices_out_of_order(X: Any, y: Any) -> Examined:
    flipped = sp.csr_array(np.ascontiguousarray(X[:, ::-1]))
    flipped.indices = X.shape[1] - 1 - flipped.indices
    flipped.has_sorted_indices = False
    return Examined(flipped, y, (2, 1))


def test_dense_batches_become_sparse_where_others_are() -> None:
    X, y = np.array([[1.0, 0.0], [0.0, 0.0], [2.0, 3.0]]), np.arange(3)[:, None]
    facts = ArrayRows.examined(sp.csr_array(X), y, as_they_are).facts
    for examine in (as_they_are, with_indices_out_of_order):
        batches = pack_partition(X, y, facts, [3], 0, examine)
        found = assemble(batches, facts, [(0, 3)], 0)
        assert_same_shards(found, split_rows(sp.csr_array(X), y, 1))
