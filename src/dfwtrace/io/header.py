"""The header of a container: strict JSON, with the floats that JSON lacks."""

from __future__ import annotations

import json
import math
from typing import Any, TypeAlias

from dfwtrace.validation import describe

#: None, bool, int, float, str, or a list or a dict (with str keys) of them.
JSON: TypeAlias = Any

# It may be nested so deep: far from where any parser gives up.
_DEEPEST = 50
_NOT_IN_JSON = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def encode_header(header: dict[str, JSON]) -> str:
    if not isinstance(header, dict):
        raise TypeError(f"header must be a dict, got {describe(header)}.")
    plain = _to_json(header, "header", _DEEPEST)
    try:
        return json.dumps(plain, separators=(",", ":"), allow_nan=False)
    except ValueError as error:  # Python neither writes nor reads integers of thousands of digits
        raise ValueError("header holds an integer of too many digits.") from error


def _to_json(value: JSON, place: str, depth: int) -> JSON:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(float(value))}
    if not isinstance(value, list | dict):  # nor a tuple, which would come back as a list
        raise TypeError(f"{place} must be a JSON value, got {describe(value)}.")
    if depth == 0:
        raise ValueError(f"header must not be nested deeper than {_DEEPEST} levels.")
    if isinstance(value, list):
        return [_to_json(item, f"{place}[{k}]", depth - 1) for k, item in enumerate(value)]
    for key in value:
        if not isinstance(key, str):
            raise TypeError(f"{place} must have str keys, got {describe(key)}.")
    return {
        f"${key}" if key.startswith("$") else key: _to_json(item, f"{place}[{key!r}]", depth - 1)
        for key, item in value.items()
    }


def decode_header(text: str) -> dict[str, JSON]:
    header = json.loads(text, object_pairs_hook=_from_json)
    if not isinstance(header, dict):
        raise ValueError("the header is not an object")
    return header


def _from_json(pairs: list[tuple[str, Any]]) -> JSON:
    value = without_duplicates(pairs)
    if list(value) == ["$float"] and isinstance(value["$float"], str):
        return _NOT_IN_JSON[value["$float"]]
    if any(key.startswith("$") and not key.startswith("$$") for key in value):
        raise ValueError("a key of the header starts with a single $")
    return {key.removeprefix("$"): item for key, item in value.items()}


def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key comes twice")
    return value
