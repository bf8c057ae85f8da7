"""Cells of one column of an Arrow batch as NumPy arrays, in Arrow's own memory where it allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from dfwtrace._typing import Array, Matrix

#: Says where a row of a batch is, for error messages.
Place = Callable[[int], str]


class BadRowsError(ValueError):
    """Rows that cannot be used: nulls, NaN or infinity, or rows that differ in length."""


def uneven(
    argument: str, name: str, width: int, place: str, other: int, elsewhere: str
) -> BadRowsError:
    """The refusal of rows that differ in length."""
    return BadRowsError(
        f"{argument} must have as many numbers in every row, but column {name!r} has {width} in "
        f"{place} and {other} in {elsewhere}."
    )


@dataclass(frozen=True)
class Column:
    """One column of a batch, and what is said of it if it is refused."""

    cells: Any  # pyarrow.Array
    argument: str
    name: str
    place: Place

    def numbers(self) -> Array:
        self._refuse_null(self.cells)
        return self._finite(_widened(self.cells))

    def arrays(self) -> Array:
        self._refuse_null(self.cells)
        return self._rectangle(self.cells)

    def vectors(self) -> Matrix:
        """The struct behind VectorUDT: type (0 sparse, 1 dense), size, indices and values."""
        self._refuse_null(self.cells)
        kinds, sizes, indices, values = (self.cells.field(i) for i in range(4))
        dense = kinds.to_numpy() == 1
        if dense.all():
            return self._rectangle(values)
        bounds, data = _bounds(values), _inner(values).to_numpy()
        lengths, columns = np.diff(bounds), _inner(indices).to_numpy()
        widths = np.where(dense, lengths, sizes.fill_null(0).to_numpy())
        self._refuse_uneven(widths)
        self._refuse_invalid(np.diff(_bounds(indices)) != np.where(dense, 0, lengths))
        self._finite(data, bounds)
        if dense.any():
            bounds, columns, data = _sparsified(dense, lengths, columns, data)
        self._refuse_invalid(_rows_with((columns < 0) | (columns >= widths[0]), bounds))
        X = sp.csr_array((data, columns, bounds), shape=(len(dense), int(widths[0])))
        return X if X.has_sorted_indices else X.sorted_indices()

    def _rectangle(self, lists: Any) -> Array:
        bounds, values = _bounds(lists), _inner(lists)
        if values.null_count:
            self._refuse_first(_rows_with(_nulls(values), bounds), "hold no nulls", "holds one")
        self._refuse_uneven(np.diff(bounds))
        return self._finite(_widened(values).reshape(len(lists), -1))

    def _refuse_null(self, cells: Any) -> None:
        if cells.null_count:
            self._refuse_first(_nulls(cells), "hold no nulls", "holds one")

    def _refuse_invalid(self, bad: Array) -> None:
        self._refuse_first(bad, "hold valid vectors", "holds an invalid one")

    def _refuse_uneven(self, widths: Array) -> None:
        self._refuse_first(widths == 0, "have at least one number in a row", "has none")
        if (widths != widths[0]).any():
            row = int(np.argmax(widths != widths[0]))
            first, other = int(widths[0]), int(widths[row])
            raise uneven(self.argument, self.name, first, self.place(0), other, self.place(row))

    def _finite(self, values: Array, bounds: Array | None = None) -> Array:
        """The values themselves. A sum is finite if all is; only else every one is looked at."""
        if values.dtype.kind != "f":
            return values
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(values.sum()):
                return values
        rows = np.arange(len(values) + 1) if bounds is None else bounds
        flat = values.reshape(len(values), -1)
        for kind, test in (("NaN", np.isnan), ("infinity", np.isinf)):
            bad = np.asarray(test(flat).any(axis=1))
            self._refuse_first(_rows_with(bad, rows), "be finite", f"holds {kind}")
        return values

    def _refuse_first(self, bad: Array, duty: str, fault: str) -> None:
        if bad.any():
            where = self.place(int(np.argmax(bad)))
            raise BadRowsError(
                f"{self.argument} must {duty}, but column {self.name!r} {fault} in {where}."
            )


def side_by_side(columns: Sequence[Array]) -> Array:
    if len(columns) == 1:
        return columns[0][:, None]
    X = np.empty((len(columns[0]), len(columns)), np.result_type(*columns))
    for j, column in enumerate(columns):
        X[:, j] = column
    return X


def _widened(values: Any) -> Array:
    """Numbers of an Arrow array without nulls: floating ones as they are, whole ones as int64."""
    numbers: Array = values.to_numpy(zero_copy_only=False)  # only bits are copied
    return numbers.astype(np.int64, copy=False) if numbers.dtype.kind == "i" else numbers


def _bounds(lists: Any) -> Array:
    """Where the rows of an Arrow array of lists begin and end, counted from the first of them."""
    bounds: Array = lists.offsets.to_numpy() - lists.offsets[0].as_py()
    return bounds


def _inner(lists: Any) -> Any:
    """The values of all rows of an Arrow array of lists, which may itself be a slice of others."""
    offsets = lists.offsets
    start, stop = offsets[0].as_py(), offsets[-1].as_py()
    return lists.values.slice(start, stop - start)


def _nulls(values: Any) -> Array:
    nulls: Array = values.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _rows_with(marked: Array, bounds: Array) -> Array:
    """For each row whether any of its values, bounds[i]..bounds[i+1], is marked."""
    rows = np.zeros(len(bounds) - 1, bool)
    rows[np.searchsorted(bounds, np.flatnonzero(marked), side="right") - 1] = True
    return rows


def _sparsified(
    dense: Array, lengths: Array, columns: Array, data: Array
) -> tuple[Array, Array, Array]:
    """CSR arrays of rows of both kinds: dense ones lose their zeros, sparse ones stay as stored."""
    row_of = np.repeat(np.arange(len(dense)), lengths)
    starts = np.cumsum(lengths) - lengths
    every_column = (np.arange(len(data)) - starts[row_of]).astype(np.int32)
    every_column[~dense[row_of]] = columns  # dense rows have no indices of their own
    kept = ~dense[row_of] | (data != 0)
    counts = np.bincount(row_of[kept], minlength=len(dense))
    bounds = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    return bounds, every_column[kept], data[kept]
