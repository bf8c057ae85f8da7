"""Data that the estimators' tests share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dfwtrace as dt


@pytest.fixture(scope="session")
def multiclass() -> tuple[Any, Any]:
    """Features and labels of a small classification in which each of four classes has some rows."""
    X, y, _ = dt.datasets.make_multiclass(n=60, d=7, m=4, rank=3, random_state=0)
    assert np.bincount(y, minlength=4).min() >= 5
    return X, y
