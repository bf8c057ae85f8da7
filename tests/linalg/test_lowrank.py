"""LowRankMatrix: values against dense arithmetic, and what operations and steps may cost."""

from __future__ import annotations

import pickle
import tracemalloc
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from dfwtrace import LowRankMatrix, RankOne

SHAPES = st.tuples(st.integers(1, 8), st.integers(1, 8), st.integers(0, 12))
SEEDS = st.integers(0, 2**32 - 1)


def random_factors(d: int, m: int, r: int, seed: int, dtype: Any = np.float64) -> tuple[Any, ...]:
    """Factors with weights of both signs over several orders of magnitude."""
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal(r) * 10.0 ** rng.integers(-6, 3, r)
    return rng.standard_normal((d, r)).astype(dtype), weights, rng.standard_normal((m, r), dtype)


def random_atom(rng: np.random.Generator, d: int, m: int, scale: float = -2.0) -> RankOne:
    u, v = rng.standard_normal(d), rng.standard_normal(m)
    return RankOne(scale, u / np.linalg.norm(u), v / np.linalg.norm(v))


def exact_trace_norm(dense: Any) -> float:
    return float(np.linalg.svd(dense, compute_uv=False).sum())


@given(SHAPES, SEEDS)
def test_factors_stand_for_their_product_also_with_negative_weights(
    shape: tuple[int, int, int], seed: int
) -> None:
    d, m, r = shape
    U, s, V = random_factors(d, m, r, seed)
    W = LowRankMatrix(U, s, V)
    dense = (U * s) @ V.T
    assert W.shape == (d, m)
    assert W.rank == r
    assert np.all(W.s >= 0.0)
    np.testing.assert_allclose(W.to_dense(), dense, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(W.T.to_dense(), dense.T, rtol=1e-12, atol=1e-12)
    assert W.trace_norm == pytest.approx(exact_trace_norm(dense), rel=1e-10, abs=1e-12)
    assert W.frobenius_norm == pytest.approx(np.linalg.norm(dense), rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", [np.asarray, np.asfortranarray, sp.csr_array, sp.csc_matrix])
@pytest.mark.parametrize("rank", [0, 1, 4])
def test_products_equal_the_dense_ones(
    rng: np.random.Generator, dtype: Any, kind: Any, rank: int
) -> None:
    U, s, V = random_factors(6, 5, rank, seed=3, dtype=dtype)
    W = LowRankMatrix(U, s, V)
    dense = W.to_dense().astype(np.float64)
    X = rng.standard_normal((9, 6)).astype(dtype)
    X[rng.random(X.shape) < 0.5] = 0.0
    v, block = rng.standard_normal(5).astype(dtype), rng.standard_normal((5, 3)).astype(dtype)
    rtol = 1e-5 if dtype is np.float32 else 1e-12
    scale = max(1.0, float(np.abs(dense).max()))
    for product, expected in (
        (kind(X) @ W, X @ dense),
        (X[0] @ W, X[0] @ dense),
        (W @ v, dense @ v),
        (W @ block, dense @ block),
    ):
        assert isinstance(product, np.ndarray)
        assert product.dtype == dtype
        assert product.shape == expected.shape
        np.testing.assert_allclose(product, expected, rtol=rtol, atol=10 * rtol * scale)


def test_arithmetic_is_that_of_the_dense_matrices() -> None:
    A, B = (LowRankMatrix(*random_factors(5, 4, r, seed=r)) for r in (2, 3))
    a, b = A.to_dense(), B.to_dense()
    zero = LowRankMatrix.zeros((5, 4))
    for result, expected in (
        (A + B, a + b),
        (A - B, a - b),
        (A * -2.5, -2.5 * a),
        (0.0 * A, 0.0 * a),
        (A + zero, a),
        (zero - A, -a),
    ):
        np.testing.assert_allclose(result.to_dense(), expected, rtol=1e-12, atol=1e-12)
    assert (A - A).trace_norm <= 1e-12 * A.trace_norm


def test_operands_that_do_not_fit_are_refused() -> None:
    W = LowRankMatrix.zeros((3, 2))
    with pytest.raises(ValueError, match="do not agree"):
        W + LowRankMatrix.zeros((2, 3))
    for operation in (lambda: W + 1.0, lambda: W - np.ones((3, 2)), lambda: W * "a"):
        with pytest.raises((TypeError, ValueError)):
            operation()
    with pytest.raises(ValueError, match="agree on the rank"):
        LowRankMatrix(np.ones((3, 2)), np.ones(1), np.ones((2, 2)))
    with pytest.raises(ValueError, match="two dimensions"):
        LowRankMatrix(np.ones(3), np.ones(1), np.ones((2, 1)))


def test_a_matrix_of_rank_zero_is_zero_in_every_operation() -> None:
    W = LowRankMatrix.zeros((3, 2))
    assert (W.rank, W.trace_norm, W.frobenius_norm) == (0, 0.0, 0.0)
    assert W.compress(0.5).rank == 0
    np.testing.assert_array_equal(W.to_dense(), np.zeros((3, 2)))
    np.testing.assert_array_equal(np.ones((4, 3)) @ W, np.zeros((4, 2)))
    np.testing.assert_array_equal(W @ np.ones(2), np.zeros(3))


def test_nobody_can_change_a_matrix_through_its_parts() -> None:
    U, s, V = random_factors(4, 3, 2, seed=0)
    W = LowRankMatrix(U, s, V)
    before = W.to_dense()
    U[:], s[:], V[:] = 0.0, 0.0, 0.0
    W.s[:] = 0.0  # a copy
    for factor in (W.U, W.V):
        with pytest.raises(ValueError, match="read-only"):
            factor[:] = 0.0
    np.testing.assert_array_equal(W.to_dense(), before)


def test_large_dense_matrices_are_refused_unless_asked_for() -> None:
    W = LowRankMatrix.zeros((100, 50))
    with pytest.raises(ValueError, match="max_bytes"):
        W.to_dense(max_bytes=100 * 50 * 8 - 1)
    with pytest.raises(ValueError, match="max_bytes"):
        LowRankMatrix.zeros((20_000, 20_000)).to_dense()
    assert W.to_dense(max_bytes=100 * 50 * 8).shape == (100, 50)
    assert W.to_dense(max_bytes=None).shape == (100, 50)
    half = LowRankMatrix.zeros((100, 50), np.float32)
    assert half.to_dense(max_bytes=100 * 50 * 4).dtype == np.float32


def test_nothing_of_size_d_by_m_is_ever_built(rng: np.random.Generator) -> None:
    d = m = 20_000  # a dense matrix would take 3.2 GB
    W = LowRankMatrix.zeros((d, m))
    X, v = sp.random_array((5, d), density=0.01, format="csr", rng=rng), rng.standard_normal(m)
    tracemalloc.start()
    for _ in range(5):
        W = W.toward(random_atom(rng, d, m), 0.5)
    results = (X @ W, W @ v, W.trace_norm, W.compress(1e-3), (W + W) - 2.0 * W, W.T)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(results) == 6
    assert peak < 100 * (d + m) * 8


@given(SHAPES, SEEDS, st.sampled_from([0.0, 1e-12, 1e-3, 0.1, 0.9]))
def test_compress_bounds_the_rank_and_never_lengthens(
    shape: tuple[int, int, int], seed: int, tol: float
) -> None:
    d, m, r = shape
    W = LowRankMatrix(*random_factors(d, m, r, seed))
    C = W.compress(tol)
    assert C.rank <= min(d, m, r)
    assert C.trace_norm <= W.trace_norm * (1.0 + 1e-12)
    assert float(C.s.sum()) <= W.trace_norm * (1.0 + 1e-12)
    assert np.all(np.diff(C.s) <= 0.0)
    identity = np.eye(C.rank)
    np.testing.assert_allclose(C.U.T @ C.U, identity, atol=1e-12)
    np.testing.assert_allclose(C.V.T @ C.V, identity, atol=1e-12)
    # What was dropped has at most the fraction `tol` of the trace norm.
    assert (W - C).trace_norm <= (tol + 1e-12) * W.trace_norm


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 8), SEEDS)
def test_compress_keeps_the_largest_singular_values(d: int, m: int, most: int, seed: int) -> None:
    W = LowRankMatrix(*random_factors(d, m, 5, seed))
    C = W.compress(max_rank=most)
    assert C.rank <= most
    expected = np.linalg.svd(W.to_dense(), compute_uv=False)[: C.rank]
    np.testing.assert_allclose(C.s, expected, rtol=1e-10, atol=1e-12 * W.trace_norm)


