"""What targets are made of, and whether they ask for classification or regression."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from dfwtrace._typing import Array
from dfwtrace.io.read_errors import no_value

_WHOLE = re.compile(r"\s*[+-]?[0-9]+\s*")
# A code such as 007: as a number it would be the same as 7.
_PADDED = re.compile(r"\s*[+-]?0[0-9]+\s*")
#: Words that stand for "no value" in a column of numbers.
MISSING_WORDS = frozenset({"", "na", "n/a", "nan", "null", "none"})


def is_classification(y: Array) -> bool:
    """Whether targets are labels rather than measurements.

    The rule, in this order:

    1. Several columns of targets: regression.
    2. Text and bool: classification.
    3. Numbers that are not all whole: regression.
    4. Whole numbers, stored as integers or floats: classification if the distinct ones among the n
       targets are at most n/2 (each occurs twice, on average) and at most max(20, n/4); otherwise
       regression.

    Examples
    --------
    >>> import numpy as np
    >>> is_classification(np.array(["red", "blue"])), is_classification(np.array([0, 1, 1, 0]))
    (True, True)
    >>> is_classification(np.array([0.5, 1.0, 1.0])), is_classification(np.arange(100))
    (False, False)
    """
    y = np.asarray(y)
    if y.ndim > 1:
        return False
    if y.dtype.kind in "USOb":
        return True
    if y.dtype.kind == "f" and not _all_whole(y):
        return False
    n = y.shape[0]
    return bool(np.unique(y).size <= min(n / 2, max(20, n / 4)))


def whole_as_integers(y: Array) -> Array:
    """Floats that are all whole as int64, everything else as it is.

    Examples
    --------
    >>> import numpy as np
    >>> whole_as_integers(np.array([1.0, -1.0])).dtype, whole_as_integers(np.array([0.5])).dtype
    (dtype('int64'), dtype('float64'))
    """
    if y.dtype.kind != "f" or not _all_whole(y) or np.abs(y).max(initial=0) >= 2.0**53:
        return y
    return y.astype(np.int64)


def parse_target(values: list[str], file: str, column: str) -> Array:
    """Targets from text: int64 if all are whole numbers, else float64, else the text itself.

    A column of numbers in which some entries are empty or say "NA" has missing values; it does not
    become text. A column of whole numbers of which some begin with a zero holds codes, and is text.

    Examples
    --------
    >>> parse_target(["3", "5"], "train.csv", "y"), parse_target(["a", "5"], "train.csv", "y")
    (array([3, 5]), array(['a', '5'], dtype='<U1'))
    >>> parse_target(["01", "1"], "train.csv", "y")
    array(['01', '1'], dtype='<U2')
    """
    # Labels repeat: each distinct one is looked at once.
    numbers = {text: _number(text) for text in dict.fromkeys(values)}
    words = {text for text, number in numbers.items() if number is None}
    missing = {text for text in words if text.strip().lower() in MISSING_WORDS}
    numeric = words == missing and len(missing) < len(numbers)
    if not numeric:
        missing = {text for text in words if not text.strip()}
    if missing:
        raise no_value(file, column, next(i for i, text in enumerate(values) if text in missing))
    if not numeric:
        return np.array(values, dtype=np.str_)
    parsed: list[Any] = [numbers[text] for text in values]
    if all(map(_WHOLE.fullmatch, numbers)):
        if any(map(_PADDED.fullmatch, numbers)):
            return np.array(values, dtype=np.str_)
        try:
            return np.array([int(text) for text in values], dtype=np.int64)
        except OverflowError:
            pass  # too long for an integer, but a float will do
    y = np.array(parsed, dtype=np.float64)
    infinite = np.flatnonzero(np.isinf(y))
    if infinite.size:
        raise no_value(file, column, int(infinite[0]), infinite=True)
    return y


def _number(text: str) -> float | None:
    """The number that a text is, if it is one; Python alone would read 1_000 and other digits."""
    if "_" in text or not text.isascii():
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number


def _all_whole(y: Array) -> bool:
    return bool(np.all(np.isfinite(y)) and np.all(y == np.rint(y)))
