"""Files of arrays and a header: what goes in comes out, and what is wrong is named."""

from __future__ import annotations

import json
import math
import os
import pickle
import resource
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dfwtrace.io.container import (
    LONGEST_HEADER,
    Container,
    ModelFormatError,
    peek,
    read_container,
    write_container,
)

DTYPES = ["float64", "float32", "int64", "int32", "uint64", "uint8", "bool"]
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
@pytest.mark.parametrize("shape", [(), (1,), (5,), (0,), (3, 4), (0, 3), (3, 0), (2, 3, 4)])
def test_arrays_of_every_dtype_and_shape_come_back(
    dtype: str, shape: tuple[int, ...], path: Path, rng: np.random.Generator
) -> None:
    array = rng.integers(0, 200, shape).astype(dtype)
    read = round_trip(path, {}, {"x": np.asarray(array)})
    assert list(read.arrays) == ["x"]
    assert_same_array(read.arrays["x"], np.asarray(array))


def test_extreme_values_come_back_to_the_bit(path: Path) -> None:
    arrays = {
        "floats": np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324, 1.7976931348623157e308]),
        "ints": np.array([-(2**63), 2**63 - 1]),
        "unsigned": np.array([0, 2**64 - 1], dtype=np.uint64),
    }
    read = round_trip(path, {}, arrays)
    for name, array in arrays.items():
        assert_same_array(read.arrays[name], array)


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


def test_arrays_that_are_written_stay_as_they_are(path: Path) -> None:
    array = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    before = array.copy()
    array.setflags(write=False)
    round_trip(path, {}, {"x": array})
    assert np.array_equal(array, before)


def test_a_map_of_a_file_is_an_array_too(path: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(5.0))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    read = round_trip(path, {}, {"x": mapped})
    assert type(read.arrays["x"]) is np.ndarray
    assert_same_array(read.arrays["x"], np.arange(5.0))


def test_a_file_may_replace_the_one_that_its_arrays_came_from(path: Path) -> None:
    write_container(path, "model", HEADER, ARRAYS)
    for _ in range(3):
        write_container(path, "model", *read_container(path, "model"))
    read = read_container(path, "model")
    assert read.header == HEADER
    assert_same_array(read.arrays["U"], ARRAYS["U"])


def test_no_arrays_and_no_header(path: Path) -> None:
    assert round_trip(path, {}, {}) == ({}, {})


NAMES = ["W", "weights.U", "mit Leerzeichen", "ü", "日本", "\U0001f600", '"quoted"', "a/b\\c", "$"]


def test_any_printable_name_will_do(path: Path) -> None:
    arrays = {name: np.array(k) for k, name in enumerate(NAMES)}
    read = round_trip(path, {}, arrays)
    assert {name: int(array) for name, array in read.arrays.items()} == arrays


