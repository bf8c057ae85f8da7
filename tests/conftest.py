"""Settings and small data that several test modules share."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import settings

import dfwtrace as dt

Array = npt.NDArray[np.float64]

# No deadline: compiling a kernel takes a second, and no test asserts a time. The same examples in
# every run: a failure must be seen by whoever made the change, not by the next one.
settings.register_profile("dfwtrace", deadline=None, derandomize=True)
settings.load_profile("dfwtrace")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def multitask() -> tuple[Array, Array]:
    """Features and targets of a small regression, with noise so that no optimum is exact."""
    X, Y, _ = dt.datasets.make_multitask(n=60, d=7, m=5, rank=3, noise=0.3, seed=1)
    return X, Y


@pytest.fixture(scope="session")
def multiclass() -> tuple[Array, npt.NDArray[np.int64]]:
    """Features and labels of a small classification; every class occurs."""
    X, y, _ = dt.datasets.make_multiclass(n=60, d=7, m=4, rank=3, seed=1)
    return X, y
