"""A file of named arrays and a header: what models and checkpoints are stored in.

It is a safetensors file, so that any reader of that format opens it. Its metadata are

- ``format`` ("dfwtrace"), ``format_version`` ("1"), ``written_by`` (the version of dfwtrace);
- ``kind``: what is stored, say "model" or "checkpoint";
- ``header``: strict JSON in ASCII. The floats that JSON lacks are objects of one key,
  ``{"$float": "nan"}``, ``"inf"`` or ``"-inf"``; a key of the header's own that starts with ``$``
  has one ``$`` more in the file, so that the two are never mixed up;
- ``checksum``: BLAKE2b of the kind, the header, and every array's name, dtype, shape and bytes.

Nothing that a file says is believed before it is checked, and nothing in it is ever run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from importlib.metadata import version
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy

from dfwtrace._typing import Array
from dfwtrace.io.atomic import atomic_write
from dfwtrace.io.frame import (
    DTYPES,
    FORMAT,
    FORMAT_VERSION,
    KIND,
    LONGEST_HEADER,
    METADATA,
    STORED,
    ModelFormatError,
    damaged,
    open_regular,
    read_metadata,
)
from dfwtrace.io.header import JSON, decode_header, encode_header
from dfwtrace.validation import describe

# The library's own signature is untyped.
_deserialize: Callable[[bytes], list[tuple[str, dict[str, Any]]]] = safetensors.deserialize


class Container(NamedTuple):
    """What a file holds.

    Attributes
    ----------
    header : dict
        As it was given.
    arrays : dict of str to array
        In the machine's byte order, C-contiguous and writable.
    """

    header: dict[str, JSON]
    arrays: dict[str, Array]


def write_container(
    path: str | os.PathLike[str],
    kind: str,
    header: dict[str, JSON],
    arrays: Mapping[str, Array],
) -> None:
    """Write a header and arrays to a file, whole or not at all.

    Parameters
    ----------
    path : str or path-like
        The file; one that is there is replaced, see `dfwtrace.io.atomic.atomic_write`.
    kind : str
        What is stored: lower-case letters, digits, ``-`` and ``_``.
    header : dict
        Of None, bool, int, float (also NaN and ±∞), str, and lists and dicts of them.
    arrays : dict of str to array
        Of float64, float32, int64, int32, uint64, uint8 or bool, in any memory order.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from dfwtrace.io.container import peek, read_container, write_container
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "W.safetensors"
    ...     write_container(path, "model", {"radius": 3.0}, {"U": np.ones((2, 1))})
    ...     peek(path), read_container(path, "model").header
    ('model', {'radius': 3.0})
    """
    if not isinstance(kind, str) or not KIND.fullmatch(kind):
        raise ValueError(f"kind must be a short lower-case name, got {describe(kind)}.")
    text = encode_header(header)
    stored = {name: _as_stored(name, array) for name, array in arrays.items()}
    metadata = {
        "format": FORMAT,
        "format_version": str(FORMAT_VERSION),
        "kind": kind,
        "written_by": version("dfwtrace"),
        "header": text,
        "checksum": _checksum(
            kind,
            text,
            (
                (name, STORED[array.dtype.name][0], array.shape, array.reshape(-1).view(np.uint8))
                for name, array in stored.items()
            ),
        ),
    }
    try:
        content = safetensors.numpy.save(stored, metadata)
    except safetensors.SafetensorError as error:
        raise ValueError(
            f"header and the names of arrays must fit into {LONGEST_HEADER:,} bytes, but {error}."
        ) from error
    with atomic_write(path) as file:
        file.write(content)


def read_container(path: str | os.PathLike[str], kind: str) -> Container:
    """Read what `write_container` wrote.

    Parameters
    ----------
    path : str or path-like
        The file.
    kind : str
        What it must hold.

    Raises
    ------
    ModelFormatError
        The file is damaged, of another kind, of a later format, or not one of dfwtrace's.
    OSError
        The file is not there or may not be read.
    """
    with open_regular(path) as file:
        return parse(file, os.fstat(file.fileno()).st_size, kind, os.fspath(path))


def peek(path: str | os.PathLike[str]) -> str:
    """The kind of a file, from its first bytes; only `read_container` checks the checksum.

    Raises
    ------
    ModelFormatError
        The file is damaged, of a later format, or not one of dfwtrace's.
    OSError
        The file is not there or may not be read.
    """
    with open_regular(path) as file:
        metadata = read_metadata(file, os.fstat(file.fileno()).st_size, os.fspath(path))
    return metadata["kind"]


def parse(file: BinaryIO, size: int, kind: str, name: str) -> Container:
    """Read a container of `size` bytes from an open file that errors call `name`."""
    metadata = read_metadata(file, size, name)
    if metadata["kind"] != kind:
        raise ModelFormatError(f"{name} holds a {metadata['kind']}, not a {kind}.")
    file.seek(0)
    try:
        views = dict(_deserialize(file.read(size)))
    except MemoryError as error:
        raise ModelFormatError(f"{name} is too large for the memory: {size:,} bytes.") from error
    except Exception as error:  # whatever the library makes of a header that passed our checks
        raise damaged(name, "its safetensors header is not valid") from error
    parts = [(key, v["dtype"], tuple(v["shape"]), v["data"]) for key, v in views.items()]
    if _checksum(kind, metadata["header"], parts) != metadata["checksum"]:
        raise damaged(name, "its checksum does not match its content")
    try:
        header = decode_header(metadata["header"])
        arrays = {key: _from_stored(*rest) for key, *rest in parts}
    except (LookupError, ValueError, RecursionError) as error:
        raise damaged(name, "its content is not what a dfwtrace file holds") from error
    return Container(header, arrays)


def _checksum(
    kind: str, header: str, parts: Iterable[tuple[str, str, tuple[int, ...], Any]]
) -> str:
    """Of everything that is read back; each text with its length, so that none runs into another.

    `parts` are the name, dtype, shape and bytes of each array, in any order.
    """
    digest = blake2b(digest_size=32)

    def add(text: str) -> None:
        encoded = text.encode("utf-8")
        digest.update(len(encoded).to_bytes(8, "little") + encoded)

    add(kind)
    add(header)
    for name, code, shape, data in sorted(parts, key=lambda part: part[0]):
        add(name)
        add(code)
        add(",".join(map(str, shape)))
        digest.update(data)
    return digest.hexdigest()


def _as_stored(name: Any, array: Any) -> Array:
    """Little-endian and C-contiguous: safetensors writes memory as it lies."""
    if not isinstance(name, str) or not name or not name.isprintable() or name == METADATA:
        raise ValueError(f"arrays must have names that can be printed, got {describe(name)}.")
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"arrays[{name!r}] must be a NumPy array, got {describe(array)}.")
    if array.dtype.name not in STORED:
        raise TypeError(f"arrays[{name!r}] must be of {', '.join(STORED)}, got {array.dtype.name}.")
    # ascontiguousarray would make a 0-d array one of shape (1,).
    stored: Array = np.asarray(array, dtype=STORED[array.dtype.name][1], order="C")
    if not _has_true_booleans(stored):
        raise ValueError(f"arrays[{name!r}] must hold booleans that are 0 or 1 in memory.")
    return stored


def _from_stored(code: str, shape: tuple[int, ...], data: bytearray) -> Array:
    array = np.frombuffer(data, dtype=DTYPES[code]).reshape(shape)
    if not _has_true_booleans(array):
        raise ValueError("a boolean is neither 0 nor 1")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _has_true_booleans(array: Array) -> bool:
    """NumPy counts on them being 0 or 1 to the point of writing out of bounds."""
    return array.dtype != np.bool_ or int(array.view(np.uint8).max(initial=0)) <= 1
