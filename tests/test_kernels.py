"""Compiled loops where Numba may keep no machine code. What they compute is tested with losses."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import numba.core.caching
import numpy as np

numba.core.caching.CacheImpl._locator_classes = []  # no directory will do

import dfwtrace
from dfwtrace import kernels

G, p, v, B = np.ones((2, 3)), np.array([1.0, 2.0]), np.array([1.0, 0.0, 3.0]), np.ones((2, 3))
kernels.gram_advance(G, 0.5, p, v, 2.0, B)
print(G.tolist())
"""


def test_without_a_place_for_numbas_cache_all_works_the_same() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[[-0.5, -1.5, 1.5], [0.5, -1.5, 4.5]]"