def test_a_long_run_of_steps_and_compressions_stays_in_the_ball(rng: np.random.Generator) -> None:
    radius = 3.0
    W = LowRankMatrix.zeros((4, 3))
    for _ in range(400):
        W = W.toward(random_atom(rng, 4, 3, scale=-radius), rng.random() ** 4).compress()
        assert W.trace_norm <= radius * (1.0 + 1e-12)
        assert W.rank <= 3


@pytest.mark.parametrize("tol", [-1e-9, 1.0, float("nan")])
def test_compress_refuses_a_tolerance_outside_its_range(tol: float) -> None:
    with pytest.raises(ValueError, match="tol must be"):
        LowRankMatrix.zeros((2, 2)).compress(tol)


def test_compress_refuses_a_negative_rank() -> None:
    with pytest.raises(ValueError, match="max_rank must"):
        LowRankMatrix.zeros((2, 2)).compress(max_rank=-1)


def test_atoms_are_equal_if_all_their_parts_are(rng: np.random.Generator) -> None:
    atom = random_atom(rng, 3, 2)
    assert atom.equals(RankOne(atom.scale, atom.u.copy(), atom.v.copy()))
    assert not atom.equals(RankOne(-atom.scale, atom.u, atom.v))
    assert not atom.equals(RankOne(atom.scale, -atom.u, atom.v))
    assert not atom.equals(RankOne(atom.scale, atom.u, -atom.v))


