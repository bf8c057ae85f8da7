"""Tables with named columns, read in batches by pyarrow: CSV, Parquet and Arrow."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset
import pyarrow.fs

from dfwtrace._typing import Array
from dfwtrace.data import table
from dfwtrace.data.table import Choice, DataFileError, Table, bad_value, check_finite, reading
from dfwtrace.validation import as_floating

Types = dict[str, pa.DataType]

# Numbers in a batch: a megabyte or two.
_VALUES_AT_ONCE = 1 << 18
_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_CSV = "a CSV file in UTF-8"
_MISSING = pa.array(["", "na", "n/a", "nan", "null", "none"])
_NUMBER = r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|(?i:inf|infinity))$"
_LISTS = (pa.ListType, pa.LargeListType, pa.FixedSizeListType)
_TEXT = (pa.string(), pa.large_string(), pa.string_view())


class ArrowPart:
    """A Parquet file, or an Arrow file or stream."""

    def __init__(self, path: Path, kind: str) -> None:
        self.path, self._what = path, f"a{'n' * (kind == 'arrow')} {kind.title()} file"
        form = pa.dataset.IpcFileFormat()
        if kind == "parquet":  # pages through a buffer, not a row group at a time
            options = pa.dataset.ParquetFragmentScanOptions(
                use_buffered_stream=True, buffer_size=64 << 10, pre_buffer=False
            )
            form = pa.dataset.ParquetFileFormat(default_fragment_scan_options=options)
        files = pa.fs.LocalFileSystem(use_mmap=kind == "arrow")
        with reading(path, self._what), path.open("rb") as file:
            if kind == "arrow" and file.read(6) != b"ARROW1":  # Arrow's stream format
                stream = pa.ipc.open_stream(pa.memory_map(str(path)))
                self._rows = pa.dataset.dataset(stream.read_all())
            else:
                self._rows = pa.dataset.dataset(str(path), format=form, filesystem=files)
            schema = self._rows.schema
            table.check_unique(schema.names, path.name)  # decoded now: may not be UTF-8
        self.types = dict(zip(schema.names, schema.types, strict=True))

    def batches(self, types: Types, rows: int) -> Iterator[pa.RecordBatch]:
        """Read columns in this order, a number of rows at a time."""
        with reading(self.path, self._what):
            for batch in self._rows.to_batches(columns=list(types), batch_size=rows):
                batch.validate(full=True)  # a damaged file may point anywhere
                yield batch

    def count(self) -> tuple[int, bool]:
        """Return the number of rows, and that it is exact."""
        with reading(self.path, self._what):
            return self._rows.count_rows(), True


class CsvPart:
    """A CSV file with a header, maybe compressed."""

    def __init__(self, path: Path) -> None:
        self.path, self._codec = path, _CODECS.get(path.suffix.lower())
        with reading(path, _CSV), pa.OSFile(str(path)) as raw:
            stream = pa.CompressedInputStream(raw, self._codec) if self._codec else raw
            head = stream.read(4 << 20)
            rows = head.count(b"\n") * raw.size() / max(1, raw.tell())
            self._estimate = max(1, round(rows)) if stream.read(1) else None
        header = re.split(rb"[\r\n]", head.lstrip(b"\r\n"), maxsplit=1)[0]
        outside_quotes = b"".join(header.split(b'"')[::2])
        self._separator = max(",;\t", key=lambda sign: outside_quotes.count(sign.encode()))
        # A block has room for many rows, also if they are long.
        self._block = min(max(1 << 20, 256 * len(header)), 256 << 20)
        with reading(path, _CSV), self._open({}) as reader:
            schema = reader.schema
            names = [name.strip() for name in schema.names]
        # A frame without names is saved with 0, 1, 2, ... for them.
        distinct = len({name for name in names if name.isdigit()})
        if distinct < len(names) and all(re.match(_NUMBER, name) for name in names):
            raise DataFileError(f"{path} has no header: its first line holds numbers, not names.")
        table.check_unique(names, path.name)
        self._raw = dict(zip(names, schema.names, strict=True))
        # What is whole in the first block may have fractions in the next.
        each = [kind if kind == pa.bool_() else pa.float64() for kind in schema.types]
        self.types = dict(zip(names, each, strict=True))

    def batches(self, types: Types, rows: int) -> Iterator[pa.RecordBatch]:
        """Read columns block by block, whatever the number of rows."""
        last = None
        with reading(self.path, _CSV):
            try:
                for batch in self._open(types):
                    if last is not None:
                        yield last
                    last = batch if batch.num_rows else last
            except pa.ArrowInvalid as error:
                bad = re.search(r"(?s)column #(\d+): Row #(\d+): .* value '(.*)'", str(error))
                if bad is None:
                    raise
                column, row, text = list(self.types)[int(bad[1])], int(bad[2]) - 2, bad[3].strip()
                raise bad_value(self.path.name, column, row, "has no value", text) from error
        final = [] if last is None else last.slice(last.num_rows - 1).to_pylist()
        if last is None or any(value not in (None, "", b"") for value in final[0].values()):
            raise DataFileError(f"a quote in {self.path} is opened and never closed.")
        yield last.slice(0, last.num_rows - 1)

    def count(self) -> tuple[int, bool]:
        """Count the rows of a short file; else estimate them from the length of the first ones."""
        if self._estimate is not None:
            return self._estimate, False
        return sum(b.num_rows for b in self.batches({next(iter(self.types)): pa.binary()}, 0)), True

    def _open(self, types: Types) -> pa.csv.CSVStreamingReader:
        """Open the file; with types, it gets a last row of nothing, which an open quote hides."""
        typed = {self._raw[name]: kind for name, kind in types.items()}
        end = iter(["\n" + self._separator.join(['""'] * len(self.types)) + "\n"] if types else [])
        stream = pa.TransformInputStream(
            pa.input_stream(str(self.path), compression=self._codec),
            lambda data: data if len(data) else next(end, "").encode(),
        )
        return pa.csv.open_csv(
            stream,
            # Without threads, which the streaming reader hardly uses, errors name the row.
            read_options=pa.csv.ReadOptions(block_size=self._block, use_threads=False),
            parse_options=pa.csv.ParseOptions(delimiter=self._separator, newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(column_types=typed, include_columns=list(typed)),
        )


class ArrowTable:
    """One table in one or several files; the first file's columns are the table's."""

    def __init__(self, path: Path, kind: str, files: list[Path]) -> None:
        self.name, self.csv = path.name, kind == "csv"
        self.parts = [CsvPart(f) if kind == "csv" else ArrowPart(f, kind) for f in files]
        self.columns = list(self.parts[0].types)

    def read(self, choice: Choice, spill: Path | None = None, enough: int | None = None) -> Table:
        """Read the chosen columns in this order, until a batch brings `enough` rows."""
        wanted = [*choice.features, *choice.targets, *filter(None, [choice.weight])]
        text = choice.targets[0] if len(choice.targets) == 1 else None
        types: list[Types] = []
        for part in self.parts:
            table.require(list(part.types), wanted, part.path.name)
            types.append({name: part.types[name] for name in wanted})
            if text is not None and self.csv:
                types[-1][text] = pa.string()
        plain = {_numbers(each[name])[0] for each in types for name in choice.features}
        dtype = as_floating(np.empty(0, np.result_type(np.bool_, *plain))).dtype
        widths: dict[str, int] = {}  # of columns of lists; 0 for plain ones
        kept: dict[str, list[Array]] = {name: [] for name in wanted[len(choice.features) :]}

        def blocks() -> Iterator[Array]:
            """Yield the features of each batch, checked, and keep the rest."""
            for file, first, batch in self._batches(types, enough):
                arrays = {
                    name: _to_array(column, name == text, widths, file, name, first)
                    for name, column in zip(wanted, batch.columns, strict=True)
                }
                for name, pieces in kept.items():
                    check_finite(arrays[name], _spread([name], widths), file, first)
                    if name == choice.weight:
                        arrays[name] = table.check_weight(arrays[name], name, file, first)
                    pieces.append(arrays[name])
                sides = [arrays[name].reshape(batch.num_rows, -1) for name in choice.features]
                sides.append(np.empty((batch.num_rows, 0)))
                block = np.concatenate(sides, axis=1, dtype=dtype)
                check_finite(block, _spread(choice.features, widths), file, first)
                yield block

        X = _stacked(blocks()) if spill is None else _spilled(blocks(), spill)
        for name in choice.targets:
            if len({piece.dtype.kind == "U" for piece in kept[name]}) > 1:
                raise DataFileError(f"column {name!r} of {self.name} holds text in some files.")
        whole = {name: np.concatenate(pieces) for name, pieces in kept.items()}
        labels, y = _spread(choice.targets, widths), None
        if len(labels) == 1:
            y = whole[choice.targets[0]].ravel()
            y = _parse_target(y, self.name, labels[0]) if y.dtype.kind == "U" and self.csv else y
        elif labels:
            y = as_floating(np.column_stack([whole[name] for name in choice.targets]))
        weight = None if choice.weight is None else whole[choice.weight]
        source = table.describe(self.name, X, labels)
        return Table(X, y, _spread(choice.features, widths), labels or None, source, weight)

    def _batches(
        self, types: list[Types], enough: int | None
    ) -> Iterator[tuple[str, int, pa.RecordBatch]]:
        """Yield each batch that has rows, with its file and its first row there."""
        seen = 0
        for part, kinds in zip(self.parts, types, strict=True):
            before, numbers = seen, sum(_numbers(kind)[1] for kind in kinds.values())
            rows = max(1, min(_VALUES_AT_ONCE // numbers, enough or 65_536))
            for batch in part.batches(kinds, rows):
                if batch.num_rows:
                    yield part.path.name, seen - before, batch
                seen += batch.num_rows
                if enough is not None and seen >= enough:
                    return
        if not seen:
            raise DataFileError(f"{self.name} has no rows.")


def _to_array(
    column: pa.Array, text: bool, widths: dict[str, int], file: str, name: str, first: int
) -> Array:
    """Return numbers, rows of numbers or, if it may be, text; nulls are refused by row."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    lists, width = isinstance(column.type, _LISTS), 1
    if lists and not column.null_count:
        lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
        width = max(1, widths.get(name, int(lengths[0])))
        for odd in np.flatnonzero(lengths != width)[:1]:
            problem = f"has {lengths[odd]} numbers, not {width},"
            raise bad_value(file, name, first + int(odd), problem)
        column = column.flatten()
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py() // width
        raise bad_value(file, name, first + row, "has no value")
    if widths.setdefault(name, width * lists) != width * lists:
        raise DataFileError(f"column {name!r} of {file} holds lists, or other files hold them.")
    if column.type in _TEXT:
        if lists or not text:
            raise bad_value(file, name, first, "holds empty text", text=column[0].as_py())
        return np.array(column.to_pylist(), dtype=np.str_)
    values: Array = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind not in "biuf":
        raise DataFileError(f"column {name!r} of {file} holds {column.type}, not numbers.")
    return values.reshape(-1, width) if lists else values


