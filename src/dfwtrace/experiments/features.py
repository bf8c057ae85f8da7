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
from typing import Any, Literal
from zipfile import BadZipFile

import numpy as np

from dfwtrace._typing import Array
from dfwtrace.experiments.problems import Split
from dfwtrace.experiments.provenance import ROOT
from dfwtrace.io.read_survey import survey
from dfwtrace.io.tables import DataFileError, read_table

_LABEL = "label"
_PARTS = ("train", "val")
#: Of a file's bytes, so many pieces of this length tell it from others.
_PIECES, _PIECE = 64, 1 << 16


def identity(path: Path) -> str:
    """A name for the data in a file or folder, which other data do not have.

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
    files = sorted(part for part in path.rglob("*") if part.is_file()) if path.is_dir() else [path]
    told = hashlib.blake2b(digest_size=6)
    for file in files:
        size = file.stat().st_size
        # ImageNet's features take 10 GB: pieces of them, from the first to the last, are read.
        places = np.linspace(0, max(size - _PIECE, 0), _PIECES).astype(int)
        told.update(f"{file.relative_to(path)} {size} ".encode())
        with file.open("rb") as stream:
            for place in np.unique(places).tolist():
                stream.seek(place)
                told.update(stream.read(_PIECE))
    return f"{path.resolve().name} {told.hexdigest()}"


def check_imagenet(folder: Path) -> None:
    """Refuse what `read_imagenet` would, as far as it is seen without reading features."""
    if not _is_parquet(folder):
        read_imagenet(folder)  # features are mapped, only labels are read
        return
    train, val = (survey(folder / part, target=_LABEL) for part in _PARTS)
    if train.features != val.features:
        raise _uneven(folder)
    from pyarrow import parquet

    for part in _PARTS:
        _classes(folder / part, parquet.read_table(folder / part, columns=[_LABEL])[0].to_numpy())


def read_imagenet(folder: Path) -> Split:
    """Features and labels of the images to learn from and to test on."""
    if _is_parquet(folder):
        (X, y), (X_test, y_test) = (_of_parquet(folder / part) for part in _PARTS)
    else:
        missing = [
            f"{kind}_{part}.npy"
            for part in _PARTS
            for kind in "Xy"
            if not (folder / f"{kind}_{part}.npy").exists()
        ]
        if missing:
            raise DataFileError(
                f"{folder}: there are neither the folders train and val nor {', '.join(missing)}."
            )
        (X, y), (X_test, y_test) = (_of_arrays(folder, part) for part in _PARTS)
    return _split(folder, X, y, X_test, y_test)


def _is_parquet(folder: Path) -> bool:
    return all((folder / part).is_dir() for part in _PARTS)


def _uneven(folder: Path) -> DataFileError:
    return DataFileError(f"{folder}: the features of both parts differ in their number.")


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
    return _split(path, X, y, X_test, y_test)


def _of_parquet(folder: Path) -> tuple[Array, Array]:
    table = read_table(folder, target=_LABEL)
    assert table.y is not None  # a target was asked for
    X: Array = np.asarray(table.X, dtype=np.float32)
    return X, np.asarray(table.y).ravel()


def _of_arrays(folder: Path, part: str) -> tuple[Array, Array]:
    X: Array = _load(folder / f"X_{part}.npy", mmap_mode="r")
    y: Array = _load(folder / f"y_{part}.npy")
    return X, y.ravel()


def _load(path: Path, mmap_mode: Literal["r"] | None = None) -> Any:
    try:
        return np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
    except (OSError, EOFError, ValueError, BadZipFile) as error:
        raise DataFileError(f"{path}: it is no file of NumPy's, or is damaged.") from error


def _of_npz(path: Path, X_name: str, y_name: str) -> tuple[Array, Array]:
    if not path.exists():
        raise DataFileError(f"{path}: there is no such file.")
    loaded = _load(path)
    if not isinstance(loaded, np.lib.npyio.NpzFile):
        raise DataFileError(f"{path}: it is no .npz file.")
    with loaded as arrays:
        for name in (X_name, y_name):
            if name not in arrays:
                raise DataFileError(f"{path}: there is no array {name}.")
        return arrays[X_name].astype(np.float32), arrays[y_name].ravel()


def _split(path: Path, X: Array, y: Array, X_test: Array, y_test: Array) -> Split:
    if X.ndim != 2 or X_test.ndim != 2:
        raise DataFileError(f"{path}: features must be a matrix, with a row for each label.")
    if X.shape[1] != X_test.shape[1]:
        raise _uneven(path)
    for rows, labels in ((X, y), (X_test, y_test)):
        if len(rows) != len(labels):
            raise DataFileError(f"{path}: {len(rows)} rows of features, but {len(labels)} labels.")
        if not len(rows):
            raise DataFileError(f"{path}: there are no rows.")
    y, y_test = np.split(_classes(path, np.concatenate([y, y_test])), [len(y)])
    return Split(X, y, X_test, y_test, 1 + int(max(y.max(), y_test.max())))


def _classes(path: Path, labels: Array) -> Array:
    """Labels as numbers from 0: whole numbers as they are, names by their order."""
    if labels.dtype.kind == "O" and all(isinstance(label, str) for label in labels):
        labels = labels.astype(str)
    if labels.dtype.kind in "US":
        return np.unique(labels, return_inverse=True)[1].astype(np.int64)
    whole = labels.dtype.kind in "iuf" and np.isfinite(labels).all()
    if not whole or not np.array_equal(labels, np.floor(labels)):
        raise DataFileError(f"{path}: labels must be whole numbers or names.")
    if labels.min() < 0:
        raise DataFileError(f"{path}: a label is negative.")
    return labels.astype(np.int64)
