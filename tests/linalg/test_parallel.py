"""Algebra on all cores: the same bits for any number of threads, and as accurate as NumPy's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfwtrace.engines import single_threaded_blas
from dfwtrace.linalg import parallel
from dfwtrace.threads import each, use_threads

EPS = float(np.finfo(np.float64).eps)


@pytest.fixture(autouse=True)
def one_blas_thread() -> Iterator[None]:
    with single_threaded_blas():
        yield


def normal(*shape: int, dtype: Any = np.float64, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def definite(p: int, dtype: Any = np.float64) -> Any:
    A = normal(p, 40, dtype=dtype)
    return A @ A.T + 10.0 * np.eye(p, dtype=dtype)


def as_arrays(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


# Each is large enough to be shared out, in its own way.
CASES: dict[str, tuple[Callable[..., Any], Callable[[Any], tuple[Any, ...]]]] = {
    "rows": (parallel.matmul, lambda A: (A(810, 400), A(400, 60))),
    "rows, transposed": (parallel.matmul, lambda A: (A(400, 810).T, A(400, 60))),
    "columns": (parallel.matmul, lambda A: (A(60, 400), A(400, 810))),
    "inner": (parallel.matmul, lambda A: (A(40_000, 20).T, A(40_000, 15))),
    "vector": (parallel.matmul, lambda A: (A(1700, 1300), A(1300))),
    "vector, transposed": (parallel.matmul, lambda A: (A(1700, 1300).T, A(1700))),
    "two types": (parallel.matmul, lambda A: (A(810, 400), normal(400, 60))),
    "gram, square": (parallel.gram, lambda A: (A(700, 650),)),
    "gram, tall": (parallel.gram, lambda A: (A(40_000, 20),)),
    "cholesky": (parallel.cholesky, lambda A: (definite(1600, A(1).dtype),)),
    "divide": (parallel.divide, lambda A: (A(3000, 150), np.triu(np.ones((150, 150))))),
    "qr": (parallel.qr, lambda A: (A(3000, 150),)),
    "qr, dependent": (parallel.qr, lambda A: (np.tile(A(3000, 75), 2),)),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("case", CASES)
def test_bits_are_the_same_for_every_number_of_threads(case: str, dtype: Any) -> None:
    function, operands = CASES[case]
    given = operands(partial(normal, dtype=dtype))
    alone, counts = function(*given), []
    for n_jobs in (1, 2, 3, 5):
        with use_threads(n_jobs):
            found = function(*given)
            counts.append(sum(t.name.startswith("dfwtrace") for t in threading.enumerate()))
        for one, other in zip(as_arrays(found), as_arrays(alone), strict=True):
            np.testing.assert_array_equal(one, other)
    assert counts[0] == 0
    assert min(counts[1:]) > 0, "not shared out at all"


@pytest.mark.parametrize(
    ("n", "inner", "m"),
    [(810, 400, 60), (60, 400, 810), (20, 40_000, 15), (1700, 1300, 1), (3, 2, 4), (5, 0, 3)],
)
@pytest.mark.parametrize("orders", ["CC", "FC", "CF", "FF"])
def test_products_of_integers_are_exact(n: int, inner: int, m: int, orders: str) -> None:
    rng = np.random.default_rng(0)
    A, B = rng.integers(-9, 10, (n, inner)), rng.integers(-9, 10, (inner, m))
    left, right = A.astype(np.float64, order=orders[0]), B.astype(np.float64, order=orders[1])
    np.testing.assert_array_equal(parallel.matmul(left, right), A @ B)
    np.testing.assert_array_equal(parallel.matmul(left, right[:, 0]), A @ B[:, 0])


@pytest.mark.parametrize(("n", "k"), [(700, 650), (650, 700), (40_000, 20), (5, 3), (4, 0), (0, 3)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_gram_of_integers_is_exact_and_symmetric(n: int, k: int, order: Any) -> None:
    A = np.random.default_rng(0).integers(-9, 10, (n, k))
    np.testing.assert_array_equal(parallel.gram(A.astype(np.float64, order=order)), A.T @ A)
    M = parallel.gram(normal(n, k).astype(np.float64, order=order))
    np.testing.assert_array_equal(M, M.T)


@pytest.mark.parametrize("p", [5, 1600])
def test_cholesky_gives_the_lower_triangle(p: int) -> None:
    M = definite(p)
    L = parallel.cholesky(M)
    np.testing.assert_array_equal(np.triu(L, 1), 0.0)
    # Each entry of M is a product of two rows of L, which are as long as the diagonal's root.
    lengths = np.sqrt(np.diag(M))
    assert np.abs(L @ L.T - M).max(initial=0.0) <= 50 * EPS * np.outer(lengths, lengths).max()


@pytest.mark.parametrize("last", [0, 300, 1599])
def test_cholesky_refuses_what_is_not_positive_definite(last: int) -> None:
    """Also if only the very last pivot is negative, and by very little."""
    M = np.eye(1600)
    M[last, last] = -1e-9
    with pytest.raises(np.linalg.LinAlgError):
        parallel.cholesky(M)


def test_cholesky_decides_close_to_the_largest_value() -> None:
    """As a bound of σ₁ needs it: 1e-10 above the largest eigenvalue, and 1e-10 below."""
    values, Q = np.linspace(0.0, 1.0, 1600), np.linalg.qr(normal(1600, 1600))[0]
    M = (Q * values) @ Q.T
    M = 0.5 * (M + M.T)
    parallel.cholesky((1.0 + 1e-10) * np.eye(1600) - M)
    with pytest.raises(np.linalg.LinAlgError):
        parallel.cholesky((1.0 - 1e-10) * np.eye(1600) - M)


@pytest.mark.parametrize("k", [1, 31, 33, 150])
@pytest.mark.parametrize("smallest", [1.0, 1e-3, 1e-9, 1e-15])
def test_division_by_a_triangle_is_backward_stable(k: int, smallest: float) -> None:
    """As substitution is, however close the triangle is to a singular one."""
    columns, turn = np.linalg.qr(normal(900, k))[0], np.linalg.qr(normal(k, k))[0]
    R = np.linalg.qr(columns * np.geomspace(1.0, smallest, k) @ turn)[1]
    A = normal(900, k, seed=1)
    Q = parallel.divide(A, R)
    residual = np.asarray(A - Q.astype(np.longdouble) @ R.astype(np.longdouble), np.float64)
    assert np.all(np.abs(residual) <= (k + 1) * EPS * (np.abs(Q) @ np.abs(R)))


def assert_qr(A: Any, eps: float = EPS) -> None:
    """Orthonormal columns, whatever A is, and each of A's columns up to its own rounding."""
    Q, R = parallel.qr(A)
    n, k = A.shape
    assert Q.shape == (n, min(n, k))
    assert R.shape == (min(n, k), k)
    assert Q.dtype == A.dtype
    np.testing.assert_array_equal(np.tril(R, -1), 0.0)
    wide = Q.astype(np.float64)
    assert np.abs(wide.T @ wide - np.eye(min(n, k))).max(initial=0.0) <= 200 * eps
    size = np.abs(A).max(initial=0.0) or 1.0  # squares of lengths must not overflow
    A, R = A.astype(np.float64) / size, R.astype(np.float64) / size
    left = np.linalg.norm(A - wide @ R, axis=0)
    assert np.all(left <= 200 * eps * np.linalg.norm(A, axis=0))


