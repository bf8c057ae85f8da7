"""Losses on scores, and the compiled kernels, against plain NumPy in float64."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax

from dfwtrace.kernels import gram_advance, laplacian_solve, softmax_advance, softmax_along
from dfwtrace.losses import UNWEIGHTED, Loss, MultinomialLoss, SquaredLoss

DTYPES = st.sampled_from([np.float32, np.float64])
SEEDS = st.integers(0, 2**32 - 1)
# Scores of up to ±1e4 under- and overflow any exp that is not taken relative to the row's largest.
SCALES = st.sampled_from([0.0, 1e-3, 1.0, 30.0, 1e3, 1e4])


def eps(dtype: Any) -> float:
    return float(np.finfo(dtype).eps)


def random_scores(n: int, m: int, scale: float, seed: int, dtype: Any) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    S, q, v = rng.uniform(-1, 1, (n, m)), rng.uniform(-1, 1, n), rng.uniform(-1, 1, m)
    y = rng.integers(0, m, n)
    return (scale * S).astype(dtype), y, (scale * q).astype(dtype), v.astype(dtype)


def reference(S: Any, y: Any) -> tuple[Any, Any]:
    """The multinomial loss of every row and its residual, in float64."""
    S = S.astype(np.float64)
    residual = softmax(S, axis=1)
    residual[np.arange(len(y)), y] -= 1.0
    return -log_softmax(S, axis=1)[np.arange(len(y)), y], residual


def weighted_case(n: int, m: int, scale: float, seed: int, dtype: Any) -> tuple[Any, ...]:
    """Scores, labels, q, v, weights (some of them 0) and b."""
    S, y, q, v = random_scores(n, m, scale, seed, dtype)
    rng = np.random.default_rng([seed, 1])
    weights = rng.choice([0.0, 0.5, 1.0, 3.0, rng.uniform(0, 2)], n).astype(dtype)
    return S, y, q, v, weights, rng.uniform(-2, 2, m).astype(dtype)


@given(st.integers(0, 6), st.integers(1, 40), SCALES, SEEDS, DTYPES, st.booleans())
def test_softmax_kernel_equals_scipy(
    n: int, m: int, scale: float, seed: int, dtype: Any, weighted: bool
) -> None:
    S, y, q, v, weights, b = weighted_case(n, m, scale, seed, dtype)
    if not weighted:
        weights, b = UNWEIGHTED, np.zeros_like(b)
    expected_scores = 0.75 * S.astype(np.float64) + np.outer(q, v)
    R, product, ahead = np.full_like(S, np.nan), np.full(n, np.nan, dtype), v[::-1].copy()
    value, inner = softmax_advance(S, y, (dtype(0.75), q, v), R, ahead, product, weights, b)
    assert S.dtype == R.dtype == dtype
    rounding = 8 * eps(dtype) * max(scale, 1.0)
    np.testing.assert_allclose(S, expected_scores, rtol=0, atol=rounding)
    # From here on the kernel is held to its own scores, so that only its own rounding counts.
    each, residual = reference(S.astype(np.float64) + b, y)
    weights = weights if weighted else np.ones(n)
    residual, expected = weights[:, None] * residual, float(weights @ each)
    # Adding b to a score rounds it, which moves its probability by as much.
    of_scores = 8 * rounding if weighted else eps(dtype)
    assert value == pytest.approx(expected, rel=4 * m * eps(dtype), abs=16 * n * m * rounding)
    np.testing.assert_allclose(R, residual, rtol=0, atol=16 * m * of_scores)
    np.testing.assert_allclose(R.sum(axis=1), 0.0, atol=32 * m * eps(dtype))
    slack = 16 * n * m * rounding * (8.0 * max(scale, 1.0) if weighted else 1.0)
    assert inner == pytest.approx(float(np.vdot(S, residual)), abs=slack)
    np.testing.assert_allclose(product, residual @ ahead, rtol=0, atol=16 * m * of_scores)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("low", [-1e4, -300.0, -87.0, 0.0, 1e4])
@pytest.mark.parametrize("high", [-1e4, 0.0, 1e4])
def test_extreme_scores_give_no_nan(dtype: Any, low: float, high: float) -> None:
    S = np.array([[low, high, low], [high, low, low], [high, high, high]], dtype)
    y = np.array([0, 0, 2])
    R, product = np.empty_like(S), np.empty(3, dtype)
    still, ones = np.zeros(3, dtype), np.ones(3, dtype)
    value, inner = softmax_advance(
        S.copy(), y, (dtype(1), still, still), R, ones, product, UNWEIGHTED, still
    )
    each, residual = reference(S, y)
    assert value == pytest.approx(each.sum(), rel=1e-6)
    np.testing.assert_allclose(R, residual, atol=4 * eps(dtype))
    np.testing.assert_allclose(product, 0.0, atol=4 * eps(dtype))
    assert inner == pytest.approx(float(np.vdot(S, residual)), rel=1e-6, abs=1e-2)
    slope, curvature = softmax_along(
        S, y, (dtype(0.5), still, still), np.empty(3, dtype), UNWEIGHTED, still
    )
    assert np.isfinite(slope)
    assert np.isfinite(curvature)
    assert curvature >= 0.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_probabilities_keep_their_digits_however_small(dtype: Any) -> None:
    # With two classes, p = 1/(1 + exp(x)) and the label's residual is p - 1 = -p of the other.
    x = np.linspace(0.0, 60.0, 601).astype(dtype)
    S = np.column_stack([np.zeros_like(x), -x])
    R, product = np.empty_like(S), np.empty_like(x)
    rows, row = np.zeros_like(x), np.zeros(2, dtype)
    y = np.zeros(x.size, np.int64)
    softmax_advance(S, y, (dtype(1), rows, row), R, row, product, UNWEIGHTED, row)
    expected = 1.0 / (1.0 + np.exp(x.astype(np.float64)))
    np.testing.assert_allclose(R[:, 1], expected, rtol=4 * eps(dtype))
    np.testing.assert_allclose(R[:, 0], -expected, rtol=4 * eps(dtype))


@given(st.integers(1, 6), st.integers(1, 40), SCALES, SEEDS, DTYPES, st.floats(0.0, 1.0))
def test_line_derivatives_equal_mean_and_variance(
    n: int, m: int, scale: float, seed: int, dtype: Any, gamma: float
) -> None:
    S, y, q, v = random_scores(n, m, scale, seed, dtype)
    scratch, b = np.empty(m, dtype), np.zeros(m, dtype)
    slope, curvature = softmax_along(S, y, (dtype(gamma), q, v), scratch, UNWEIGHTED, b)
    D = np.outer(q.astype(np.float64), v) - S
    p = softmax(S + float(dtype(gamma)) * D, axis=1)
    mean = (p * D).sum(axis=1)
    expected_slope = float((mean - D[np.arange(n), y]).sum())
    expected_curvature = float((p * (D - mean[:, None]) ** 2).sum())
    # A score that is rounded moves its own probability by as much.
    rounding = 32 * n * m * eps(dtype) * max(scale, 1.0)
    assert slope == pytest.approx(expected_slope, abs=rounding * max(scale, 1.0))
    assert curvature == pytest.approx(expected_curvature, abs=rounding * max(scale, 1.0) ** 2)
    assert curvature >= 0.0


@given(st.integers(1, 5), st.integers(1, 5), SEEDS)
def test_gram_kernel_equals_numpy(d: int, m: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    G, B = rng.standard_normal((2, d, m))
    p, v = rng.standard_normal(d), rng.standard_normal(m)
    expected = 0.25 * G + np.outer(p, v) - 0.5 * B
    gram_advance(G, 0.25, p, v, 0.5, B)
    np.testing.assert_allclose(G, expected, atol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_squared_loss_is_half_the_squares(weighted: bool, dtype: Any) -> None:
    n = 700  # more rows than are worked on at once
    S, _, q, v, weights, b = weighted_case(n, 3, 1.0, 0, dtype)
    extra: Any = (weights, b) if weighted else ()
    weights, b = (weights, b) if weighted else (np.ones(n), np.zeros(3))
    Y, R, product = np.random.default_rng(2).standard_normal((n, 3)), np.empty_like(S), q.copy()
    rtol = 1e-5 if dtype is np.float32 else 1e-12
    loss, D = SquaredLoss(), np.outer(q, v) - S
    slope, curvature = loss.along(S, Y, 0.25, q, v, *extra)
    residual = weights[:, None] * (S + 0.25 * D + b - Y)
    assert slope == pytest.approx(float(np.vdot(D, residual)), rel=rtol, abs=rtol * n)
    assert curvature == pytest.approx(float(weights @ np.square(D).sum(axis=1)), rel=rtol)
    moved = 0.75 * S.astype(np.float64) + np.outer(0.25 * q, v)
    error = moved + b - Y
    residual = weights[:, None] * error
    value, inner = loss.advance(S, Y, 0.75, dtype(0.25) * q, v, R, v, product, *extra)
    np.testing.assert_allclose(S, moved, atol=10 * rtol)
    np.testing.assert_allclose(R, residual, atol=10 * rtol)
    np.testing.assert_allclose(product, residual @ v, atol=30 * rtol)
    assert R.dtype == product.dtype == dtype
    assert value == pytest.approx(0.5 * float(np.vdot(error, residual)), rel=rtol)
    assert inner == pytest.approx(float(np.vdot(moved, residual)), rel=rtol, abs=rtol * n)


def test_smoothness_bounds_every_row_of_the_hessian(rng: np.random.Generator) -> None:
    for p in (np.array([0.5, 0.5]), *rng.dirichlet(np.full(4, 0.3), size=50)):
        largest = np.linalg.eigvalsh(np.diag(p) - np.outer(p, p))[-1]
        assert largest <= MultinomialLoss.smoothness + 1e-12


def test_a_loss_without_curvature_says_what_it_lacks() -> None:
    class Linear(Loss):
        name = "linear"

        def check_targets(self, y: Any) -> tuple[Any, int]:
            return y, 1

        def evaluate(self, S: Any, y: Any, R: Any) -> float:
            R[:] = 1.0
            return float(S.sum())

    with pytest.raises(NotImplementedError, match=r"Linear has no `curvature`"):
        Linear().along(np.ones((2, 1)), np.ones(2), 0.5, np.ones(2), np.ones(1))


def test_targets_of_least_squares_become_columns() -> None:
    targets, width = SquaredLoss().check_targets(np.arange(3))
    assert (targets.shape, targets.dtype, width) == ((3, 1), np.float64, 1)
    single = np.ones((3, 2), np.float32)
    assert SquaredLoss().check_targets(single)[0] is single


def test_labels_may_be_whole_floats_or_a_column() -> None:
    for y in (np.array([0, 2, 1]), np.array([0.0, 2.0, 1.0]), np.array([[0], [2], [1]])):
        labels, width = MultinomialLoss().check_targets(y)
        assert width == 3
        np.testing.assert_array_equal(labels, [0, 2, 1])
        assert labels.dtype == np.int64
    assert MultinomialLoss(n_classes=5).check_targets(np.array([0, 1]))[1] == 5


def test_labels_may_be_looked_at_some_at_a_time() -> None:
    """What only all of y shows waits for the width of all of it."""
    loss = MultinomialLoss()
    assert [loss.check_targets(np.full(2, label))[1] for label in (0, 3)] == [1, 4]
    loss.check_width(2, 1)
    loss.check_width(1010, 1)
    with pytest.raises(ValueError, match="y must hold at least two classes"):
        loss.check_width(1, 100)
    with pytest.raises(ValueError, match="y holds the label 1010, far beyond"):
        loss.check_width(1011, 1)
    MultinomialLoss(n_classes=5000).check_width(5000, 1)
    SquaredLoss().check_width(10**9, 1)


@pytest.mark.parametrize("n_classes", [1, 0, -3, 2.5, float("nan")])
def test_a_number_of_classes_is_a_whole_number_from_two(n_classes: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="n_classes"):
        MultinomialLoss(n_classes)


# Weights and an intercept


@pytest.mark.parametrize("loss", [SquaredLoss(), MultinomialLoss()])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kernels_with_weights_do_what_any_loss_does(loss: Loss, dtype: Any) -> None:
    """Also in the last, shorter block of rows, and for weights that come many times."""
    S, y, q, v, weights, b = weighted_case(600, 5, 3.0, 0, dtype)
    y = y if isinstance(loss, MultinomialLoss) else np.random.default_rng(1).normal(size=(600, 5))

    class Plain(type(loss)):  # type: ignore[misc]
        kernel = None

        def evaluate(self, S: Any, y: Any, R: Any) -> float:
            return loss.evaluate(S, y, R)

        along_kernel = None

        def curvature(self, S: Any, R: Any, D: Any) -> float:
            if isinstance(loss, SquaredLoss):
                return float(np.vdot(D, D))
            p = softmax(S.astype(np.float64), axis=1)
            return float((p * D**2).sum() - ((p * D).sum(axis=1) ** 2).sum())

    results = []
    for one in (loss, Plain()):
        scores, R, product = S.copy(), np.empty_like(S), np.empty_like(q)
        values = one.advance(scores, y, 0.5, q, v, R, v, product, weights, b)
        assert R.dtype == product.dtype == dtype
        results.append((*values, *one.along(S, y, 0.3, q, v, weights, b), scores, R, product))
    rtol = 2e-4 if dtype is np.float32 else 1e-11
    for fast, plain in zip(*results, strict=True):
        np.testing.assert_allclose(fast, plain, rtol=rtol, atol=rtol)


class Quartic(SquaredLoss):
    """¼ Σ (s - y)⁴, which counts how many rows it is asked for at a time."""

    kernel = along_kernel = None
    rows: list[int]

    def evaluate(self, S: Any, y: Any, R: Any) -> float:
        self.rows.append(len(S))
        R[:] = (S - y) ** 3
        return float(np.sum((S - y) ** 4)) / 4.0

    def curvature(self, S: Any, R: Any, D: Any) -> float:
        return float(3.0 * np.sum(np.cbrt(R) ** 2 * D**2))


class QuarticOfRows(Quartic):
    def row_values(self, S: Any, y: Any) -> Any:
        return np.sum((S - y) ** 4, axis=1) / 4.0


@pytest.mark.parametrize("kind", [Quartic, QuarticOfRows])
def test_rows_of_different_weights_are_evaluated_at_once(kind: type[Quartic]) -> None:
    S, _, q, v, _, b = weighted_case(600, 5, 1.0, 0, np.float64)
    rng = np.random.default_rng(0)
    y, weights = rng.normal(size=S.shape), rng.uniform(0.5, 1.5, 600)
    loss, D = kind(), np.outer(q, v) - S
    error = S + 0.3 * D + b - y
    loss.rows = []
    slope, curvature = loss.along(S, y, 0.3, q, v, weights, b)
    assert loss.rows == [256, 256, 88]
    assert slope == pytest.approx(float(weights @ np.sum(error**3 * D, axis=1)))
    assert curvature == pytest.approx(float(weights @ np.sum(3.0 * error**2 * D**2, axis=1)))
    R, product = np.empty_like(S), np.empty_like(q)
    for each, one_by_one in ((weights, kind is Quartic), (np.full(600, 2.0), False)):
        loss.rows = []
        value, _ = loss.advance(S, y, 1.0, 0.0 * q, v, R, v, product, each, b)
        assert value == pytest.approx(float(each @ np.sum((S + b - y) ** 4, axis=1)) / 4.0)
        np.testing.assert_allclose(R, each[:, None] * (S + b - y) ** 3, rtol=1e-12)
        assert len(loss.rows) == (603 if one_by_one else 3)


@pytest.mark.parametrize("loss", [SquaredLoss(), MultinomialLoss()])
@pytest.mark.parametrize("gamma", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_line_derivatives_are_those_of_the_weighted_value(
    loss: Loss, gamma: float, seed: int
) -> None:
    S, y, q, v, weights, b = weighted_case(30, 4, 2.0, seed, np.float64)
    y = y if isinstance(loss, MultinomialLoss) else np.random.default_rng(1).normal(size=(30, 4))

    def value(at: float) -> float:
        moved, unused = S + at * (np.outer(q, v) - S), (np.empty_like(S), v, np.empty_like(q))
        return loss.advance(moved, y, 1.0, 0.0 * q, v, *unused, weights, b)[0]

    slope, curvature = loss.along(S, y, gamma, q, v, weights, b)
    h = 1e-4
    below, here, above = value(gamma - h), value(gamma), value(gamma + h)
    assert slope == pytest.approx((above - below) / (2 * h), rel=1e-6, abs=1e-6)
    assert curvature == pytest.approx((above - 2 * here + below) / h**2, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("loss", [SquaredLoss(), MultinomialLoss()])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_weights_of_one_and_no_b_change_nothing(loss: Loss, dtype: Any) -> None:
    S, y, q, v, _, _ = weighted_case(50, 4, 2.0, 0, dtype)
    y = y if isinstance(loss, MultinomialLoss) else np.random.default_rng(1).normal(size=(50, 4))
    results = []
    for extra in ((), (np.ones(50, dtype), np.zeros(4, dtype))):
        scores, R, product = S.copy(), np.empty_like(S), np.empty_like(q)
        values = loss.advance(scores, y, 0.5, q, v, R, v, product, *extra)
        results.append((*values, *loss.along(S, y, 0.3, q, v, *extra), scores, R, product))
    for plain, weighted in zip(*results, strict=True):
        np.testing.assert_allclose(weighted, plain, rtol=8 * eps(dtype), atol=8 * eps(dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("m", [1, 5, 2500])
def test_sums_of_columns_are_those_of_the_residual_and_of_the_curvature(
    dtype: Any, weighted: bool, m: int
) -> None:
    S, y, q, v, weights, b = weighted_case(40, m, 3.0, 0, dtype)
    weights = weights if weighted else UNWEIGHTED
    loss, R, start = MultinomialLoss(max(m, 2)), np.empty_like(S), np.arange(float(m))
    loss.advance(S, y, 1.0, 0.0 * q, v, R, v, q.copy(), weights, b)
    sums, curvature = start.copy(), start.copy()
    loss.add_columns(R, y, weights, sums, curvature)
    p, w = softmax(S.astype(np.float64) + b, axis=1), weights if weighted else np.ones(40)
    rtol = 1e-4 if dtype is np.float32 else 1e-10
    residual = p - np.eye(m)[y]
    np.testing.assert_allclose(sums, start + w @ residual, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(curvature, start + w @ (p * (1.0 - p)), rtol=rtol, atol=rtol)
    np.testing.assert_allclose(loss.column_curvature(R, y, weights), curvature - start, atol=rtol)


# Compiled loops where Numba may keep no machine code

WITHOUT_CACHE = """
import numba.core.caching
import numpy as np

