"""Shards sent to a worker in pieces, array by array, and put together there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import numpy as np
import scipy.sparse as sp

from dfwtrace._typing import Array
from dfwtrace.data.shards import Shard, compressed_rows
from dfwtrace.engines.resident.wire import Frame, Kind, ProtocolError, Value

# Bytes of a piece: large enough for the network, small beside any shard.
_PIECE_BYTES = 4 << 20


def pieces(shards: list[Shard], largest_message: int) -> Iterator[list[Value]]:
    """The payloads of the frames that carry the shards, from memory or from a memory map."""
    most = min(_PIECE_BYTES, largest_message // 2)
    for shard in shards:
        arrays = _arrays(shard)
        yield [shard.index, int(shard.X.shape[1]), len(arrays)]
        for name, array in arrays.items():
            yield [name, array.dtype.str, *array.shape]
            at_once = max(1, most // max(1, array[:1].nbytes))
            for start in range(0, array.shape[0] if array.size else 0, at_once):
                rows = np.ascontiguousarray(array[start : start + at_once])
                flat = rows.reshape(-1).view(np.uint8)
                for first in range(0, flat.size, most):  # a single row may be larger than that
                    yield [flat[first : first + most]]


def receive_shards(next_frame: Callable[[], Frame], count: int) -> list[Shard]:
    """Put so many shards together from the frames that carry them."""

    def values() -> list[Value]:
        frame = next_frame()
        if frame.kind != Kind.ROWS:
            raise ProtocolError(f"{frame.kind.name} where rows should come")
        return frame.values()

    shards = []
    for _ in range(count):
        index, n_columns, n_arrays = (cast(int, value) for value in values())
        arrays = dict(_receive_array(values) for _ in range(n_arrays))
        y = arrays.get("y")
        if "X" in arrays:
            shards.append(Shard(index, arrays["X"], y))
            continue
        rows = compressed_rows(arrays["data"], arrays["indices"], arrays["indptr"], n_columns)
        shards.append(Shard(index, rows, y))
    return shards


def _arrays(shard: Shard) -> dict[str, Array]:
    X = shard.X
    arrays = {"X": X} if not sp.issparse(X) else {}
    if sp.issparse(X):
        arrays = {"data": X.data, "indices": X.indices, "indptr": X.indptr}
    if shard.y is not None:
        arrays["y"] = shard.y
    return arrays


def _receive_array(values: Callable[[], list[Value]]) -> tuple[str, Array]:
    name, dtype, *shape = values()
    array: Array = np.empty(cast(list[int], shape), np.dtype(cast(str, dtype)))
    if array.dtype.kind not in "biuf":
        raise ProtocolError(f"rows of {array.dtype}")
    lines = array.reshape(-1).view(np.uint8)
    filled = 0
    while filled < lines.size:
        (piece,) = values()
        piece = cast(Array, piece)
        lines[filled : filled + piece.size] = piece
        filled += piece.size
    return cast(str, name), array