def vandermonde(n: int, k: int) -> Any:
    return np.vander(np.linspace(0.0, 1.0, n), k)


TALL: dict[str, Any] = {
    "random": normal(600, 90),
    "square": normal(200, 200),
    "wide": normal(50, 90),
    "Fortran order": np.asfortranarray(normal(600, 90)),
    "small": normal(6, 3),
    "no columns": normal(600, 0),
    "no rows": normal(0, 5),
    "all zero": np.zeros((600, 90)),
    "a column of zeros": normal(600, 90) * (np.arange(90) != 40),
    "columns from 1e-12 to 1e12": normal(600, 90) * np.geomspace(1e-12, 1e12, 90)[::-1],
    "rows from 1e-12 to 1e12": normal(600, 90) * np.geomspace(1e-12, 1e12, 600)[:, None],
    "a column of 1e-200": normal(600, 90) * np.where(np.arange(90) == 40, 1e-200, 1.0),
    "huge": 1e300 * normal(600, 90),
    "tiny": 1e-300 * normal(600, 90),
    "copies": np.tile(normal(600, 45), 2),
    "combinations": normal(600, 30) @ normal(30, 90),
    "rank one": np.outer(normal(600), normal(90)),
    "ones": np.ones((600, 90)),
    "unit vectors, one twice": np.eye(600, 90)[:, np.r_[0:45, 20, 45:89]],
    "powers": vandermonde(600, 90),
    "reciprocals": 1.0 / (1.0 + np.arange(600)[:, None] + np.arange(90)),
}


@pytest.mark.parametrize("name", TALL)
def test_qr_is_as_robust_as_householders(name: str) -> None:
    assert_qr(TALL[name])


@pytest.mark.parametrize("distance", [1e-3, 1e-6, 1e-9, 1e-12, 1e-15])
def test_qr_tells_columns_apart_that_are_close(distance: float) -> None:
    first, other = normal(600, 45), normal(600, 45, seed=1)
    A = np.hstack([first, first + distance * other])
    assert_qr(A)
    # What is left of the copies is found as well as their last digits allow.
    Q = parallel.qr(A)[0][:, 45:]
    outside = other - first @ np.linalg.lstsq(first, other, rcond=None)[0]
    span = np.linalg.qr(outside)[0]
    assert np.linalg.norm(Q - span @ (span.T @ Q), 2) <= 1e3 * EPS / distance


@pytest.mark.parametrize("name", ["random", "copies", "powers", "a column of zeros"])
def test_qr_in_single_precision(name: str) -> None:
    assert_qr(TALL[name].astype(np.float32), float(np.finfo(np.float32).eps))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(100, 300),
    share=st.floats(0.1, 1.0),
    condition=st.floats(0.0, 18.0),
    scales=st.floats(0.0, 12.0),
    repeated=st.integers(0, 20),
)
def test_qr_on_random_matrices(
    seed: int, n: int, share: float, condition: float, scales: float, repeated: int
) -> None:
    rng, k = np.random.default_rng(seed), int(share * n)
    A = np.linalg.qr(rng.standard_normal((n, k)))[0] * 10.0 ** rng.uniform(-condition, 0, k)
    A = A @ np.linalg.qr(rng.standard_normal((k, k)))[0] * 10.0 ** rng.uniform(-scales, scales, k)
    A[:, rng.integers(0, k, repeated)] = A[:, rng.integers(0, k, repeated)]
    assert_qr(A)


def test_calls_from_within_work_run_on_its_thread() -> None:
    A = normal(810, 400)
    expected, found = parallel.gram(A), [np.zeros(0)] * 6

    def work(j: int) -> None:
        found[j] = parallel.gram(A)

    with use_threads(2):
        each(work, 6)
    for one in found:
        np.testing.assert_array_equal(one, expected)
