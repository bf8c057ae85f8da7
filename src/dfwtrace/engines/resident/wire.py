"""What travels on a socket: frames of a length, a sequence number, a kind and raw buffers.

A frame's payload is a list of numbers, texts and arrays: its length and itself as JSON, with null
in place of a float and the dtype, the memory order and the shape in place of an array, then the
bytes of all of these. The order is kept because BLAS may round differently for another one. Shards
travel as several such frames. Nothing is ever pickled.
"""

from __future__ import annotations

import json
import math
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import NamedTuple, cast

import numpy as np
import scipy.sparse as sp

from dfwtrace._typing import Array
from dfwtrace.data.shards import Shard, compressed_rows

Value = Array | float | int | str


class Kind(IntEnum):
    HELLO = 1  # a worker says who it is
    TREE = 2  # the driver says where a worker's parent listens
    ROWS = 3  # a piece of a shard's rows
    READY = 4  # a worker's shards are in memory
    BUILD = 5
    APPLY = 6
    SUM = 7
    GATHER = 8
    REPLY = 9
    ALIVE = 10  # a heartbeat
    FAILED = 11  # a worker's traceback
    CUT_OFF = 12  # a worker has lost its parent or a child in the tree
    STOP = 13


class ProtocolError(Exception):
    """The other side sent what it should not have."""


class PeerLostError(ConnectionError):
    """The other side has closed the connection."""


class Frame(NamedTuple):
    kind: Kind
    sequence: int
    payload: bytearray

    def values(self) -> list[Value]:
        return decode(self.payload)


#: Waits for the next frame from the driver.
NextFrame = Callable[[], Frame]

HEADER = struct.Struct("<QQB")  # length of the payload, sequence number, kind

_DTYPES = {text: np.dtype(text) for text in ("<f8", "<f4", "<i8", "<i4", "|u1")}
_SIZE = struct.Struct("<I")  # of the JSON
_FLOAT = struct.Struct("<d")
# Buffers that one system call takes.
_MAX_BUFFERS = 512
# Bytes of a piece of a shard: large enough for the network, small beside any shard.
_PIECE_BYTES = 4 << 20


def pack(kind: Kind, sequence: int, values: Sequence[Value] = ()) -> list[memoryview]:
    """A frame as buffers to send, arrays without a copy."""
    buffers = encode(values)
    return [memoryview(HEADER.pack(sum(map(len, buffers)), sequence, kind)), *buffers]


def repack(frame: Frame) -> list[memoryview]:
    """A frame that was received, to be passed on."""
    header = HEADER.pack(len(frame.payload), frame.sequence, frame.kind)
    return [memoryview(header), memoryview(frame.payload)]


def encode(values: Sequence[Value]) -> list[memoryview]:
    """Values as buffers to send, arrays without a copy."""
    items: list[object] = []
    buffers: list[memoryview] = []
    for value in values:
        if isinstance(value, np.ndarray):
            array = value if value.flags.forc else np.ascontiguousarray(value)
            if array.dtype.str not in _DTYPES:
                raise TypeError(f"an array of {array.dtype} cannot be sent.")
            by_column = not array.flags.c_contiguous
            items.append([array.dtype.str, "F" if by_column else "C", *array.shape])
            if array.size:
                buffers.append((array.T if by_column else array).data.cast("B"))
        elif isinstance(value, float | np.floating):  # as many bytes for each
            items.append(None)
            buffers.append(memoryview(_FLOAT.pack(value)))
        else:  # whole numbers of any size: a seed may be large
            items.append(value if isinstance(value, str) else int(value))
    text = json.dumps(items).encode()
    return [memoryview(_SIZE.pack(len(text)) + text), *buffers]


