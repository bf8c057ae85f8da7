"""Parquet files, folders of them, and Arrow files: read batch by batch through pyarrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dfwtrace._typing import Array
from dfwtrace.io.columns import Choice, check_unique
from dfwtrace.io.read_arrow import Kind, kind_of, to_array, width_of
from dfwtrace.io.read_batches import Batch
from dfwtrace.io.read_errors import DataFileError, holds_text, needs_pyarrow, reading

# Numbers in a batch: a megabyte or two.
_VALUES_AT_ONCE = 1 << 18
# A column's pages are read through so large a buffer, not a row group at a time.
_COLUMN_BUFFER = 64 << 10


class Piece(Protocol):
    """One file."""

    path: Path
    schema: Any
    names: list[str]

    def count(self) -> int:
        """How many rows it has, without reading them where the format allows."""

    def records(self, columns: list[str], at_once: int) -> Iterator[Any]:
        """Record batches that have at least these columns."""


class ParquetPiece:
    """A Parquet file; its footer is read at once."""

    def __init__(self, path: Path) -> None:
        try:
            import pyarrow.parquet as pq
        except ImportError:
            needs_pyarrow("Parquet")
        self.path = path
        with reading(path, "a Parquet file"), pq.ParquetFile(path) as file:
            self.schema = file.schema_arrow
            self.names: list[str] = list(self.schema.names)  # decoded now: they may not be UTF-8
            self._rows: int = file.metadata.num_rows

    def count(self) -> int:
        return self._rows

    def records(self, columns: list[str], at_once: int) -> Iterator[Any]:
        import pyarrow.parquet as pq

        with (
            reading(self.path, "a Parquet file"),
            pq.ParquetFile(self.path, buffer_size=_COLUMN_BUFFER) as file,
        ):
            yield from file.iter_batches(batch_size=at_once, columns=columns)


class ArrowPiece:
    """An Arrow IPC file (Feather too) or stream, through a memory map."""

    def __init__(self, path: Path) -> None:
        try:
            import pyarrow  # noqa: F401  # only whether it is there
        except ImportError:
            needs_pyarrow("Arrow")
        self.path = path
        with reading(path, "an Arrow file"):
            self.schema = self._open(None).schema
            self.names: list[str] = list(self.schema.names)  # decoded now: they may not be UTF-8

    def count(self) -> int:
        with reading(self.path, "an Arrow file"):
            reader = self._open([0])
            if hasattr(reader, "count_rows"):
                return int(reader.count_rows())
            return sum(record.num_rows for record in _each(reader))

    def records(self, columns: list[str], at_once: int) -> Iterator[Any]:
        with reading(self.path, "an Arrow file"):
            reader = self._open([self.schema.get_field_index(name) for name in columns])
            for record in _each(reader):
                record.validate(full=True)  # the map is taken at its word otherwise
                for start in range(0, record.num_rows, at_once):
                    yield record.slice(start, at_once)

    def _open(self, fields: list[int] | None) -> Any:
        import pyarrow as pa

        options = pa.ipc.IpcReadOptions(included_fields=fields)
        mapped = pa.memory_map(str(self.path))
        try:
            return pa.ipc.open_file(mapped, options=options)
        except pa.ArrowInvalid:
            mapped.seek(0)
            return pa.ipc.open_stream(mapped, options=options)


def _each(reader: Any) -> Iterator[Any]:
    """The record batches of a file or a stream."""
    if hasattr(reader, "get_batch"):
        return (reader.get_batch(i) for i in range(reader.num_record_batches))
    return iter(reader)


def open_parquet(path: Path) -> ArrowFiles:
    """A Parquet file, or a folder of them in the order of their names."""
    if not path.is_dir():
        return ArrowFiles(path, [ParquetPiece(path)])
    with reading(path, "a folder"):
        # Writers leave marks such as _SUCCESS and hidden checksums beside the data.
        found = [p for p in path.iterdir() if p.suffix == ".parquet" and p.name[0] not in "._"]
    if not found:
        raise DataFileError(f"the folder {path} holds no .parquet files.")
    return ArrowFiles(path, [ParquetPiece(file) for file in sorted(found)])


def open_arrow(path: Path) -> ArrowFiles:
    """An Arrow or Feather file."""
    return ArrowFiles(path, [ArrowPiece(path)])


class ArrowFiles:
    """One table in one or several files; the first file's columns are the table's."""

    def __init__(self, path: Path, pieces: Sequence[Piece]) -> None:
        self.path = path
        self.name = path.name
        self._pieces = pieces
        self.columns = pieces[0].names
        for piece in pieces:
            check_unique(piece.names, piece.path.name)
        self.rows: int | None = sum(piece.count() for piece in pieces)
        if self.rows == 0:
            raise DataFileError(f"{path} has no rows.")

    def guess_rows(self) -> tuple[int, bool]:
        return self.rows or 0, True

    def dtype(self, features: Sequence[str]) -> np.dtype[Any]:
        """float32 if that holds the values of every column, else float64."""
        kinds = [
            self._numeric_kind(piece, name, "features")
            for piece in self._pieces
            for name in features
        ]
        common = np.result_type(*{kind.dtype for kind in kinds if kind.dtype is not None})
        return np.dtype(np.float32 if common in (np.float16, np.float32) else np.float64)

    def ways(self, choice: Choice, max_rows: int | None) -> Iterator[Iterator[Batch]]:
        yield self._batches(choice, max_rows)

    def target(self, column: str, pieces: list[Any]) -> Array:
        kinds = {piece.dtype.kind for piece in pieces}
        if "U" in kinds and len(kinds) > 1:
            raise DataFileError(
                f"column {column!r} holds text in some files of {self.path} and numbers in others."
            )
        return np.concatenate(pieces)

    numeric_target = target

    def _batches(self, choice: Choice, max_rows: int | None) -> Iterator[Batch]:
        weights = [] if choice.weight is None else [choice.weight]
        wanted = list(dict.fromkeys([*choice.features, *choice.targets, *weights]))
        several = len(choice.targets) > 1
        for piece in self._pieces:
            for name in weights:
                self._numeric_kind(piece, name, "weights")
            for name in choice.targets:
                self._target_kind(piece, name, several)
        left = max_rows
        for piece in self._pieces:
            if left == 0:
                return
            width = sum(width_of(piece.schema.field(name).type) for name in wanted)
            at_once = max(1, min(65_536, _VALUES_AT_ONCE // width))
            done, file = 0, piece.path.name
            for record in piece.records(wanted, at_once):
                if left is not None:
                    record = record.slice(0, left)
                    left -= record.num_rows
                if record.num_rows:
                    with reading(piece.path, "a sound file"):  # text may turn out not to be UTF-8
                        arrays = {
                            name: to_array(record.column(name), file, name, done) for name in wanted
                        }
                    yield Batch(
                        file,
                        done,
                        record.num_rows,
                        [arrays[name] for name in choice.features],
                        [arrays[name] for name in choice.targets],
                        arrays[weights[0]] if weights else None,
                    )
                done += record.num_rows
                if left == 0:
                    break

    def _numeric_kind(self, piece: Piece, name: str, role: str) -> Kind:
        """The kind of a column that must be numeric; weights and targets may not be lists."""
        kind = _kind_in(piece, name)
        if kind.what == "text":
            with reading(piece.path, "a sound file"):
                record = next(piece.records([name], 1))
                value = record.column(name)[0].as_py()
            raise holds_text(piece.path.name, name, 0, str(value), role=role)
        fine = kind.what == "number" or (kind.what == "numbers" and role != "weights")
        if not fine:
            raise DataFileError(
                f"column {name!r} of {piece.path.name} holds {kind.what}: {role} must be numbers."
            )
        return kind

    def _target_kind(self, piece: Piece, name: str, several: bool) -> Kind:
        if several:
            return self._numeric_kind(piece, name, "targets")
        kind = _kind_in(piece, name)
        if kind.what not in ("number", "numbers", "text"):
            raise DataFileError(
                f"column {name!r} of {piece.path.name} holds {kind.what}: "
                "targets must be numbers or text."
            )
        return kind


def _kind_in(piece: Piece, name: str) -> Kind:
    if name not in piece.names:
        raise DataFileError(f"{piece.path} has no column {name!r}, which other files have.")
    return kind_of(piece.schema.field(name).type)
