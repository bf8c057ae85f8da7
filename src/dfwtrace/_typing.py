"""Shared type aliases."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
FloatArray: TypeAlias = npt.NDArray[np.float64]
#: A dense array or a CSR matrix. SciPy's sparse classes are untyped, so no union says it.
Matrix: TypeAlias = Any