def decode(payload: bytes | bytearray) -> list[Value]:
    """The values of a payload; arrays get memory of their own. Refuses what `encode` never made."""
    try:
        return _decode(payload)
    except (struct.error, ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as e:
        raise ProtocolError(f"a payload of {len(payload)} bytes makes no sense") from e


def _decode(payload: bytes | bytearray) -> list[Value]:
    at = _SIZE.size + _SIZE.unpack_from(payload)[0]
    values: list[Value] = []
    for item in json.loads(payload[_SIZE.size : at]):
        if item is None:
            values.append(_FLOAT.unpack_from(payload, at)[0])
            at += _FLOAT.size
        elif isinstance(item, str | int):
            values.append(item)
        else:
            dtype, order, *shape = item
            # Python's numbers do not overflow: a huge shape asks for more bytes than there are.
            start, at = at, at + math.prod((_DTYPES[dtype].itemsize, *shape))
            if at > len(payload):
                raise ValueError("cut short")
            array: Array = np.empty(shape, dtype, order)
            if array.size:
                flat = (array.T if order == "F" else array).data.cast("B")
                flat[:] = memoryview(payload)[start:at]
            values.append(array)
    if at != len(payload):
        raise ValueError("more than was announced, or less")
    return values


def tune(sock: socket.socket) -> None:
    """Small frames go out at once, and a machine that has died is noticed in the end."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def hang_up(sock: socket.socket) -> None:
    """End both directions of a connection; wakes a thread that uses it."""
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def send(sock: socket.socket, buffers: Sequence[memoryview]) -> int:
    """Send all of the buffers on a blocking socket; the number of bytes."""
    left, total = _drop(buffers, 0), sum(map(len, buffers))
    while left:
        try:
            left = _drop(left, sock.sendmsg(left[:_MAX_BUFFERS]))
        except (BrokenPipeError, ConnectionResetError) as error:
            raise PeerLostError(str(error)) from error
    return total


def push(sock: socket.socket, buffers: Sequence[memoryview]) -> list[memoryview]:
    """Send what the socket takes at once; the buffers that are left."""
    left = _drop(buffers, 0)
    with suppress(BlockingIOError):
        if left:
            left = _drop(left, sock.sendmsg(left[:_MAX_BUFFERS], [], socket.MSG_DONTWAIT))
    return left


def _drop(buffers: Sequence[memoryview], sent: int) -> list[memoryview]:
    """What is left of the buffers after `sent` bytes."""
    for i, buffer in enumerate(buffers):
        if sent < len(buffer):
            return [buffer[sent:], *buffers[i + 1 :]]
        sent -= len(buffer)
    return []


def receive(sock: socket.socket, largest: int) -> Frame:
    """The next frame from a blocking socket, of at most `largest` bytes."""
    reader = FrameReader(sock, largest)
    while (frame := reader.read()) is None:
        pass
    return frame


class FrameReader:
    """Puts frames together from a socket, blocking or not, as their bytes come in."""

    def __init__(self, sock: socket.socket, largest: int) -> None:
        self.sock, self._largest = sock, largest
        self._begin()

    def _begin(self) -> None:
        self._header: tuple[int, Kind] | None = None
        self._buffer, self._filled = bytearray(HEADER.size), 0

    def read(self, flags: int = 0) -> Frame | None:
        """One receive; the frame, if it is complete now. Raises BlockingIOError like `recv`."""
        if self._filled < len(self._buffer):
            try:
                count = self.sock.recv_into(memoryview(self._buffer)[self._filled :], 0, flags)
            except ConnectionResetError as error:
                raise PeerLostError(str(error)) from error
            if count == 0:
                raise PeerLostError("the connection was closed")
            self._filled += count
        if self._filled < len(self._buffer):
            return None
        if self._header is None:
            length, sequence, kind = cast(tuple[int, int, int], HEADER.unpack(self._buffer))
            if length > self._largest:
                raise ProtocolError(
                    f"a message of {length} bytes, where largest_message = {self._largest} is the "
                    "most"
                )
            try:
                self._header = (sequence, Kind(kind))
            except ValueError as error:
                raise ProtocolError(f"a frame of unknown kind {kind}") from error
            self._buffer, self._filled = bytearray(length), 0
            if length:
                return None
        sequence, known = self._header
        frame = Frame(known, sequence, self._buffer)
        self._begin()
        return frame


def shard_payloads(shards: list[Shard], largest_message: int) -> Iterator[list[Value]]:
    """The payloads of the frames that carry the shards, from memory or from a memory map."""
    most = min(_PIECE_BYTES, largest_message // 2)
    for shard in shards:
        X = shard.X
        parts = {"X": X}
        if sp.issparse(X):
            parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr}
        if shard.y is not None:
            parts["y"] = shard.y
        yield [shard.index, int(X.shape[1]), len(parts)]
        for name, array in parts.items():
            yield [name, array.dtype.str, *array.shape]
            flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            for start in range(0, flat.size, most):
                yield [flat[start : start + most]]


def receive_shards(next_frame: NextFrame, count: int) -> list[Shard]:
    """Put `count` shards together from the frames that carry them."""

    def values() -> list[Value]:
        frame = next_frame()
        if frame.kind != Kind.ROWS:
            raise ProtocolError(f"{frame.kind.name} where rows should come")
        return frame.values()

    shards = []
    for _ in range(count):
        index, n_columns, n_arrays = (cast(int, value) for value in values())
        arrays = dict(_receive_array(values) for _ in range(n_arrays))
        X = arrays.get("X")
        if X is None:
            X = compressed_rows(arrays["data"], arrays["indices"], arrays["indptr"], n_columns)
        shards.append(Shard(index, X, arrays.get("y")))
    return shards


def _receive_array(values: Callable[[], list[Value]]) -> tuple[str, Array]:
    name, dtype, *shape = values()
    array: Array = np.empty(cast(list[int], shape), np.dtype(cast(str, dtype)))
    if array.dtype.kind not in "biuf":
        raise ProtocolError(f"rows of {array.dtype}")
    flat = array.reshape(-1).view(np.uint8)
    filled = 0
    while filled < flat.size:
        piece = cast(Array, values()[0])
        flat[filled : filled + piece.size] = piece
        filled += piece.size
    return cast(str, name), array
