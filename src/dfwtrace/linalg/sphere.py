"""Random unit vectors that every worker can draw for itself."""

from __future__ import annotations

import numpy as np

from dfwtrace._typing import FloatArray


def uniform_on_sphere(m: int, seed: int, t: int) -> FloatArray:
    """v₀ of epoch t: uniform on the unit sphere of Rᵐ, the same wherever it is drawn."""
    v = np.random.default_rng([seed, t]).standard_normal(m)
    return v / np.linalg.norm(v)
