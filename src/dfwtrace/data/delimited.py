"""CSV files, parsed by pyarrow: separators, headers, and errors that name the bad value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from dfwtrace._typing import Array
from dfwtrace.data.table import DataFileError, check_finite, no_value, not_numeric, reading

_HEAD_BYTES = 4 << 20
_MOST_BYTES = 256 << 20
_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_MISSING = ["", "na", "n/a", "nan", "null", "none"]
_NUMBER = r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|(?i:inf|infinity))$"


class CsvPart:
    """A CSV file with a header, maybe compressed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._codec = _CODECS.get(path.suffix.lower())
        self.names: list[str] = []
        with self._explained(), self._stream() as stream:
            head = stream.read(_HEAD_BYTES)
        if b"\0" in head:
            raise DataFileError(f"{path} is not CSV in UTF-8: it holds bytes that are not text.")
        header = re.split(rb"[\r\n]", head.lstrip(b"\r\n"), maxsplit=1)[0]
        self._separator = sniff_separator(header.decode("utf-8", "replace"))
        # A block has room for many rows, and of very long ones for a few at least.
        block, self._block = (max(1 << 20, few * len(header)) for few in (16, 256))
        with self._explained(), self._stream() as stream, self._open(stream, block) as reader:
            self._schema = reader.schema
            self.names = [name.strip() for name in self._schema.names]
        if all(re.match(_NUMBER, name) for name in self.names) and not (
            # A frame without names is saved with 0, 1, 2, ... for them.
            all(map(str.isdigit, self.names)) and len(set(self.names)) == len(self.names)
        ):
            raise DataFileError(
                f"{path} has no header: its first line holds numbers, not column names."
            )

    def types(self, names: list[str], text: str | None) -> dict[str, pa.DataType]:
        """Return the types to read columns as: numbers, but one may be text."""
        inferred = dict(zip(self.names, self._schema.types, strict=True))
        types = {n: pa.bool_() if inferred[n] == pa.bool_() else pa.float64() for n in names}
        return types | ({text: pa.string()} if text in types else {})

    def batches(self, types: dict[str, pa.DataType], rows: int) -> Iterator[pa.RecordBatch]:
        """Read columns block by block, whatever the number of rows."""
        raw = dict(zip(self.names, self._schema.names, strict=True))  # with spaces around
        typed = {raw[name]: kind for name, kind in types.items()}
        options = pa.csv.ConvertOptions(column_types=typed, include_columns=list(typed))
        # A last row of nothing, which only a quote that is never closed can hide.
        end = iter(["\n" + self._separator.join(['""'] * len(self.names)) + "\n"])
        with self._explained(), self._stream() as stream:
            ended = pa.TransformInputStream(
                stream, lambda data: data if len(data) else next(end, "").encode()
            )
            last = None
            for batch in self._open(ended, self._block, options):
                if last is not None:
                    yield last
                last = batch if batch.num_rows else last
        final = [] if last is None else last.slice(last.num_rows - 1).to_pylist()
        if last is None or any(value not in (None, "", b"") for value in final[0].values()):
            raise DataFileError(f"a quote in {self.path} is opened and never closed.")
        yield last.slice(0, last.num_rows - 1)

    def count(self) -> tuple[int, bool]:
        """Count the rows of a short file; else estimate them from the length of the first ones."""
        with self._explained(), pa.OSFile(str(self.path)) as raw:
            stream = pa.CompressedInputStream(raw, self._codec) if self._codec else raw
            head = stream.read(_HEAD_BYTES)
            read = raw.tell()
            if stream.read(1):
                return max(1, round(head.count(b"\n") * raw.size() / read)), False
        return sum(b.num_rows for b in self.batches({self.names[0]: pa.binary()}, 0)), True

    def _stream(self) -> pa.NativeFile:
        return pa.input_stream(str(self.path), compression=self._codec)

    def _open(
        self, stream: pa.NativeFile, block: int, options: pa.csv.ConvertOptions | None = None
    ) -> pa.csv.CSVStreamingReader:
        return pa.csv.open_csv(
            stream,
            # Without threads, which the streaming reader hardly uses, errors name the row.
            read_options=pa.csv.ReadOptions(block_size=min(block, _MOST_BYTES), use_threads=False),
            parse_options=pa.csv.ParseOptions(delimiter=self._separator, newlines_in_values=True),
            convert_options=options,
        )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn pyarrow's errors into sentences that name the column, the row and the value."""
        try:
            with reading(self.path, "a CSV file in UTF-8"):
                yield
        except DataFileError as error:
            if (sentence := self._sentence(str(error.__cause__))) is None:
                raise
            raise DataFileError(sentence) from error

    def _sentence(self, reason: str) -> str | None:
        """Say an error of pyarrow's with the names of the file and the column."""
        file, counted = self.path.name, "(numbering rows from 1 after the header)"
        if "Empty CSV" in reason:
            return f"{self.path} is empty."
        if "straddl" in reason:
            return f"a row of {self.path} has no end: is a quote opened and never closed?"
        if ragged := re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", reason):
            row, width, found = map(int, ragged.groups())
            return (
                f"row {row - 1} of {file} has {found} values, but the header names {width} "
                f"columns {counted}."
            )
        bad = re.search(r"column #(\d+): Row #(\d+): .*?: (.*)", reason, re.DOTALL)
        if bad is None:
            return None
        column, row = self.names[int(bad[1])], int(bad[2]) - 1
        value = bad[3].removeprefix("invalid value '").removesuffix("'")
        if "UTF8" in bad[3]:
            return f"{file} is not in UTF-8: see column {column!r} in row {row} {counted}."
        if value.strip().lower() in _MISSING:
            return str(no_value(file, column, row - 1))
        if "\n" in value:
            return f"a quote in row {row} of {file}, column {column!r}, is not closed in its line."
        return str(not_numeric(file, column, row - 1, value))


