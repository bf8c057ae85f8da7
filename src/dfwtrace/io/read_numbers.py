"""Numbers from text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dfwtrace._typing import Array
from dfwtrace.io.read_errors import DataFileError, holds_text
from dfwtrace.io.read_targets import MISSING_WORDS


def parse_numbers(
    values: Sequence[str], file: str, column: str, first_row: int, *, role: str = "features"
) -> Array:
    """Numbers from text; NaN where there is no value; true and false are 1 and 0.

    Examples
    --------
    >>> parse_numbers(["1e-1", " 2", "+.5", "true", ""], "train.csv", "x", 0)
    array([0.1, 2. , 0.5, 1. , nan])
    """
    joined = "".join(values)
    if joined.isascii() and "_" not in joined:  # Python reads 1_000 and the digits of any script
        try:
            return np.fromiter(map(float, values), np.float64, len(values))
        except ValueError:
            pass  # find out which
    check_utf8(values, file, column, first_row)
    parsed = np.empty(len(values))
    for i, value in enumerate(values):
        word = value.strip().lower()
        if word in MISSING_WORDS:
            parsed[i] = np.nan
        elif word in ("true", "false"):
            parsed[i] = word == "true"
        elif is_number(word):
            parsed[i] = float(word)
        else:
            raise holds_text(file, column, first_row + i, value, role=role)
    return parsed


def check_utf8(values: Sequence[str], file: str, column: str, first_row: int) -> None:
    """Refuse text that came from bytes in another encoding."""
    if is_utf8("".join(values)):
        return
    bad = next(i for i, value in enumerate(values) if not is_utf8(value))
    raise DataFileError(
        f"{file} is not in UTF-8: see column {column!r} in row {first_row + bad + 1} "
        "(numbering rows from 1 after the header)."
    )


def is_utf8(text: str) -> bool:
    """Whether text came from bytes that were UTF-8, see `check_utf8`."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_number(text: str) -> bool:
    """Whether text is one number in plain digits; Python alone reads 1_000 and other scripts."""
    if "_" in text or not text.isascii():
        return False
    try:
        float(text)
    except ValueError:
        return False
    return True
