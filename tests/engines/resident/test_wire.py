"""Frames: what is sent comes out the same, and anything else is refused, never waited for."""

from __future__ import annotations

import itertools
import json
import math
import socket
import struct
import threading
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dfwtrace.engines.resident.wire import (
    HEADER,
    Frame,
    FrameReader,
    Kind,
    PeerLostError,
    ProtocolError,
    decode,
    encode,
    pack,
    push,
    receive,
    repack,
    send,
)

DTYPES = ["<f8", "<f4", "<i8", "<i4", "|u1"]
ARRAYS = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0))
)
LAYOUTS = [
    np.ascontiguousarray,
    np.asfortranarray,
    np.transpose,
    lambda array: array[..., ::-1] if array.ndim else array,
    lambda array: array[::2] if array.ndim else array,
]
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NUMBERS = st.integers() | st.integers(-(2**600), 2**600) | st.floats()
VALUES = st.lists(
    TEXT | NUMBERS | st.tuples(ARRAYS, st.sampled_from(LAYOUTS)).map(lambda pair: pair[1](pair[0])),
    max_size=5,
)


def same(a: Any, b: Any) -> bool:
    """Equal in type and in every bit, arrays also in memory order."""
    if isinstance(a, np.ndarray):
        return (
            isinstance(b, np.ndarray)
            and (a.dtype, a.shape) == (b.dtype, b.shape)
            and a.tobytes() == b.tobytes()
            and (not a.flags.forc or a.flags.c_contiguous == b.flags.c_contiguous)
        )
    if isinstance(a, float):
        return isinstance(b, float) and repr(a) == repr(b)
    return type(a) is type(b) and bool(a == b)


def payload_of(values: Any) -> bytes:
    return b"".join(encode(values))


@pytest.fixture
def line() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    for sock in (here, there):
        sock.settimeout(10.0)
    yield here, there
    here.close()
    there.close()


@given(VALUES)
@example([math.nan, math.inf, -math.inf, -0.0, 2**70, -(2**70), -128, 255, 0])
@example(["", "Gradient ∇F·v 𝕎", np.array(1.5), np.zeros((0, 3)), np.zeros((3, 0), "<f4")])
def test_values_come_back_the_same(values: Any) -> None:
    back = decode(payload_of(values))
    assert len(back) == len(values)
    assert all(same(a, b) for a, b in zip(values, back, strict=True))


@given(VALUES)
def test_arrays_that_come_back_are_ones_own(values: Any) -> None:
    payload = bytearray(payload_of(values))
    back = decode(payload)
    payload[:] = bytes(len(payload))
    assert all(same(a, b) for a, b in zip(values, back, strict=True))
    assert all(value.flags.writeable for value in back if isinstance(value, np.ndarray))


@pytest.mark.parametrize("shape", [(3, 4), (1, 4), (4, 1), (2, 3, 4), (5,), ()])
def test_memory_order_is_kept(shape: tuple[int, ...]) -> None:
    A = np.arange(float(math.prod(shape))).reshape(shape)
    for array in (A, np.asfortranarray(A)):
        (back,) = decode(payload_of([array]))
        assert isinstance(back, np.ndarray)
        assert back.flags.c_contiguous == array.flags.c_contiguous
        assert back.flags.f_contiguous == array.flags.f_contiguous
        np.testing.assert_array_equal(back, array)


def test_arrays_are_sent_without_a_copy() -> None:
    for array in (np.arange(10.0), np.asfortranarray(np.ones((3, 4)))):
        assert any(
            np.shares_memory(np.frombuffer(part, np.uint8), array) for part in encode([array])
        )


def test_numbers_of_numpy_travel_as_numbers() -> None:
    sent = [np.float64(0.1), np.float32(0.5), np.int32(-7), np.uint64(2**63), True, np.bool_(False)]
    assert decode(payload_of(sent)) == [0.1, 0.5, -7, 2**63, 1, 0]


@pytest.mark.parametrize(
    "array",
    [
        np.ones(2, ">f8"),
        np.ones(2, complex),
        np.ones(2, np.float16),
        np.array([None]),
        np.array(["a"]),
    ],
    ids=lambda array: f"{array.dtype}-{array.ndim}",
)
def test_other_arrays_are_refused_where_they_are_sent(array: Any) -> None:
    with pytest.raises(TypeError, match="cannot be sent"):
        encode([array])