def _parse_target(values: Array, file: str, column: str) -> Array:
    """Return integers, else floats, else text such as "007"; empty or "NA" among numbers is not."""
    text = pc.utf8_trim_whitespace(pa.array(values))
    number = pc.match_substring_regex(text, _NUMBER)
    missing = pc.is_in(pc.utf8_lower(text), value_set=_MISSING)
    numeric = pc.any(number).as_py() and pc.all(pc.or_(number, missing)).as_py()
    first = pc.index(missing if numeric else pc.equal(text, ""), True).as_py()
    if first >= 0:
        raise bad_value(file, column, first, "has no value")
    whole = pc.all(pc.match_substring_regex(text, r"^[+-]?\d+$")).as_py()
    if not numeric or (whole and pc.any(pc.match_substring_regex(text, r"^[+-]?0\d")).as_py()):
        return values
    try:
        y = values.astype(np.int64 if whole else np.float64)
    except OverflowError:  # whole numbers beyond 64 bits
        y = values.astype(np.float64)
    check_finite(y, [column], file)
    return y


def _spread(names: list[str], widths: dict[str, int]) -> list[str]:
    """Return one name for each number in a row: a column 'e' of lists has 'e[0]', 'e[1]', ..."""
    each = ([f"{n}[{i}]" for i in range(widths[n])] if widths[n] else [n] for n in names)
    return [name for several in each for name in several]


def _numbers(type_: pa.DataType) -> tuple[type[np.generic], int]:
    """Return the type of the numbers in a row, and their count, which is a guess for free lists."""
    count = 1
    if isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    if isinstance(type_, _LISTS):
        count = type_.list_size if isinstance(type_, pa.FixedSizeListType) else 1024
        type_ = type_.value_type
    plain = pa.types.is_integer(type_) or pa.types.is_floating(type_)
    return type_.to_pandas_dtype() if plain else np.bool_, max(1, count)


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
    """Return a map of a new file in a folder, which has no name and goes with the map."""
    rows = 0
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            for block in blocks:  # mapped pages, if written, would count as this process's memory
                file.write(np.ascontiguousarray(block).data)
                rows += len(block)
            return np.memmap(file, block.dtype, "r", shape=(rows, block.shape[1]))
    except OSError as error:
        problem = f"the features cannot be written to {folder}: {error.strerror}."
        raise DataFileError(problem) from error
