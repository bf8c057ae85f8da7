"""The tree of workers: nobody has too many children, and subtrees are contiguous."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfwtrace.engines.resident.connections import DRIVER, JoinInfo, parents

TREES = st.tuples(st.integers(1, 200), st.integers(1, 40))


@given(TREES)
def test_nobody_has_more_children_than_the_fan_in(tree: tuple[int, int]) -> None:
    n_workers, fan_in = tree
    above = parents(n_workers, fan_in)
    assert len(above) == n_workers
    assert max(above.count(i) for i in range(DRIVER, n_workers)) <= fan_in
    assert above.count(DRIVER) == min(n_workers, fan_in)


@given(TREES)
def test_everybody_hangs_below_the_driver_in_a_contiguous_subtree(tree: tuple[int, int]) -> None:
    above = parents(*tree)
    below: dict[int, set[int]] = {i: {i} for i in range(len(above))}
    for i in reversed(range(len(above))):
        assert DRIVER <= above[i] < i  # so that children are seen before their parent here
        if above[i] != DRIVER:
            below[above[i]] |= below[i]
    for i, members in below.items():
        assert members == set(range(i, i + len(members)))


@given(TREES)
def test_the_tree_is_as_shallow_as_it_can_be_but_for_one(tree: tuple[int, int]) -> None:
    n_workers, fan_in = tree
    above = parents(n_workers, fan_in)

    def depth(i: int) -> int:
        return 0 if i == DRIVER else 1 + depth(above[i])

    room, least = 0, 0
    while room < n_workers:
        least += 1
        room += fan_in**least
    assert max(depth(i) for i in range(n_workers)) <= least + 1


@pytest.mark.parametrize("n_workers", [1, 2, 16])
def test_few_workers_all_hang_below_the_driver(n_workers: int) -> None:
    assert parents(n_workers, 16) == [DRIVER] * n_workers


def test_a_fan_in_of_one_is_a_chain() -> None:
    assert parents(5, 1) == [-1, 0, 1, 2, 3]


def test_an_invitation_travels_and_keeps_its_secret_out_of_logs() -> None:
    info = JoinInfo("driver", 4040, b"a secret", 3, 8, 2, 10.0, 1 << 20)
    assert pickle.loads(pickle.dumps(info)) == info
    assert "secret" not in f"{info} {info!r}"
    assert "driver:4040" in repr(info)
