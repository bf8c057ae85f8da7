"""Columns of Arrow types as NumPy arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dfwtrace._typing import Array
from dfwtrace.io.read_errors import DataFileError, no_value


class Kind(NamedTuple):
    """What a column holds: "number", "numbers" (lists of them), "text" or what it is called."""

    what: str
    dtype: np.dtype[Any] | None = None


def kind_of(type_: Any) -> Kind:
    """What a column of an Arrow type holds.

    Examples
    --------
    >>> import pyarrow as pa
    >>> kind_of(pa.float32()), kind_of(pa.decimal128(5, 2)).what
    (Kind(what='number', dtype=dtype('float32')), 'decimals (decimal128(5, 2))')
    """
    import pyarrow as pa
    import pyarrow.types as t

    if isinstance(type_, pa.BaseExtensionType):
        return kind_of(type_.storage_type)
    if t.is_dictionary(type_):
        return kind_of(type_.value_type)
    if t.is_boolean(type_) or t.is_integer(type_) or t.is_floating(type_):
        return Kind("number", np.dtype(type_.to_pandas_dtype()))
    if t.is_null(type_):
        return Kind("number", np.dtype(np.float64))  # and refused for want of a value
    if t.is_string(type_) or t.is_large_string(type_) or t.is_string_view(type_):
        return Kind("text")
    if _is_list(type_):
        inner = kind_of(type_.value_type)
        if inner.what == "number":
            return Kind("numbers", inner.dtype)
    families = {
        "decimals": t.is_decimal,
        "dates or times": t.is_temporal,
        "raw bytes": lambda x: t.is_binary(x) or t.is_large_binary(x) or t.is_fixed_size_binary(x),
        "lists of something else than numbers": _is_list,
    }
    family = next((name for name, test in families.items() if test(type_)), "values of a kind")
    return Kind(f"{family} ({type_})")


def to_array(column: Any, file: str, name: str, first_row: int) -> Array:
    """A column as numbers, text, or rows of numbers; nulls are refused by row."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as t

    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if t.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count:
        missing = column.is_null().to_numpy(zero_copy_only=False)
        raise no_value(file, name, first_row + int(np.argmax(missing)))
    if kind_of(column.type).what == "text":
        return np.array(column.to_pylist(), dtype=np.str_)
    if not _is_list(column.type):
        values: Array = column.to_numpy(zero_copy_only=False)
        return values
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    width = int(lengths[0])
    if (lengths != width).any() or width == 0:
        odd = int(np.argmax(lengths != width))
        raise DataFileError(
            f"column {name!r} of {file} has {lengths[odd]} numbers in row {first_row + odd + 1}, "
            f"but {width} in row {first_row + 1}: every row must have as many."
        )
    flat = _items_to_array(column.flatten(), file, name, first_row, width)
    return flat.reshape(-1, width)


def _items_to_array(items: Any, file: str, name: str, first_row: int, width: int) -> Array:
    """The numbers in a column of lists, one behind the other."""
    if items.null_count:
        missing = items.is_null().to_numpy(zero_copy_only=False)
        raise no_value(file, name, first_row + int(np.argmax(missing)) // width)
    values: Array = items.to_numpy(zero_copy_only=False)
    return values


def _is_list(type_: Any) -> bool:
    import pyarrow.types as t

    return bool(t.is_list(type_) or t.is_large_list(type_) or t.is_fixed_size_list(type_))


def width_of(type_: Any) -> int:
    """Numbers in a row of a column, about: lists that may be of any length count as long ones."""
    if not _is_list(type_):
        return 1
    return max(1, getattr(type_, "list_size", 1024))
