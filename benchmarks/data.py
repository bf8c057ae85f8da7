"""Real data sets, in the folder that the variable DFWTRACE_DATA names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp


class Split(NamedTuple):
    """Features and labels to learn from, to validate on and to test on."""

    X: Any
    y: np.ndarray
    X_val: Any
    y_val: np.ndarray
    X_test: Any
    y_test: np.ndarray


def folder() -> Path:
    return Path(os.environ.get("DFWTRACE_DATA", "data"))


def clinc150() -> Split | None:
    """Sentences of 150 intents, embedded; None where the file is not there."""
    path = folder() / "clinc150_minilm.npz"
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as z:
        parts = []
        for name in ("train", "val", "test"):
            parts += [z[f"X_{name}"].astype(np.float32), z[f"y_{name}"].astype(np.int64)]
    return Split(*parts)


def udhr() -> Split | None:
    """Lines in 380 languages as counts of character n-grams, scaled to unit length."""
    path = folder() / "udhr_langid.npz"
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as z:
        pieces = (z["X_data"].astype(np.float32), z["X_indices"], z["X_indptr"])
        X = sp.csr_array(pieces, shape=tuple(z["X_shape"]))
        y = z["y"].astype(np.int64)
    X = sp.csr_array(sp.diags_array(1.0 / sp.linalg.norm(X, axis=1)).astype(np.float32) @ X)
    part = np.random.default_rng(0).permutation(len(y)) % 10
    rows = [np.flatnonzero(part >= 2), np.flatnonzero(part == 0), np.flatnonzero(part == 1)]
    return Split(*(piece for chosen in rows for piece in (X[chosen], y[chosen])))
