"""Damaged and hostile files: refused in one sentence, or read as what was written."""

from __future__ import annotations

import io
import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from dfwtrace.io import container
from dfwtrace.io.container import (
    Container,
    ModelFormatError,
    parse,
    peek,
    read_container,
    write_container,
)

HEADER: dict[str, Any] = {"radius": 3.5, "gap": math.inf, "classes": ["a", "ü"], "$": None}
ARRAYS = {
    "U": np.arange(6.0).reshape(3, 2),
    "s": np.array([2.0, 1.0], dtype=np.float32),
    "seen": np.array([True, False, True]),
    "empty": np.zeros((0, 4), dtype=np.int64),
    "epoch": np.array(7, dtype=np.int32),
    "bytes": np.arange(5, dtype=np.uint8),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small file with something of everything."""
    path = tmp_path_factory.mktemp("fuzz") / "whole.safetensors"
    write_container(path, "model", HEADER, ARRAYS)
    return path.read_bytes()


def read(content: bytes) -> Container | None:
    """What the content holds, or None where it is refused as it should be."""
    try:
        return parse(io.BytesIO(content), len(content), "model", "m.safetensors")
    except ModelFormatError as error:
        message = str(error)
        assert message.startswith("m.safetensors ")
        assert message.endswith(".")
        assert len(message) < 200
        assert message.isprintable()
        return None


def assert_as_written(content: Container) -> None:
    assert content.header == HEADER
    assert content.arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert content.arrays[name].dtype == array.dtype
        assert content.arrays[name].shape == array.shape
        assert content.arrays[name].tobytes() == array.tobytes()


def count_refused(contents: list[bytes]) -> int:
    """How many are refused; the others must be read as what was written."""
    found = [read(content) for content in contents]
    for content in found:
        if content is not None:
            assert_as_written(content)
    return found.count(None)


# Damage


def test_the_whole_file_is_read(whole: bytes) -> None:
    content = read(whole)
    assert content is not None
    assert_as_written(content)


def test_every_truncation_is_refused(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ModelFormatError, match=r"m\.safetensors is .*\.$"):
            read_container(path, "model")
        with pytest.raises(ModelFormatError, match=r"m\.safetensors is .*\.$"):
            peek(path)


@pytest.mark.parametrize("more", [b"\0", b"\n", b"x" * 1000])
def test_bytes_too_many_are_refused(more: bytes, whole: bytes) -> None:
    assert count_refused([whole + more, more + whole]) == 2


def test_every_flipped_bit_is_refused_or_does_no_harm(whole: bytes) -> None:
    flipped = []
    for position in range(len(whole)):
        for bit in range(8):
            content = bytearray(whole)
            content[position] ^= 1 << bit
            flipped.append(bytes(content))
    # Harmless: blanks after the header that become other blanks, and who wrote the file.
    assert count_refused(flipped) > 0.9 * len(flipped)
    header_end = 8 + int.from_bytes(whole[:8], "little")
    assert count_refused(flipped[8 * header_end :]) == 8 * (len(whole) - header_end)


@pytest.mark.parametrize("n_changes", [1, 2, 5])
def test_random_bytes_in_random_places_are_refused_or_do_no_harm(
    n_changes: int, whole: bytes
) -> None:
    rng = random.Random(n_changes)
    changed = []
    for _ in range(10_000):
        content = bytearray(whole)
        for _ in range(n_changes):
            content[rng.randrange(len(whole))] = rng.randrange(256)
        changed.append(bytes(content))
    assert count_refused(changed) > 0.9 * len(changed)


def test_pieces_cut_out_doubled_or_moved_are_refused_or_do_no_harm(whole: bytes) -> None:
    rng = random.Random(0)
    changed = []
    for _ in range(2_000):
        a, b, c = sorted(rng.randrange(len(whole) + 1) for _ in range(3))
        changed += [
            whole[:a] + whole[b:],
            whole[:b] + whole[a:],
            whole[:a] + whole[b:c] + whole[a:b] + whole[c:],
            whole[:a] + bytes(b - a) + whole[b:],
        ]
    assert count_refused(changed) > 0.9 * len(changed)


def test_damage_in_real_files(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    rng = random.Random(0)
    refused = 0
    for _ in range(500):
        content = bytearray(whole)
        content[rng.randrange(len(whole))] ^= rng.randrange(1, 256)
        path.write_bytes(content)
        try:
            assert_as_written(read_container(path, "model"))
        except ModelFormatError:
            refused += 1
        try:
            assert peek(path).isascii()
        except ModelFormatError:
            refused += 1
    assert refused > 500


def test_garbage_is_refused() -> None:
    rng = random.Random(0)
    garbage = [rng.randbytes(rng.randrange(400)) for _ in range(5_000)]
    garbage += [framed(rng.randbytes(rng.randrange(400))) for _ in range(5_000)]
    garbage += [framed(b"{" + rng.randbytes(rng.randrange(400))) for _ in range(5_000)]
    assert count_refused(garbage) == len(garbage)


# Hostility: files that are framed well, with checksums that are right where they matter


def framed(header: bytes | str, data: bytes = b"") -> bytes:
    raw = header if isinstance(header, bytes) else header.encode()
    return len(raw).to_bytes(8, "little") + raw + data


def split(whole: bytes) -> tuple[dict[str, Any], bytes]:
    end = 8 + int.from_bytes(whole[:8], "little")
    return json.loads(whole[8:end]), whole[end:]


def signed(header: str, arrays: dict[str, Any] | None = None) -> bytes:
    """A file with a right checksum over any text as its header."""
    arrays = arrays or {}
    parts = [(name, "BOOL", array.shape, array.tobytes()) for name, array in arrays.items()]
    return safetensors.numpy.save(
        arrays,
        {
            "format": "dfwtrace",
            "format_version": "1",
            "kind": "model",
            "written_by": "1",
            "header": header,
            "checksum": container._checksum("model", header, parts),
        },
    )


@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 2**63 - 1, 2**40, 10**8 + 1, 10**8, 1, 0])
def test_header_lengths_that_are_not_true_are_refused(length: int, whole: bytes) -> None:
    assert read(length.to_bytes(8, "little") + whole[8:]) is None


def test_the_longest_header_is_parsed_without_harm() -> None:
    assert read(framed(b"{" + b" " * (container.LONGEST_HEADER - 1))) is None
    assert read(framed(b"{" + b" " * container.LONGEST_HEADER)) is None


@pytest.mark.parametrize("opening", ["[", '{"a":', "[[],"])
@pytest.mark.parametrize("depth", [100, 10_000, 1_000_000])
def test_deep_nesting_is_refused(opening: str, depth: int, whole: bytes) -> None:
    closing = {"[": "]", '{"a":': "}", "[[],": "]"}[opening]
    deep = opening * depth + "1" + closing * depth
    header, data = split(whole)
    plain = json.dumps(header)
    files = [
        framed(deep),
        framed(f'{{"a":{deep}}}'),
        framed(f'{plain[:-1]},"a":{deep}}}', data),
        framed(plain.replace('"model"', deep), data),
        framed(plain.replace("[3, 2]", deep), data),
    ]
    assert plain.replace("[3, 2]", deep) != plain
    assert count_refused(files) == len(files)


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_deep_nesting_in_our_own_header_ends_well(opening: str) -> None:
    closing = {"[": "]", '{"a":': "}"}[opening]
    deep = 100_000
    assert read(signed(f'{{"a":{opening * deep}1{closing * deep}}}')) is None
    assert read(signed(f'{{"$float":{opening * deep}1{closing * deep}}}')) is None
    shallow = read(signed(f'{{"a":{opening * 10}1{closing * 10}}}'))
    assert shallow is not None
    assert list(shallow.header) == ["a"]


OWN_HEADERS = [
    *("", "{", "[]", "1", "null", '"a"', "{}{}", '{"a":1,}', "{'a':1}", "\ufeff{}"),
    *('{"a":1,"a":1}', '{"a":{"b":1,"b":2}}', '{"$a":1}', '{"$$a":1,"$b":2}', '{"$float":"nan"}'),
    *('{"a":{"$float":"x"}}', '{"a":{"$float":1}}', '{"a":{"$float":["nan"]}}', '{"a":01}'),
    *('{"a":{"$float":{"$float":"nan"}}}', '{"a":{"$float":"nan","b":1}}', '{"a":' + "9" * 9999),
    '{"a":' + "9" * 9999 + "}",
]


@pytest.mark.parametrize("header", OWN_HEADERS, ids=lambda header: ascii(header)[:30])
def test_a_header_that_was_never_written_is_refused(header: str) -> None:
    assert read(signed(header)) is None


def test_booleans_beyond_0_and_1_are_refused() -> None:
    fine = read(signed("{}", {"x": np.array([0, 1], dtype=np.uint8).view(bool)}))
    assert fine is not None
    assert fine.arrays["x"].tolist() == [False, True]
    for byte in (2, 128, 255):
        array = np.array([0, 1, byte], dtype=np.uint8).view(bool)
        assert read(signed("{}", {"x": array})) is None


Change = Callable[[dict[str, Any]], object]
CHANGES: dict[str, Change] = {
    "no entry": lambda h: h.update(U=None),
    "entry is a list": lambda h: h.update(U=[]),
    "more in an entry": lambda h: h["U"].update(more=1),
    "no dtype": lambda h: h["U"].pop("dtype"),
    "no shape": lambda h: h["U"].pop("shape"),
    "no offsets": lambda h: h["U"].pop("data_offsets"),
    "unknown dtype": lambda h: h["U"].update(dtype="F65"),
    "another dtype": lambda h: h["U"].update(dtype="BF16"),
    "dtype of the same size": lambda h: h["U"].update(dtype="I64"),
    "dtype is a list": lambda h: h["U"].update(dtype=["F64"]),
    "dtype is an object": lambda h: h["U"].update(dtype={}),
    "shape turned": lambda h: h["U"].update(shape=[2, 3]),
    "shape flat": lambda h: h["U"].update(shape=[6]),
    "shape too large": lambda h: h["U"].update(shape=[3, 3]),
    "shape negative": lambda h: h["U"].update(shape=[-3, -2]),
    "shape of floats": lambda h: h["U"].update(shape=[3.0, 2.0]),
    "shape of booleans": lambda h: h["U"].update(shape=[6, True]),
    "shape of text": lambda h: h["U"].update(shape="32"),
    "shape is a number": lambda h: h["U"].update(shape=6),
    "shape of many ones": lambda h: h["U"].update(shape=[3, 2] + [1] * 100_000),
    "shape that overflows": lambda h: h["U"].update(shape=[2**32, 2**32, 6]),
    "shape of huge numbers": lambda h: h["U"].update(shape=[10**4000]),
    "empty but huge": lambda h: h["empty"].update(shape=[0, 2**62]),
    "empty but huge beyond 64 bits": lambda h: h["empty"].update(shape=[0, 2**62, 2**62]),
    "empty otherwise": lambda h: h["empty"].update(shape=[4, 0]),
    "offsets turned": lambda h: h["U"].update(data_offsets=h["U"]["data_offsets"][::-1]),
    "offsets of one": lambda h: h["U"].update(data_offsets=[0]),
    "offsets of three": lambda h: h["U"].update(data_offsets=[0, 48, 48]),
    "offsets beyond the end": lambda h: h["U"].update(data_offsets=[2**40, 2**40 + 48]),
    "offsets of huge numbers": lambda h: h["U"].update(data_offsets=[2**64, 2**64 + 48]),
    "offsets negative": lambda h: h["U"].update(data_offsets=[-48, 0]),
    "offsets of text": lambda h: h["U"].update(data_offsets=["0", "48"]),
    "offsets null": lambda h: h["U"].update(data_offsets=None),
    "overlap": lambda h: h["U"].update(data_offsets=h["seen"]["data_offsets"]),
    "an array twice": lambda h: h.update(again=h["U"]),
    "an array less": lambda h: h.pop("U"),
    "an empty array less": lambda h: h.pop("empty"),
    "an empty array more": lambda h: h.update(more=h["empty"]),
    "another name": lambda h: h.update(V=h.pop("U")),
    "two names swapped": lambda h: h.update(epoch=h["bytes"], bytes=h["epoch"]),
    "half a surrogate pair": lambda h: h.update({"\ud800": h.pop("U")}),
    "no metadata": lambda h: h.pop("__metadata__"),
    "metadata are a list": lambda h: h.update(__metadata__=[]),
    "metadata are text": lambda h: h.update(__metadata__="format"),
    "format is an object": lambda h: h["__metadata__"].update(format={}),
    "version is a number": lambda h: h["__metadata__"].update(format_version=1),
    "version in other digits": lambda h: h["__metadata__"].update(format_version="١"),
    "kind is null": lambda h: h["__metadata__"].update(kind=None),
    "header is an object": lambda h: h["__metadata__"].update(header={}),
    "header has half a pair": lambda h: h["__metadata__"].update(header='{"a":"\ud800"}'),
    "written by half a pair": lambda h: h["__metadata__"].update(written_by="\ud800"),
    "checksum is a number": lambda h: h["__metadata__"].update(checksum=1),
    "checksum beyond ASCII": lambda h: h["__metadata__"].update(checksum="ß"),
}


# These fit the file's size, so that only the checksum or the library tells.
SEEN_WHEN_READ = {
    *("dtype of the same size", "shape turned", "shape flat", "empty otherwise", "another name"),
    *("an empty array less", "an empty array more", "two names swapped", "checksum beyond ASCII"),
    *("half a surrogate pair", "header has half a pair", "written by half a pair"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_headers_that_lie_are_refused(name: str, whole: bytes, tmp_path: Path) -> None:
    header, data = split(whole)
    unchanged = read(framed(json.dumps(header), data))
    assert unchanged is not None
    assert_as_written(unchanged)
    CHANGES[name](header)
    content = framed(json.dumps(header), data)
    assert read(content) is None
    path = tmp_path / "m.safetensors"
    path.write_bytes(content)
    with pytest.raises(ModelFormatError, match=r"m\.safetensors is .*\.$"):
        read_container(path, "model")
    if name in SEEN_WHEN_READ:
        assert peek(path) == "model"
    else:
        with pytest.raises(ModelFormatError, match=r"m\.safetensors is .*\.$"):
            peek(path)


def test_keys_that_come_twice_are_refused(whole: bytes) -> None:
    header, data = split(whole)
    text = json.dumps(header)
    for key, values in (("U", header), ("kind", header["__metadata__"]), ("dtype", header["U"])):
        again = f"{json.dumps(key)}: {json.dumps(values[key])}"
        assert again in text
        assert read(framed(text.replace(again, f"{again}, {again}", 1), data)) is None
    metadata = f'"__metadata__": {json.dumps(header["__metadata__"])}'
    assert read(framed(text.replace(metadata, f"{metadata}, {metadata}"), data)) is None


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "utf-16-le"])
def test_other_encodings_are_refused(encoding: str, whole: bytes, tmp_path: Path) -> None:
    header, data = split(whole)
    content = framed(json.dumps(header).encode(encoding), data)
    assert read(content) is None
    (tmp_path / "m.safetensors").write_bytes(content)
    with pytest.raises(ModelFormatError, match="or its header is damaged"):
        peek(tmp_path / "m.safetensors")


def test_numbers_and_names_that_json_lacks_are_refused(whole: bytes) -> None:
    header, data = split(whole)
    text = json.dumps(header)
    for word in ("NaN", "Infinity", "-Infinity", "-0", "3e0", "0x3", "9" * 5000):
        changed = text.replace("[3, 2]", f"[{word}, 2]")
        assert changed != text
        assert read(framed(changed, data)) is None


def test_arrays_of_any_order_in_the_header_are_read(whole: bytes) -> None:
    header, data = split(whole)
    content = read(framed(json.dumps(dict(reversed(header.items()))), data))
    assert content is not None
    assert_as_written(content)
