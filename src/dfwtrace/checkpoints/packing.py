"""A run's memory as JSON and arrays, and back, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np

from dfwtrace._typing import Array
from dfwtrace.io.frame import STORED
from dfwtrace.linalg.lowrank import LowRankMatrix
from dfwtrace.validation import describe

_ARRAY, _MATRIX, _NUMBER, _TABLE, _TUPLE = "array", "matrix", "number", "table", "tuple"
# The key that tells an object of ours from a dictionary.
_TYPE = "is"


def pack(value: Any) -> tuple[Any, dict[str, Array]]:
    """What JSON can hold, with a number where an array was, and the arrays.

    Takes None, numbers, strings, arrays, `LowRankMatrix`, and lists, tuples and dictionaries of
    them. The layout of an array is kept: BLAS may round differently for another one.

    Examples
    --------
    >>> import numpy as np
    >>> packed, arrays = pack({"b": np.ones(2), "t": 3})
    >>> unpack(packed, arrays)
    {'b': array([1., 1.]), 't': 3}
    """
    arrays: dict[str, Array] = {}
    return _pack(value, arrays), arrays


def unpack(packed: Any, arrays: dict[str, Array]) -> Any:
    """What was packed."""
    if isinstance(packed, list):
        return [unpack(part, arrays) for part in packed]
    if not isinstance(packed, dict):
        return packed
    kind = packed.get(_TYPE)
    if kind == _ARRAY:
        array = arrays[packed["name"]]
        return np.asfortranarray(array) if packed["by_column"] else array
    if kind == _NUMBER:
        return arrays[packed["name"]][()]
    if kind == _TUPLE:
        return tuple(unpack(part, arrays) for part in packed["parts"])
    if kind == _TABLE:
        columns = [_values(unpack(part, arrays)) for part in packed["columns"]]
        rows = zip(*columns, strict=True)
        return [dict(zip(packed["names"], row, strict=True)) for row in rows]
    if kind == _MATRIX:
        return LowRankMatrix.from_parts(*unpack(packed["parts"], arrays))
    return {name: unpack(part, arrays) for name, part in packed["of"].items()}


def _pack(value: Any, arrays: dict[str, Array]) -> Any:
    if isinstance(value, np.ndarray):
        by_column = bool(value.flags.fnc)
        return {_TYPE: _ARRAY, "name": _keep(value, arrays), "by_column": by_column}
    if isinstance(value, np.float64 | np.int64 | np.bool_ | np.str_):  # as good as Python's own
        return _pack(value.item(), arrays)
    if isinstance(value, np.generic):
        return {_TYPE: _NUMBER, "name": _keep(np.asarray(value), arrays)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, LowRankMatrix):
        return {_TYPE: _MATRIX, "parts": _pack(list(value.parts()), arrays)}
    if isinstance(value, tuple):
        return {_TYPE: _TUPLE, "parts": [_pack(part, arrays) for part in value]}
    if _is_table(value):
        names = list(value[0])
        columns = [_pack(_column([row[name] for row in value]), arrays) for name in names]
        return {_TYPE: _TABLE, "names": names, "columns": columns}
    if isinstance(value, list):
        return [_pack(part, arrays) for part in value]
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return {_TYPE: "dict", "of": {name: _pack(part, arrays) for name, part in value.items()}}
    raise _not_kept(describe(value))


def _is_table(value: Any) -> bool:
    """Whether it is a list of dictionaries with the same names: a history, which may be long."""
    if not isinstance(value, list) or len(value) < 2 or not all(type(row) is dict for row in value):
        return False
    names = list(value[0])
    ours = bool(names) and all(isinstance(name, str) for name in names)
    return ours and all(list(row) == names for row in value)


def _column(values: list[Any]) -> Any:
    """As an array, if it is one of floats or of whole numbers throughout."""
    kinds = set(map(type, values))
    if kinds == {float}:
        return np.array(values)
    if kinds == {int} and all(-(2**63) <= number < 2**63 for number in values):
        return np.array(values, np.int64)
    return values


def _values(column: Any) -> list[Any]:
    values: list[Any] = column.tolist() if isinstance(column, np.ndarray) else column
    return values


def _keep(array: Array, arrays: dict[str, Array]) -> str:
    """Put the array to the others; its name there."""
    if array.dtype.name not in STORED:
        raise _not_kept(f"values of {array.dtype}")
    name = f"{len(arrays)}"
    arrays[name] = array
    return name


def _not_kept(what: str) -> TypeError:
    return TypeError(
        f"a checkpoint holds numbers, text and arrays, but the run, or its callback, has {what}."
    )
