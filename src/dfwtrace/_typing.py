"""Shared type aliases."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
FloatArray: TypeAlias = npt.NDArray[np.float64]
DType: TypeAlias = np.dtype[Any]
#: A dense array or a CSR matrix. SciPy's sparse classes are untyped, so no union says it.
Matrix: TypeAlias = Any
#: A data set as a user has it: array, sparse matrix, frame of any library. They are untyped too.
Data: TypeAlias = Any
#: Numbers, text, arrays, `LowRankMatrix`, and lists, tuples and dictionaries of them by name.
Memory: TypeAlias = dict[str, Any]