@given(
    hnp.arrays(
        st.sampled_from(DTYPES).map(np.dtype), hnp.array_shapes(min_dims=0, min_side=0, max_side=4)
    )
)
def test_any_array_comes_back(tmp_path_factory: pytest.TempPathFactory, array: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    assert_same_array(round_trip(path, {}, {"x": array}).arrays["x"], array)


@pytest.mark.parametrize(
    "dtype",
    ["float16", "int8", "int16", "uint16", "uint32", "complex128", "object", "<U3", "M8[s]"],
)
def test_other_dtypes_are_refused_by_name(dtype: str, path: Path) -> None:
    array = np.zeros(2, dtype=dtype)
    with pytest.raises(TypeError, match=r"^arrays\['x'\] must be of float64, .*, got ") as caught:
        write_container(path, "model", {}, {"fine": np.ones(1), "x": array})
    assert str(caught.value).endswith(f"got {array.dtype.name}.")
    assert not path.exists()


BAD_ARRAYS: list[Any] = [[1.0], 3.0, None, np.float64(3.0), np.ma.masked_array([1.0], [True])]


@pytest.mark.parametrize("array", BAD_ARRAYS, ids=lambda array: type(array).__name__)
def test_what_is_not_an_array_is_refused(array: Any, path: Path) -> None:
    with pytest.raises(TypeError, match=r"^arrays\['x'\] must be a NumPy array, got .*\.$"):
        write_container(path, "model", {}, {"x": array})
    assert not path.exists()


@pytest.mark.parametrize("name", ["", "__metadata__", "\ud800", "a\nb", "\0", 3, None])
def test_bad_names_are_refused(name: Any, path: Path) -> None:
    with pytest.raises(ValueError, match=r"^arrays must have names that can be printed, got .*\.$"):
        write_container(path, "model", {}, {name: np.ones(1)})
    assert not path.exists()


def test_booleans_that_are_neither_0_nor_1_are_refused(path: Path) -> None:
    array = np.array([0, 1, 2], dtype=np.uint8).view(bool)
    with pytest.raises(ValueError, match=r"^arrays\['x'\] must hold booleans that are 0 or 1"):
        write_container(path, "model", {}, {"x": array})


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


@pytest.mark.parametrize("value", VALUES, ids=lambda value: ascii(value)[:30])
def test_values_of_the_header_come_back(value: Any, path: Path) -> None:
    read = round_trip(path, {"a": value, "b": [value, 1]}, {})
    assert same({"a": value, "b": [value, 1]}, read.header)


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


BAD_VALUES: list[tuple[Any, str]] = [
    ((1, 2), r"header\['a'\] must be a JSON value, got \(1, 2\)"),
    (np.int64(3), r"header\['a'\] must be a JSON value, got np.int64\(3\)"),
    (np.ones(3), r"header\['a'\] must be a JSON value, got an object of type ndarray"),
    ([0, {"b": b"x"}], r"header\['a'\]\[1\]\['b'\] must be a JSON value, got b'x'"),
    ({1: 2}, r"header\['a'\] must have str keys, got 1"),
    (10**5000, "header holds an integer of too many digits"),
    ({"b": {3}}, r"header\['a'\]\['b'\] must be a JSON value, got \{3\}"),
]


@pytest.mark.parametrize(("value", "message"), BAD_VALUES, ids=[m[-20:] for _, m in BAD_VALUES])
def test_other_values_are_refused_with_their_place(value: Any, message: str, path: Path) -> None:
    with pytest.raises((TypeError, ValueError), match=rf"^{message}\.$"):
        write_container(path, "model", {"a": value}, {})
    assert not path.exists()


@pytest.mark.parametrize("header", [None, [], "a", [("a", 1)]])
def test_a_header_that_is_no_dict_is_refused(header: Any, path: Path) -> None:
    with pytest.raises(TypeError, match=r"^header must be a dict, got .*\.$"):
        write_container(path, "model", header, {})


def test_a_header_that_is_too_deep_or_holds_itself_is_refused(path: Path) -> None:
    deep: list[Any] = []
    for _ in range(48):  # and the header itself is a level, and the innermost list another
        deep = [deep]
    assert round_trip(path, {"a": deep}, {}).header == {"a": deep}
    own: list[Any] = []
    own.append(own)
    for value in ([deep], own):
        with pytest.raises(
            ValueError, match=r"^header must not be nested deeper than 50 levels\.$"
        ):
            write_container(path, "model", {"a": value}, {})
    assert read_container(path, "model").header == {"a": deep}


def test_a_header_beyond_the_formats_limit_is_refused(path: Path) -> None:
    with pytest.raises(ValueError, match=r"^header and the names of arrays must fit into 100,000,"):
        write_container(path, "model", {"a": "x" * LONGEST_HEADER}, {})
    assert not path.exists()


@pytest.mark.parametrize("kind", ["", "Model", "a b", "ü", "model\n", "x" * 41, 3, None])
def test_bad_kinds_are_refused(kind: Any, path: Path) -> None:
    with pytest.raises(ValueError, match=r"^kind must be a short lower-case name, got .*\.$"):
        write_container(path, kind, {}, {})
    assert not path.exists()


# What others see


def test_any_reader_of_safetensors_opens_the_file(path: Path) -> None:
    write_container(path, "model", {**HEADER, "gap": math.nan}, ARRAYS)
    for name, array in safetensors.numpy.load_file(path).items():
        assert_same_array(array, ARRAYS[name])
    with safetensors.safe_open(path, framework="np") as file:
        metadata = file.metadata()
    assert metadata.keys() == {
        *("format", "format_version", "kind", "written_by", "header", "checksum")
    }
    assert metadata["format"] == "dfwtrace"
    assert metadata["format_version"] == "1"
    assert metadata["kind"] == "model"
    assert metadata["written_by"] == version("dfwtrace")
    assert metadata["header"].isascii()
    strict = json.loads(metadata["header"], parse_constant=pytest.fail)
    assert strict == {**HEADER, "gap": {"$float": "nan"}}


def test_the_checksum_is_that_of_the_content_alone(tmp_path: Path) -> None:
    def checksum(kind: str, header: Any, arrays: Any) -> str:
        write_container(tmp_path / "x", kind, header, arrays)
        with safetensors.safe_open(tmp_path / "x", framework="np") as file:
            return str(file.metadata()["checksum"])

    x = np.arange(4.0)
    first = checksum("model", {"a": 1}, {"x": x, "y": x})
    assert first == checksum("model", {"a": 1}, {"y": x.astype(">f8"), "x": x})
    others = {
        checksum("checkpoint", {"a": 1}, {"x": x, "y": x}),
        checksum("model", {"a": 2}, {"x": x, "y": x}),
        checksum("model", {"a": 1}, {"x": x, "z": x}),
        checksum("model", {"a": 1}, {"x": x}),
        checksum("model", {"a": 1}, {"x": x, "y": x.reshape(2, 2)}),
        checksum("model", {"a": 1}, {"x": x, "y": x.view(np.int64)}),
        checksum("model", {"a": 1}, {"x": x, "y": -x}),
    }
    assert len(others | {first}) == 8


# What is refused


def assert_refused(path: Path, why: str, kind: str = "model") -> None:
    with pytest.raises(ModelFormatError) as caught:
        read_container(path, kind)
    assert str(caught.value) == f"{path} {why}"


def test_a_file_that_is_not_there(path: Path) -> None:
    for read in (peek, lambda path: read_container(path, "model")):
        with pytest.raises(FileNotFoundError, match=r"model\.safetensors"):
            read(path)


def test_files_that_are_none_of_ours(path: Path, tmp_path: Path) -> None:
    contents = {
        "is empty.": [b""],
        "is not a safetensors file.": [
            *(b"{", b"12345678", b"\0" * 9, b"radius,gap\n1,2\n" * 9, b"\xff" * 100),
            pickle.dumps({"a": np.ones(100)}),
        ],
        "is not a safetensors file, or it is cut short.": [b"\x10" + b"\0" * 7 + b"{}"],
        "is not a safetensors file, or its header is damaged.": [
            *(b"\0" * 100, b"\x02" + b"\0" * 7 + b"[]", b"\x03" + b"\0" * 7 + b'{"}'),
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
    assert_refused(tmp_path, "is a folder, not a file.")
    os.mkfifo(tmp_path / "pipe")
    assert_refused(tmp_path / "pipe", "is not a regular file.")


def test_the_kind_is_seen_and_checked(path: Path) -> None:
    write_container(path, "checkpoint", {}, {})
    assert peek(path) == peek(str(path)) == "checkpoint"
    assert_refused(path, "holds a checkpoint, not a model.")
    assert read_container(path, "checkpoint") == ({}, {})


def metadata_of(path: Path) -> dict[str, str]:
    with safetensors.safe_open(path, framework="np") as file:
        return dict(file.metadata())


@pytest.mark.parametrize(
    ("by", "shown"),
    [("2.1.0", "dfwtrace 2.1.0"), ("9\n" * 99, "a later dfwtrace"), (None, "a later dfwtrace")],
)
def test_a_later_format_says_to_update(by: str | None, shown: str, path: Path) -> None:
    later = {"format": "dfwtrace", "format_version": "2", "news": "x"}
    if by is not None:
        later["written_by"] = by
    path.write_bytes(safetensors.numpy.save({"x": np.zeros(3, dtype=np.float16)}, later))
    here = version("dfwtrace")
    assert_refused(
        path, f"was written by {shown}; this is version {here}: update dfwtrace to read it."
    )


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("format_version", "0", "its format version is not a number"),
        ("format_version", "1.0", "its format version is not a number"),
        ("format_version", "9" * 5000, "its format version is not a number"),
        ("kind", "Model", "its kind is not a name"),
        ("kind", "x" * 1000, "its kind is not a name"),
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


def test_another_versions_file_of_the_same_format_is_read(path: Path) -> None:
    write_container(path, "model", HEADER, ARRAYS)
    path.write_bytes(safetensors.numpy.save(ARRAYS, metadata_of(path) | {"written_by": "0.9"}))
    assert read_container(path, "model").header == HEADER


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


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Far from what the tests need, and far below a terabyte."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 38, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.usefixtures("little_memory")
def test_what_does_not_fit_its_header_is_not_read(path: Path) -> None:
    write_container(path, "model", HEADER, ARRAYS)
    with path.open("r+b") as file:
        file.truncate(1 << 40)  # a terabyte of nothing; no disk is used, and no memory may be
    needed = sum(array.nbytes for array in ARRAYS.values())
    assert path.stat().st_blocks < 1000
    with pytest.raises(ModelFormatError, match=f"damaged: its arrays need {needed} bytes, but 1,0"):
        read_container(path, "model")


@pytest.mark.usefixtures("little_memory")
def test_a_file_beyond_the_memory_is_refused(path: Path) -> None:
    write_container(path, "model", {}, {"x": np.zeros(1, dtype=np.uint8)})
    raw = path.read_bytes()
    size = 1 << 40
    text = raw[8 : 8 + int.from_bytes(raw[:8], "little")].decode()
    text = text.replace('"shape":[1]', f'"shape":[{size}]').replace("[0,1]", f"[0,{size}]")
    path.write_bytes(len(text).to_bytes(8, "little") + text.encode())
    with path.open("r+b") as file:
        file.truncate(8 + len(text) + size)
    assert_refused(path, f"is too large for the memory: {8 + len(text) + size:,} bytes.")


def test_writing_where_it_cannot_be_written(path: Path, tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match=r"cannot be written: it is a folder\.$"):
        write_container(tmp_path, "model", HEADER, ARRAYS)
    with pytest.raises(FileNotFoundError, match=r"x/y cannot be written: there is no folder .*/x"):
        write_container(tmp_path / "x" / "y", "model", HEADER, ARRAYS)
    assert os.listdir(tmp_path) == []


def test_a_refused_write_leaves_the_old_file(path: Path) -> None:
    write_container(path, "model", HEADER, ARRAYS)
    with pytest.raises(TypeError):
        write_container(path, "model", {}, {"x": np.zeros(3, dtype=np.float16)})
    assert read_container(path, "model").header == HEADER
    assert os.listdir(path.parent) == [path.name]
