"""Damaged and hostile files: refused in one sentence, or read as what was written."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from dfwtrace.files import container
from dfwtrace.files.container import (
    Container,
    ModelFormatError,
    peek,
    read_container,
    write_container,
)

HEADER: dict[str, Any] = {"radius": 3.5, "gap": math.inf, "classes": ["a", "ü"], "$": None}
ARRAYS: dict[str, Any] = {
    "U": np.arange(6.0).reshape(3, 2),
    "s": np.array([2.0, np.nan], dtype=np.float32),
    "seen": np.array([True, False, True]),
    "empty": np.zeros((0, 4), dtype=np.int64),
    "epoch": np.array(7, dtype=np.int32),
    "bytes": np.arange(5, dtype=np.uint8),
}
Reader = Callable[[bytes], "Container | None"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small file with something of everything."""
    path = tmp_path_factory.mktemp("fuzz") / "whole.safetensors"
    write_container(path, "model", HEADER, ARRAYS)
    return path.read_bytes()


@pytest.fixture
def read(tmp_path: Path) -> Reader:
    path = tmp_path / "m.safetensors"

    def read(content: bytes) -> Container | None:
        """What the content holds, or None where it is refused as it should be."""
        path.write_bytes(content)
        try:
            return read_container(path, "model")
        except ModelFormatError as error:
            message = str(error)
            assert message.startswith(f"{path} ")
            assert message.endswith(".")
            assert len(message) < 300
            assert message.isprintable()
            return None

    return read


def assert_as_written(content: Container) -> None:
    assert content.header == HEADER
    assert content.arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert content.arrays[name].dtype == array.dtype
        assert content.arrays[name].shape == array.shape
        assert content.arrays[name].tobytes() == array.tobytes()


def count_refused(read: Reader, contents: Iterable[bytes]) -> int:
    """How many are refused; the others must be read as what was written."""
    refused = 0
    for content in contents:
        found = read(content)
        if found is None:
            refused += 1
        else:
            assert_as_written(found)
    return refused


# Damage


def test_truncations_are_refused(whole: bytes, read: Reader, tmp_path: Path) -> None:
    assert_as_written(read(whole))  # type: ignore[arg-type]
    for length in (*range(20), *range(20, len(whole), 7), len(whole) - 1):
        assert read(whole[:length]) is None
        with pytest.raises(ModelFormatError):
            peek(tmp_path / "m.safetensors")


def test_changed_bits_are_refused_or_do_no_harm(whole: bytes, read: Reader) -> None:
    """They all count but for blanks and the name of the version."""
    rng, end = random.Random(0), 8 + int.from_bytes(whole[:8], "little")

    def flipped(positions: range) -> Iterable[bytes]:
        for position in positions:
            content = bytearray(whole)
            content[position] ^= 1 << rng.randrange(8)
            yield bytes(content)

    header, arrays = range(0, end, 3), range(end, len(whole))
    assert count_refused(read, flipped(header)) > 0.9 * len(header)
    assert count_refused(read, flipped(arrays)) == len(arrays)


def test_changed_bytes_and_moved_pieces_are_refused_or_do_no_harm(
    whole: bytes, read: Reader
) -> None:
    rng, changed = random.Random(1), [whole + b"\0", b"\0" + whole, whole + whole]
    for n_changes in (1, 2, 5):
        for _ in range(80):
            content = bytearray(whole)
            for _ in range(n_changes):
                content[rng.randrange(len(whole))] = rng.randrange(256)
            changed.append(bytes(content))
    for _ in range(60):
        a, b, c = sorted(rng.randrange(len(whole) + 1) for _ in range(3))
        changed += [
            whole[:a] + whole[b:],
            whole[:b] + whole[a:],
            whole[:a] + whole[b:c] + whole[a:b] + whole[c:],
            whole[:a] + bytes(b - a) + whole[b:],
        ]
    assert count_refused(read, changed) > 0.9 * len(changed)


