"""The fixed tree: one sum, whoever adds and whatever arrives first."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfwtrace.data.shards import shard_bounds
from dfwtrace.engines import Node, TreeSum


def replies(n: int, seed: int) -> list[Any]:
    """Numbers of very different size, whose sum depends on the order of additions."""
    rng = np.random.default_rng(seed)
    return list(rng.standard_normal((n, 5)) * 10.0 ** rng.integers(-12, 12, (n, 5)))


def tree_sum(parts: list[Any], order: list[int]) -> Any:
    total = TreeSum(len(parts))
    for j in order:
        total.add(Node(0, j, parts[j]))
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
                total.add(Node(0, int(j), parts[j]))

        threads = [threading.Thread(target=add, args=(order[k::4],)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        np.testing.assert_array_equal(total.result(), expected)


@given(st.data())
def test_partial_sums_of_workers_give_the_same_bits(data: st.DataObject) -> None:
    """Contiguous shards of a worker, added there; the nodes sent on in any order."""
    n = data.draw(st.integers(1, 40))
    n_workers = data.draw(st.integers(1, n + 3))  # some may have no shard
    parts = replies(n, seed=n)
    sent: list[Node] = []
    for first, last in shard_bounds(n, n_workers):
        partial = TreeSum(n)
        for j in data.draw(st.permutations(range(first, last))):
            partial.add(Node(0, j, parts[j]))
        nodes = partial.nodes()
        assert len(nodes) <= 2 * max(1, (last - first).bit_length())
        assert len(nodes) <= last - first
        sent += nodes
    total = TreeSum(n)
    for node in data.draw(st.permutations(sent)):
        total.add(node)
    assert [(level, place) for level, place, _ in total.nodes()] == [((n - 1).bit_length(), 0)]
    np.testing.assert_array_equal(total.result(), level_by_level(parts))


@given(st.data())
def test_partial_sums_go_up_a_tree_of_workers(data: st.DataObject) -> None:
    """Also where sums are merged midway, as a worker does with its children's."""
    n = data.draw(st.integers(1, 40))
    parts = replies(n, seed=n)
    cuts = data.draw(st.lists(st.integers(0, n), max_size=6).map(sorted))
    runs = [range(a, b) for a, b in zip([0, *cuts], [*cuts, n], strict=True)]
    held = [[Node(0, j, parts[j]) for j in run] for run in runs]
    while len(held) > 1:
        at = data.draw(st.integers(0, len(held) - 2))
        merged = TreeSum(n)
        for node in data.draw(st.permutations(held[at] + held.pop(at + 1))):
            merged.add(node)
        held[at] = merged.nodes()
    whole = TreeSum(n)
    for node in held[0]:
        whole.add(node)
    np.testing.assert_array_equal(whole.result(), level_by_level(parts))


def test_nodes_are_what_has_not_met_its_neighbour() -> None:
    total = TreeSum(5)
    assert total.nodes() == []
    for shard in (1, 2, 3):
        total.add(Node(0, shard, np.array([float(shard)])))
    found = sorted((level, place, float(partial[0])) for level, place, partial in total.nodes())
    assert found == [(0, 1, 1.0), (1, 1, 5.0)]
    total.add(Node(3, 0, np.array([99.0])))  # the top itself, for a tree of five
    assert total.result()[0] == 99.0


def test_a_sum_that_is_not_complete_has_no_result() -> None:
    total = TreeSum(3)
    total.add(Node(0, 0, np.ones(2)))
    with pytest.raises(KeyError):
        total.result()


def test_seconds_are_those_spent_on_adding() -> None:
    total = TreeSum(2)
    total.add(Node(0, 0, np.ones(100_000)))
    assert total.seconds == 0.0
    total.add(Node(0, 1, np.ones(100_000)))
    assert total.seconds > 0.0