def test_products_of_two_stay_factors() -> None:
    rng = np.random.default_rng(3)
    A = LowRankMatrix(rng.standard_normal((7, 2)), [2.0, 1.0], rng.standard_normal((5, 2)))
    B = LowRankMatrix(rng.standard_normal((5, 3)), [3.0, 2.0, 1.0], rng.standard_normal((6, 3)))
    product = A @ B
    assert isinstance(product, LowRankMatrix)
    np.testing.assert_allclose(product.to_dense(), A.to_dense() @ B.to_dense(), atol=1e-12)
    large = LowRankMatrix(np.ones((10**6, 1)), [1.0], np.ones((3, 1)))
    assert (large @ large.T).shape == (10**6, 10**6)


def test_negation_and_division() -> None:
    W = LowRankMatrix(np.eye(3)[:, :2], [2.0, 1.0], np.eye(4)[:, :2])
    np.testing.assert_array_equal((-W).to_dense(), -W.to_dense())
    np.testing.assert_array_equal((W / 4.0).to_dense(), W.to_dense() / 4.0)


def test_pickled_matrices_come_back_without_spare_room() -> None:
    W = LowRankMatrix.zeros((500, 400))
    for k in range(9):
        atom = RankOne(1.0, np.eye(500)[k], np.eye(400)[k])
        W = W.toward(atom, 0.5)
    data = pickle.dumps(W)
    assert len(data) < 9 * 900 * 8 * 1.1
    np.testing.assert_array_equal(pickle.loads(data).to_dense(), W.to_dense())


def test_complex_factors_are_refused() -> None:
    with pytest.raises(TypeError, match="real numbers"):
        LowRankMatrix(np.ones((2, 1)) * 1j, [1.0], np.ones((3, 1)))


# Frank-Wolfe steps


def dense_step(dense: Any, atom: RankOne, gamma: float) -> Any:
    return (1.0 - gamma) * dense + gamma * atom.scale * np.outer(atom.u, atom.v)


def test_steps_copy_a_constant_number_of_columns_each_in_the_long_run(
    rng: np.random.Generator,
) -> None:
    steps = 3000
    atom = random_atom(rng, 20, 10)
    W, copies, columns_copied = LowRankMatrix.zeros((20, 10)), 0, 0
    for _ in range(steps):
        following = W.toward(atom, 0.01)
        shared = [np.shares_memory(getattr(W, f), getattr(following, f)) for f in "UV"]
        assert shared[0] == shared[1]
        if not shared[0]:
            copies += 1
            columns_copied += W.rank
        W = following
    assert W.rank == steps
    assert copies <= np.log2(steps) + 1
    assert columns_copied <= 2 * steps