def test_garbage_is_refused(read: Reader) -> None:
    rng = random.Random(0)
    garbage = [rng.randbytes(rng.randrange(400)) for _ in range(80)]
    garbage += [framed(rng.randbytes(rng.randrange(400))) for _ in range(80)]
    garbage += [framed(b"{" + rng.randbytes(rng.randrange(400))) for _ in range(80)]
    assert count_refused(read, garbage) == len(garbage)


# Hostility: files that are framed well, with checksums that are right where they matter


def framed(header: bytes | str, data: bytes = b"") -> bytes:
    raw = header if isinstance(header, bytes) else header.encode()
    return len(raw).to_bytes(8, "little") + raw + data


def split(whole: bytes) -> tuple[dict[str, Any], bytes]:
    end = 8 + int.from_bytes(whole[:8], "little")
    return json.loads(whole[8:end]), whole[end:]


def signed(header: str, arrays: dict[str, Any] | None = None) -> bytes:
    """A file with a right checksum over any text as its header."""
    return safetensors.numpy.save(
        arrays or {},
        {
            "format": "dfwtrace",
            "format_version": "1",
            "kind": "model",
            "written_by": "1",
            "header": header,
            "checksum": container._checksum("model", header, arrays or {}),
        },
    )


@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 2**63 - 1, 2**40, 10**8 + 1, 10**8, 1, 0])
def test_header_lengths_that_are_not_true_are_refused(
    length: int, whole: bytes, read: Reader
) -> None:
    assert read(length.to_bytes(8, "little") + whole[8:]) is None


def test_the_longest_header_is_parsed_without_harm(read: Reader) -> None:
    assert read(framed(b"{" + b" " * 99_999_999)) is None
    assert read(framed(b"{" + b" " * 100_000_000)) is None


@pytest.mark.parametrize("opening", ["[", '{"a":', "[[],"])
def test_deep_nesting_is_refused(opening: str, whole: bytes, read: Reader) -> None:
    closing = {"[": "]", '{"a":': "}", "[[],": "]"}[opening]
    header, data = split(whole)
    plain = json.dumps(header)
    for depth in (100, 100_000):
        deep = opening * depth + "1" + closing * depth
        files = [
            framed(deep),
            framed(f'{{"a":{deep}}}'),
            framed(f'{plain[:-1]},"a":{deep}}}', data),
            framed(plain.replace('"model"', deep), data),
            framed(plain.replace("[3, 2]", deep), data),
        ]
        assert plain.replace("[3, 2]", deep) != plain
        assert count_refused(read, files) == len(files)
    assert read(signed(f'{{"a":{deep}}}')) is None
    assert read(signed(f'{{"$float":{deep}}}')) is None


OWN_HEADERS = [
    *("", "{", "[]", "1", "null", '"a"', "{}{}", '{"a":1,}', "{'a':1}", "\ufeff{}"),
    *('{"$float":"nan"}', '{"a":{"$float":"x"}}', '{"a":{"$float":1}}', '{"a":01}'),
    *('{"a":{"$float":["nan"]}}', '{"a":{"$float":{"$float":"nan"}}}', '{"a":' + "9" * 9999),
    '{"a":' + "9" * 9999 + "}",
]


@pytest.mark.parametrize("header", OWN_HEADERS, ids=lambda header: ascii(header)[:30])
def test_a_header_that_was_never_written_is_refused(header: str, read: Reader) -> None:
    assert read(signed(header)) is None


def test_booleans_beyond_0_and_1_are_refused(read: Reader) -> None:
    fine = read(signed("{}", {"x": np.array([0, 1], dtype=np.uint8).view(bool)}))
    assert fine is not None
    assert fine.arrays["x"].tolist() == [False, True]
    for byte in (2, 128, 255):
        array = np.array([0, 1, byte], dtype=np.uint8).view(bool)
        assert read(signed("{}", {"x": array})) is None


