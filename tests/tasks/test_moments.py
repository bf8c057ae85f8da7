"""Moments with weights and about means: what an intercept rests on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import dfwtrace as dt
from dfwtrace.data.shards import ROWS_IN_BLOCK, Shard, split_rows
from dfwtrace.tasks import Centre, Moments, join_weights
from dfwtrace.tasks.features.moments import feature_sums, first_moments

LAYOUTS = [np.asarray, np.asfortranarray, sp.csr_array]
DTYPES = [np.float32, np.float64]
SIZES = [1, 7, ROWS_IN_BLOCK + 3]


def rows_of(n: int, dtype: Any = np.float64) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(n)
    X, Y = rng.standard_normal((n, 4)).astype(dtype), rng.standard_normal((n, 3))
    weights = rng.choice([0.0, 0.5, 2.0], n)
    weights[0] = 1.0
    return X, Y, weights


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", SIZES)
def test_weighted_moments_are_the_weighted_products(layout: Any, dtype: Any, n: int) -> None:
    X, Y, weights = rows_of(n, dtype)
    moments = Moments.of(Shard(0, layout(X), join_weights(weights, Y)), weighted=True)
    wide = X.astype(np.float64)
    np.testing.assert_allclose(moments.A, (wide.T * weights) @ wide, atol=1e-9)
    np.testing.assert_allclose(moments.B, (wide.T * weights) @ Y, atol=1e-9)
    assert moments.half_norm == pytest.approx(0.5 * float(weights @ np.square(Y).sum(axis=1)))
    assert moments.weight == pytest.approx(weights.sum(), rel=1e-14)
    assert moments.n_rows == int(np.ceil(weights.sum()))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("weighted", [False, True])
def test_moments_about_the_means_are_those_of_centred_rows(
    layout: Any, dtype: Any, n: int, weighted: bool
) -> None:
    X, Y, weights = rows_of(n, dtype)
    weights = weights if weighted else np.ones(n)
    y = join_weights(weights, Y) if weighted else Y
    near = np.concatenate([np.zeros(4) if layout is sp.csr_array else X.mean(axis=0), Y[0]])
    parts = [
        Moments.of(shard, weighted, near).packed for shard in split_rows(layout(X), y, 3)
    ]  # some of them empty
    about, centre = Moments(np.sum(parts, axis=0), (5, 3)).about_means()
    wide = X.astype(np.float64)
    x_mean, y_mean = weights @ wide / weights.sum(), weights @ Y / weights.sum()
    np.testing.assert_allclose(near[:4] + centre.x, x_mean, atol=1e-12)
    np.testing.assert_allclose(near[4:] + centre.y, y_mean, atol=1e-12)
    X_c, Y_c = wide - x_mean, Y - y_mean
    np.testing.assert_allclose(about.A, (X_c.T * weights) @ X_c, atol=1e-9)
    np.testing.assert_allclose(about.B, (X_c.T * weights) @ Y_c, atol=1e-9)
    expected = 0.5 * float(weights @ np.square(Y_c).sum(axis=1))
    assert about.half_norm == pytest.approx(expected, abs=1e-9)
    assert about.half_norm >= 0.0
    assert about.weight == pytest.approx(weights.sum(), rel=1e-14)


def test_moments_about_the_means_of_rows_far_away_keep_their_digits() -> None:
    rng = np.random.default_rng(0)
    X_c, Y_c = rng.integers(-3, 4, (50, 4)) / 4.0, rng.integers(-3, 4, (50, 3)) / 4.0
    X, Y = X_c + 1e9, Y_c - 1e9  # exact
    near = np.concatenate([X.mean(axis=0), Y.mean(axis=0)])
    about, _ = Moments(Moments.of(Shard(0, X, Y), False, near).packed, (5, 3)).about_means()
    plain, _ = Moments(
        Moments.of(Shard(0, X_c, Y_c), False, np.zeros(7)).packed, (5, 3)
    ).about_means()
    np.testing.assert_allclose(about.packed, plain.packed, atol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", SIZES)
def test_first_moments_are_sums(layout: Any, dtype: Any, n: int) -> None:
    X, Y, weights = rows_of(n, dtype)
    wide = X.astype(np.float64)
    plain = first_moments(Shard(0, layout(X), Y), False)
    expected = np.concatenate([wide.sum(axis=0), Y.sum(axis=0), [n]])
    np.testing.assert_allclose(plain, expected, atol=1e-10)
    joined = Shard(0, layout(X), join_weights(weights, Y))
    expected = np.concatenate([weights @ wide, weights @ Y, [weights.sum()]])
    np.testing.assert_allclose(first_moments(joined, True), expected, atol=1e-10)
    np.testing.assert_allclose(feature_sums(joined, True), np.delete(expected, [4, 5, 6]), 1e-10)


def test_first_moments_of_float32_rows_are_summed_in_float64() -> None:
    X = np.ones((101, 1), np.float32)
    X[0] = 2.0**24
    assert feature_sums(Shard(0, X, None), False).tolist() == [2.0**24 + 100, 101.0]


def test_moments_of_no_rows_are_zero() -> None:
    empty = Shard(0, np.ones((0, 4)), np.ones((0, 3)))
    assert not first_moments(empty, False).any()
    assert not Moments.of(empty, False, np.ones(7)).packed.any()
    joined = Shard(0, np.ones((0, 4)), np.ones((0, 4)))
    assert not first_moments(joined, True).any()
    assert not Moments.of(joined, True, np.ones(7)).packed.any()


def test_the_intercept_of_a_centre_takes_it_to_its_targets(rng: np.random.Generator) -> None:
    W = dt.LowRankMatrix(rng.standard_normal((4, 2)), [0.5, 2.0], rng.standard_normal((3, 2)))
    centre = Centre(rng.standard_normal(4), rng.standard_normal(3))
    b = centre.intercept(W)
    np.testing.assert_allclose(centre.x @ W.to_dense() + b, centre.y, atol=1e-14)
    zero = centre.intercept(dt.LowRankMatrix.zeros((4, 3)))
    np.testing.assert_array_equal(zero, centre.y)
