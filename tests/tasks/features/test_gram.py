"""Second moments: of rows, of folds, with weights and about means; what a summary allows for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import dfwtrace as dt
from dfwtrace.data.shards import ROWS_IN_BLOCK, Folds, Shard, random_folds, split_rows
from dfwtrace.losses import SquaredLoss
from dfwtrace.tasks.features.gram import GramTask, Moments
from dfwtrace.tasks.features.implicit import ImplicitTask
from dfwtrace.tasks.program import FoldProgram
from dfwtrace.tasks.task import Centre, join_weights

LAYOUTS = [np.asarray, np.asfortranarray, sp.csr_array]
DTYPES = [np.float32, np.float64]
SIZES = [1, 7, ROWS_IN_BLOCK + 3]
GRAM, WEIGHTED = GramTask(SquaredLoss()), GramTask(SquaredLoss(), weighted=True)
of_any_rows = [
    pytest.mark.parametrize("layout", LAYOUTS),
    pytest.mark.parametrize("dtype", DTYPES),
    pytest.mark.parametrize("n", SIZES),
]


def for_any_rows(test: Any) -> Any:
    for mark in of_any_rows:
        test = mark(test)
    return test


def rows_of(n: int, dtype: Any = np.float64) -> tuple[Any, Any, Any]:
    """Features, targets in the other precision, and weights, some of which are zero."""
    rng = np.random.default_rng(n)
    X, Y = rng.standard_normal((n, 4)).astype(dtype), rng.standard_normal((n, 3))
    weights = rng.choice([0.0, 0.5, 2.0], n)
    weights[0] = 1.0
    return X, Y.astype(DTYPES[dtype is np.float32]), weights


def check(moments: Moments, X: Any, Y: Any, weights: Any) -> None:
    """They are the weighted products."""
    X, Y = X.astype(np.float64), Y.astype(np.float64)
    np.testing.assert_allclose(moments.A, (X.T * weights) @ X, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(moments.B, (X.T * weights) @ Y, rtol=1e-12, atol=1e-9)
    half_norm = 0.5 * float(weights @ np.square(Y).sum(axis=1))
    assert moments.half_norm == pytest.approx(half_norm, rel=1e-12, abs=1e-9)
    assert moments.half_norm >= 0.0
    assert moments.weight == pytest.approx(weights.sum(), rel=1e-14)
    assert moments.n_rows == int(np.ceil(weights.sum()))


@for_any_rows
def test_moments_are_the_products(layout: Any, dtype: Any, n: int) -> None:
    X, Y, weights = rows_of(n, dtype)
    check(Moments.of(Shard(0, layout(X), Y)), X, Y, np.ones(n))
    joined = Shard(0, layout(X), join_weights(weights, Y))
    check(Moments.of(joined, weighted=True), X, Y, weights)


@for_any_rows
@pytest.mark.parametrize("weighted", [False, True])
def test_moments_about_the_means_are_those_of_centred_rows(
    layout: Any, dtype: Any, n: int, weighted: bool
) -> None:
    X, Y, weights = rows_of(n, dtype)
    weights = weights if weighted else np.ones(n)
    y = join_weights(weights, Y) if weighted else Y
    near = np.concatenate([X.mean(axis=0), Y[0]]).astype(np.float64)
    near[:2] = 0.0  # as columns that stay sparse are left
    shards = split_rows(layout(X), y, 3)  # some of them empty
    parts = [Moments.of(shard, weighted, near).packed for shard in shards]
    about, centre = Moments(np.sum(parts, axis=0), (5, 3)).about_means()
    wide_X, wide_Y = X.astype(np.float64), Y.astype(np.float64)
    x_mean, y_mean = weights @ wide_X / weights.sum(), weights @ wide_Y / weights.sum()
    np.testing.assert_allclose(near[:4] + centre.x, x_mean, atol=1e-12)
    np.testing.assert_allclose(near[4:] + centre.y, y_mean, atol=1e-12)
    check(about, wide_X - x_mean, wide_Y - y_mean, weights)


def test_moments_about_the_means_of_rows_far_away_keep_their_digits() -> None:
    rng = np.random.default_rng(0)
    X_c, Y_c = rng.integers(-3, 4, (50, 4)) / 4.0, rng.integers(-3, 4, (50, 3)) / 4.0
    X, Y = X_c + 1e9, Y_c - 1e9  # exact
    near = np.concatenate([X.mean(axis=0), Y.mean(axis=0)])
    plain, _ = Moments(
        Moments.of(Shard(0, X_c, Y_c), False, np.zeros(7)).packed, (5, 3)
    ).about_means()
    for layout in (np.asarray, sp.csr_array):
        packed = Moments.of(Shard(0, layout(X), Y), False, near).packed
        about, _ = Moments(packed, (5, 3)).about_means()
        np.testing.assert_allclose(about.packed, plain.packed, atol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_float32_rows_are_summed_in_float64(layout: Any) -> None:
    # 2²⁴ + 1 is no float32: a float32 sum would never get past 2²⁴.
    X = np.ones((101, 1), np.float32)
    X[0] = 2.0**12
    moments = Moments.of(Shard(0, layout(X), X.copy()))
    assert moments.A[0, 0] == moments.B[0, 0] == 2.0**24 + 100
    assert moments.half_norm == 0.5 * (2.0**24 + 100)
    X[0] = 2.0**24
    assert GRAM.first_moments(Shard(0, layout(X), X))[:2].tolist() == [2.0**24 + 100] * 2


@for_any_rows
def test_first_moments_are_sums(layout: Any, dtype: Any, n: int) -> None:
    """And say what share of a sparse column is stored."""
    X, Y, weights = rows_of(n, dtype)
    X[n // 2 :, 0] = 0.0
    joined = Shard(0, layout(X), join_weights(weights, Y))
    wide = X.astype(np.float64)
    stored = weights @ (wide != 0.0) if layout is sp.csr_array else np.full(4, weights.sum())
    expected = np.concatenate([weights @ wide, weights @ Y, stored, [weights.sum()]])
    np.testing.assert_allclose(WEIGHTED.first_moments(joined), expected, atol=1e-10)
    plain = GRAM.first_moments(Shard(0, layout(X), Y))
    np.testing.assert_allclose(plain[:4], wide.sum(axis=0), atol=1e-10)
    assert plain[-1] == n
    scores = ImplicitTask(SquaredLoss(), weighted=True).first_moments(joined)
    np.testing.assert_allclose(scores, [*(weights @ wide), weights.sum()], atol=1e-10)


def test_moments_of_shards_add_up_to_those_of_all() -> None:
    X, Y, _ = rows_of(20)
    whole = Moments.of(Shard(0, X, Y))
    parts = [GRAM.moments(shard) for shard in split_rows(X, Y, 30)]  # some of them empty
    np.testing.assert_allclose(np.sum(parts, axis=0), whole.packed, atol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_moments_of_no_rows_are_zero(layout: Any) -> None:
    empty, joined = (Shard(0, layout(np.ones((0, 4))), np.ones((0, m))) for m in (3, 4))
    for task, shard in ((GRAM, empty), (WEIGHTED, joined)):
        assert not task.first_moments(shard).any()
        assert not task.moments(shard, np.ones(7)).any()
        assert not task.fold_moments(shard, np.zeros(0), 3).any()


def test_the_intercept_of_a_centre_takes_it_to_its_targets(rng: np.random.Generator) -> None:
    W = dt.LowRankMatrix(rng.standard_normal((4, 2)), [0.5, 2.0], rng.standard_normal((3, 2)))
    centre = Centre(rng.standard_normal(4), rng.standard_normal(3))
    b = centre.intercept(W)
    np.testing.assert_allclose(centre.x @ W.to_dense() + b, centre.y, atol=1e-14)
    zero = centre.intercept(dt.LowRankMatrix.zeros((4, 3)))
    np.testing.assert_array_equal(zero, centre.y)


# Folds


@for_any_rows
@pytest.mark.parametrize("n_folds", [2, 5])
def test_moments_of_folds_are_those_of_their_rows_and_add_up_to_all(
    layout: Any, dtype: Any, n: int, n_folds: int
) -> None:
    X, Y, _ = rows_of(n, dtype)
    shard = Shard(2, layout(X), Y)
    program = FoldProgram(GRAM, (4, 3), Folds(n_folds, 7, np.zeros(0)))
    packed = program.fold_moments(shard, np.array([0, 0, 3])).reshape(n_folds + 1, -1)
    np.testing.assert_allclose(packed.sum(axis=0), GRAM.moments(shard), atol=1e-9)
    assert not packed[-1].any()  # every row is in a fold
    fold_of = random_folds(shard, n_folds, 7, 3)
    for fold in range(n_folds):
        rows = fold_of == fold
        check(Moments(packed[fold], (4, 3)), X[rows], Y[rows], np.ones(rows.sum()))


@pytest.mark.parametrize("n_folds", [2, 5, 7])
@pytest.mark.parametrize("n_shards", [1, 4, 40])
def test_folds_are_random_and_of_one_size_over_all_shards(n_folds: int, n_shards: int) -> None:
    """Shards of one row each must not put all of them into the first fold."""
    given, before = [], 0
    for shard in split_rows(np.zeros((23, 2)), None, n_shards):
        given.append(random_folds(shard, n_folds, 0, before))
        before += shard.n_rows
    sizes = np.bincount(np.concatenate(given), minlength=n_folds)
    assert sizes.sum() == 23
    assert sizes.max() - sizes.min() <= 1
    first, *others = (
        random_folds(Shard(index, np.zeros((103, 2)), None), n_folds, seed)
        for index, seed in ((0, 0), (1, 0), (0, 1))
    )
    assert not any(np.array_equal(other, first) for other in others)


def test_given_folds_reach_the_rows_of_their_shard_and_rows_in_none_come_last() -> None:
    X, Y, _ = rows_of(9)
    fold_of = np.array([0, 1, -1, 1, 0, 0, -3, 1, 1.0])
    program = FoldProgram(GRAM, (4, 3), Folds(2, 0, fold_of))
    before = np.array([0.0, 3.0, 6.0])
    parts = [program.fold_moments(shard, before) for shard in split_rows(X, Y, 3)]
    packed = np.sum(parts, axis=0).reshape(3, -1)
    for part, rows in zip(packed, (fold_of == 0, fold_of == 1, fold_of < 0), strict=True):
        np.testing.assert_allclose(part, program.moments(Shard(0, X[rows], Y[rows])), atol=1e-6)
    assert Moments(packed[2], (4, 3)).n_rows == 2


# What a sum keeps


def total_over(shards: list[Shard], task: GramTask = GRAM) -> Any:
    return lambda method, *args: np.sum([getattr(task, method)(s, *args) for s in shards], axis=0)


def test_sparse_columns_are_centred_only_where_most_of_them_is_stored() -> None:
    """Half of a column's rows stored: its mean takes one bit, and it stays sparse."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3)) + 1e6
    X[::2, 1] = 0.0
    X[1::3, 2] = 0.0
    Y = rng.standard_normal((40, 2))
    shards = split_rows(sp.csr_array(X), Y, 3)
    (near,) = GRAM._near_means(total_over(shards), (3, 2), sparse=True)
    means = X.mean(axis=0)
    np.testing.assert_allclose(near, [means[0], 0.0, means[2], *Y.mean(axis=0)], rtol=1e-12)
    (dense,) = GRAM._near_means(total_over(split_rows(X, Y, 3)), (3, 2), sparse=False)
    np.testing.assert_allclose(dense[:3], means, rtol=1e-12)
    summary = GRAM.summarise(total_over(shards), (3, 2), centred=True, sparse=True, local=False)
    assert summary.centre is not None
    np.testing.assert_allclose(summary.centre.x, means, rtol=1e-12)
    centred = X - means
    np.testing.assert_allclose(summary.shard.A, centred.T @ centred, rtol=1e-7, atol=1e-2)