def test_text_of_any_kind_can_be_told() -> None:
    """A traceback may quote a file's name that is no text: it must come through all the same."""
    (back,) = decode(payload_of(["before \udcff after"]))
    assert str(back).startswith("before ")
    assert str(back).endswith(" after")


def refused(payload: bytes) -> bool:
    """Whether a payload is refused in the one way that receivers know; nothing else may happen."""
    try:
        decode(payload)
    except ProtocolError:
        return True
    return False


@given(ARRAYS | TEXT | NUMBERS)
def test_every_cut_through_a_value_is_refused(value: Any) -> None:
    payload = payload_of([value])
    for length in range(min(len(payload), 300)):
        assert refused(payload[:length])


@given(st.binary(max_size=200))
def test_random_bytes_raise_nothing_unexpected(payload: bytes) -> None:
    refused(payload)


@given(VALUES.filter(bool), st.data())
def test_corrupted_payloads_raise_nothing_unexpected(values: Any, data: st.DataObject) -> None:
    payload = bytearray(payload_of(values))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    refused(bytes(payload))


SIZES = st.sampled_from(
    [0, 1, 2**16, 2**31, 2**32, 2**61, 2**62, 2**63 - 1, 2**63, 2**64 - 1]
) | st.integers(0, 2**64 - 1)


def announced(items: Any, rest: bytes = b"") -> bytes:
    """A payload with this JSON, and these bytes behind it."""
    text = json.dumps(items).encode()
    return struct.pack("<I", len(text)) + text + rest


@given(
    st.sampled_from([*DTYPES, "|O", ">f8", ""]),
    st.sampled_from("CFKA"),
    st.lists(SIZES, max_size=6),
    st.binary(max_size=64),
)
@example("<f8", "C", [2**63, 0], b"")
@example("<f8", "F", [0, 2**63], b"")
@example("<f8", "C", [2**32, 2**32], b"")
@example("<f8", "C", [2**31, 2**31, 4], b"")
@example("<f8", "C", [2**70, 0], b"")
@example("<f8", "C", [-1, -1], bytes(8))
def test_shapes_that_overflow_are_refused(
    dtype: str, order: str, shape: list[int], rest: bytes
) -> None:
    """And never asked of the memory: a product of sizes may be zero in 64 bits."""
    payload = announced([[dtype, order, *shape]], rest)
    tracemalloc.start()
    try:
        if not refused(payload):
            values = decode(payload)
            assert isinstance(values[0], np.ndarray)
            assert values[0].nbytes <= len(rest)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"what?",
        announced([])[:-1],
        announced([], b"x"),
        announced(["x"])[:3],
        announced(7),
        announced([None]),
        announced([1.5]),
        announced([{"a": 1}]),
        announced([[]]),
        announced([["|O", "C", 1]], bytes(8)),
        announced([["<f8", "C", 1.0]], bytes(8)),
        announced([["<f8", "C", "1"]], bytes(8)),
        announced([["<f8", "C", 2]], bytes(8)),
        struct.pack("<I", 9000) + b"[" * 9000,
        struct.pack("<I", 3) + b'"\xff"',
    ],
)
def test_what_encode_never_made_is_refused(payload: bytes) -> None:
    with pytest.raises(ProtocolError, match=f"{len(payload)} bytes"):
        decode(payload)


@pytest.mark.parametrize("kind", list(Kind))
def test_a_frame_arrives_as_it_was_sent(
    line: tuple[socket.socket, socket.socket], kind: Kind
) -> None:
    here, there = line
    for values in ([], ["matvec", np.arange(3.0), 2**80]):
        buffers = pack(kind, 2**40, values)
        assert send(here, buffers) == sum(len(buffer) for buffer in buffers)
        frame = receive(there, 1000)
        assert (frame.kind, frame.sequence) == (kind, 2**40)
        assert all(same(a, b) for a, b in zip(values, frame.values(), strict=True))
        send(here, repack(frame))
        assert receive(there, 1000) == frame


def test_a_large_frame_of_many_buffers_passes(line: tuple[socket.socket, socket.socket]) -> None:
    """More bytes than the socket's buffer, more buffers than a system call takes."""
    here, there = line
    values: list[Any] = [np.full(5000, float(k)) for k in range(700)]
    sender = threading.Thread(target=send, args=(here, pack(Kind.ROWS, 1, values)))
    sender.start()
    frame = receive(there, 1 << 30)
    sender.join()
    assert all(same(a, b) for a, b in zip(values, frame.values(), strict=True))