def sniff_separator(header: str) -> str:
    """Return the one of comma, semicolon and tab that a header has most of, outside quotes.

    Examples
    --------
    >>> sniff_separator('"a,b,c";d;e'), sniff_separator("alone")
    (';', ',')
    """
    return max(",;\t", key="".join(header.split('"')[::2]).count)


def parse_target(values: Array, file: str, column: str) -> Array:
    """Return int64 if all values are whole numbers, else float64, else the text itself.

    A column of numbers in which some entries are empty or say "NA" has missing values; it does not
    become text. A column of whole numbers of which some begin with a zero holds codes, and is text.

    Examples
    --------
    >>> import numpy as np
    >>> parse_target(np.array(["3", "+5"]), "train.csv", "y")
    array([3, 5])
    >>> parse_target(np.array(["01", "1"]), "train.csv", "y")
    array(['01', '1'], dtype='<U2')
    """
    text = pc.utf8_trim_whitespace(pa.array(values))
    number = pc.match_substring_regex(text, _NUMBER)
    missing = pc.is_in(pc.utf8_lower(text), value_set=pa.array(_MISSING))
    numeric = pc.any(number).as_py() and pc.all(pc.or_(number, missing)).as_py()
    first = pc.index(missing if numeric else pc.equal(text, ""), True).as_py()
    if first >= 0:
        raise no_value(file, column, first)
    whole = pc.all(pc.match_substring_regex(text, r"^[+-]?\d+$")).as_py()
    codes = pc.any(pc.match_substring_regex(text, r"^[+-]?0\d+$")).as_py()
    if not numeric or (whole and codes):
        return values
    text = pc.replace_substring_regex(text, r"^\+", "")
    y: Array
    if whole:
        try:
            y = pc.cast(text, pa.int64()).to_numpy()
            return y
        except pa.ArrowInvalid:
            pass  # too long for an integer, but a float will do
    y = pc.cast(text, pa.float64()).to_numpy()
    check_finite(y, [column], file)
    return y