@pytest.mark.parametrize("local", [False, True])
def test_the_allowance_for_rounding_bounds_what_rounding_does(local: bool) -> None:
    """Moments rounded to float32, as far as their own allowance says they may be off."""
    rng = np.random.default_rng(1)
    eps = float(np.finfo(np.float32).eps)
    for trial in range(20):
        X = rng.standard_normal((30, 4)) * 10.0 ** rng.uniform(-3, 3, 4)
        Y = rng.standard_normal((30, 3)) * 10.0 ** rng.uniform(-3, 3)
        U, V = rng.standard_normal((4, 2)), rng.standard_normal((3, 2))
        W = dt.LowRankMatrix(U, rng.uniform(0, 2, 2), V).compress()
        radius = W.trace_norm * float(rng.uniform(1.0, 3.0))
        options: Any = {"centred": False, "sparse": False, "local": local}
        summary = GRAM.summarise(total_over(split_rows(X, Y, 2)), (4, 3), **options)
        assert (summary.shard is None) == local

        gaps, exact = [], (X.T @ X, X.T @ Y)
        for A, B in (exact, tuple(part.astype(np.float32).astype(float) for part in exact)):
            G = A @ W.to_dense() - B
            gaps.append(np.vdot(W.to_dense(), G) + radius * np.linalg.norm(G, 2))
        assert abs(gaps[1] - gaps[0]) <= eps * summary.rounding(W, radius), trial


