"""No silent infinities: what overflows ends the run with a sentence."""

from __future__ import annotations

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
    if not np.all(np.isfinite(value)):
        raise ArithmeticError(
            f"X, y or radius is too large for the precision of the data: {what} is not finite; "
            "rescale the data or use float64."
        )
    return value
