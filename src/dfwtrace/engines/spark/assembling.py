"""Packed rows, in whatever order they arrive, become the shards that they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from dfwtrace._typing import Array, Matrix
from dfwtrace.data.rows import Facts
from dfwtrace.data.shards import Shard, slice_rows
from dfwtrace.engines.spark.row_bytes import cells_of, changed, entry_type

if TYPE_CHECKING:
    import pyarrow as pa


def assemble(
    batches: Iterable[pa.RecordBatch], facts: Facts, bounds: Sequence[tuple[int, int]], first: int
) -> list[Shard]:
    """Shards from packed rows that arrive in any order, to the same bits as `split_rows`.

    Parameters
    ----------
    batches : iterable of pyarrow.RecordBatch
        Of `PACKED_SCHEMA`; all rows of these shards and no others.
    facts : Facts
    bounds : sequence of (start, stop)
        The rows of the shards, each beginning where the one before it ends.
    first : int
        The index of the first shard.

    Raises
    ------
    RowsChangedError
        If a row is missing, comes twice or belongs elsewhere.
    """
    if not bounds:
        return []
    base, n = bounds[0][0], bounds[-1][1] - bounds[0][0]
    X_stack = _SparseStack(n, facts) if facts.sparse else _Stack(n, facts.dtype, (facts.n_columns,))
    targets = facts.targets
    y_stack = None if targets is None else _Stack(n, targets.dtype, targets.row)
    seen = np.zeros(n, bool)
    arrived = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        places = batch.column("row").to_numpy() - base
        if places.min() < 0 or places.max() >= n:
            raise changed("rows came to a worker that they do not belong to")
        seen[places] = True
        arrived += len(places)
        X_stack.put(places, *cells_of(batch.column("x")))
        if y_stack is not None:
            y_stack.put(places, *cells_of(batch.column("y")))
    if not seen.all():
        raise changed(f"row {base + int(np.argmin(seen))} is missing")
    if arrived != n:
        raise changed("some rows came twice")
    X, y = X_stack.finish(), None if y_stack is None else y_stack.finish()
    return [
        Shard(first + i, slice_rows(X, a, b), None if y is None else y[a:b])
        for i, (a, b) in enumerate((a - base, b - base) for a, b in bounds)
    ]


class _Stack:
    """Rows of one dense array, put into their places as they arrive."""

    def __init__(self, n: int, dtype: np.dtype[Any], row: tuple[int, ...]) -> None:
        self._rows = np.empty((n, *row), dtype)
        self._row_bytes = dtype.itemsize * int(np.prod(row))

    def put(self, places: Array, bounds: Array, cells: Array) -> None:
        if (np.diff(bounds) != self._row_bytes).any():
            raise changed("rows differ in length from those that were examined")
        values = cells.view(self._rows.dtype).reshape(len(places), *self._rows.shape[1:])
        self._rows[_slice_if_consecutive(places)] = values

    def finish(self) -> Array:
        return self._rows


class _SparseStack:
    """Rows of a CSR matrix. Their places are known only when all of them have arrived."""

    def __init__(self, n: int, facts: Facts) -> None:
        self._facts = facts
        self._lengths = np.zeros(n, np.int64)
        self._pieces: list[tuple[Array, Array, Array]] = []

    def put(self, places: Array, bounds: Array, cells: Array) -> None:
        entry = entry_type(self._facts)
        if (bounds % entry.itemsize).any():
            raise changed("rows differ in kind from those that were examined")
        self._lengths[places] = np.diff(bounds) // entry.itemsize
        self._pieces.append((places, bounds // entry.itemsize, cells.view(entry)))

    def finish(self) -> Matrix:
        facts, n = self._facts, len(self._lengths)
        bounds = np.concatenate(([0], np.cumsum(self._lengths)))
        # The same as SciPy would take for all rows in one matrix: 32 bits wherever they do.
        index = sp.get_index_dtype(maxval=max(facts.stored, facts.n_columns, facts.n_rows))
        columns, data = np.empty(bounds[-1], index), np.empty(bounds[-1], facts.dtype)
        while self._pieces:  # each one's memory goes back as soon as it is copied
            places, starts, entries = self._pieces.pop()
            shift = np.repeat(bounds[places] - starts[:-1], np.diff(starts))
            target = _slice_if_consecutive(np.arange(len(entries)) + shift)
            columns[target], data[target] = entries["column"], entries["value"]
        parts = (data, columns, bounds.astype(index))
        return sp.csr_array(parts, shape=(n, facts.n_columns))


def _slice_if_consecutive(places: Array) -> Any:
    """The same places, as a slice if they can be one: copying is then as fast as memory."""
    if len(places) and (np.diff(places) == 1).all():
        return slice(int(places[0]), int(places[-1]) + 1)
    return places
