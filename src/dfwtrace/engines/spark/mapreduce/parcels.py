"""Shards and states as Spark stores them: pickled, in pieces that are small for its buffers."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from dfwtrace._typing import Array

# Bytes of a piece. Spark refuses an element of 2 GiB, and holds several in memory at once.
_PIECE_BYTES = 8 << 20
# Arrays of at least so many bytes are copied straight from and to memory, beside the pickle.
_LARGE_BYTES = 1 << 16


def parcel(thing: Any) -> Iterator[bytes]:
    """An object in pieces: what the pieces are, the pickle, and the memory of large arrays.

    Examples
    --------
    >>> unparcel(parcel({"state": 1.5}))
    {'state': 1.5}
    """
    buffers: list[pickle.PickleBuffer] = []

    def aside(buffer: pickle.PickleBuffer) -> bool:
        """Puts large buffers aside; true for those that shall stay within the pickle."""
        if buffer.raw().nbytes < _LARGE_BYTES:
            return True
        buffers.append(buffer)
        return False

    head = pickle.dumps(thing, protocol=5, buffer_callback=aside)
    parts = [memoryview(head), *(buffer.raw() for buffer in buffers)]
    yield pickle.dumps([part.nbytes for part in parts])
    for part in parts:
        for start in range(0, part.nbytes, _PIECE_BYTES):
            yield bytes(part[start : start + _PIECE_BYTES])


def unparcel(pieces: Iterable[bytes]) -> Any:
    """The object that was cut into these pieces; its arrays can be written to."""
    left = iter(pieces)
    parts: list[Array] = []
    for size in pickle.loads(next(left)):
        part = np.empty(size, np.uint8)
        filled = 0
        while filled < size:
            piece = np.frombuffer(next(left), np.uint8)
            part[filled : filled + piece.size] = piece
            filled += piece.size
        parts.append(part)
    for _ in left:  # Spark lets a Python worker live on only if it has read all that it was sent
        raise ValueError("a parcel has more pieces than it should")
    head, *buffers = parts
    return pickle.loads(head.data, buffers=buffers)
