"""Batches of columns, and the one array of features that they are laid into."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from dfwtrace._typing import Array
from dfwtrace.io.columns import Choice
from dfwtrace.io.read_errors import DataFileError, no_value


class Batch(NamedTuple):
    """Some rows, column by column; a column of lists is an array with two dimensions."""

    file: str
    first_row: int  # within that file
    rows: int
    features: list[Array]
    targets: list[Any]
    weight: Array | None


class ColumnFile(Protocol):
    """A file, or a folder of files, that has named columns."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def columns(self) -> list[str]:
        """The names of all columns, in order."""

    @property
    def rows(self) -> int | None:
        """How many there are, where it is known without reading them."""

    def dtype(self, features: Sequence[str]) -> np.dtype[Any]:
        """Of an array that holds these columns; refuses columns that cannot be features."""

    def ways(self, choice: Choice, max_rows: int | None) -> Iterator[Iterator[Batch]]:
        """Readers to try in turn, while they raise `AwkwardError`."""

    def target(self, column: str, pieces: list[Any]) -> Array:
        """One column of targets from what the batches hold of it."""

    def numeric_target(self, column: str, pieces: list[Any]) -> Array:
        """One of several columns of targets, which must be numbers."""

    def guess_rows(self) -> tuple[int, bool]:
        """How many rows there are, about, and whether it is exact."""


class Features:
    """Takes blocks of rows and gives one array: in memory, or on disk in a folder `spill`."""

    def __init__(self, dtype: np.dtype[Any], rows: int | None, spill: Path | None) -> None:
        self.dtype = dtype
        self.rows = rows
        self.taken = 0
        self._whole: Array | None = None
        self._blocks: list[Array] = []
        self._spilled = None if spill is None else _Spill(spill, dtype)

    def append(self, block: Array) -> None:
        """Take some rows, and keep them: the block must not be written to again."""
        if self._spilled is not None:
            self._spilled.append(block)
        elif self.rows is None:
            self._blocks.append(block)
        else:
            if self._whole is None:
                self._whole = np.empty((self.rows, block.shape[1]), dtype=self.dtype)
            self._whole[self.taken : self.taken + block.shape[0]] = block
        self.taken += block.shape[0]

    def finish(self) -> Array:
        """All rows."""
        if self._spilled is not None:
            return self._spilled.finish(self.taken)
        if self._whole is not None:
            return self._whole[: self.taken]
        whole = np.empty((self.taken, self._blocks[0].shape[1]), dtype=self.dtype)
        start = 0
        self._blocks.reverse()
        while self._blocks:  # each block is let go once it is copied: never two of everything
            block = self._blocks.pop()
            whole[start : start + block.shape[0]] = block
            start += block.shape[0]
        return whole

    def abandon(self) -> None:
        """Leave nothing on disk."""
        if self._spilled is not None:
            self._spilled.abandon()


class _Spill:
    """A .npy file that grows by rows; numpy leaves room in its header for any number of them."""

    def __init__(self, folder: Path, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._width = 0
        try:
            # A name of its own: an array that is mapped elsewhere must not be cut under its user.
            handle, name = tempfile.mkstemp(dir=folder, prefix="features-", suffix=".npy")
        except OSError as error:
            raise _cannot_spill(folder, error) from error
        self.path = Path(name)
        # Plain writes, not a map: mapped pages would count as this process's memory.
        self._file = os.fdopen(handle, "wb")

    def append(self, block: Array) -> None:
        try:
            if not self._width:
                self._width = block.shape[1]
                self._header(0)
            self._file.write(np.ascontiguousarray(block).data)
        except OSError as error:
            raise _cannot_spill(self.path.parent, error) from error

    def finish(self, rows: int) -> Array:
        try:
            self._file.seek(0)
            self._header(rows)
            self._file.close()
        except OSError as error:
            raise _cannot_spill(self.path.parent, error) from error
        mapped: Array = np.load(self.path, mmap_mode="r", allow_pickle=False)
        return mapped

    def abandon(self) -> None:
        try:
            self._file.close()
        except OSError:
            pass  # the disk is full, which has been said
        finally:
            self.path.unlink(missing_ok=True)

    def _header(self, rows: int) -> None:
        description = {
            "descr": np.lib.format.dtype_to_descr(self._dtype),
            "fortran_order": False,
            "shape": (rows, self._width),
        }
        np.lib.format.write_array_header_2_0(self._file, description)


def _cannot_spill(folder: Path, error: OSError) -> DataFileError:
    return DataFileError(f"the features cannot be written to {folder}: {error.strerror}.")


def lay_out(batch: Batch, names: list[str], dtype: np.dtype[Any]) -> Array:
    """The features of a batch as rows, checked to be finite; `names` has one for each number."""
    block = np.empty((batch.rows, len(names)), dtype=dtype)
    start = 0
    for column in batch.features:
        width = 1 if column.ndim == 1 else column.shape[1]
        block[:, start : start + width] = column.reshape(batch.rows, width)
        start += width
    check_finite(block, names, batch.file, batch.first_row)
    return block


def check_finite(block: Array, names: Sequence[str], file: str, first_row: int = 0) -> None:
    """Refuse NaN and infinity, by column and row. A finite sum needs no second look."""
    if block.dtype.kind != "f":
        return
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(block.sum()):
            return
    bad = np.argwhere(~np.isfinite(block.reshape(block.shape[0], -1)))
    if bad.size:
        row, column = (int(i) for i in bad[0])
        value = block.reshape(block.shape[0], -1)[row, column]
        raise no_value(file, names[column], first_row + row, infinite=bool(np.isinf(value)))


def spread_names(columns: Sequence[str], arrays: Sequence[Array]) -> list[str]:
    """One name for each number in a row: a column 'e' of lists has 'e[0]', 'e[1]', ...

    Examples
    --------
    >>> import numpy as np
    >>> spread_names(["a", "e"], [np.ones(3), np.ones((3, 2))])
    ['a', 'e[0]', 'e[1]']
    """
    names: list[str] = []
    for column, array in zip(columns, arrays, strict=True):
        if array.ndim == 1:
            names.append(column)
        else:
            names += [f"{column}[{i}]" for i in range(array.shape[1])]
    return names
