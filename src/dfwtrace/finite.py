"""No silent infinities: what overflows ends the run with a sentence."""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np

from dfwtrace._typing import FloatArray

Number = TypeVar("Number", float, FloatArray)


def require_finite(value: Number, what: str) -> Number:
    """The value, if all of it is finite.

    Examples
    --------
    >>> require_finite(1.5, "the objective")
    1.5
    """
    finite = math.isfinite(value) if isinstance(value, float) else np.isfinite(value).all()
    if not finite:
        raise ArithmeticError(
            f"X, y or radius is too large for the precision of the data: {what} is not finite; "
            "rescale the data or use float64."
        )
    return value
