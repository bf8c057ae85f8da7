"""Tables with named columns, read in batches by pyarrow: CSV, Parquet and Arrow."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset
import pyarrow.fs
import scipy.sparse as sp

from dfwtrace._typing import Array, Matrix
from dfwtrace.data import table
from dfwtrace.data.preparation import (
    MOST_CATEGORIES,
    NO_VALUE,
    Codes,
    Preparation,
    one_hot_names,
    side_by_side,
)
from dfwtrace.data.table import BadValueError, Choice, DataFileError, Table, check_finite, reading
from dfwtrace.validation import as_floating

Types = dict[str, pa.DataType]

# Numbers in a batch: a megabyte or two.
_VALUES_AT_ONCE = 1 << 18
_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_CSV = "a CSV file in UTF-8"
_MISSING = pa.array(["", "na", "n/a", "nan", "null", "none"])
_NULLS = [*pa.csv.ConvertOptions().null_values, "None", "none", *(" " * k for k in range(1, 9))]
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
        self.seen = self.types

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
        tabs = ".tsv" in (suffix.lower() for suffix in path.suffixes[-2:])
        signs = "\t" if tabs else ",;\t"
        self._separator = max(signs, key=lambda sign: outside_quotes.count(sign.encode()))
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
        self.seen = dict(zip(names, schema.types, strict=True))  # in the first block
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
                where = self.path.name, column, row
                problem = table.bad_text(*where, text) if text else table.no_value(*where)
                raise problem from error
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
            convert_options=pa.csv.ConvertOptions(
                column_types=typed, include_columns=list(typed), null_values=_NULLS
            ),
        )


class ArrowTable:
    """One table in one or several files; the first file's columns are the table's."""

    def __init__(self, path: Path, kind: str, files: list[Path]) -> None:
        self.name, self.csv = path.name, kind == "csv"
        self.parts = [CsvPart(f) if kind == "csv" else ArrowPart(f, kind) for f in files]
        self.columns = list(self.parts[0].types)

    def kinds(self, names: Sequence[str]) -> dict[str, str]:
        """Return which columns hold "text" and which a "date", as far as the first rows say."""
        seen = self.parts[0].seen
        dates = {name: "date" for name in names if pa.types.is_temporal(seen[name])}
        return dates | {name: "text" for name in names if _plain(seen[name]) in _TEXT}

    def categories(self, columns: Sequence[str], enough: int | None = None) -> dict[str, list[str]]:
        """Return the values of columns, sorted."""
        found: dict[str, set[str]] = {name: set() for name in columns}
        for file, _, batch in self._batches(self._types(columns, columns), enough):
            for name, column in zip(columns, batch.columns, strict=True):
                found[name].update(_labels(column, file, name).unique().to_pylist())
                if len(found[name]) > MOST_CATEGORIES:
                    problem = f"holds more than {MOST_CATEGORIES:,} categories"
                    raise DataFileError(f"column {name!r} of {self.name} {problem}: --drop it.")
        return {name: sorted(values) for name, values in found.items()}

    def read(
        self,
        choice: Choice,
        spill: Path | None = None,
        enough: int | None = None,
        preparation: Preparation | None = None,
    ) -> Table:
        """Read the chosen columns in this order, until a batch brings `enough` rows.

        Missing numbers are NaN if they are to be imputed by values that are not known yet.
        """
        done = preparation or Preparation()
        wanted = [*choice.features, *choice.targets, *filter(None, [choice.weight]), *choice.keep]
        text = choice.targets[0] if len(choice.targets) == 1 else None
        types = self._types(wanted, [*filter(None, [text]), *done.categories, *choice.keep])
        numbers = [name for name in choice.features if name not in done.categories]
        plain = {_numbers(each[name])[0] for each in types for name in numbers}
        dtype = as_floating(np.empty(0, np.result_type(np.bool_, *plain))).dtype
        widths: dict[str, int] = {}  # of columns of lists; 0 for plain ones
        kept: dict[str, list[Array]] = {
            name: [] for name in [*choice.targets, *filter(None, [choice.weight])]
        }
        carried: dict[str, list[pa.Array]] = {name: [] for name in choice.keep}
        unknown = _Unknown(self.name)

        def blocks() -> Iterator[Matrix]:
            """Yield the features of each batch, checked, and keep the rest."""
            for file, first, batch in self._batches(types, enough):
                columns = dict(zip(wanted, batch.columns, strict=True))
                for name, held in carried.items():
                    held.append(columns[name])
                for name, pieces in kept.items():
                    array = _to_array(columns[name], name == text, widths, file, name, first)
                    check_finite(array, _spread([name], widths), file, first)
                    if name == choice.weight:
                        array = table.check_weight(array, name, file, first)
                    pieces.append(array)
                sides: list[Array | Codes] = []
                for name in choice.features:
                    if name in done.categories:
                        labels = _labels(columns[name], file, name)
                        sides.append(unknown.codes(labels, name, done.categories[name]))
                    else:
                        where, missing = (file, name, first), done.impute is not None
                        array = _to_array(columns[name], False, widths, *where, missing)
                        sides.append(array.reshape(batch.num_rows, -1))
                unknown.end()
                block = side_by_side(sides, batch.num_rows, dtype)
                names = _spread(choice.features, widths, done.categories)
                done.fill_missing(block, names)
                check_finite(block, names, file, first, done.leaves_nan)
                yield block

        mode: Literal["r", "r+"] = "r" if done.impute is None else "r+"
        X = _stacked(blocks()) if spill is None else _spilled(blocks(), spill, mode)
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
        names = _spread(choice.features, widths, done.categories)
        table.check_unique(names, self.name)
        read = Table(X, y, names, labels or None, source, weight, preparation=preparation)
        columns = {name: pa.chunked_array(held) for name, held in carried.items()}
        return read._replace(kept=columns, warnings=unknown.warnings())

    def _types(self, wanted: Sequence[str], text: Sequence[str]) -> list[Types]:
        """Return the types to read columns as, in each file; of CSV, some as text."""
        types: list[Types] = []
        for part in self.parts:
            table.require(list(part.types), wanted, part.path.name)
            types.append({name: part.types[name] for name in wanted})
            if self.csv:
                types[-1] |= dict.fromkeys(text, pa.string())
        return types

    def _batches(
        self, types: list[Types], enough: int | None
    ) -> Iterator[tuple[str, int, pa.RecordBatch]]:
        """Yield each batch that has rows, with its file and its first row there."""
        seen = 0
        for part, kinds in zip(self.parts, types, strict=True):
            before, numbers = seen, max(1, sum(_numbers(kind)[1] for kind in kinds.values()))
            rows = max(1, min(_VALUES_AT_ONCE // numbers, enough or 65_536))
            for batch in part.batches(kinds, rows):
                if batch.num_rows:
                    yield part.path.name, seen - before, batch
                seen += batch.num_rows
                if enough is not None and seen >= enough:
                    return
        if not seen:
            raise DataFileError(f"{self.name} has no rows.")


def as_cells(column: pa.ChunkedArray) -> list[object]:
    """Return values for a CSV file: dates as text, nothing as ""."""
    if pa.types.is_temporal(column.type):
        column = pc.replace_substring_regex(column.cast(pa.string()), r"\.0+$", "")
    return ["" if value is None else value for value in column.to_pylist()]


class _Unknown:
    """Counts the rows with categories that are not known."""

    def __init__(self, file: str) -> None:
        self._file, self._rows, self._example = file, 0, ""
        self._marks: list[Array] = []

    def codes(self, labels: pa.Array, name: str, categories: Sequence[str]) -> Codes:
        """Return the numbers of labels, of one column of a batch."""
        found = pc.index_in(labels, value_set=pa.array(categories, labels.type))
        codes: Array = found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        strange = codes < 0
        if strange.any() and not self._example:
            self._example = f"{name}={labels[int(np.argmax(strange))].as_py()}"
        self._marks.append(strange)
        return Codes(codes, len(categories))

    def end(self) -> None:
        """Count the rows of a batch of which all columns have been seen."""
        self._rows += int(np.any(self._marks, axis=0).sum()) if self._marks else 0
        self._marks = []

    def warnings(self) -> list[str]:
        if not self._rows:
            return []
        rows = "one row" if self._rows == 1 else f"{self._rows} rows"
        what = f"categories that the model does not know, such as {self._example!r}"
        verb = "holds" if self._rows == 1 else "hold"
        return [f"{rows} of {self._file} {verb} {what}: they count as none of those it knows."]


def _plain(type_: pa.DataType) -> pa.DataType:
    """Return the type of a column's values, whether or not they are numbered."""
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def _decoded(column: pa.Array) -> pa.Array:
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _labels(column: pa.Array, file: str, name: str) -> pa.Array:
    """Return categories as text, also those of numbers, without blanks around them."""
    column = _decoded(column)
    missing = pc.is_null(column, nan_is_null=True)
    try:
        text = pc.utf8_trim_whitespace(column.cast(pa.string()))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        problem = f"holds {column.type}, which is neither text nor a number"
        raise DataFileError(f"column {name!r} of {file} {problem}.") from error
    return pc.if_else(pc.or_(missing, pc.equal(text, "").fill_null(True)), NO_VALUE, text)


