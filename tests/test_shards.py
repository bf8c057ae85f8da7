"""Rows cut into shards and walked through in blocks, dense and sparse alike."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from dfwtrace.shards import RowBlocks, Shard, shard_bounds, slice_rows, split_rows

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
    assert sum(r.stop - r.start for r, _, _ in blocks) == n
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
