"""The file format of models, results and checkpoints: named arrays and a JSON header.

A container is a safetensors file, so any reader of that format opens it. Its metadata are

- ``format`` ("dfwtrace"), ``kind`` ("model", "result" or "checkpoint"), ``format_version`` (a
  number for each kind) and ``written_by`` (the version of dfwtrace);
- ``header``: strict JSON. The floats that JSON lacks are ``{"$float": "nan"}``, ``"inf"`` or
  ``"-inf"``; keys of the header that start with ``$`` have one ``$`` more in the file;
- ``checksum``: BLAKE2b of the kind, the header, and every array's name, dtype, shape and bytes.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from importlib.metadata import version
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import safetensors
import safetensors.numpy

from dfwtrace._typing import Array
from dfwtrace.files.atomic import atomic_write

#: None, bool, int, float, str, or a list or a dict (with str keys) of them.
JSON: TypeAlias = Any
#: The number of each kind's format, raised when a version can no longer read the one before.
FORMAT_VERSIONS = {"model": 1, "result": 1, "checkpoint": 2}
#: The safetensors code of each dtype that a container holds.
DTYPES = {"float64": "F64", "float32": "F32", "int64": "I64", "int32": "I32", "uint64": "U64"}
DTYPES |= {"uint8": "U8", "bool": "BOOL"}
_READERS = {"model": "dfwtrace.load", "result": "dfwtrace.Result.load"}
_METADATA = {"format", "format_version", "kind", "written_by", "header", "checksum"}
_LONGEST_HEADER = 50_000_000  # safetensors allows twice as many bytes, and escapes quotes
_NOT_IN_JSON = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class ModelFormatError(ValueError):
    """A file that cannot be read: damaged, of another kind, or not one of dfwtrace's."""


class Container(NamedTuple):
    """The content of a file; its arrays are C-contiguous and writable."""

    header: dict[str, JSON]
    arrays: dict[str, Array]


def write_container(
    path: str | os.PathLike[str], kind: str, header: dict[str, JSON], arrays: Mapping[str, Array]
) -> None:
    """Write a header and arrays, of the dtypes in `DTYPES`, to a file, whole or not at all."""
    text = json.dumps(_to_json(header), separators=(",", ":"), allow_nan=False)
    # In C order, because safetensors writes memory as it lies; np.ascontiguousarray would give a
    # 0-d array the shape (1,).
    stored = {name: np.asarray(a, a.dtype.newbyteorder("="), "C") for name, a in arrays.items()}
    metadata = {
        "format": "dfwtrace",
        "format_version": str(FORMAT_VERSIONS[kind]),
        "kind": kind,
        "written_by": version("dfwtrace"),
        "header": text,
        "checksum": _checksum(kind, text, stored),
    }
    if len(text) > _LONGEST_HEADER:
        raise ValueError(f"header must be shorter, got {len(text):,} bytes of JSON.")
    content = safetensors.numpy.save(stored, metadata)
    with atomic_write(path) as file:
        file.write(content)


def read_container(path: str | os.PathLike[str], kind: str) -> Container:
    """Read what `write_container` wrote; a `ModelFormatError` says what is wrong with the file."""
    name = os.fspath(path)
    with _opened(name, kind) as (file, metadata):
        try:
            np.empty(os.path.getsize(path), np.uint8)  # safetensors panics where memory is short
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  # no dict
            checksum = _checksum(kind, metadata["header"], arrays)
            flags = [a.view(np.uint8) for a in arrays.values() if a.dtype == np.bool_]
            if any(flag.max(initial=0) > 1 for flag in flags):
                raise ValueError("NumPy relies on booleans that are 0 or 1 in memory")
        except MemoryError as error:
            raise ModelFormatError(f"{name} is too large for the memory.") from error
        except Exception as error:  # also dtypes and shapes that NumPy lacks
            raise _damaged(name, "it holds arrays that dfwtrace does not write") from error
    if checksum != metadata["checksum"]:
        raise _damaged(name, "its checksum does not match its content")
    try:
        header = json.loads(metadata["header"], object_hook=_from_json)
        if not isinstance(header, dict):
            raise ValueError("the header is not an object")
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise _damaged(name, "its header is not valid") from error
    return Container(header, arrays)


