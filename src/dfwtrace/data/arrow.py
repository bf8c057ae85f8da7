"""Tables with named columns, read in batches by pyarrow: CSV, Parquet and Arrow."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.fs

from dfwtrace._typing import Array
from dfwtrace.data.columns import Choice, check_unique, features_missing
from dfwtrace.data.delimited import CsvPart, parse_target
from dfwtrace.data.table import (
    FIRST_ROWS,
    DataFileError,
    Survey,
    Table,
    check_finite,
    check_weight,
    describe,
    no_value,
    not_numeric,
    reading,
    summarise,
)
from dfwtrace.validation import as_floating

# Numbers in a batch: a megabyte or two.
_VALUES_AT_ONCE = 1 << 18
_LISTS = (pa.ListType, pa.LargeListType, pa.FixedSizeListType)
_TEXT = (pa.string(), pa.large_string(), pa.string_view())
_SINGLE = {pa.float16(), pa.float32()}
_EXACT_IN_SINGLE = {pa.bool_(), pa.int8(), pa.uint8(), pa.int16(), pa.uint16()}


class ArrowPart:
    """A Parquet file, or an Arrow file or stream."""

    def __init__(self, path: Path, kind: str) -> None:
        self.path = path
        self._what = "a Parquet file" if kind == "parquet" else "an Arrow file"
        with reading(path, self._what):
            with path.open("rb") as file:  # streams lack the mark of files
                self._streams = kind == "arrow" and file.read(6) != b"ARROW1"
            form = pa.dataset.IpcFileFormat()
            if kind == "parquet":  # pages through a buffer, not a row group at a time
                options = pa.dataset.ParquetFragmentScanOptions(
                    use_buffered_stream=True, buffer_size=64 << 10, pre_buffer=False
                )
                form = pa.dataset.ParquetFileFormat(default_fragment_scan_options=options)
            files = pa.fs.LocalFileSystem(use_mmap=kind == "arrow")
            self._fragment = form.make_fragment(str(path), filesystem=files)
            self._schema = (
                self._stream().schema if self._streams else self._fragment.physical_schema
            )
            self.names: list[str] = list(self._schema.names)  # decoded now: may not be UTF-8

    def types(self, names: list[str], text: str | None) -> dict[str, pa.DataType]:
        """Return the types of columns."""
        return {name: self._schema.field(name).type for name in names}

    def batches(self, types: dict[str, pa.DataType], rows: int) -> Iterator[pa.RecordBatch]:
        """Read columns in this order, a number of rows at a time."""
        names = list(types)
        with reading(self.path, self._what):
            if self._streams:
                batches = (
                    batch.select(names).slice(start, rows)
                    for batch in self._stream()
                    for start in range(0, batch.num_rows, rows)
                )
            else:
                batches = self._fragment.to_batches(columns=names, batch_size=rows)
            for batch in batches:
                batch.validate(full=True)  # a damaged file may point anywhere
                yield batch

    def count(self) -> tuple[int, bool]:
        """Return the number of rows, and that it is exact."""
        with reading(self.path, self._what):
            if self._streams:
                return sum(batch.num_rows for batch in self._stream()), True
            return self._fragment.count_rows(), True

    def _stream(self) -> pa.RecordBatchReader:
        return pa.ipc.open_stream(pa.memory_map(str(self.path)))


class ArrowTable:
    """One table in one or several files; the first file's columns are the table's."""

    def __init__(self, path: Path, kind: str, files: list[Path]) -> None:
        self.name = path.name
        self._parts = [CsvPart(f) if kind == "csv" else ArrowPart(f, kind) for f in files]
        for part in self._parts:
            check_unique(part.names, part.path.name)
        self.columns = self._parts[0].names

    def read(
        self,
        choice: Choice,
        *,
        order: list[str] | None = None,
        spill: Path | None = None,
        enough: int | None = None,
    ) -> Table:
        """Read the chosen columns; features in this `order`, or as they are in the file.

        With `enough`, reading stops after the batch in which this number of rows is reached.
        """
        names: list[str] = []  # of features, targets and weights: one for each number in a row
        kept: dict[str, list[Array]] = {name: [] for name in (*choice.targets, *choice.weights)}
        targets: list[Array] = []
        types = [self._types(part, choice) for part in self._parts]
        dtype = _dtype({_value_type(each[name]) for each in types for name in choice.features})

        def blocks() -> Iterator[Array]:
            """Yield the features of each batch, checked, and keep the rest."""
            for file, first, rows, columns in self._batches(types, choice, enough):
                spread = _spread(columns)
                if names and names != spread:
                    raise DataFileError(
                        f"a column of lists in {self.name} has rows of another length from row "
                        f"{first + 1} of {file} on."
                    )
                names[:] = spread
                for name, pieces in kept.items():
                    check_finite(columns[name], _spread({name: columns[name]}), file, first)
                    pieces.append(columns[name])
                for name in choice.weights:
                    check_weight(columns[name], name, file, first)
                sides = [columns[name].reshape(rows, -1) for name in choice.features]
                block = np.concatenate([np.empty((rows, 0)), *sides], axis=1, dtype=dtype)
                check_finite(block, names, file, first)
                yield block if order is None else block[:, _places(order, names, self.name)]
            targets.extend(self._target(name, kept[name], choice) for name in choice.targets)

        try:
            X = _stacked(blocks()) if spill is None else _spilled(blocks(), spill)
        except MemoryError as error:
            raise DataFileError(
                f"the features of {self.name} do not fit in memory; spill them to a folder."
            ) from error
        labels = _spread(dict(zip(choice.targets, targets, strict=True)))
        y = targets[0].reshape(len(X)) if len(labels) == 1 else None
        if len(labels) > 1:
            y = as_floating(np.column_stack(targets))
        weight = np.concatenate(kept[choice.weight]).astype(float) if choice.weight else None
        features = names[: len(names) - len(labels) - len(choice.weights)]
        source = describe(self.name, X, labels)
        return Table(X, y, order or features, labels or None, source, weight)

    def survey(self, choice: Choice) -> tuple[Survey, Array | None]:
        """Return the size, from headers and first rows, and the first targets."""
        first = self.read(Choice(choice.features, []), enough=1).X
        counts = [part.count() for part in self._parts]
        rows, exact = sum(rows for rows, _ in counts), all(exact for _, exact in counts)
        y = None
        if choice.targets:
            y = self.read(Choice([], choice.targets), enough=FIRST_ROWS).y
        return summarise(rows, first.shape[1], first.dtype, None, exact, y), y

    def _types(self, part: CsvPart | ArrowPart, choice: Choice) -> dict[str, pa.DataType]:
        wanted = [*choice.features, *choice.targets, *choice.weights]
        if missing := set(wanted) - set(part.names):
            raise DataFileError(
                f"{part.path} has no column {min(missing)!r}, which other files have."
            )
        return part.types(wanted, choice.text)

    def _batches(
        self, types: list[dict[str, pa.DataType]], choice: Choice, enough: int | None
    ) -> Iterator[tuple[str, int, int, dict[str, Array]]]:
        """Yield the file, its first row, the number of rows, and the columns of each batch."""
        seen, text = 0, choice.text
        for part, kinds in zip(self._parts, types, strict=True):
            first, file = 0, part.path.name
            at_once = min(_VALUES_AT_ONCE // sum(map(_width, kinds.values())), enough or 65_536)
            for batch in part.batches(kinds, max(1, at_once)):
                if batch.num_rows:
                    yield (
                        file,
                        first,
                        batch.num_rows,
                        {
                            name: _to_array(column, name == text, file, name, first)
                            for name, column in zip(kinds, batch.columns, strict=True)
                        },
                    )
                first += batch.num_rows
                seen += batch.num_rows
                if enough is not None and seen >= enough:
                    return
        if not seen:
            raise DataFileError(f"{self.name} has no rows.")

    def _target(self, name: str, pieces: list[Array], choice: Choice) -> Array:
        """Return one column of targets, from all batches."""
        if len({piece.dtype.kind == "U" for piece in pieces}) > 1:
            raise DataFileError(
                f"column {name!r} holds text in some files of {self.name}, numbers in others."
            )
        column = np.concatenate(pieces)
        parsed = isinstance(self._parts[0], CsvPart) and name == choice.text
        return parse_target(column, self.name, name) if parsed else column


# Arrays from columns


def _to_array(column: pa.Array, text: bool, file: str, name: str, first_row: int) -> Array:
    """Return numbers, rows of numbers or, if it may be, text; nulls are refused by row."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    width = 1
    is_list = isinstance(column.type, _LISTS)
    if is_list and not column.null_count:
        lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
        width = int(lengths[0])
        if (lengths != width).any() or width == 0:
            odd = int(np.argmax(lengths != width))
            raise DataFileError(
                f"column {name!r} of {file} has {lengths[odd]} numbers in row "
                f"{first_row + odd + 1}, but {width} in row {first_row + 1}."
            )
        column = column.flatten()
    if column.null_count:
        raise no_value(file, name, first_row + pc.index(column.is_null(), True).as_py() // width)
    if column.type in _TEXT:
        if is_list or not text:
            raise not_numeric(file, name, first_row, column[0].as_py())
        return np.array(column.to_pylist(), dtype=np.str_)
    values: Array = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind not in "biuf":
        raise DataFileError(f"column {name!r} of {file} holds {column.type}, not numbers.")
    return values.reshape(-1, width) if is_list else values


def _spread(columns: dict[str, Array]) -> list[str]:
    """Return one name for each number in a row: a column 'e' of lists has 'e[0]', 'e[1]', ..."""
    names: list[str] = []
    for name, array in columns.items():
        many = array.ndim == 2
        names += [f"{name}[{i}]" for i in range(array.shape[1])] if many else [name]
    return names


def _places(order: list[str], names: list[str], file: str) -> list[int]:
    place = {name: i for i, name in enumerate(names)}
    missing = [name for name in order if name not in place]
    if missing:
        raise features_missing(missing, names, file)
    return [place[name] for name in order]


def _dtype(kinds: set[pa.DataType]) -> np.dtype[np.floating]:
    """Return float32 if that holds the values of every type, else float64."""
    single = kinds & _SINGLE and kinds <= _SINGLE | _EXACT_IN_SINGLE
    return np.dtype(np.float32 if single else np.float64)


def _value_type(type_: pa.DataType) -> pa.DataType:
    """Return the type of the numbers in a column, be it one of lists."""
    type_ = type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_
    return type_.value_type if isinstance(type_, _LISTS) else type_


def _width(type_: pa.DataType) -> int:
    """Return about how many numbers a row has; lists of any length count as long ones."""
    type_ = type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_
    if isinstance(type_, pa.FixedSizeListType):
        return max(1, int(type_.list_size))
    return 1024 if isinstance(type_, _LISTS) else 1


# One array from blocks


def _stacked(blocks: Iterator[Array]) -> Array:
    """Return all rows in memory."""
    held = list(blocks)[::-1]
    X = np.empty((sum(map(len, held)), held[0].shape[1]), dtype=held[0].dtype)
    start = 0
    while held:  # each block is freed once it is copied: never two of everything
        block = held.pop()
        X[start : start + len(block)] = block
        start += len(block)
    return X


def _spilled(blocks: Iterator[Array], folder: Path) -> Array:
    """Return a map of a new .npy file in a folder, which grows block by block."""
    rows = 0
    try:
        # Plain writes, not a map: mapped pages would count as this process's memory.
        with tempfile.NamedTemporaryFile(
            dir=folder, prefix="features-", suffix=".npy", delete=False
        ) as file:
            try:
                for block in blocks:
                    if not rows:
                        _write_header(file, 0, block)
                    file.write(np.ascontiguousarray(block).data)
                    rows += len(block)
                file.seek(0)
                _write_header(file, rows, block)
                file.flush()
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError as error:
        raise DataFileError(
            f"the features cannot be written to {folder}: {error.strerror}."
        ) from error
    mapped: Array = np.load(file.name, mmap_mode="r", allow_pickle=False)
    return mapped


def _write_header(file: IO[bytes], rows: int, block: Array) -> None:
    """Write the header of a .npy file; numpy leaves room in it for any number of rows."""
    description = {
        "descr": block.dtype.str,
        "fortran_order": False,
        "shape": (rows, block.shape[1]),
    }
    np.lib.format.write_array_header_2_0(file, description)
