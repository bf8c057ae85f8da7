"""L-BFGS against the dense BFGS matrix."""

import numpy as np
import numpy.typing as npt
import pytest

from dfwtrace.solvers import lbfgs
from dfwtrace.solvers.lbfgs import LBFGS

Array = npt.NDArray[np.float64]
Pairs = list[tuple[Array, Array]]
SIZE = 8

rng = np.random.default_rng(0)
ROOT = rng.standard_normal((SIZE, SIZE))
HESSIAN = ROOT @ ROOT.T + np.eye(SIZE)


def curved_pairs(count: int) -> Pairs:
    changes = np.random.default_rng(1).standard_normal((count, SIZE))
    return [(dx, HESSIAN @ dx) for dx in changes]


def memory_of(pairs: Pairs) -> LBFGS:
    memory = LBFGS()
    for dx, dg in pairs:
        memory.remember(dx, dg)
    return memory


def dense_direction(pairs: Pairs, g: Array, first: Array | None = None) -> Array:
    """-H g with H from γ·first (I) by the BFGS formula for every pair, the oldest first."""
    dx, dg = pairs[-1]
    eye = np.eye(g.size)
    first = eye if first is None else first
    H = first * float(dx @ dg) / float(dg @ first @ dg)
    for dx, dg in pairs:
        rho = 1.0 / float(dx @ dg)
        left = eye - rho * np.outer(dx, dg)
        H = left @ H @ left.T + rho * np.outer(dx, dx)
    return -H @ g


@pytest.mark.parametrize("count", [1, 2, 5, 20])
def test_the_direction_is_that_of_the_dense_matrix(count: int) -> None:
    pairs, g = curved_pairs(count), rng.standard_normal(SIZE)
    direction = memory_of(pairs).direction(g)
    assert direction is not None
    np.testing.assert_allclose(direction, dense_direction(pairs, g), rtol=1e-7, atol=1e-10)
    assert float(direction @ g) < 0.0


@pytest.mark.parametrize("count", [1, 3])
def test_a_metric_takes_the_place_of_the_unit_matrix(count: int) -> None:
    pairs, g = curved_pairs(count), rng.standard_normal(SIZE)
    first = np.diag(np.arange(1.0, SIZE + 1.0))
    direction = memory_of(pairs).direction(g, lambda v: first @ v)
    assert direction is not None
    expected = dense_direction(pairs, g, first)
    np.testing.assert_allclose(direction, expected, rtol=1e-7, atol=1e-10)


def test_the_last_pair_is_met_exactly() -> None:
    """The secant equation: H dg = dx."""
    pairs = curved_pairs(6)
    direction = memory_of(pairs).direction(pairs[-1][1])
    assert direction is not None
    np.testing.assert_allclose(direction, -pairs[-1][0], rtol=1e-8)


def test_without_a_pair_there_is_no_direction() -> None:
    assert LBFGS().direction(np.ones(3)) is None


def test_old_pairs_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lbfgs, "_PAIRS", 40)
    pairs, g = curved_pairs(47), rng.standard_normal(SIZE)
    direction = memory_of(pairs).direction(g)
    assert direction is not None
    np.testing.assert_allclose(direction, dense_direction(pairs[-40:], g), rtol=1e-6, atol=1e-9)


def kept_of_length(size: int, count: int) -> int:
    """Pairs that stay of so many whose vectors are that long."""
    memory, change = LBFGS(), np.zeros(size)
    change[0] = 1.0
    for _ in range(count):
        memory.remember(change, change)
    return len(memory.pairs)


def test_long_vectors_leave_less_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """All pairs together stay below a number of bytes, but for the last three."""
    monkeypatch.setattr(lbfgs, "_PAIRS", 40)
    monkeypatch.setattr(lbfgs, "_MEMORY", 16 * 70)  # 70 pairs of one number each
    assert kept_of_length(1, 50) == 40
    assert kept_of_length(7, 50) == 10
    assert kept_of_length(1000, 50) == 3
    assert [lbfgs.room(size) for size in (1, 7, 1000)] == [40, 10, 3]


def test_pairs_that_are_wider_push_out_the_old_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lbfgs, "_MEMORY", 16 * 70)
    memory, change = LBFGS(), np.ones(7)
    for _ in range(10):
        memory.remember(change, change)
    wider = memory.map(lambda x: np.append(x, np.zeros(7)))
    assert len(wider.pairs) == 5


def test_a_memory_is_the_same_again_after_a_checkpoint() -> None:
    memory, g, other = memory_of(curved_pairs(5)), rng.standard_normal(SIZE), LBFGS()
    other.restore(memory.memory())
    direction, again = memory.direction(g), other.direction(g)
    assert direction is not None
    assert again is not None
    np.testing.assert_array_equal(direction, again)


@pytest.mark.parametrize("curvature", [-1.0, 0.0])
def test_a_pair_without_curvature_is_left_out(curvature: float) -> None:
    pairs, g = curved_pairs(3), rng.standard_normal(SIZE)
    memory, dx = memory_of(pairs), rng.standard_normal(SIZE)
    memory.remember(dx, curvature * dx)
    memory.remember(np.zeros(SIZE), np.zeros(SIZE))
    direction = memory.direction(g)
    assert direction is not None
    np.testing.assert_array_equal(direction, memory_of(pairs).direction(g))


def test_the_gradient_is_left_as_it_is() -> None:
    g = rng.standard_normal(SIZE)
    before = g.copy()
    memory_of(curved_pairs(4)).direction(g)
    np.testing.assert_array_equal(g, before)


def test_a_rotation_of_the_coordinates_rotates_the_direction() -> None:
    turn = np.linalg.qr(rng.standard_normal((SIZE, SIZE)))[0]
    g, memory = rng.standard_normal(SIZE), memory_of(curved_pairs(7))
    there, here = memory.map(lambda x: turn @ x).direction(turn @ g), memory.direction(g)
    assert there is not None
    assert here is not None
    np.testing.assert_allclose(there, turn @ here, rtol=1e-8, atol=1e-10)


def test_an_empty_memory_stays_empty_in_other_coordinates() -> None:
    assert LBFGS().map(lambda x: x[:2]).direction(np.ones(2)) is None
