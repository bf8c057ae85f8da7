"""The fixed tree: one sum, whoever adds and whatever arrives first."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfwtrace.engines import TreeSum


def replies(n: int, seed: int) -> list[Any]:
    """Numbers of very different size, whose sum depends on the order of additions."""
    rng = np.random.default_rng(seed)
    return list(rng.standard_normal((n, 5)) * 10.0 ** rng.integers(-12, 12, (n, 5)))


def tree_sum(parts: list[Any], order: list[int]) -> Any:
    total = TreeSum(len(parts))
    for j in order:
        total.add(j, parts[j])
    return total.result()


def level_by_level(parts: list[Any]) -> Any:
    """The tree as its definition says: neighbours are added, a last one alone goes up."""
    while len(parts) > 1:
        pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
        parts = [pair[0] + pair[1] if len(pair) == 2 else pair[0] for pair in pairs]
    return parts[0]


@given(st.integers(1, 40).flatmap(lambda n: st.permutations(range(n))), st.integers(0, 2**32 - 1))
def test_bits_do_not_depend_on_the_order_of_arrival(order: list[int], seed: int) -> None:
    parts = replies(len(order), seed)
    expected = level_by_level(parts)
    np.testing.assert_array_equal(tree_sum(parts, order), expected)
    np.testing.assert_allclose(
        expected, np.sum(parts, axis=0), rtol=1e-9, atol=1e-12 * np.abs(parts).max()
    )


def test_the_order_of_additions_would_matter_without_a_tree() -> None:
    parts = replies(16, seed=0)
    forwards, backwards = sum(parts), sum(parts[::-1])
    assert not np.array_equal(forwards, backwards)


@given(st.integers(1, 20))
def test_replies_are_never_changed(n: int) -> None:
    parts = replies(n, seed=n)
    for part in parts:
        part.flags.writeable = False
    before = [part.copy() for part in parts]
    tree_sum(parts, list(range(n)))
    np.testing.assert_array_equal(parts, before)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 64, 100])
def test_threads_that_add_at_once_get_the_same_bits(n: int) -> None:
    parts = replies(n, seed=n)
    expected = level_by_level(parts)
    for attempt in range(20):
        total, barrier = TreeSum(n), threading.Barrier(4)
        order = np.random.default_rng(attempt).permutation(n)

        def add(mine: Any, total: TreeSum = total, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            for j in mine:
                total.add(int(j), parts[j])

        threads = [threading.Thread(target=add, args=(order[k::4],)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        np.testing.assert_array_equal(total.result(), expected)
