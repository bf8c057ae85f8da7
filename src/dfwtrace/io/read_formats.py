"""The formats that are known, by the names of files."""

from __future__ import annotations

import os
from pathlib import Path

from dfwtrace.io.parquet import open_arrow, open_parquet
from dfwtrace.io.read_batches import ColumnFile
from dfwtrace.io.read_csv import CsvFile
from dfwtrace.io.read_errors import DataFileError, reading
from dfwtrace.io.read_unnamed import SVMLIGHT

FORMATS = (
    ".csv",
    ".csv.gz",
    ".npz",
    ".npy",
    ".parquet",
    ".arrow",
    ".feather",
    *SVMLIGHT,
)


def suffix_of(path: Path) -> str:
    """The format that a path's name tells, if there is something to be read."""
    with reading(path, "a file"):
        os.stat(path)
    if path.is_dir():
        return ".parquet"
    name = path.name.lower()
    if name.endswith(".csv.gz"):
        return ".csv.gz"
    if path.suffix.lower() not in FORMATS:
        raise DataFileError(
            f"{path} is of no known format; known are {', '.join(FORMATS)} and folders of .parquet "
            "files."
        )
    return path.suffix.lower()


def open_columns(path: Path, suffix: str) -> ColumnFile | None:
    """A file with named columns, or None if its format has no names."""
    if suffix in (".csv", ".csv.gz"):
        return CsvFile(path)
    if suffix == ".parquet":
        return open_parquet(path)
    if suffix in (".arrow", ".feather"):
        return open_arrow(path)
    return None
