"""Rows cut into shards and walked through in blocks, dense and sparse alike."""

from __future__ import annotations

import pickle
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from dfwtrace.data.shards import (
    ROWS_IN_BLOCK,
    RowBlocks,
    Shard,
    compressed_rows,
    shard_bounds,
    slice_rows,
    split_rows,
)

LAYOUTS = [np.asarray, np.asfortranarray, sp.csr_array, sp.csr_matrix]


def as_dense(X: Any) -> Any:
    return X.toarray() if sp.issparse(X) else np.asarray(X)


def random_rows(n: int, d: int, dtype: Any = np.float64) -> Any:
    rng = np.random.default_rng(n)
    X = rng.standard_normal((n, d)).astype(dtype)
    X[rng.random((n, d)) < 0.4] = 0.0
    return X


@given(st.integers(0, 10_000), st.integers(1, 200))
def test_bounds_cover_all_rows_in_order_and_evenly(n_rows: int, n_shards: int) -> None:
    bounds = shard_bounds(n_rows, n_shards)
    assert len(bounds) == n_shards
    assert bounds[0][0] == 0
    assert bounds[-1][1] == n_rows
    assert all(a[1] == b[0] for a, b in pairwise(bounds))
    sizes = [stop - start for start, stop in bounds]
    assert min(sizes) >= 0
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("n_shards", [1, 3, 10, 25])
def test_shards_hold_all_rows_once(layout: Any, n_shards: int) -> None:
    X, y = random_rows(10, 4), np.arange(10)
    shards = split_rows(layout(X), y, n_shards)
    assert [shard.index for shard in shards] == list(range(n_shards))
    assert sum(shard.n_rows for shard in shards) == 10
    np.testing.assert_array_equal(np.vstack([as_dense(shard.X) for shard in shards]), X)
    np.testing.assert_array_equal(np.concatenate([shard.targets for shard in shards]), y)


def test_shards_share_the_callers_memory(tmp_path: Path) -> None:
    X, y = random_rows(20, 4), np.arange(20.0)
    on_disk = np.memmap(tmp_path / "X", dtype=np.float64, mode="w+", shape=X.shape)
    on_disk[:] = X
    sparse = sp.csr_array(X)
    for data in (X, np.asfortranarray(X), on_disk):
        for shard in split_rows(data, y, 3):
            assert np.shares_memory(shard.X, data)
            assert np.shares_memory(shard.targets, y)
    for shard in split_rows(sparse, y, 3):
        assert np.shares_memory(shard.X.data, sparse.data)
        assert np.shares_memory(shard.X.indices, sparse.indices)


def test_a_shard_without_targets_says_so() -> None:
    shards = split_rows(np.ones((3, 2)), None, 2)
    assert all(shard.y is None for shard in shards)
    with pytest.raises(ValueError, match="y is missing"):
        _ = Shard(0, np.ones((1, 1)), None).targets


@given(st.integers(0, 12), st.integers(0, 12))
def test_slices_are_the_rows_asked_for(a: int, b: int) -> None:
    X = random_rows(12, 3)
    X[4] = 0.0  # an empty row in the sparse form
    start, stop = min(a, b), max(a, b)
    for layout in LAYOUTS:
        part = slice_rows(layout(X), start, stop)
        assert part.shape == (stop - start, 3)
        np.testing.assert_array_equal(as_dense(part), X[start:stop])


