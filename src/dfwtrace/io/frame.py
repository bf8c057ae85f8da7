"""The frame of a container's file: what its first bytes say, none of it believed unchecked."""

from __future__ import annotations

import json
import math
import os
import re
import stat
from importlib.metadata import version
from typing import Any, BinaryIO

import numpy as np

from dfwtrace.io.header import without_duplicates

FORMAT = "dfwtrace"
FORMAT_VERSION = 1
#: The longest safetensors header, in bytes; the format's own limit.
LONGEST_HEADER = 100_000_000

METADATA = "__metadata__"
_FIELDS = {"format", "format_version", "kind", "written_by", "header", "checksum"}
KIND = re.compile(r"[a-z][a-z0-9_-]{0,39}")
# By the name in the file: as stored, which is little-endian everywhere.
DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "U64": np.dtype("<u8"),
    "BOOL": np.dtype("?"),
    "U8": np.dtype("u1"),
}
STORED = {dtype.name: (code, dtype) for code, dtype in DTYPES.items()}
_MOST_DIMENSIONS = 32


class ModelFormatError(ValueError):
    """A file that cannot be read: damaged, of another kind, or not one of dfwtrace's."""


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file: a pipe would wait forever, and a device might never end."""
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise ModelFormatError(f"{os.fspath(path)} is a folder, not a file.")
    if not stat.S_ISREG(mode):
        raise ModelFormatError(f"{os.fspath(path)} is not a regular file.")
    return open(path, "rb")


def read_metadata(file: BinaryIO, size: int, name: str) -> dict[str, str]:
    """Our metadata, from a safetensors header that fits the file's size."""
    if size == 0:
        raise ModelFormatError(f"{name} is empty.")
    length = int.from_bytes(file.read(8), "little")
    if size < 10 or length > LONGEST_HEADER:  # 10: the length and an empty header
        raise ModelFormatError(f"{name} is not a safetensors file.")
    if length > size - 8:
        raise ModelFormatError(f"{name} is not a safetensors file, or it is cut short.")
    raw = file.read(length)
    try:
        if not raw.startswith(b"{"):
            raise ValueError("the header is not an object")
        header = json.loads(raw.decode("utf-8"), object_pairs_hook=without_duplicates)
    except (ValueError, RecursionError, MemoryError) as error:
        raise ModelFormatError(
            f"{name} is not a safetensors file, or its header is damaged."
        ) from error
    metadata = header.pop(METADATA, None)
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise ModelFormatError(f"{name} is a safetensors file, but not one of dfwtrace's.")
    _check_metadata(metadata, name)
    try:
        _check_layout(header, size - 8 - length)
    except ValueError as error:
        raise damaged(name, str(error)) from error
    return metadata


def _check_metadata(metadata: dict[str, Any], name: str) -> None:
    written = metadata.get("format_version")
    if not isinstance(written, str) or not re.fullmatch("[1-9][0-9]{0,5}", written):
        raise damaged(name, "its format version is not a number")
    if int(written) > FORMAT_VERSION:
        by = metadata.get("written_by")
        known = isinstance(by, str) and re.fullmatch(r"[0-9A-Za-z.+!_-]{1,40}", by)
        raise ModelFormatError(
            f"{name} was written by {f'dfwtrace {by}' if known else 'a later dfwtrace'}; "
            f"this is version {version('dfwtrace')}: update dfwtrace to read it."
        )
    if set(metadata) != _FIELDS or not all(isinstance(v, str) for v in metadata.values()):
        raise damaged(name, "its metadata are not complete")
    if not KIND.fullmatch(metadata["kind"]):
        raise damaged(name, "its kind is not a name")


def _check_layout(header: dict[str, Any], size: int) -> None:
    """Arrays of known dtypes that fill `size` bytes one after the other."""
    spans = [_span(info) for info in header.values()]
    end = 0
    for start, stop in sorted(spans):
        if start != end:
            raise ValueError("its arrays overlap or leave gaps")
        end = stop
    if end != size:
        raise ValueError(f"its arrays need {end:,} bytes, but {size:,} are there")


def _span(info: Any) -> tuple[int, int]:
    """Where an array starts and stops, by its entry in the header."""
    if not isinstance(info, dict) or set(info) != {"dtype", "shape", "data_offsets"}:
        raise ValueError("an array's entry in the header is not complete")
    code, shape, offsets = info["dtype"], info["shape"], info["data_offsets"]
    if not isinstance(code, str) or code not in DTYPES:
        raise ValueError("an array has a dtype that dfwtrace does not write")
    if not _are_sizes(shape) or len(shape) > _MOST_DIMENSIONS:
        raise ValueError("an array has a shape that is none")
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise ValueError("an array has offsets that are none")
    # NumPy's limit, which it applies to empty arrays too, as if their zeros were ones.
    if math.prod(size for size in shape if size) >= 2**60:
        raise ValueError("an array is larger than can be")
    if offsets[1] - offsets[0] != math.prod(shape) * DTYPES[code].itemsize:
        raise ValueError("an array's shape does not fit its bytes")
    return offsets[0], offsets[1]


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(v) is int and 0 <= v < 2**63 for v in values)


def damaged(name: str, why: str) -> ModelFormatError:
    return ModelFormatError(f"{name} is damaged: {why}.")