def test_old_iterates_keep_their_values(rng: np.random.Generator) -> None:
    W, dense = LowRankMatrix.zeros((4, 3)), np.zeros((4, 3))
    kept = []
    for _ in range(100):
        atom, gamma = random_atom(rng, 4, 3), rng.random() / 4
        W, dense = W.toward(atom, gamma), dense_step(dense, atom, gamma)
        kept.append((W, W.U.copy(), W.s.copy(), W.V.copy(), dense))
    for W, U, s, V, dense in kept:
        np.testing.assert_array_equal(W.U, U)
        np.testing.assert_array_equal(W.s, s)
        np.testing.assert_array_equal(W.V, V)
        np.testing.assert_allclose(W.to_dense(), dense, atol=1e-13)


@given(
    st.lists(
        st.tuples(st.integers(0, 100), st.sampled_from([0.0, 1e-12, 0.3, 0.5, 1.0 - 1e-12, 1.0])),
        max_size=40,
    ),
    st.integers(0, 2**32 - 1),
)
def test_iterates_may_branch_from_any_earlier_one(
    moves: list[tuple[int, float]], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    family = [(LowRankMatrix.zeros((3, 2)), np.zeros((3, 2)))]
    for parent, gamma in moves:
        W, dense = family[parent % len(family)]
        atom = random_atom(rng, 3, 2, scale=rng.choice([-2.0, 2.0]))
        family.append((W.toward(atom, gamma), dense_step(dense, atom, gamma)))
    for W, dense in family:
        np.testing.assert_allclose(W.to_dense(), dense, atol=1e-13)


def test_two_children_of_one_parent_do_not_see_each_other(rng: np.random.Generator) -> None:
    parent = LowRankMatrix.zeros((3, 2))
    for _ in range(3):  # capacity is left behind the last column
        parent = parent.toward(random_atom(rng, 3, 2), 0.2)
    atoms = [random_atom(rng, 3, 2) for _ in range(2)]
    children = [parent.toward(atom, 0.5) for atom in atoms]
    assert np.shares_memory(parent.U, children[0].U)
    assert not np.shares_memory(children[0].U, children[1].U)
    for child, atom in zip(children, atoms, strict=True):
        expected = dense_step(parent.to_dense(), atom, 0.5)
        np.testing.assert_allclose(child.to_dense(), expected, atol=1e-14)


def test_gamma_zero_stays_and_gamma_one_forgets(rng: np.random.Generator) -> None:
    W = LowRankMatrix.zeros((3, 2)).toward(random_atom(rng, 3, 2), 0.5)
    atom = random_atom(rng, 3, 2)
    np.testing.assert_array_equal(W.toward(atom, 0.0).to_dense(), W.to_dense())
    moved = W.toward(atom, 1.0)
    assert moved.rank == 1
    np.testing.assert_allclose(moved.to_dense(), dense_step(0.0, atom, 1.0), atol=1e-15)


@pytest.mark.parametrize("gamma", [0.5, 0.999, 1.0 - 2.0**-53])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_thousands_of_long_steps_do_not_underflow(
    rng: np.random.Generator, gamma: float, dtype: Any
) -> None:
    # (1-γ)^2000 is far below the smallest double for every γ here.
    W, dense = LowRankMatrix.zeros((3, 2), dtype), np.zeros((3, 2))
    for _ in range(2000):
        atom = random_atom(rng, 3, 2)
        W, dense = W.toward(atom, gamma), dense_step(dense, atom, gamma)
    assert np.all(np.isfinite(W.s))
    assert W.U.dtype == dtype
    atol = 1e-6 if dtype is np.float32 else 1e-13
    np.testing.assert_allclose(W.to_dense(), dense, atol=atol)
    assert W.trace_norm <= 2.0 * (1.0 + (1e-6 if dtype is np.float32 else 1e-12))


def test_a_step_keeps_the_columns_of_every_earlier_one(rng: np.random.Generator) -> None:
    W = LowRankMatrix.zeros((3, 2))
    atoms = [random_atom(rng, 3, 2) for _ in range(20)]
    for atom in atoms:
        W = W.toward(atom, 0.1)
    np.testing.assert_array_equal(W.V, np.column_stack([atom.v for atom in atoms]))
    weights = [0.2 * 0.9 ** (19 - k) for k in range(20)]  # γ·|scale|·(1-γ)^(steps since)
    np.testing.assert_allclose(W.s, weights, rtol=1e-12)