Change = Callable[[dict[str, Any]], object]
CHANGES: dict[str, Change] = {
    "no entry": lambda h: h.update(U=None),
    "more in an entry": lambda h: h["U"].update(shape=[3, 2], more={}, dtype="F32"),
    "no dtype": lambda h: h["U"].pop("dtype"),
    "no shape": lambda h: h["U"].pop("shape"),
    "no offsets": lambda h: h["U"].pop("data_offsets"),
    "unknown dtype": lambda h: h["U"].update(dtype="F65"),
    "a dtype that NumPy lacks": lambda h: h["s"].update(dtype="BF16", shape=[4]),
    "half precision": lambda h: h["s"].update(dtype="F16", shape=[4]),
    "complex numbers": lambda h: h["s"].update(dtype="C64", shape=[1]),
    "dtype of the same size": lambda h: h["U"].update(dtype="I64"),
    "dtype is a list": lambda h: h["U"].update(dtype=["F64"]),
    "shape turned": lambda h: h["U"].update(shape=[2, 3]),
    "shape flat": lambda h: h["U"].update(shape=[6]),
    "shape too large": lambda h: h["U"].update(shape=[3, 3]),
    "shape negative": lambda h: h["U"].update(shape=[-3, -2]),
    "shape of floats": lambda h: h["U"].update(shape=[3.0, 2.0]),
    "shape of text": lambda h: h["U"].update(shape="32"),
    "shape of many ones": lambda h: h["U"].update(shape=[3, 2] + [1] * 100_000),
    "shape that overflows": lambda h: h["U"].update(shape=[2**32, 2**32, 6]),
    "shape of huge numbers": lambda h: h["U"].update(shape=[10**4000]),
    "empty but huge": lambda h: h["empty"].update(shape=[0, 2**62]),
    "empty but huge beyond 64 bits": lambda h: h["empty"].update(shape=[0, 2**62, 2**62]),
    "empty otherwise": lambda h: h["empty"].update(shape=[4, 0]),
    "offsets turned": lambda h: h["U"].update(data_offsets=h["U"]["data_offsets"][::-1]),
    "offsets of one": lambda h: h["U"].update(data_offsets=[0]),
    "offsets beyond the end": lambda h: h["U"].update(data_offsets=[2**40, 2**40 + 48]),
    "offsets of huge numbers": lambda h: h["U"].update(data_offsets=[2**64, 2**64 + 48]),
    "offsets negative": lambda h: h["U"].update(data_offsets=[-48, 0]),
    "overlap": lambda h: h["U"].update(data_offsets=h["seen"]["data_offsets"]),
    "an array twice": lambda h: h.update(again=h["U"]),
    "an array less": lambda h: h.pop("U"),
    "an empty array less": lambda h: h.pop("empty"),
    "an empty array more": lambda h: h.update(more=h["empty"]),
    "another name": lambda h: h.update(V=h.pop("U")),
    "half a surrogate pair": lambda h: h.update({"\ud800": h.pop("U")}),
    "no metadata": lambda h: h.pop("__metadata__"),
    "metadata are text": lambda h: h.update(__metadata__="format"),
    "format is an object": lambda h: h["__metadata__"].update(format={}),
    "version is a number": lambda h: h["__metadata__"].update(format_version=1),
    "version in other digits": lambda h: h["__metadata__"].update(format_version="١"),
    "kind is null": lambda h: h["__metadata__"].update(kind=None),
    "kind is another": lambda h: h["__metadata__"].update(kind="x" * 1000),
    "header has half a pair": lambda h: h["__metadata__"].update(header='{"a":"\ud800"}'),
    "checksum beyond ASCII": lambda h: h["__metadata__"].update(checksum="ß"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_headers_that_lie_are_refused(name: str, whole: bytes, read: Reader) -> None:
    header, data = split(whole)
    assert_as_written(read(framed(json.dumps(header), data)))  # type: ignore[arg-type]
    CHANGES[name](header)
    assert read(framed(json.dumps(header), data)) is None


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "utf-16-le"])
def test_other_encodings_are_refused(encoding: str, whole: bytes, read: Reader) -> None:
    header, data = split(whole)
    assert read(framed(json.dumps(header).encode(encoding), data)) is None


def test_arrays_of_any_order_in_the_header_are_read(whole: bytes, read: Reader) -> None:
    header, data = split(whole)
    assert_as_written(
        read(framed(json.dumps(dict(reversed(header.items()))), data))  # type: ignore[arg-type]
    )