@pytest.mark.parametrize("columns", [1, 3, 60])
def test_products_do_not_depend_on_whether_there_is_a_gradient(
    columns: int, rng: np.random.Generator
) -> None:
    """A run that is resumed may lack one that the run before it had."""
    X, Y = rng.standard_normal((50, 40)), rng.standard_normal((50, 30))
    W = dt.LowRankMatrix(rng.standard_normal((40, 5)), np.ones(5), rng.standard_normal((30, 5)))
    gradient = X.T @ (X @ W - Y)
    U, V = rng.standard_normal((40, columns)), rng.standard_normal((30, columns))
    fresh, other = (GRAM.stats(Moments.of(Shard(0, X, Y)), W) for _ in range(2))
    np.testing.assert_allclose(GRAM.gradient(other), gradient, rtol=1e-11, atol=1e-9)
    for operand, product, times in (
        (V, gradient @ V, GRAM.matvec),
        (U, gradient.T @ U, GRAM.rmatvec),
    ):
        np.testing.assert_allclose(times(fresh, operand), product, rtol=1e-11, atol=1e-9)
        np.testing.assert_array_equal(times(other, operand), times(fresh, operand))
        np.testing.assert_allclose(
            times(fresh, operand[:, 0]), product[:, 0], rtol=1e-11, atol=1e-9
        )