numba.core.caching.CacheImpl._locator_classes = []  # no directory will do

import dfwtrace
from dfwtrace import kernels

G, p, v, B = np.ones((2, 3)), np.array([1.0, 2.0]), np.array([1.0, 0.0, 3.0]), np.ones((2, 3))
kernels.gram_advance(G, 0.5, p, v, 2.0, B)
print(G.tolist())
"""


def test_without_a_place_for_numbas_cache_all_works_the_same() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_CACHE],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[[-0.5, -1.5, 1.5], [0.5, -1.5, 4.5]]"


# What an intercept is certified by


def unsettled(seed: int, spread: float = 1.0) -> tuple[Any, Any, Any]:
    """Scores of some rows, labels of which the last class has none, and weights far apart."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(5, 40)), int(rng.integers(3, 7))
    y = np.append(np.arange(m - 1), rng.integers(0, m - 1, n - m + 1))
    return spread * rng.standard_normal((n, m)), y, 10.0 ** rng.uniform(-6.0, 6.0, n)


@pytest.mark.parametrize("spread", [0.1, 3.0, 100.0])
@pytest.mark.parametrize("seed", range(10))
def test_the_changed_residuals_are_probabilities_and_add_up_to_nothing(
    seed: int, spread: float
) -> None:
    loss, (S, y, weights) = MultinomialLoss(), unsettled(seed, spread)
    m = S.shape[1]
    change = loss.correction(loss.imbalance(S, y, weights), m).change
    costs, delta = loss.excess(S, y, weights, change)
    p = softmax(S, axis=1)
    after = p + delta / weights[:, None]
    np.testing.assert_allclose(after.sum(axis=1), 1.0, rtol=1e-12)
    assert after.min() >= -1e-15
    left = weights @ after - np.bincount(y, weights, m)
    np.testing.assert_allclose(left, 0.0, atol=1e-12 * weights.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(after > 0.0, after * (np.log(after) - log_softmax(S, axis=1)), 0.0)
    np.testing.assert_allclose(costs, weights * terms.sum(axis=1), atol=1e-13 * weights.sum())
    assert costs.min() >= 0.0


@pytest.mark.parametrize("seed", range(5))
def test_a_small_imbalance_costs_the_square_of_it(seed: int) -> None:
    """½gᵀH⁻¹g, the least that it can."""
    loss, (S, y, weights) = MultinomialLoss(), unsettled(seed)
    m = S.shape[1] - 1
    S, shift = S[:, :m], np.random.default_rng(seed).standard_normal(m)
    b = best(loss, S, y, weights)
    for size in (1e-3, 1e-6):
        correction = loss.correction(loss.imbalance(S + b + size * shift, y, weights), m)
        costs, _ = loss.excess(S + b + size * shift, y, weights, correction.change)
        assert correction.near
        assert costs.sum() == pytest.approx(0.5 * correction.decrement, rel=10.0 * size)
        p = softmax(S + b, axis=1)
        H = np.diag(weights @ p) - p.T @ (weights[:, None] * p)
        assert costs.sum() == pytest.approx(0.5 * size**2 * shift @ H @ shift, rel=10.0 * size)


def best(loss: Loss, S: Any, y: Any, weights: Any) -> Any:
    """The best b, by the loss's own steps, each of which lowers F."""
    b, last = np.zeros(S.shape[1]), np.inf
    for turn in range(60):
        found = loss.correction(loss.imbalance(S + b, y, weights), b.size)
        value = float(weights @ -log_softmax(S + b, axis=1)[np.arange(len(y)), y])
        assert value <= last * (1.0 + 1e-12)
        b, last = b + found.steps[turn % len(found.steps)], value
    return b


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("spread", [0.0, 1.0, 20.0])
def test_steps_towards_the_best_intercept_never_raise_the_loss(seed: int, spread: float) -> None:
    loss, (S, y, weights) = MultinomialLoss(), unsettled(seed, spread)
    b = best(loss, S, y, weights)
    found = loss.correction(loss.imbalance(S + b, y, weights), b.size)
    value = float(weights @ -log_softmax(S + b, axis=1)[np.arange(len(y)), y])
    assert found.decrement <= 1e-15 * value


def test_the_squared_loss_takes_off_the_mean_residual(rng: np.random.Generator) -> None:
    loss, (S, Y) = SquaredLoss(), rng.standard_normal((2, 20, 3))
    weights = rng.uniform(0.0, 2.0, 20)
    found = loss.correction(loss.imbalance(S, Y, weights), 3)
    costs, delta = loss.excess(S, Y, weights, found.change)
    np.testing.assert_allclose(weights @ (S - Y) + delta.sum(axis=0), 0.0, atol=1e-13)
    np.testing.assert_allclose(weights @ (S + found.steps[0] - Y), 0.0, atol=1e-13)
    values = [0.5 * weights @ np.square(each - Y).sum(axis=1) for each in (S, S + found.steps[0])]
    assert costs.sum() == pytest.approx(values[0] - values[1], rel=1e-12)


def test_a_laplacian_keeps_the_digits_of_weights_far_apart() -> None:
    """A chain whose links differ by forty orders of magnitude: what flows through each is known."""
    rng = np.random.default_rng(0)
    m, flow = 8, rng.standard_normal(7)
    links = 10.0 ** rng.uniform(-20.0, 20.0, m - 1)
    K = np.diag(links, 1) + np.diag(links, -1)
    g, x = np.append(flow, 0.0) - np.append(0.0, flow), np.empty(m)
    laplacian_solve(K, g.copy(), x)
    np.testing.assert_allclose(x - x[0], np.append(0.0, np.cumsum(flow / links)), rtol=1e-9)