def test_frames_come_in_byte_by_byte(line: tuple[socket.socket, socket.socket]) -> None:
    here, there = line
    there.settimeout(None)
    reader = FrameReader(there, 100)
    frames = []
    for byte in b"".join([*pack(Kind.SUM, 1, ["f", 2.0]), *pack(Kind.STOP, 2)]):
        here.send(bytes([byte]))
        frame = reader.read()
        if frame is not None:
            frames.append((frame.kind, frame.sequence, frame.values()))
        with pytest.raises(BlockingIOError):
            reader.read(socket.MSG_DONTWAIT)
    assert frames == [(Kind.SUM, 1, ["f", 2.0]), (Kind.STOP, 2, [])]


@pytest.mark.parametrize("length", [101, 2**31, 2**63, 2**64 - 1])
def test_a_frame_over_the_cap_is_refused_before_any_memory_is_asked_for(
    line: tuple[socket.socket, socket.socket], length: int
) -> None:
    here, there = line
    here.send(HEADER.pack(length, 1, Kind.REPLY))
    tracemalloc.start()
    try:
        with pytest.raises(
            ProtocolError, match=f"{length} bytes, where largest_message = 100 is the most"
        ):
            receive(there, 100)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_frame_at_the_cap_passes(line: tuple[socket.socket, socket.socket]) -> None:
    here, there = line
    here.sendall(HEADER.pack(100, 1, Kind.REPLY) + bytes(100))
    assert len(receive(there, 100).payload) == 100


@pytest.mark.parametrize("kind", [0, 14, 255])
def test_a_frame_of_unknown_kind_is_refused(
    line: tuple[socket.socket, socket.socket], kind: int
) -> None:
    here, there = line
    here.send(HEADER.pack(0, 1, kind))
    with pytest.raises(ProtocolError, match=f"unknown kind {kind}"):
        receive(there, 100)


@pytest.mark.parametrize("sent", [0, 5, HEADER.size, HEADER.size + 3])
def test_a_line_that_ends_within_a_frame_is_lost(
    line: tuple[socket.socket, socket.socket], sent: int
) -> None:
    here, there = line
    here.send((HEADER.pack(10, 1, Kind.REPLY) + bytes(10))[:sent])
    here.close()
    with pytest.raises(PeerLostError, match="closed"):
        receive(there, 100)


def test_what_a_full_line_does_not_take_is_left(
    line: tuple[socket.socket, socket.socket],
) -> None:
    """It is sent in many pieces, each from where the last one ended."""
    here, there = line
    here.settimeout(None)
    whole = np.random.default_rng(0).bytes(2_000_000)
    cuts = [0, 5, 5, 1_000, 700_000, *range(700_000, 710_000, 3), len(whole)]
    left = [memoryview(whole[a:b]) for a, b in itertools.pairwise(cuts)]
    received = b""
    stopped = 0
    while left:
        before = sum(map(len, left))
        left = push(here, left)
        if sum(map(len, left)) == before:  # the line is full, and it did not wait
            stopped += 1
            received += there.recv(50_000)
    here.close()
    while piece := there.recv(1 << 20):
        received += piece
    assert received == whole
    assert stopped


@pytest.mark.parametrize("buffers", [[], [b""], [b"", b""]])
def test_nothing_to_push_is_nothing_left(
    line: tuple[socket.socket, socket.socket], buffers: list[bytes]
) -> None:
    here, there = line
    assert push(here, [memoryview(buffer) for buffer in buffers]) == []
    there.setblocking(False)
    with pytest.raises(BlockingIOError):
        there.recv(1)


@pytest.mark.parametrize("how", [send, push])
def test_a_line_that_was_closed_takes_nothing(
    line: tuple[socket.socket, socket.socket], how: Any
) -> None:
    here, there = line
    there.close()
    with pytest.raises(ConnectionError):
        how(here, pack(Kind.STOP, 1))


def test_a_frame_tells_its_values() -> None:
    assert Frame(Kind.SUM, 1, bytearray(payload_of(["a", 1]))).values() == ["a", 1]
    with pytest.raises(ProtocolError):
        Frame(Kind.SUM, 1, bytearray(b"nonsense")).values()
