"""Synthetic data: what they promise about their truth, and that a seed fixes every bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dfwtrace as dt
from dfwtrace.datasets import make_multiclass, make_multitask

SIZES = st.tuples(st.integers(1, 30), st.integers(1, 8), st.integers(1, 8))


@settings(max_examples=50)
@given(SIZES, st.data(), st.integers(0, 1000), st.sampled_from([np.float32, np.float64]))
def test_the_truth_has_the_rank_asked_for_and_trace_norm_one(
    sizes: tuple[int, int, int], data: st.DataObject, seed: int, dtype: Any
) -> None:
    n, d, m = sizes
    rank = data.draw(st.integers(1, min(d, m)))
    shape: Any = {"n": n, "d": d, "m": m, "rank": rank, "random_state": seed, "dtype": dtype}
    X, Y, W = make_multitask(**shape)
    assert (X.shape, Y.shape, W.shape) == ((n, d), (n, m), (d, m))
    assert X.dtype == Y.dtype == dtype
    assert np.linalg.matrix_rank(W.to_dense(), tol=1e-12) == W.rank == rank
    assert W.trace_norm == pytest.approx(1.0, rel=1e-12)
    np.testing.assert_allclose(Y, X @ W.to_dense(), atol=1e-6 if dtype is np.float32 else 1e-12)
    X, y, W = make_multiclass(**shape)
    assert (X.shape, y.shape, X.dtype) == ((n, d), (n,), dtype)
    assert y.dtype.kind == "i"
    np.testing.assert_array_equal(y, (X @ W).argmax(axis=1))


def test_without_noise_the_truth_is_the_optimum() -> None:
    X, Y, W = make_multitask(n=200, d=8, m=6, rank=2, random_state=3)
    still: Any = {"solver": "dfw", "step": 0.0, "max_iter": 1, "representation": "implicit"}
    result = dt.solve(dt.LeastSquares(), X, Y, radius=1.0, start=W, **still)
    assert result.objective <= 1e-20 * result.objective_at_zero
    assert result.gap <= 1e-9 * result.objective_at_zero


def test_noise_is_relative_to_the_signal() -> None:
    shape: Any = {"n": 20_000, "d": 5, "m": 4, "rank": 2, "random_state": 0}
    _, clean, _ = make_multitask(**shape)
    for noise in (0.1, 1.0):
        _, noisy, _ = make_multitask(**shape, noise=noise)
        assert (noisy - clean).std() == pytest.approx(noise * clean.std(), rel=0.02)
        assert abs(float((noisy - clean).mean())) < 0.02 * noise * clean.std()


def test_features_are_standard_normal() -> None:
    for make in (make_multitask, make_multiclass):
        X, _, _ = make(n=20_000, d=5, m=4, rank=2, random_state=1)
        np.testing.assert_allclose(X.T @ X / 20_000, np.eye(5), atol=0.05)
        np.testing.assert_allclose(X.mean(axis=0), 0.0, atol=0.05)


@pytest.mark.parametrize("make", [make_multitask, make_multiclass])
def test_a_seed_fixes_every_bit_and_another_changes_them(make: Any) -> None:
    shape: Any = {"n": 20, "d": 6, "m": 5, "rank": 3}
    first, again, other = (make(**shape, random_state=seed) for seed in (7, 7, 8))
    for part, same in zip(first[:2], again[:2], strict=True):
        np.testing.assert_array_equal(part, same)
    np.testing.assert_array_equal(first[2].to_dense(), again[2].to_dense())
    assert not np.array_equal(first[0], other[0])
    assert not np.array_equal(first[2].to_dense(), other[2].to_dense())


@pytest.mark.parametrize("make", [make_multitask, make_multiclass])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 0),
        ("d", -1),
        ("m", 2.5),
        ("rank", 0),
        ("rank", 5),
        ("dtype", np.int64),
        ("dtype", np.float16),
    ],
)
def test_bad_sizes_are_refused_by_name(make: Any, name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be"):
        make(**{"n": 10, "d": 4, "m": 4, "rank": 2, name: value})


@pytest.mark.parametrize("noise", [-0.1, float("nan"), float("inf")])
def test_bad_noise_is_refused(noise: float) -> None:
    with pytest.raises(ValueError, match=r"^noise must"):
        make_multitask(n=10, d=4, m=4, rank=2, noise=noise)
