"""Files whose columns have no names: .npz, .npy and svmlight."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dfwtrace._typing import Array, Matrix
from dfwtrace.io.arrays import outline_npy, outline_npz, read_npy, read_npz
from dfwtrace.io.read_batches import check_finite
from dfwtrace.io.read_checks import Outline
from dfwtrace.io.read_errors import DataFileError
from dfwtrace.io.read_gather import refuse_negative
from dfwtrace.io.read_svmlight import outline_svmlight, read_svmlight

Names = Sequence[str] | str | None

SVMLIGHT = (".svm", ".libsvm", ".svmlight")


class Unnamed(NamedTuple):
    """What such a file gives."""

    X: Matrix
    y: Array | None
    target: str | None  # the name of y
    weight: Array | None
    first_index: int | None = None  # of the columns of an svmlight file: 0 or 1


def read_unnamed(
    path: Path,
    suffix: str,
    target: Names,
    features: Names,
    weight: str | None,
    max_rows: int | None,
    *,
    with_targets: bool = True,
    first_index: int | None = None,
) -> Unnamed:
    """Features, targets and weights, checked."""
    label, wanted = _arguments(path, suffix, target, features)
    if suffix == ".npz":
        arrays = read_npz(path, label, wanted, weight, max_rows, with_targets=with_targets)
        found = Unnamed(*arrays)
    elif suffix == ".npy":
        found = Unnamed(*read_npy(path, label, weight, max_rows))
    else:
        arrays, first_index = read_svmlight(
            path, weight, max_rows, all_zero=not with_targets, first_index=first_index
        )
        found = Unnamed(*arrays, first_index)
    if not with_targets:
        return found._replace(y=None, target=None)
    if found.y is not None:
        check_finite(found.y, names_of_targets(found) or [], path.name)
    if found.weight is not None:
        _check_weights(found.weight, path.name)
    return found


def names_of_targets(found: Unnamed) -> list[str] | None:
    """'y', or 'y[0]', 'y[1]', ... for several columns; the name of a file without its suffix."""
    if found.y is None:
        return None
    name = str(found.target)
    name = Path(name).stem if name.endswith(".npy") else name
    return [name] if found.y.ndim == 1 else [f"{name}[{j}]" for j in range(found.y.shape[1])]


def outline_unnamed(path: Path, suffix: str, target: Names, features: Names) -> Outline:
    """What is in the file, from its headers."""
    label, wanted = _arguments(path, suffix, target, features)
    if suffix == ".npz":
        return outline_npz(path, label, wanted)
    if suffix == ".npy":
        return outline_npy(path, label)
    return outline_svmlight(path)


def _arguments(
    path: Path, suffix: str, target: Names, features: Names
) -> tuple[str | None, str | None]:
    """One name for the target and one for the features, where the format has such."""
    label = _one(target, "target", path.name)
    wanted = _one(features, "features", path.name)
    if suffix != ".npz" and wanted is not None:
        raise DataFileError(f"{path.name} has no column names: leave out --features.")
    if suffix in SVMLIGHT and label not in (None, "label"):
        raise DataFileError(
            f"{path.name} has its labels at the start of each line: leave out --target."
        )
    return label, wanted


def _one(names: Names, what: str, file: str) -> str | None:
    if names is None or isinstance(names, str):
        return names
    if len(names) != 1:
        raise DataFileError(f"{file} has no column names: {what} must be one name, not several.")
    return names[0]


def _check_weights(weight: Array, file: str) -> None:
    if weight.ndim != 1 or weight.dtype.kind not in "biuf":
        raise DataFileError(f"the weights of {file} must be one column of numbers.")
    check_finite(weight, ["weight"], file)
    refuse_negative(weight, f"the weight of {file}", 0)