def peek(path: str | os.PathLike[str], kind: str | None = None) -> str:
    """Return the kind of a file, which may be asked for, from its first bytes alone."""
    with _opened(os.fspath(path), kind) as (_, metadata):
        return metadata["kind"]


@contextmanager
def _opened(name: str, asked: str | None) -> Iterator[tuple[Any, dict[str, str]]]:
    """The file as safetensors opens it, and its metadata, checked."""
    if not stat.S_ISREG(os.stat(name).st_mode):  # a pipe would wait forever, a device never end
        raise ModelFormatError(f"{name} is a folder, a pipe or a device, not a regular file.")
    try:
        file: Any = safetensors.safe_open(name, framework="np")
    except (MemoryError, OSError, UnicodeError, safetensors.SafetensorError) as error:
        why = "is not a safetensors file, is cut short or damaged, or too large for the memory"
        raise ModelFormatError(f"{name} {why}.") from error
    with file:
        metadata = file.metadata() or {}
        if metadata.get("format") != "dfwtrace":
            raise ModelFormatError(f"{name} is a safetensors file, but not one of dfwtrace's.")
        kind, by = metadata.get("kind", ""), metadata.get("written_by", "")
        # A checkpoint is the memory of one version's solvers, which another one has not.
        foreign = kind == "checkpoint" and by != version("dfwtrace")
        if foreign or metadata.get("format_version") != str(FORMAT_VERSIONS.get(kind)):
            raise ModelFormatError(
                f"{name} was written by dfwtrace {by:.40} in a format that this version, "
                f"{version('dfwtrace')}, does not read; start again without it or use that version."
            )
        if metadata.keys() != _METADATA:
            raise _damaged(name, "its metadata are not complete")
        if asked not in (None, kind):
            reader = f": {_READERS[kind]} reads it" if kind in _READERS else ""
            raise ModelFormatError(f"{name} holds a {kind}, not a {asked}{reader}.")
        yield file, metadata


@contextmanager
def whole(path: str | os.PathLike[str], kind: str) -> Iterator[None]:
    """Turn whatever can be wrong in the content, which others may have made, into a sentence."""
    try:
        yield
    except Exception as error:
        why = f"no {error}" if isinstance(error, KeyError) else str(error).rstrip(".")
        raise ModelFormatError(f"{os.fspath(path)} is not a whole {kind}: {why}.") from error


def plain(named: Mapping[str, object]) -> dict[str, JSON]:
    """Return the numbers and strings among some values, as JSON has them."""
    return {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in named.items()
        if isinstance(value, bool | int | float | str | np.generic | None)
    }


def _checksum(kind: str, header: str, arrays: Mapping[str, Array]) -> str:
    """Digest of the content; each text with its length, so that none runs into another."""
    digest = blake2b(digest_size=32)

    def add(*texts: str) -> None:
        for encoded in (text.encode("utf-8") for text in texts):
            digest.update(len(encoded).to_bytes(8, "little") + encoded)

    add(kind, header)
    for name, array in sorted(arrays.items()):
        add(name, DTYPES[array.dtype.name], ",".join(map(str, array.shape)))
        little_endian = array.astype(array.dtype.newbyteorder("<"), copy=False)
        digest.update(little_endian.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _to_json(value: JSON) -> JSON:
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": repr(float(value))}
    if isinstance(value, list):
        return [_to_json(item) for item in value]
    if isinstance(value, dict):
        return {("$" + key if key[:1] == "$" else key): _to_json(value[key]) for key in value}
    return value


def _from_json(value: dict[str, JSON]) -> JSON:
    if list(value) == ["$float"]:
        return _NOT_IN_JSON[value["$float"]]
    return {key.removeprefix("$"): item for key, item in value.items()}


def _damaged(name: str, why: str) -> ModelFormatError:
    return ModelFormatError(f"{name} is damaged: {why}.")
