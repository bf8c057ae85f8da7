"""Whatever a run remembers comes back from the file to the last bit."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import dfwtrace as dt
from dfwtrace.files.checkpoint import pack, unpack
from dfwtrace.files.container import read_container, write_container

FLOATS = st.floats() | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324])
DTYPES = st.sampled_from(
    [np.float64, np.float32, np.int64, np.int32, np.uint64, np.uint8, np.bool_]
)
ARRAYS = DTYPES.flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0))
)
LAYOUTS = st.sampled_from(
    [lambda a: a, np.asfortranarray, lambda a: a.T, lambda a: a[..., ::2], lambda a: a[::-1]]
)
NUMBERS = st.sampled_from([np.float32(0.1), np.int32(3), np.uint8(7), np.uint64(2**64 - 1)])


def laid_out(array: Any, layout: Any) -> Any:
    return layout(array) if array.ndim else array


@st.composite
def matrices(draw: Any) -> dt.LowRankMatrix:
    """After some steps towards atoms: with a scale, and columns that others share."""
    d, m, rank = (draw(st.integers(low, 4)) for low in (1, 1, 0))
    dtype = draw(st.sampled_from([np.float64, np.float32]))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    U, V = (rng.standard_normal((size, rank)).astype(dtype) for size in (d, m))
    W = dt.LowRankMatrix(U, rng.standard_normal(rank), V)
    for gamma in draw(st.lists(st.sampled_from([1e-3, 0.3, 0.7, 1.0 - 1e-9]), max_size=12)):
        u, v = rng.standard_normal(d), rng.standard_normal(m)
        W = W.toward(dt.RankOne(-3.0, u / np.linalg.norm(u), v / np.linalg.norm(v)), gamma)
    return W


VALUES: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**200), 2**200)
    | FLOATS
    | st.text(max_size=5)
    | NUMBERS
    | st.builds(laid_out, ARRAYS, LAYOUTS)
    | matrices(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(
            st.text(max_size=3) | st.sampled_from(["is", "of", "$"]), inner, max_size=3
        )
    ),
    max_leaves=12,
)
# Histories: the same names in all records, or nearly.
TABLES = st.lists(
    st.fixed_dictionaries(
        {"epoch": st.integers(0, 9) | st.just(2**70), "x": FLOATS},
        optional={"word": st.text(max_size=3) | FLOATS | st.booleans()},
    ),
    max_size=5,
)


def through_a_file(value: Any) -> Any:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "memory"
        arrays: dict[str, Any] = {}
        packed = pack(value, arrays)
        write_container(path, "checkpoint", {"memory": packed}, arrays)
        header, arrays = read_container(path, "checkpoint")
        return unpack(header["memory"], arrays)


def assert_same(found: Any, value: Any) -> None:
    assert type(found) is type(value)
    if isinstance(value, np.ndarray):
        assert (found.dtype, found.shape) == (value.dtype, value.shape)
        assert found.tobytes() == value.tobytes()
        if value.flags.forc:  # BLAS rounds by it
            assert found.flags.fnc == value.flags.fnc
    elif isinstance(value, np.generic):
        assert (found.dtype, found.tobytes()) == (value.dtype, value.tobytes())
    elif isinstance(value, float):
        both_nan = math.isnan(found) and math.isnan(value)
        assert both_nan or struct.pack("d", found) == struct.pack("d", value)
    elif isinstance(value, dt.LowRankMatrix):
        for one, other in zip(found.parts(), value.parts(), strict=True):
            assert_same(one, other)
        assert_same(found.s, value.s)
        assert_same(found.compress().U, value.compress().U)
    elif isinstance(value, list | tuple):
        assert len(found) == len(value)
        for one, other in zip(found, value, strict=True):
            assert_same(one, other)
    elif isinstance(value, dict):
        assert list(found) == list(value)
        for name, other in value.items():
            assert_same(found[name], other)
    else:
        assert found == value


@settings(max_examples=40)
@given(VALUES)
def test_nested_values_come_back_to_the_last_bit(value: Any) -> None:
    assert_same(through_a_file(value), value)


@settings(max_examples=30)
@given(TABLES)
def test_histories_come_back_to_the_last_bit(value: Any) -> None:
    assert_same(through_a_file(value), value)


@settings(max_examples=20)
@given(matrices(), st.floats(0.01, 0.99))
def test_a_matrix_takes_the_same_steps_afterwards(W: dt.LowRankMatrix, gamma: float) -> None:
    d, m = W.shape
    atom = dt.RankOne(2.0, np.full(d, d**-0.5), np.full(m, m**-0.5))
    found = through_a_file(W)
    for _ in range(3):
        W, found = W.toward(atom, gamma), found.toward(atom, gamma)
    assert_same(found, W)


def test_a_long_history_is_a_few_arrays() -> None:
    arrays: dict[str, Any] = {}
    history = [{"epoch": k, "objective": 1.0 / k, "gap": 0.5, "ok": k > 3} for k in range(1, 999)]
    packed = pack(history, arrays)
    assert [array.size for array in arrays.values()] == [998, 998]
    assert_same(unpack(packed, arrays)[700], history[700])


def test_rows_without_names_stay() -> None:
    assert_same(through_a_file([{}, {}]), [{}, {}])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (object(), "<object object at"),
        ({1: 2}, r"\{1: 2\}"),
        (np.array(["a"]), "values of <U1"),
        (np.float16(1.0), "values of float16"),
        (np.ones(1, complex), "values of complex128"),
        (np.datetime64("2020-01-01"), "values of datetime64"),
        ({1, 2}, r"\{1, 2\}"),
        (b"bytes", "b'bytes'"),
    ],
)
def test_what_cannot_be_kept_is_named(value: Any, words: str) -> None:
    with pytest.raises(TypeError, match=f"a checkpoint holds numbers, text .* has {words}"):
        pack([0, {"x": (value,)}], {})
