"""Real features of the third figure: ImageNet's, if the user has them, and CLINC150's.

ImageNet's features (ILSVRC2012, 2048 numbers an image from a ResNet50 before its last layer) are a
folder of either kind:

- ``X_train.npy``, ``y_train.npy``, ``X_val.npy``, ``y_val.npy``: arrays, which are memory-mapped;
- ``train`` and ``val``: folders of Parquet files with a column ``label``; all other numeric columns
  are features.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dfwtrace._typing import Array
from dfwtrace.experiments.problems import Split
from dfwtrace.experiments.provenance import ROOT
from dfwtrace.io.tables import DataFileError, read_table

_LABEL = "label"


def read_imagenet(folder: Path) -> Split:
    """Features and labels of the images to learn from and to test on."""
    if (folder / "train").is_dir() and (folder / "val").is_dir():
        (X, y), (X_test, y_test) = (_of_parquet(folder / part) for part in ("train", "val"))
    else:
        missing = [
            f"{kind}_{part}.npy"
            for part in ("train", "val")
            for kind in "Xy"
            if not (folder / f"{kind}_{part}.npy").exists()
        ]
        if missing:
            raise DataFileError(
                f"{folder}: there are neither the folders train and val nor {', '.join(missing)}."
            )
        (X, y), (X_test, y_test) = (_of_arrays(folder, part) for part in ("train", "val"))
    if X.ndim != 2 or X_test.shape[1:] != X.shape[1:]:
        raise DataFileError(f"{folder}: the features of train and val differ in their number.")
    return _checked(folder, Split(X, y, X_test, y_test, 1 + int(max(y.max(), y_test.max()))))


def find_intents() -> Path | None:
    """CLINC150's embeddings: the reduced ones of the examples, in a checkout."""
    folder = ROOT / "examples" / "clinc150"
    return folder if folder.is_dir() else None


def read_intents(path: Path) -> Split:
    """CLINC150: all of it from one file, or the examples' part of it from a folder."""
    if path.is_dir():
        parts = [_of_npz(path / f"{part}.npz", "X", "y") for part in ("train", "test")]
    else:
        parts = [_of_npz(path, f"X_{part}", f"y_{part}") for part in ("train", "test")]
    (X, y), (X_test, y_test) = parts
    return _checked(path, Split(X, y, X_test, y_test, 1 + int(max(y.max(), y_test.max()))))


def _of_parquet(folder: Path) -> tuple[Array, Array]:
    table = read_table(folder, target=_LABEL)
    assert table.y is not None  # a target was asked for
    X: Array = np.asarray(table.X, dtype=np.float32)
    return X, np.asarray(table.y).ravel().astype(np.int64)


def _of_arrays(folder: Path, part: str) -> tuple[Array, Array]:
    X: Array = np.load(folder / f"X_{part}.npy", mmap_mode="r", allow_pickle=False)
    y: Array = np.load(folder / f"y_{part}.npy", allow_pickle=False)
    return X, y.ravel().astype(np.int64)


def _of_npz(path: Path, X_name: str, y_name: str) -> tuple[Array, Array]:
    if not path.exists():
        raise DataFileError(f"{path}: there is no such file.")
    with np.load(path, allow_pickle=False) as arrays:
        for name in (X_name, y_name):
            if name not in arrays:
                raise DataFileError(f"{path}: there is no array {name}.")
        return arrays[X_name].astype(np.float32), _classes(arrays[y_name])


def _classes(labels: Array) -> Array:
    """Labels as numbers from 0, by their order."""
    if np.issubdtype(labels.dtype, np.integer):
        return labels.astype(np.int64)
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


def _checked(path: Path, data: Split) -> Split:
    for X, y in ((data.X, data.y), (data.X_test, data.y_test)):
        if len(X) != len(y):
            raise DataFileError(f"{path}: {len(X)} rows of features, but {len(y)} labels.")
        if y.min() < 0:
            raise DataFileError(f"{path}: a label is negative.")
    return data
