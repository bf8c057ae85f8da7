"""Files of every format, written for tests."""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

NAMES = ["x1", "x2", "x3"]


def arrow_table(X: Any, y: Any) -> pa.Table:
    return pa.table({**{name: X[:, j] for j, name in enumerate(NAMES)}, "label": y})


def csv_text(X: Any, y: Any, separator: str = ",") -> str:
    rows = [[*(repr(float(v)) for v in row), str(t)] for row, t in zip(X, y, strict=True)]
    return "\n".join(separator.join(row) for row in [[*NAMES, "label"], *rows]) + "\n"


def write_zst(path: Path, text: str) -> None:
    with pa.output_stream(str(path), compression="zstd") as sink:
        sink.write(text.encode())


def write_stream(path: Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=9)


def write(path: Path, columns: Any, chunk: int = 3) -> Path:
    """Write a Parquet, Arrow or Feather file."""
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=chunk)
    else:
        pyarrow.feather.write_feather(table, str(path), chunksize=chunk)
    return path


WRITERS: dict[str, Callable[[Path, Any, Any], object]] = {
    "t.csv": lambda path, X, y: path.write_text(csv_text(X, y)),
    "semicolons.csv": lambda path, X, y: path.write_text(csv_text(X, y, ";")),
    "t.tsv": lambda path, X, y: path.write_text(csv_text(X, y, "\t"), encoding="utf-8-sig"),
    "t.csv.gz": lambda path, X, y: path.write_bytes(gzip.compress(csv_text(X, y).encode())),
    "t.CSV.BZ2": lambda path, X, y: path.write_bytes(bz2.compress(csv_text(X, y).encode())),
    "t.csv.zst": lambda path, X, y: write_zst(path, csv_text(X, y)),
    "t.parquet": lambda path, X, y: write(path, arrow_table(X, y), chunk=7),
    "t.arrow": lambda path, X, y: write(path, arrow_table(X, y), chunk=9),
    "stream.arrow": lambda path, X, y: write_stream(path, arrow_table(X, y)),
    "t.feather": lambda path, X, y: write(path, arrow_table(X, y)),
}
