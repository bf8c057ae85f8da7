"""Shards in pieces: put together they have the same bits in the same layout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from dfwtrace.data.shards import Shard, split_rows
from dfwtrace.engines.resident.wire import (
    Frame,
    Kind,
    ProtocolError,
    Value,
    encode,
    receive_shards,
    shard_payloads,
)


def frames(payloads: Any, kind: Kind = Kind.ROWS) -> Iterator[Frame]:
    for payload in payloads:
        yield Frame(kind, 0, bytearray(b"".join(encode(payload))))


def through_the_wire(shards: list[Shard], largest_message: int = 1 << 30) -> list[Shard]:
    sent = frames(shard_payloads(shards, largest_message))
    received = receive_shards(lambda: next(sent), len(shards))
    assert next(sent, None) is None  # nothing is left on the line
    return received


def assert_same(a: Any, b: Any) -> None:
    assert (a.dtype, a.shape) == (b.dtype, b.shape)
    assert a.tobytes() == b.tobytes()


def assert_same_shards(shards: list[Shard], others: list[Shard]) -> None:
    assert [shard.index for shard in shards] == [other.index for other in others]
    for shard, other in zip(shards, others, strict=True):
        assert shard.digest() == other.digest()
        assert sp.issparse(shard.X) == sp.issparse(other.X)
        assert shard.X.shape == other.X.shape
        parts = ("data", "indices", "indptr") if sp.issparse(shard.X) else ()
        for name in parts:
            assert_same(getattr(shard.X, name), getattr(other.X, name))
        if not parts:
            assert_same(shard.X, other.X)
        assert (shard.y is None) == (other.y is None)
        if shard.y is not None:
            assert_same(shard.y, other.y)


def random_rows(n: int, d: int, dtype: Any) -> Any:
    rng = np.random.default_rng([n, d])
    return np.where(rng.random((n, d)) < 0.5, 0, rng.integers(0, 100, (n, d))).astype(dtype)


LAYOUTS = [
    np.ascontiguousarray,
    np.asfortranarray,
    sp.csr_array,
    lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    lambda X: X[::-1],
]
DTYPES = [np.float64, np.float32, np.int64, np.int8, np.uint16, np.bool_, np.longdouble, ">f8"]
TARGETS = [
    lambda n: None,
    lambda n: np.arange(n),
    lambda n: np.arange(3.0 * n).reshape(n, 3),
    lambda n: np.asfortranarray(np.arange(3.0 * n).reshape(n, 3)),
    lambda n: np.zeros((n, 0)),
    lambda n: np.arange(n, dtype=np.float32)[::-1],
]


@given(
    st.integers(0, 30),
    st.integers(1, 5),
    st.integers(1, 7),
    st.sampled_from(DTYPES),
    st.sampled_from(LAYOUTS),
    st.sampled_from(TARGETS),
    st.sampled_from([2, 5, 32, 200, 1 << 20]),
)
def test_shards_come_back_the_same(
    n: int, d: int, n_shards: int, dtype: Any, layout: Any, targets: Any, largest_message: int
) -> None:
    if layout is sp.csr_array and dtype in (np.longdouble, ">f8", np.uint16):
        dtype = np.float64
    shards = split_rows(layout(random_rows(n, d, dtype)), targets(n), n_shards)
    assert_same_shards(shards, through_the_wire(shards, largest_message))


def sizes(shards: list[Shard], largest_message: int) -> list[int]:
    return [
        value.nbytes
        for payload in shard_payloads(shards, largest_message)
        for value in payload
        if isinstance(value, np.ndarray)
    ]


@pytest.mark.parametrize("largest_message", [1 << 10, 1000, 1 << 16])
@pytest.mark.parametrize("d", [1, 100, 20_000])
@pytest.mark.parametrize("layout", [np.ascontiguousarray, sp.csr_array])
def test_pieces_are_half_of_a_message_at_the_most(
    layout: Any, d: int, largest_message: int
) -> None:
    """Also of a row that is larger than that."""
    shards = split_rows(layout(np.ones((200_000 // d, d))), None, 2)
    told = sizes(shards, largest_message)
    assert max(told) <= largest_message // 2
    assert sum(told) >= 200_000 * 8
    for frame in frames(shard_payloads(shards, largest_message)):
        assert len(frame.payload) <= largest_message


def test_pieces_are_small_and_views_of_the_rows_where_they_can_be(tmp_path: Path) -> None:
    on_disk = np.memmap(tmp_path / "X", dtype=np.float64, mode="w+", shape=(4000, 500))
    on_disk[:] = 1.0
    sent = 0
    for payload in shard_payloads(split_rows(on_disk, None, 1), 1 << 30):
        for value in payload:
            if isinstance(value, np.ndarray):
                assert np.shares_memory(value, on_disk)
                assert value.nbytes <= 4 << 20
                sent += value.nbytes
    assert sent == on_disk.nbytes


def test_what_was_received_is_ones_own_to_change() -> None:
    (shard,) = through_the_wire(split_rows(np.ones((3, 2)), np.ones(3), 1))
    assert shard.X.flags.writeable
    assert shard.targets.flags.writeable


@pytest.mark.parametrize("kind", [Kind.TREE, Kind.STOP, Kind.SUM])
def test_other_frames_are_refused_among_rows(kind: Kind) -> None:
    sent = frames(shard_payloads(split_rows(np.ones((3, 2)), None, 1), 100), kind)
    with pytest.raises(ProtocolError, match=f"{kind.name} where rows should come"):
        receive_shards(lambda: next(sent), 1)


@pytest.mark.parametrize("dtype", ["|O", "<c16", "<U3", "<M8[s]", "|V4"])
def test_rows_are_numbers(dtype: str) -> None:
    head: list[list[Value]] = [[0, 2, 1], ["X", dtype, 0, 3, 2]]
    sent = frames(head)
    with pytest.raises(ProtocolError, match="rows of"):
        receive_shards(lambda: next(sent), 1)
