"""The data of the experiments, synthetic or real, and the errors of a W on them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from benchmarks.provenance import ROOT

import dfwtrace as dt

#: The part of CLINC150's embeddings that the examples have.
INTENTS = ROOT / "examples" / "clinc150"
_RANK = 10
_BLOCK = 4096
# A file is identified by its name, its size and this many pieces of this length.
_PIECES, _PIECE = 64, 1 << 16
_IMAGENET = [f"{kind}_{part}.npy" for part in ("train", "val") for kind in "Xy"]


class Problem(NamedTuple):
    """What is to be minimised, and a function that returns the errors of a W by name."""

    task: Any
    X: Any
    y: Any
    radius: float
    errors: Callable[[dt.LowRankMatrix], Mapping[str, float]]


class Split(NamedTuple):
    """Rows to learn from and rows to test on."""

    X: Any
    y: Any
    X_test: Any
    y_test: Any
    n_classes: int


_last: dict[Any, Any] = {}


def cached(make: Callable[..., Any], *arguments: Any) -> Any:
    """Return what `make` returns, kept until other data are asked for: they may take 10 GB."""
    if (make, arguments) not in _last:
        forget()  # before there is more
        _last[make, arguments] = make(*arguments)
    return _last[make, arguments]


def forget() -> None:
    """Free the memory of the data that were made last."""
    _last.clear()


def multitask(n: int, d: int, m: int) -> Problem:
    """Y = XW with W of rank 10 and trace norm 1, which is the radius."""
    rank = min(_RANK, d, m)
    X, Y, truth = dt.datasets.make_multitask(n, d, m, rank=rank, random_state=0, dtype=np.float32)

    def errors(W: dt.LowRankMatrix) -> Mapping[str, float]:
        return {"frobenius": (W - truth).frobenius_norm / truth.frobenius_norm}

    return Problem(dt.LeastSquares(), X, Y, 1.0, errors)


def multiclass(n: int, d: int, m: int, n_test: int | None = None) -> Split:
    """The class of highest score in XW, W of rank 10; `n` more rows to test on by default."""
    total, rank = n + (n if n_test is None else n_test), min(_RANK, d, m)
    X, y, _ = dt.datasets.make_multiclass(total, d, m, rank=rank, random_state=0, dtype=np.float32)
    return Split(X[:n], y[:n], X[n:], y[n:], m)


def classification(data: Split, radius: float) -> Problem:
    """Multinomial logistic regression, with its errors on the test rows."""

    def errors(W: dt.LowRankMatrix) -> Mapping[str, float]:
        return top_errors(W, data.X_test, data.y_test)

    return Problem(dt.Multinomial(data.n_classes), data.X, data.y, radius, errors)


def top_errors(W: dt.LowRankMatrix, X: Any, y: Any) -> dict[str, float]:
    """Return the shares of rows whose class is not the first, and not among the first five."""
    above = []
    U, V = W.U.astype(X.dtype), (W.V * W.s).astype(X.dtype)
    for start in range(0, len(y), _BLOCK):
        rows = slice(start, start + _BLOCK)
        scores = (X[rows] @ U) @ V.T
        if not np.isfinite(scores).all():
            raise ValueError("the test rows must hold finite numbers.")
        own = np.take_along_axis(scores, y[rows, None], axis=1)
        # A W of low rank may tie whole groups of classes: the first of equals wins, as in argmax.
        earlier = np.arange(scores.shape[1]) < y[rows, None]
        above.append(((scores > own) | ((scores == own) & earlier)).sum(axis=1))
    rank = np.concatenate(above)
    return {"top-1": float(np.mean(rank >= 1)), "top-5": float(np.mean(rank >= 5))}


def identity(path: Path) -> str:
    """Return a name for the data in a file or folder that differs from that of other data."""
    names = (*_IMAGENET, "train.npz", "test.npz")
    files = [path / name for name in names if (path / name).is_file()] if path.is_dir() else [path]
    digest = hashlib.blake2b(digest_size=6)
    for file in files:
        size = file.stat().st_size
        digest.update(f"{file.relative_to(path).as_posix()} {size} ".encode())
        with file.open("rb") as stream:
            places = np.linspace(0, max(size - _PIECE, 0), _PIECES).astype(int)
            for place in np.unique(places).tolist():
                stream.seek(place)
                digest.update(stream.read(_PIECE))
    return f"{path.resolve().name} {digest.hexdigest()}"


def read_imagenet(folder: Path) -> Split:
    """Return ImageNet's features (2048 numbers an image from a ResNet50), memory-mapped."""
    return _split(folder, *(np.load(folder / name, mmap_mode="r") for name in _IMAGENET))


def read_intents(path: Path, rows: int | None) -> Split:
    """Return CLINC150, of one file or of the examples, with at most `rows` rows to learn from.

    Rows are shuffled: the whole file has one class after another, so each worker would see few of
    them, and SVA, which averages what workers see by themselves, would be judged by that.
    """
    if path.is_dir():
        archives = [np.load(path / f"{part}.npz") for part in ("train", "test")]
        arrays = [archive[name] for archive in archives for name in "Xy"]
    else:
        archive = np.load(path)
        arrays = [archive[f"{name}_{part}"] for part in ("train", "test") for name in "Xy"]
    data = _split(path, *arrays)
    order = np.random.default_rng(0).permutation(len(data.y))[:rows]
    return data._replace(X=data.X[order], y=data.y[order])


def _split(path: Path, X: Any, y: Any, X_test: Any, y_test: Any) -> Split:
    if X.shape[1] != X_test.shape[1]:
        raise ValueError(f"{path}: both parts must have the same number of features.")
    classes, y = np.unique(y, return_inverse=True)
    unknown = np.setdiff1d(y_test, classes)
    if len(unknown):
        raise ValueError(f"{path}: no row to learn from is of the class {unknown[0]}.")
    # Features may be stored in half precision, which W must not be cut to.
    X, X_test = (np.asarray(part, np.result_type(part.dtype, np.float32)) for part in (X, X_test))
    return Split(X, y, X_test, np.searchsorted(classes, y_test), len(classes))
