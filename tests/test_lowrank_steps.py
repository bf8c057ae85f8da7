"""LowRankMatrix.toward: the Frank-Wolfe step, right in value and cheap over many epochs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfwtrace import LowRankMatrix, RankOne


def random_atom(rng: np.random.Generator, d: int, m: int, scale: float = -2.0) -> RankOne:
    u, v = rng.standard_normal(d), rng.standard_normal(m)
    return RankOne(scale, u / np.linalg.norm(u), v / np.linalg.norm(v))


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
