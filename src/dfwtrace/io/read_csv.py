"""CSV files: a careful reader that needs numpy alone, and pyarrow's quick one where it agrees.

The quick reader takes nothing that the careful one would see otherwise: whatever it doubts it hands
over, so every error and every awkward number is judged in one place.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from dfwtrace._typing import Array
from dfwtrace.io.columns import Choice, check_unique
from dfwtrace.io.read_batches import Batch
from dfwtrace.io.read_errors import AwkwardError, DataFileError, reading
from dfwtrace.io.read_numbers import check_utf8, is_number, is_utf8, parse_numbers
from dfwtrace.io.read_targets import parse_target

_SEPARATORS = ",;\t"
# Values parsed at a time: enough to be quick, little beside the array that they end up in.
_VALUES_AT_ONCE = 1 << 20
_BYTES_AT_ONCE = 4 << 20
_ROWS_TO_GUESS_FROM = 10_000
# Comes after the last line. An open quote would swallow it.
_END = "\0end"
_TRUE = ["true", "True", "TRUE"]
_FALSE = ["false", "False", "FALSE"]


class CsvFile:
    """A table in text, with a header; ``.csv.gz`` is unpacked on the way."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name
        self.rows: int | None = None  # known only once it has been read
        with reading(path, "a CSV file"), self._text() as lines:
            head = next((line for line in lines if line.strip("\r\n")), None)
        if head is None:
            raise DataFileError(f"{path} is empty.")
        self._separator = sniff_separator(head)
        with reading(path, "a CSV file"), self._text() as lines:
            names = next(filter(None, csv.reader(lines, delimiter=self._separator)))
        self.columns = [name.strip() for name in names]
        self._check_header()

    def dtype(self, features: Sequence[str]) -> np.dtype[Any]:
        """Text does not say how many digits were meant: float64."""
        return np.dtype(np.float64)

    def ways(self, choice: Choice, max_rows: int | None) -> Iterator[Iterator[Batch]]:
        try:
            import pyarrow.csv  # noqa: F401  # only whether it is there
        except ImportError:
            pass
        else:
            yield self._quickly(choice, max_rows)
        yield self._carefully(choice, max_rows)

    def target(self, column: str, pieces: list[Any]) -> Array:
        return parse_target(list(chain.from_iterable(pieces)), self.name, column)

    def numeric_target(self, column: str, pieces: list[Any]) -> Array:
        values = list(chain.from_iterable(pieces))
        return parse_numbers(values, self.name, column, 0, role="targets")

    def guess_rows(self) -> tuple[int, bool]:
        """Exact for a short file; else from the length of the first rows."""
        with reading(self.path, "a CSV file"), self._binary() as data:
            head = list(islice(data, _ROWS_TO_GUESS_FROM))
            rest = data.read(1)
        if not rest:
            return sum(len(rows) for _, rows in self._records(None)), True
        return max(1, round((len(head) - 1) * self._size() / sum(map(len, head)))), False

    def _size(self) -> int:
        """Bytes of text: in a packed file, the last four bytes have it, but for its 33rd bit on."""
        size = self.path.stat().st_size
        if not self._packed:
            return size
        with self.path.open("rb") as raw:
            raw.seek(-4, io.SEEK_END)
            unpacked = int.from_bytes(raw.read(4), "little")
        while unpacked < size:
            unpacked += 1 << 32
        return unpacked

    @property
    def _packed(self) -> bool:
        return self.path.suffix.lower() == ".gz"

    def _binary(self) -> IO[bytes]:
        opener: Callable[..., Any] = gzip.open if self._packed else open
        opened: IO[bytes] = opener(self.path, "rb")
        return opened

    def _text(self) -> io.TextIOWrapper:
        # Bytes that are not UTF-8 are let through: they matter only in a column that is used.
        return io.TextIOWrapper(
            self._binary(), encoding="utf-8-sig", errors="surrogateescape", newline=""
        )

    def _check_header(self) -> None:
        joined = "".join(self.columns)
        if "\0" in joined or not is_utf8(joined):
            raise DataFileError(
                f"{self.path} is not CSV in UTF-8: its first line holds bytes that are not text."
            )
        if all(map(is_number, self.columns)) and not (
            # A frame without names is saved with 0, 1, 2, ... for them.
            all(name.isdigit() for name in self.columns)
            and len(set(self.columns)) == len(self.columns)
        ):
            raise DataFileError(
                f"{self.path} has no header: its first line holds numbers, not column names."
            )
        check_unique(self.columns, self.name)

    def _records(self, max_rows: int | None) -> Iterator[tuple[int, list[list[str]]]]:
        """Rows as lists of text, some at a time, with the number of the first."""
        at_once = max(1, min(16_384, _VALUES_AT_ONCE // len(self.columns)))
        done = 0
        with reading(self.path, "a CSV file"), self._text() as lines:
            reader = csv.reader(chain(lines, [_END]), delimiter=self._separator)
            records = filter(None, reader)  # lines with nothing on them are no rows
            next(records)
            ended = False
            while not ended and (max_rows is None or done < max_rows):
                wanted = at_once if max_rows is None else min(at_once, max_rows - done)
                rows = list(islice(records, wanted))
                ended = rows[-1] == [_END]
                if ended:
                    rows.pop()
                elif rows[-1][-1].endswith(_END):
                    raise DataFileError(f"a quote in {self.path} is opened and never closed.")
                if rows:
                    self._check_lengths(rows, done)
                    yield done, rows
                done += len(rows)
        if done == 0:
            raise DataFileError(f"{self.path} has a header but no rows.")

    def _check_lengths(self, rows: list[list[str]], first: int) -> None:
        width = len(self.columns)
        if set(map(len, rows)) != {width}:
            bad = next(i for i, row in enumerate(rows) if len(row) != width)
            raise DataFileError(
                f"row {first + bad + 1} of {self.name} has {len(rows[bad])} values, but the header "
                f"names {width} columns (numbering rows from 1 after the header)."
            )

    def _carefully(self, choice: Choice, max_rows: int | None) -> Iterator[Batch]:
        place = {name: i for i, name in enumerate(self.columns)}
        for first, rows in self._records(max_rows):
            columns = list(zip(*rows, strict=True))

            def numbers(
                name: str, role: str, columns: list[Any] = columns, first: int = first
            ) -> Array:
                return parse_numbers(columns[place[name]], self.name, name, first, role=role)

            targets = [columns[place[name]] for name in choice.targets]
            for name, values in zip(choice.targets, targets, strict=True):
                check_utf8(values, self.name, name, first)
            weight = None if choice.weight is None else numbers(choice.weight, "weights")
            features = [numbers(name, "features") for name in choice.features]
            yield Batch(self.name, first, len(rows), features, targets, weight)

    def _quickly(self, choice: Choice, max_rows: int | None) -> Iterator[Batch]:
        import pyarrow as pa
        import pyarrow.csv as pa_csv

        try:
            _, start = next(self._records(1))
        except DataFileError as error:
            raise AwkwardError from error
        place = {name: i for i, name in enumerate(self.columns)}
        kinds: dict[str, Any] = {}
        for name in [*choice.features, *filter(None, [choice.weight])]:
            is_bool = start[0][place[name]].strip().lower() in ("true", "false")
            kinds[f"f{place[name]}"] = pa.bool_() if is_bool else pa.float64()
        kinds |= {f"f{place[name]}": pa.string() for name in choice.targets}
        done = 0
        try:
            with self._binary() as data:
                counted = _QuoteCounter(data)
                stream = pa_csv.open_csv(
                    counted,
                    read_options=pa_csv.ReadOptions(
                        autogenerate_column_names=True,
                        skip_rows_after_names=1,
                        block_size=_BYTES_AT_ONCE,
                    ),
                    parse_options=pa_csv.ParseOptions(
                        delimiter=self._separator, newlines_in_values=True
                    ),
                    convert_options=pa_csv.ConvertOptions(
                        column_types=kinds,
                        include_columns=list(kinds),
                        null_values=[""],
                        true_values=_TRUE,
                        false_values=_FALSE,
                    ),
                )
                for record in stream:
                    if max_rows is not None:
                        record = record.slice(0, max_rows - done)
                    if record.num_rows:
                        yield self._batch(record, choice, place, done)
                    done += record.num_rows
                    if done == max_rows:
                        return
                if counted.quotes % 2:
                    raise AwkwardError
        except (pa.ArrowException, OSError, EOFError, ValueError) as error:
            raise AwkwardError from error

    def _batch(self, record: Any, choice: Choice, place: dict[str, int], first: int) -> Batch:
        def numbers(name: str) -> Array:
            column = record.column(f"f{place[name]}")
            values: Array = column.to_numpy(zero_copy_only=False)
            with np.errstate(over="ignore"):
                if column.null_count or not np.isfinite(values.sum()):
                    raise AwkwardError
            return values

        targets = [record.column(f"f{place[name]}").to_pylist() for name in choice.targets]
        if any("\n" in text for values in targets for text in values):
            raise AwkwardError
        weight = None if choice.weight is None else numbers(choice.weight)
        features = [numbers(name) for name in choice.features]
        return Batch(self.name, first, record.num_rows, features, targets, weight)


class _QuoteCounter:
    """A file without its byte order mark that counts the quotes that pass."""

    def __init__(self, data: IO[bytes]) -> None:
        self._data = data
        self._head = data.read(3)
        if self._head == b"\xef\xbb\xbf":
            self._head = b""
        self.quotes = 0
        self.closed = False  # pyarrow asks

    def read(self, size: int) -> bytes:
        # Just as much as was asked for: pyarrow has room for no more, and would take less for all.
        data, self._head = self._head + self._data.read(size - len(self._head)), b""
        self.quotes += data.count(b'"')
        return data

    def close(self) -> None:
        self.closed = True

    def readable(self) -> bool:
        return True


def sniff_separator(header: str) -> str:
    """The one of comma, semicolon and tab that a header has most of, outside quotes.

    Examples
    --------
    >>> sniff_separator('"a,b,c";d;e'), sniff_separator("alone")
    (';', ',')
    """
    outside = "".join(header.split('"')[::2])
    return max(_SEPARATORS, key=outside.count)
