"""Second moments: what they are, in which precision, and that they add up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from dfwtrace.data.shards import ROWS_IN_BLOCK, Shard, split_rows
from dfwtrace.tasks import GramTask, Moments, folds_of

LAYOUTS = [np.asarray, np.asfortranarray, sp.csr_array]
DTYPES = [np.float32, np.float64]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("X_dtype", DTYPES)
@pytest.mark.parametrize("Y_dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 7, ROWS_IN_BLOCK + 3])
def test_moments_are_the_products(layout: Any, X_dtype: Any, Y_dtype: Any, n: int) -> None:
    rng = np.random.default_rng(n)
    X = rng.standard_normal((n, 5)).astype(X_dtype)
    Y = rng.standard_normal((n, 3)).astype(Y_dtype)
    moments = Moments.of(Shard(0, layout(X), Y))
    wide_X, wide_Y = X.astype(np.float64), Y.astype(np.float64)
    np.testing.assert_allclose(moments.A, wide_X.T @ wide_X, rtol=1e-12, atol=1e-10)
    np.testing.assert_allclose(moments.B, wide_X.T @ wide_Y, rtol=1e-12, atol=1e-10)
    assert moments.half_norm == pytest.approx(0.5 * np.square(wide_Y).sum(), rel=1e-12)
    assert moments.n_rows == n


@pytest.mark.parametrize("layout", LAYOUTS)
def test_float32_rows_are_summed_in_float64(layout: Any) -> None:
    # 2²⁴ + 1 is no float32: a float32 sum would never get past 2²⁴.
    X = np.ones((101, 1), np.float32)
    X[0] = 2.0**12
    moments = Moments.of(Shard(0, layout(X), X.copy()))
    assert moments.A[0, 0] == moments.B[0, 0] == 2.0**24 + 100
    assert moments.half_norm == 0.5 * (2.0**24 + 100)


def test_moments_of_shards_add_up_to_those_of_all() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((20, 4)), rng.standard_normal((20, 3))
    whole = Moments.of(Shard(0, X, Y))
    parts = [Moments.of(shard).packed for shard in split_rows(X, Y, 30)]  # some of them empty
    total = Moments(np.sum(parts, axis=0), (4, 3))
    np.testing.assert_allclose(total.packed, whole.packed, atol=1e-12)
    assert total.n_rows == 20


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("X_dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 23, ROWS_IN_BLOCK + 3])
@pytest.mark.parametrize("n_folds", [2, 5])
def test_moments_of_folds_are_those_of_their_rows_and_add_up_to_all(
    layout: Any, X_dtype: Any, n: int, n_folds: int
) -> None:
    rng = np.random.default_rng(n)
    X, Y = rng.standard_normal((n, 4)).astype(X_dtype), rng.standard_normal((n, 3))
    shard = Shard(2, layout(X), Y)
    told = GramTask().fold_moments(shard, n_folds, 7, 3, np.zeros(0))
    packed = told.reshape(n_folds + 1, -1)
    np.testing.assert_allclose(packed.sum(axis=0), GramTask().moments(shard), atol=1e-9)
    assert not packed[-1].any()  # every row is in a fold
    fold_of = folds_of(shard, n_folds, 7, 3)
    for fold in range(n_folds):
        rows = fold_of == fold
        moments = Moments(packed[fold], (4, 3))
        wide = X[rows].astype(np.float64)
        np.testing.assert_allclose(moments.A, wide.T @ wide, atol=1e-9)
        np.testing.assert_allclose(moments.B, wide.T @ Y[rows], atol=1e-9)
        assert moments.half_norm == pytest.approx(0.5 * np.square(Y[rows]).sum(), rel=1e-12)
        assert moments.n_rows == np.count_nonzero(rows)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_moments_of_the_folds_of_no_rows_are_zero(layout: Any) -> None:
    shard = Shard(0, layout(np.ones((0, 4))), np.ones((0, 3)))
    told = GramTask().fold_moments(shard, 3, 0, 0, np.zeros(0))
    np.testing.assert_array_equal(told, np.zeros(4 * 30))


def test_every_row_is_in_one_fold_and_folds_are_of_one_size() -> None:
    X = np.zeros((103, 2))
    sizes = np.bincount(folds_of(Shard(0, X, None), 5, 0), minlength=5)
    assert sorted(sizes) == [20, 20, 21, 21, 21]
    for other in (folds_of(Shard(1, X, None), 5, 0), folds_of(Shard(0, X, None), 5, 1)):
        assert not np.array_equal(other, folds_of(Shard(0, X, None), 5, 0))


@pytest.mark.parametrize("n_folds", [2, 5, 7])
def test_folds_are_of_one_size_over_all_shards_too(n_folds: int) -> None:
    """Shards of one row each must not put all of them into the first fold."""
    for n_shards in (1, 4, 40):
        told, before = [], 0
        for shard in split_rows(np.zeros((23, 2)), None, n_shards):
            told.append(folds_of(shard, n_folds, 0, before))
            before += shard.n_rows
        sizes = np.bincount(np.concatenate(told), minlength=n_folds)
        assert sizes.sum() == 23
        assert sizes.max() - sizes.min() <= 1


def test_folds_may_be_told_and_rows_in_none_come_last() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((9, 4)), rng.standard_normal((9, 3))
    fold_of = np.array([0, 1, -1, 1, 0, 0, -3, 1, 1])
    packed = GramTask().fold_moments(Shard(0, X, Y), 2, 0, 0, fold_of.astype(float)).reshape(3, -1)
    for part, rows in zip(packed, (fold_of == 0, fold_of == 1, fold_of < 0), strict=True):
        np.testing.assert_allclose(part, GramTask().moments(Shard(0, X[rows], Y[rows])), atol=1e-12)
    assert Moments(packed[2], (4, 3)).n_rows == 2
