"""Files of arrays and a header: what goes in comes out, and what is wrong is named."""

from __future__ import annotations

import json
import math
import os
import pickle
import resource
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dfwtrace.files.container import (
    DTYPES,
    Container,
    ModelFormatError,
    peek,
    read_container,
    write_container,
)

HEADER: dict[str, Any] = {"radius": 3.0, "classes": ["a", "ü"], "seed": 2**127 + 1}
ARRAYS = {"U": np.arange(6.0).reshape(3, 2), "s": np.array([2.0, 1.0], dtype=np.float32)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


def round_trip(path: Path, header: Any, arrays: Any) -> Container:
    write_container(path, "model", header, arrays)
    return read_container(path, "model")


def assert_same_array(read: Any, written: Any) -> None:
    assert read.shape == written.shape
    assert read.dtype == written.dtype.newbyteorder("=")
    assert read.dtype.isnative
    assert read.tobytes() == np.asarray(written, dtype=read.dtype).tobytes()
    assert read.flags.c_contiguous
    assert read.flags.writeable


# Arrays


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_memory_order_comes_back_the_right_way_round(dtype: str, path: Path) -> None:
    array = np.arange(24).reshape(4, 6).astype(dtype)
    arrays = {
        "fortran": np.asfortranarray(array),
        "transposed": array.T,
        "strided": array[::2, 1::3],
        "backwards": array[::-1, ::-1],
        "spread": np.broadcast_to(array[0], (3, 6)),
        "swapped": array.astype(array.dtype.newbyteorder(">")),
        "swapped and transposed": array.astype(array.dtype.newbyteorder(">")).T,
    }
    read = round_trip(path, {}, arrays)
    assert read.arrays.keys() == arrays.keys()
    for name, written in arrays.items():
        assert_same_array(read.arrays[name], written)


@settings(max_examples=60)
@given(
    hnp.arrays(
        st.sampled_from([*DTYPES]).map(np.dtype),
        hnp.array_shapes(min_dims=0, min_side=0, max_side=4),
    )
)
def test_any_array_comes_back(tmp_path_factory: pytest.TempPathFactory, array: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    assert_same_array(round_trip(path, {}, {"x": array}).arrays["x"], array)


def test_a_file_may_replace_the_one_that_its_arrays_came_from(path: Path) -> None:
    write_container(path, "model", HEADER, ARRAYS)
    for _ in range(3):
        write_container(path, "model", *read_container(path, "model"))
    read = read_container(path, "model")
    assert read.header == HEADER
    assert_same_array(read.arrays["U"], ARRAYS["U"])


def test_no_arrays_and_no_header(path: Path) -> None:
    assert round_trip(path, {}, {}) == ({}, {})


# The header

VALUES: list[Any] = [
    *(None, True, False, 0, -1, 2**64, -(2**200), 0.1, -0.0, 5e-324, 1e308, "", 'ü\n\0"\\'),
    *(math.nan, math.inf, -math.inf, np.float64(0.1), np.float64("inf"), "\ud800"),
    *([], {}, [[]], [{}], {"": {"": []}}, [math.nan, [math.inf, {"a": -math.inf}]]),
    *({"$float": "nan"}, {"$float": math.nan}, {"$$float": 1}, {"$": {"$a": 1, "$$a": 2, "a": 3}}),
    *("NaN", "$float", {"$float": None, "b": 1}),
]


def same(one: Any, other: Any) -> bool:
    """Equal in value and in type, down to NaN and the sign of zero."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, float) and type(other) is float:
        return float(one).hex() == other.hex()
    return type(one) is type(other) and one == other


def test_values_of_the_header_come_back(path: Path) -> None:
    header = {"values": VALUES, **{f"{k}": value for k, value in enumerate(VALUES)}}
    read = round_trip(path, header, {}).header
    for name, value in header.items():
        assert same(value, read[name]), ascii(value)


@settings(max_examples=30)
@given(
    st.dictionaries(
        st.text(max_size=3) | st.sampled_from(["$float", "$", "$$"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.text("$fa", max_size=3) | st.just("$float"), inner, max_size=3)
            ),
            max_leaves=8,
        ),
        max_size=4,
    )
)
def test_any_header_comes_back(tmp_path_factory: pytest.TempPathFactory, header: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    assert same(header, round_trip(path, header, {}).header)


@pytest.mark.parametrize("value", [np.int64(3), np.ones(3), b"x", [0, {"b": {1, 2}}]])
def test_other_values_are_refused_and_the_old_file_stays(value: Any, path: Path) -> None:
    write_container(path, "model", HEADER, ARRAYS)
    with pytest.raises(TypeError, match="not JSON"):
        write_container(path, "model", {"a": value}, {})
    assert read_container(path, "model").header == HEADER
    assert os.listdir(path.parent) == [path.name]


def test_a_header_beyond_the_formats_limit_is_refused(path: Path) -> None:
    with pytest.raises(ValueError, match=r"^header must be shorter, got 50,000,008 bytes of"):
        write_container(path, "model", {"a": "x" * 50_000_000}, {})
    assert not path.exists()


# What others see


def test_any_reader_of_safetensors_opens_the_file(path: Path) -> None:
    write_container(path, "model", {**HEADER, "gap": math.nan}, ARRAYS)
    for name, array in safetensors.numpy.load_file(path).items():
        assert_same_array(array, ARRAYS[name])
    metadata = metadata_of(path)
    assert metadata.keys() == {
        *("format", "format_version", "kind", "written_by", "header", "checksum")
    }
    assert (metadata["format"], metadata["format_version"]) == ("dfwtrace", "1")
    assert (metadata["kind"], metadata["written_by"]) == ("model", version("dfwtrace"))
    strict = json.loads(metadata["header"], parse_constant=pytest.fail)
    assert strict == {**HEADER, "gap": {"$float": "nan"}}


def metadata_of(path: Path) -> dict[str, str]:
    with safetensors.safe_open(path, framework="np") as file:
        return dict(file.metadata())


# What is refused


NOT_SAFETENSORS = "is not a safetensors file, is cut short or damaged, or too large for the memory."


def assert_refused(path: Path, why: str, kind: str = "model") -> None:
    with pytest.raises(ModelFormatError) as caught:
        read_container(path, kind)
    assert str(caught.value) == f"{path} {why}"


def test_a_file_that_is_missing(path: Path) -> None:
    for read in (peek, lambda path: read_container(path, "model")):
        with pytest.raises(FileNotFoundError, match=r"model\.safetensors"):
            read(path)


def test_files_that_are_none_of_ours(path: Path, tmp_path: Path) -> None:
    contents = {
        NOT_SAFETENSORS: [
            *(b"12345678", b"radius,gap\n1,2\n" * 9, b"\xff" * 100),
            pickle.dumps({"a": np.ones(100)}),
            *(b"", b"{", b"\0" * 9, b"\0" * 100, b"\x10" + b"\0" * 7 + b"{}"),
            *(b"\x02" + b"\0" * 7 + b"[]", b"\x03" + b"\0" * 7 + b'{"}'),
        ],
        "is a safetensors file, but not one of dfwtrace's.": [
            safetensors.numpy.save(ARRAYS),
            safetensors.numpy.save(ARRAYS, {"format": "pt"}),
            safetensors.numpy.save({"x": np.zeros(3, dtype=np.float16)}, {"kind": "model"}),
        ],
    }
    for why, files in contents.items():
        for content in files:
            path.write_bytes(content)
            assert_refused(path, why)
            with pytest.raises(ModelFormatError):
                peek(path)
    assert_refused(tmp_path, "is a folder, a pipe or a device, not a regular file.")
    os.mkfifo(tmp_path / "pipe")
    assert_refused(tmp_path / "pipe", "is a folder, a pipe or a device, not a regular file.")


def test_the_kind_is_seen_and_checked(path: Path) -> None:
    write_container(path, "checkpoint", {}, {})
    assert peek(path) == peek(str(path)) == "checkpoint"
    assert_refused(path, "holds a checkpoint, not a model.")
    assert read_container(path, "checkpoint") == ({}, {})


@pytest.mark.parametrize(("by", "shown"), [("2.1.0", "2.1.0"), ("9" * 99, "9" * 40)])
def test_other_formats_name_the_version_that_wrote_them(by: str, shown: str, path: Path) -> None:
    for number in ("1", "3", "9" * 5000, "x"):
        metadata = {"format": "dfwtrace", "format_version": number, "kind": "checkpoint"}
        path.write_bytes(safetensors.numpy.save({}, metadata | {"written_by": by}))
        with pytest.raises(ModelFormatError) as caught:
            peek(path)
        assert str(caught.value) == (
            f"{path} was written by dfwtrace {shown} in a format that this version, "
            f"{version('dfwtrace')}, does not read; start again without it or use that version."
        )


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("extra", "", "its metadata are not complete"),
        ("header", '{"radius":4.0}', "its checksum does not match its content"),
        ("checksum", "", "its checksum does not match its content"),
        ("checksum", None, "its metadata are not complete"),
    ],
)
def test_changed_metadata_are_damage(field: str, value: str | None, why: str, path: Path) -> None:
    write_container(path, "model", HEADER, ARRAYS)
    metadata = {**metadata_of(path), field: value}
    path.write_bytes(
        safetensors.numpy.save(ARRAYS, {k: v for k, v in metadata.items() if v is not None})
    )
    assert_refused(path, f"is damaged: {why}.")


def test_of_another_versions_files_of_the_same_format_only_models_are_read(path: Path) -> None:
    for kind in ("model", "checkpoint"):
        write_container(path, kind, HEADER, ARRAYS)
        path.write_bytes(safetensors.numpy.save(ARRAYS, metadata_of(path) | {"written_by": "0.9"}))
        if kind == "model":
            assert read_container(path, kind).header == HEADER
    with pytest.raises(ModelFormatError, match=r"was written by dfwtrace 0\.9 in a format that"):
        read_container(path, "checkpoint")


def test_an_added_or_missing_or_changed_array_is_damage(path: Path) -> None:
    write_container(path, "model", HEADER, ARRAYS)
    metadata = metadata_of(path)
    for arrays in (
        {**ARRAYS, "V": np.ones(2)},
        {"U": ARRAYS["U"]},
        {**ARRAYS, "U": ARRAYS["U"].reshape(2, 3)},
        {**ARRAYS, "U": ARRAYS["U"].view(np.int64)},
        {**ARRAYS, "U": np.nextafter(ARRAYS["U"], 9.0)},
        {"U": ARRAYS["s"], "s": ARRAYS["U"]},
    ):
        path.write_bytes(safetensors.numpy.save(arrays, metadata))
        assert_refused(path, "is damaged: its checksum does not match its content.")


def test_what_does_not_fit_its_header_is_not_read(path: Path) -> None:
    write_container(path, "model", HEADER, ARRAYS)
    with path.open("r+b") as file:
        file.truncate(1 << 40)  # a terabyte of nothing; no disk is used, and no memory may be
    assert path.stat().st_blocks < 1000
    assert_refused(path, NOT_SAFETENSORS)


@pytest.mark.parametrize(
    ("memory", "why"),
    [(1 << 38, NOT_SAFETENSORS), (3 << 39, "is too large for the memory.")],
    ids=["no map", "a map, but no array"],
)
def test_a_file_beyond_the_memory_is_refused(memory: int, why: str, path: Path) -> None:
    write_container(path, "model", {}, {"x": np.zeros(1, dtype=np.uint8)})
    raw = path.read_bytes()
    size = 1 << 40
    text = raw[8 : 8 + int.from_bytes(raw[:8], "little")].decode()
    text = text.replace('"shape":[1]', f'"shape":[{size}]').replace("[0,1]", f"[0,{size}]")
    path.write_bytes(len(text).to_bytes(8, "little") + text.encode())
    os.truncate(path, 8 + len(text) + size)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (memory, hard))
    try:
        with pytest.raises(ModelFormatError) as caught:
            read_container(path, "model")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert str(caught.value).startswith(f"{path} {why}")


def test_writing_where_it_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match=r"cannot be written: it is a folder\.$"):
        write_container(tmp_path, "model", HEADER, ARRAYS)
    with pytest.raises(FileNotFoundError, match=r"x/y cannot be written: there is no folder .*/x"):
        write_container(tmp_path / "x" / "y", "model", HEADER, ARRAYS)
    assert os.listdir(tmp_path) == []
