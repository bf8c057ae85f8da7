"""Real features of the third figure: ImageNet's, if the user has them, and CLINC150's.

ImageNet's features (ILSVRC2012, 2048 numbers an image from a ResNet50 before its last layer) are a
folder of either kind:

- ``X_train.npy``, ``y_train.npy``, ``X_val.npy``, ``y_val.npy``: arrays, which are memory-mapped;
- ``train`` and ``val``: folders of Parquet files with a column ``label``; all other numeric columns
  are features.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from dfwtrace._typing import Array
from dfwtrace.data.files import read_table
from dfwtrace.data.table import DataFileError, Table
from dfwtrace.experiments.problems import Split
from dfwtrace.experiments.provenance import ROOT

_LABEL = "label"
_PARTS = ("train", "val")
_INTENT_PARTS = ("train", "test")
#: Of a file's bytes, so many pieces of this length tell it from others.
_PIECES, _PIECE = 64, 1 << 16


def identity(path: Path) -> str:
    """A name for the data in a file or folder, by which other data are told from them.

    Of a folder, only what `read_imagenet` and `read_intents` read; of large files, pieces.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     size = (Path(folder) / "y_train.npy").write_bytes(b"0123")
    ...     before = identity(Path(folder))
    ...     size = (Path(folder) / "y_train.npy").write_bytes(b"0124")
    ...     identity(Path(folder)) == before
    False
    """
    files = _files(path) if path.is_dir() else [path]
    told = hashlib.blake2b(digest_size=6)
    for file in files:
        size = file.stat().st_size
        # ImageNet's features take 10 GB: pieces of them, from the first to the last, are read.
        places = np.linspace(0, max(size - _PIECE, 0), _PIECES).astype(int)
        told.update(f"{file.relative_to(path).as_posix()} {size} ".encode())
        with file.open("rb") as stream:
            for place in np.unique(places).tolist():
                stream.seek(place)
                told.update(stream.read(_PIECE))
    return f"{path.resolve().name} {told.hexdigest()}"


def _files(folder: Path) -> list[Path]:
    """What is read of a folder, in an order that is the same everywhere."""
    arrays = [folder / f"{kind}_{part}.npy" for part in _PARTS for kind in "Xy"]
    archives = [folder / f"{part}.npz" for part in _INTENT_PARTS]
    tables = [file for part in _PARTS for file in sorted((folder / part).glob("*.parquet"))]
    return [file for file in (*arrays, *archives, *tables) if file.is_file()]


def read_imagenet(folder: Path) -> Split:
    """Features and labels of the images to learn from and to test on, all of them checked."""
    if all((folder / part).is_dir() for part in _PARTS):
        train, val = (_of_parquet(folder / part) for part in _PARTS)
    else:
        names = [f"{kind}_{part}.npy" for part in _PARTS for kind in "Xy"]
        missing = [name for name in names if not (folder / name).exists()]
        if missing:
            raise DataFileError(
                f"{folder}: there are neither the folders train and val nor {', '.join(missing)}."
            )
        train, val = (
            read_table(folder / f"X_{part}.npy", target=str(folder / f"y_{part}.npy"))
            for part in _PARTS
        )
    return _split(folder, train, val)


def find_intents() -> Path | None:
    """CLINC150's embeddings: the reduced ones of the examples, in a checkout."""
    folder = ROOT / "examples" / "clinc150"
    return folder if folder.is_dir() else None


def read_intents(path: Path) -> Split:
    """CLINC150: all of it from one file, or the examples' part of it from a folder."""
    if path.is_dir():
        train, test = (read_table(path / f"{part}.npz", target="y") for part in _INTENT_PARTS)
    elif path.suffix == ".npz":
        train, test = (
            read_table(path, features=f"X_{part}", target=f"y_{part}") for part in _INTENT_PARTS
        )
    else:
        raise DataFileError(f"{path}: it is no .npz file.")
    return _split(path, train, test)


def read_shuffled_intents(path: Path, rows: int | None) -> Split:
    """CLINC150 with at most so many rows to learn from, in an order that says nothing.

    The whole file has one class after another: each worker would see few of them, and SVA, which
    averages what workers see by themselves, would be judged by that.
    """
    data = read_intents(path)
    order = np.random.default_rng(0).permutation(len(data.y))[:rows]
    return data._replace(X=data.X[order], y=data.y[order])


def _of_parquet(folder: Path) -> Table:
    table = read_table(folder, target=_LABEL)
    return table._replace(X=table.X.astype(np.float32, copy=False))  # doubles would take 21 GB


def _split(path: Path, train: Table, test: Table) -> Split:
    if train.X.shape[1] != test.X.shape[1]:
        raise DataFileError(f"{path}: the features of both parts differ in their number.")
    y, y_test = (_labels(path, table.y) for table in (train, test))
    if (y.dtype.kind == "U") != (y_test.dtype.kind == "U"):
        raise DataFileError(f"{path}: labels are names in one part, and numbers in the other.")
    classes, y = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise DataFileError(f"{path}: all rows to learn from are of one class.")
    unknown = np.setdiff1d(y_test, classes)
    if len(unknown):
        raise DataFileError(
            f"{path}: the class {unknown[0]} is to be tested, but no row to learn from is of it."
        )
    return Split(train.X, y, test.X, np.searchsorted(classes, y_test), len(classes))


def _labels(path: Path, labels: Array | None) -> Array:
    """Whole numbers or names."""
    assert labels is not None  # they were asked for
    if labels.ndim != 1:
        raise DataFileError(f"{path}: there must be one label for a row.")
    if labels.dtype.kind == "f" and (labels != np.floor(labels)).any():
        raise DataFileError(f"{path}: labels must be whole numbers or names.")
    if labels.dtype.kind in "if" and labels.min() < 0:
        raise DataFileError(f"{path}: a label is negative.")
    return labels
