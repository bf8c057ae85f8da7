"""NumPy's own files: .npz with arrays by name, .npy as a memory map."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp

from dfwtrace._typing import Array, Matrix
from dfwtrace.io.columns import nearest
from dfwtrace.io.read_checks import (
    Arrays,
    Outline,
    check_matrix,
    checked,
    checked_features,
    floating_dtype,
    python_objects,
    separate_array,
)
from dfwtrace.io.read_errors import DataFileError, reading

_CSR_PARTS = ("data", "indices", "indptr", "shape")


def read_npz(
    path: Path,
    target: str | None,
    features: str | None,
    weight: str | None,
    max_rows: int | None,
    *,
    with_targets: bool = True,
) -> Arrays:
    """X (or the array that `features` names, or its CSR parts) and y (or what `target` names)."""
    name = features or "X"
    with reading(path, "an NPZ file"), path.open("rb") as raw, _npz(raw) as file:
        X: Matrix
        if name in file or f"{name}_indptr" not in file:
            X = _array_in(file, name, path)
        else:
            X = _csr_in(file, name, path)
        target = _target_in(list(file), target) if with_targets else None
        y = None if target is None else _named(file, target, path)
        w = None if weight is None else _named(file, weight, path)
    X = checked_features(X[:max_rows], f"array {name!r} of {path.name}", path.name)
    return checked(X, y, target, w, path, max_rows)


def outline_npz(path: Path, target: str | None, features: str | None) -> Outline:
    """From the headers of the arrays."""
    name = features or "X"
    y, of_y = None, None
    with reading(path, "an NPZ file"), zipfile.ZipFile(path) as members:
        names = [member.removesuffix(".npy") for member in members.namelist()]
        target = _target_in(names, target)
        if target is not None and _is_path(target, names):
            y = separate_array(target, path)
            of_y = y.shape
            y = y[:, 0] if of_y[1:] == (1,) else y
        elif target is not None:
            y = _first_rows(members, target, path)
            of_y, _ = _header_of(members, target, path)
        if name in names or f"{name}_indptr" not in names:
            shape, dtype = _header_of(members, name, path)
            stored = None
        else:
            (stored,), dtype = _header_of(members, f"{name}_data", path)
            with members.open(f"{name}_shape.npy") as part:
                shape = tuple(int(size) for size in np.lib.format.read_array(part))
    check_matrix(shape, dtype, f"array {name!r} of {path.name}")
    if of_y is not None and (len(of_y) not in (1, 2) or of_y[0] != shape[0]):
        raise DataFileError(
            f"the targets {target!r} of {path.name} have the shape {tuple(of_y)}, but there are "
            f"{shape[0]} rows of features."
        )
    return Outline(shape[0], shape[1], floating_dtype(dtype), stored, True, y)


def read_npy(
    path: Path, target: str | None, weight: str | None, max_rows: int | None, *, check: bool = True
) -> Arrays:
    """X as a read-only map; the targets and weights are other files."""
    with reading(path, "an NPY file"):
        X: Array = np.lib.format.open_memmap(path, mode="r")
    check_matrix(X.shape, X.dtype, path.name)
    X = X[:max_rows]
    if check:
        X = checked_features(X, path.name, path.name)
    y = None if target is None else separate_array(target, path)
    w = None if weight is None else separate_array(weight, path)
    return checked(X, y, target, w, path, max_rows)


def outline_npy(path: Path, target: str | None) -> Outline:
    """From the header; nothing of the map is touched."""
    found = read_npy(path, target, None, None, check=False)
    rows, columns = found.X.shape
    return Outline(rows, columns, floating_dtype(found.X.dtype), None, True, found.y)


def _npz(raw: IO[bytes]) -> Any:
    """What np.load gives for an archive; but damaged ones are closed too."""
    return np.lib.npyio.NpzFile(raw, allow_pickle=False)


def _named(file: Any, name: str, path: Path) -> Array:
    return separate_array(name, path) if _is_path(name, list(file)) else _array_in(file, name, path)


def _is_path(name: str, members: Sequence[str]) -> bool:
    return name not in members and name.endswith(".npy")


def _target_in(members: Sequence[str], target: str | None) -> str | None:
    return "y" if target is None and "y" in members else target


def _array_in(file: Any, name: str, path: Path) -> Array:
    if name not in file:
        raise _no_array(path, name, list(file))
    try:
        array: Array = file[name]
    except ValueError as error:
        if "pickle" in str(error):
            raise python_objects(f"array {name!r} of {path.name}") from error
        raise
    if not isinstance(array, np.ndarray):
        raise DataFileError(f"{name!r} in {path.name} is no array.")
    return array


def _no_array(path: Path, name: str, members: list[str]) -> DataFileError:
    hint = nearest(name, members) if members else "; it is empty."
    return DataFileError(f"{path.name} has no array {name!r}{hint}")


def _csr_in(file: Any, name: str, path: Path) -> Matrix:
    data, indices, indptr, shape = (_array_in(file, f"{name}_{part}", path) for part in _CSR_PARTS)
    try:
        matrix = sp.csr_array((data, indices, indptr), shape=tuple(int(size) for size in shape))
        matrix.check_format(full_check=True)
    except (ValueError, TypeError) as error:
        raise DataFileError(
            f"the parts of {name!r} in {path.name} make no sparse matrix: {error}."
        ) from error
    return matrix


def _header_of(members: zipfile.ZipFile, name: str, path: Path) -> tuple[Any, np.dtype[Any]]:
    if f"{name}.npy" not in members.namelist():
        raise _no_array(path, name, [m.removesuffix(".npy") for m in members.namelist()])
    with members.open(f"{name}.npy") as part:
        return _read_header(part)


def _read_header(part: IO[bytes]) -> tuple[Any, np.dtype[Any]]:
    version = np.lib.format.read_magic(part)
    first = version == (1, 0)
    read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(part)
    return shape, dtype


def _first_rows(members: zipfile.ZipFile, name: str, path: Path, count: int = 10_000) -> Array:
    """The start of an array: enough to see what it is made of."""
    shape, dtype = _header_of(members, name, path)
    if dtype.hasobject:
        raise python_objects(f"array {name!r} of {path.name}")
    if len(shape) != 1 and shape[1:] != (1,):  # its numbers do not matter, see is_classification
        return np.empty((0, *shape[1:]), dtype=dtype)
    with members.open(f"{name}.npy") as part:
        _read_header(part)
        return np.frombuffer(part.read(min(count, shape[0]) * dtype.itemsize), dtype=dtype)