def _to_array(
    column: pa.Array,
    text: bool,
    widths: dict[str, int],
    file: str,
    name: str,
    first: int,
    missing: bool = False,
) -> Array:
    """Return numbers, rows of numbers or, if it may be, text.

    Nulls are NaN if values may be missing, else refused by row.
    """
    column = _decoded(column)
    lists, width = isinstance(column.type, _LISTS), 1
    if lists and not column.null_count:
        lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
        width = max(1, widths.get(name, int(lengths[0])))
        for odd in np.flatnonzero(lengths != width)[:1]:
            problem = f"has {lengths[odd]} numbers, not {width},"
            raise BadValueError(file, name, first + int(odd), problem)
        column = column.flatten()
    if column.type in _TEXT and (lists or not text) and column.null_count < len(column):
        row = pc.index(column.is_valid(), True).as_py()
        raise table.bad_text(file, name, first + row // width, column[row].as_py())
    if pa.types.is_temporal(column.type):
        problem = f"holds {column.type}, not numbers,"
        raise BadValueError(file, name, first, problem, kind="date")
    if column.null_count and not (missing and _may_be_nan(column.type)):
        row = pc.index(column.is_null(), True).as_py() // width
        raise table.no_value(file, name, first + row)
    if widths.setdefault(name, width * lists) != width * lists:
        raise DataFileError(f"column {name!r} of {file} holds lists, or other files hold them.")
    if column.type in _TEXT:
        return np.array(column.to_pylist(), dtype=np.str_)
    if column.null_count and not pa.types.is_floating(column.type):
        column = column.cast(pa.float64(), safe=False)
    values: Array = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind not in "biuf":
        raise DataFileError(f"column {name!r} of {file} holds {column.type}, not numbers.")
    return values.reshape(-1, width) if lists else values


def _may_be_nan(type_: pa.DataType) -> bool:
    of = pa.types
    return any(is_it(type_) for is_it in (of.is_floating, of.is_integer, of.is_boolean, of.is_null))


def _parse_target(values: Array, file: str, column: str) -> Array:
    """Return integers, else floats, else text such as "007"; empty or "NA" among numbers is not."""
    text = pc.utf8_trim_whitespace(pa.array(values))
    number = pc.match_substring_regex(text, _NUMBER)
    missing = pc.is_in(pc.utf8_lower(text), value_set=_MISSING)
    numeric = pc.any(number).as_py() and pc.all(pc.or_(number, missing)).as_py()
    first = pc.index(missing if numeric else pc.equal(text, ""), True).as_py()
    if first >= 0:
        raise table.no_value(file, column, first)
    whole = pc.all(pc.match_substring_regex(text, r"^[+-]?\d+$")).as_py()
    if not numeric or (whole and pc.any(pc.match_substring_regex(text, r"^[+-]?0\d")).as_py()):
        return values
    try:
        y = values.astype(np.int64 if whole else np.float64)
    except OverflowError:  # whole numbers beyond 64 bits
        y = values.astype(np.float64)
    check_finite(y, [column], file)
    return y


def _spread(
    names: list[str], widths: dict[str, int], categories: dict[str, list[str]] | None = None
) -> list[str]:
    """Return one name for each number in a row: a column 'e' of lists has 'e[0]', 'e[1]', ..."""
    spread: list[str] = []
    for name in names:
        if categories and name in categories:
            spread += one_hot_names(name, categories[name])
        else:
            spread += [f"{name}[{i}]" for i in range(widths[name])] if widths[name] else [name]
    return spread


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


def _stacked(blocks: Iterator[Matrix]) -> Matrix:
    """Return all rows in memory."""
    held = list(blocks)[::-1]
    if sp.issparse(held[0]):
        return sp.csr_array(sp.vstack(held[::-1], format="csr"))
    X = np.empty((sum(map(len, held)), held[0].shape[1]), dtype=held[0].dtype)
    start = 0
    while held:  # each block is freed once it is copied: never two of everything
        block = held.pop()
        X[start : start + len(block)] = block
        start += len(block)
    return X


def _spilled(blocks: Iterator[Matrix], folder: Path, mode: Literal["r", "r+"]) -> Array:
    """Return a map of a new file in a folder, which has no name and goes with the map."""
    rows = 0
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            for block in blocks:  # mapped pages, if written, would count as this process's memory
                if sp.issparse(block):
                    problem = "most of the one-hot features are zeros, which take no memory"
                    raise DataFileError(f"--spill is not for these data: {problem}.")
                file.write(np.ascontiguousarray(block).data)
                rows += len(block)
            return np.memmap(file, block.dtype, mode, shape=(rows, block.shape[1]))
    except OSError as error:
        problem = f"the features cannot be written to {folder}: {error.strerror}."
        raise DataFileError(problem) from error