@given(st.integers(0, 40), st.integers(1, 6), st.integers(1, 50), st.sampled_from(LAYOUTS))
def test_block_products_equal_the_whole_ones(n: int, d: int, rows: int, layout: Any) -> None:
    rng = np.random.default_rng([n, d])
    X = random_rows(n, d)
    blocks = RowBlocks(layout(X), rows)
    assert blocks.shape == (n, d)
    assert sum(block.rows.stop - block.rows.start for block in blocks) == n
    for tail in ((), (3,), (0,)):
        U, T = rng.standard_normal((d, *tail)), rng.standard_normal((n, *tail))
        np.testing.assert_allclose(blocks.times(U), X @ U, atol=1e-12)
        np.testing.assert_allclose(blocks.transpose_times(T), X.T @ T, atol=1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_float32_rows_stay_so_and_their_sums_do_not(layout: Any) -> None:
    # 2²⁴ + 1 is no float32: a float32 sum would never get past 2²⁴.
    X = np.ones((101, 1), np.float32)
    X[0] = 2.0**24
    blocks = RowBlocks(layout(X), rows=1)
    assert blocks.times(np.ones(1)).dtype == np.float32
    total = blocks.transpose_times(np.ones(101, np.float32))
    assert total.dtype == np.float64
    assert total[0] == 2.0**24 + 100


@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("of_U", [np.float32, np.float64])
def test_products_of_more_features_than_stored_numbers(
    centre: bool, dtype: Any, of_U: Any, rng: np.random.Generator
) -> None:
    n, d = 12, 300
    X = np.where(rng.random((n, d)) < 0.01, rng.standard_normal((n, d)), 0.0).astype(dtype)
    c = rng.standard_normal(d) if centre else None
    blocks, moved = RowBlocks(sp.csr_array(X), 5, c), X - (0.0 if c is None else c)
    atol = 1e-12 if dtype == of_U == np.float64 else 1e-4
    for tail in ((), (3,), (1,), (0,)):
        U, T = rng.standard_normal((d, *tail)).astype(of_U), rng.standard_normal((n, *tail))
        for order in (U, np.asfortranarray(U), np.repeat(U, 2, axis=0)[::2]):
            product = blocks.times(order)
            assert product.dtype == dtype
            np.testing.assert_allclose(product, moved @ U, atol=atol)
        np.testing.assert_allclose(blocks.transpose_times(T.astype(dtype)), moved.T @ T, atol=atol)


def test_products_take_memory_once_however_many_blocks_there_are() -> None:
    n, d, k = 1000, 100_000, 4
    X = sp.csr_array((np.ones(n), 7 * np.arange(n), np.arange(n + 1)), shape=(n, d))
    blocks, T = RowBlocks(X, 10, np.zeros(d)), np.ones((n, k), np.float32)
    U = np.asfortranarray(np.ones((d, k)))
    for work, size in ((lambda: blocks.times(U), n), (lambda: blocks.transpose_times(T), d)):
        work()  # compiles
        tracemalloc.start()
        work()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2.2 * 8 * size * k + 50_000


def digest(X: Any, y: Any) -> bytes:
    return Shard(0, X, y).digest()


def changed(array: Any, place: Any = -1) -> Any:
    """The same array but for the last bit of one number."""
    other = array.copy()
    other[place] = np.nextafter(other[place], np.inf) if other.dtype.kind == "f" else 1
    return other


@pytest.mark.parametrize("n", [1, 10, ROWS_IN_BLOCK, 2 * ROWS_IN_BLOCK + 1])
@pytest.mark.parametrize("layout", [np.asarray, np.asfortranarray])
def test_a_digest_changes_with_any_change_of_a_dense_shard(n: int, layout: Any) -> None:
    X, y = random_rows(n, 3), np.arange(float(n))
    original = digest(layout(X), y)
    assert len(original) == 16
    others = [
        (changed(X, (0, 0)), y),
        (changed(X, (-1, -1)), y),
        (X, changed(y)),
        (X, None),
        (X.astype(np.float32), y),
        (X, y.astype(np.float32)),
        (X.reshape(1, -1), y) if n > 1 else (X.T, y),
        (X, y.reshape(-1, 1)),
    ]
    digests = {digest(layout(A), b) for A, b in others}
    assert len(digests) == len(others)
    assert original not in digests


def test_a_digest_changes_with_any_change_of_a_sparse_shard() -> None:
    X, y = sp.csr_array(random_rows(30, 5)), np.arange(30)
    original = digest(X, y)
    assert original == digest(X.copy(), y.copy())
    moved, other_data = X.copy(), X.copy()
    moved.indices[0] = (moved.indices[0] + 1) % 5
    other_data.data = changed(other_data.data)
    shifted = X.copy()
    shifted.indptr[1] = 0
    digests = {digest(other, y) for other in (moved, other_data, shifted, X.toarray())}
    assert len(digests) == 4
    assert original not in digests


def test_a_digest_does_not_depend_on_where_the_numbers_lie() -> None:
    X, y = random_rows(ROWS_IN_BLOCK + 5, 3), np.arange(ROWS_IN_BLOCK + 5)
    wide = np.zeros((X.shape[0], 7))
    wide[:, 1:7:2] = X
    assert len({digest(A, y) for A in (X, np.asfortranarray(X), wide[:, 1:7:2])}) == 1


def test_shards_without_rows_have_a_digest_too() -> None:
    for layout in LAYOUTS:
        empty = layout(np.zeros((0, 3)))
        assert digest(empty, np.zeros(0)) == digest(empty.copy(), np.zeros(0))
        assert digest(empty, np.zeros(0)) != digest(empty, None)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_bytes_of_a_shard_are_those_of_its_numbers(layout: Any) -> None:
    X = layout(random_rows(10, 4, np.float32))
    assert Shard(0, X, None).n_bytes == 4 * X.size


@pytest.mark.parametrize("n", [0, 1, 9])
def test_compressed_rows_share_their_arrays(n: int) -> None:
    X = sp.csr_array(random_rows(n, 4, np.float32))
    rows = compressed_rows(X.data, X.indices, X.indptr, 4)
    assert rows.shape == (n, 4)
    assert rows.dtype == np.float32
    assert all(a is b for a, b in [(rows.data, X.data), (rows.indices, X.indices)])
    assert rows.indptr is X.indptr
    np.testing.assert_array_equal(rows.toarray(), X.toarray())


@given(st.integers(1, 40), st.integers(1, 6), st.integers(1, 50), st.sampled_from(LAYOUTS))
def test_products_with_a_centre_are_those_of_centred_rows(
    n: int, d: int, rows: int, layout: Any
) -> None:
    rng = np.random.default_rng([n, d])
    X, centre = random_rows(n, d), rng.standard_normal(d)
    blocks = RowBlocks(layout(X), rows, centre)
    for copy in (blocks, pickle.loads(pickle.dumps(blocks))):
        for tail in ((), (3,), (0,)):
            U, T = rng.standard_normal((d, *tail)), rng.standard_normal((n, *tail))
            np.testing.assert_allclose(copy.times(U), (X - centre) @ U, atol=1e-12)
            np.testing.assert_allclose(copy.transpose_times(T), (X - centre).T @ T, atol=1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_products_with_a_centre_keep_their_types(layout: Any) -> None:
    blocks = RowBlocks(layout(random_rows(9, 4, np.float32)), 4, np.ones(4))
    assert blocks.times(np.ones((4, 2))).dtype == np.float32
    assert blocks.transpose_times(np.ones((9, 2), np.float32)).dtype == np.float64


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
def test_lengths_of_rows(layout: Any, centred: bool, scaled: bool) -> None:
    X, rng = random_rows(9, 4, np.float32), np.random.default_rng(1)
    centre, scale = rng.standard_normal(4), rng.uniform(0.5, 2.0, 4)
    blocks = RowBlocks(layout(X), 4, centre if centred else None)
    wanted = (X - centre * centred) / (scale if scaled else 1.0)
    lengths = [block.lengths(scale if scaled else None) for block in blocks]
    np.testing.assert_allclose(np.concatenate(lengths), np.linalg.norm(wanted, axis=1), rtol=1e-6)
    assert all(each.dtype == np.float64 for each in lengths)
