"""The checkpoint of a run: when it is written, where, and what is read back."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from dfwtrace._typing import Array
from dfwtrace.files.atomic import check_writable
from dfwtrace.files.container import (
    DTYPES,
    JSON,
    ModelFormatError,
    peek,
    read_container,
    write_container,
)
from dfwtrace.files.identity import difference
from dfwtrace.linalg.lowrank import LowRankMatrix
from dfwtrace.validation import check_count, check_positive, describe

_KIND = "checkpoint"


class CheckpointError(ValueError):
    """A checkpoint of another run or version, or a file that is damaged or no checkpoint."""


@dataclass(frozen=True)
class Checkpoint:
    """A file that a run can be continued from.

    If it exists, the run continues from there, provided that data, radius, solver and shard plan
    are the same, and ends with the same bits as a run that was never stopped. The file stays;
    delete it to start again. If it cannot be written, as on a full disk, the run warns once, keeps
    the last checkpoint and tries again when the next one is due.

    Parameters
    ----------
    path : str or path-like
    epochs : int, default=None
        Write it every `epochs` epochs.
    seconds : float, default=None
        Or whenever this time has passed since the last one; 30 if `epochs` is not given either.

    Examples
    --------
    >>> import tempfile, pathlib, dfwtrace as dt
    >>> X, Y, _ = dt.datasets.make_multitask(n=100, d=8, m=6, rank=2, seed=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpoint = dt.Checkpoint(pathlib.Path(folder) / "run.ckpt", epochs=10)
    ...     settings = dict(radius=1.0, lmo="power-2", checkpoint=checkpoint)
    ...     some = dt.solve(dt.LeastSquares(), X, Y, epochs=10, **settings)
    ...     more = dt.solve(dt.LeastSquares(), X, Y, epochs=20, **settings)
    >>> more.objective == dt.solve(dt.LeastSquares(), X, Y, radius=1.0, lmo="power-2",
    ...                            epochs=20).objective
    True
    """

    path: str | os.PathLike[str]
    epochs: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.path, str | os.PathLike):
            raise TypeError(f"checkpoint must be a path, got {describe(self.path)}.")
        if self.epochs is not None:
            check_count("epochs", self.epochs, 1)
        if self.seconds is not None:
            check_positive("seconds", self.seconds)


def resolve_checkpoint(
    checkpoint: str | os.PathLike[str] | Checkpoint | None,
) -> Checkpoint | None:
    """Return a path as a `Checkpoint`, after refusing files that cannot be one."""
    if checkpoint is None:
        return None
    resolved = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
    path = Path(resolved.path)
    if not path.exists():
        check_writable(path)
        return resolved
    with _checkpoint_errors():
        kind = peek(path)
    if kind != _KIND:
        raise CheckpointError(f"{path} holds a {kind}, not a {_KIND}.")
    return resolved


def read_checkpoint(path: str | os.PathLike[str]) -> tuple[dict[str, JSON], dict[str, Any]]:
    """Return the identity and the memory of the run that wrote a checkpoint."""
    with _checkpoint_errors():
        header, arrays = read_container(path, _KIND)
    by, here = header.get("version"), version("dfwtrace")
    if by != here:
        raise CheckpointError(
            f"{os.fspath(path)} was written by dfwtrace {by}, and this is version {here}; start "
            "again without it or use that version."
        )
    try:
        identity, memory = header["identity"], unpack(header["memory"], arrays)
        if not isinstance(identity, dict) or not isinstance(memory, dict):
            raise TypeError("its header is not one of a checkpoint")
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        why = f"no {error}" if isinstance(error, KeyError) else str(error).rstrip(".")
        raise CheckpointError(f"{os.fspath(path)} is not a whole checkpoint: {why}.") from error
    return identity, memory


class CheckpointFile:
    """The checkpoint of one run, which `dfwtrace.files.identity.fingerprint` describes."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        identity: dict[str, JSON],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = Path(checkpoint.path)
        every = checkpoint.seconds
        self._seconds = 30.0 if every is None and checkpoint.epochs is None else every
        self._epochs = checkpoint.epochs
        self._identity, self._clock, self._last = identity, clock, clock()
        self._warned = False

    def read(self) -> dict[str, Any] | None:
        """Return the memory of a run that was the same as this one; None if there is no file."""
        if not self._path.exists():
            return None
        identity, memory = read_checkpoint(self._path)
        changed = difference(identity, self._identity)
        if changed is not None:
            raise CheckpointError(
                f"checkpoint {self._path} belongs to another run: {changed}; delete it to start "
                "again."
            )
        return memory

    def due(self, epoch: int) -> bool:
        """Return whether it is time to write."""
        if self._epochs is not None and epoch % self._epochs == 0:
            return True
        return self._seconds is not None and self._clock() - self._last >= self._seconds

    def write(self, memory: dict[str, Any]) -> None:
        """Replace the checkpoint; if that fails, keep the old one and warn once.

        The memory is of None, bool, int, float, str, arrays, `LowRankMatrix`, and lists, tuples and
        dicts of them.
        """
        packed, arrays = pack(memory)
        header = {"version": version("dfwtrace"), "identity": self._identity, "memory": packed}
        try:
            write_container(self._path, _KIND, header, arrays)
        except OSError as error:
            if not self._warned:
                why = (error.strerror or str(error)).rstrip(".")
                warnings.warn(
                    f"checkpoint {why}; the run goes on and tries again when the next is due.",
                    RuntimeWarning,
                    stacklevel=2,
                )
            self._warned = True
        self._last = self._clock()


def pack(value: Any) -> tuple[JSON, dict[str, Array]]:
    """Split a value into JSON and the arrays that it refers to; `unpack` returns the same bits.

    The memory order of an array is kept: BLAS may round differently for another one.

    Examples
    --------
    >>> import numpy as np
    >>> packed, arrays = pack({"b": np.ones(2), "t": 3})
    >>> unpack(packed, arrays)
    {'b': array([1., 1.]), 't': 3}
    """
    arrays: dict[str, Array] = {}
    return _pack(value, arrays), arrays


def unpack(packed: JSON, arrays: dict[str, Array]) -> Any:
    """Return what was packed."""
    if isinstance(packed, list):
        return [unpack(part, arrays) for part in packed]
    if not isinstance(packed, dict):
        return packed
    ((kind, content),) = packed.items()
    if kind == "dict":
        return {name: unpack(part, arrays) for name, part in content.items()}
    if kind == "tuple":
        return tuple(unpack(content, arrays))
    if kind == "C":
        return arrays[content]
    if kind == "F":
        return np.asfortranarray(arrays[content])
    if kind == "scalar":
        return arrays[content][()]
    if kind == "matrix":
        return LowRankMatrix.from_parts(*unpack(content, arrays))
    if kind == "table":
        columns = [
            column.tolist() if isinstance(column, np.ndarray) else column
            for column in unpack(list(content.values()), arrays)
        ]
        return [dict(zip(content, row, strict=True)) for row in zip(*columns, strict=True)]
    raise ValueError(f"it holds an unknown type, {describe(kind)}")


def _pack(value: Any, arrays: dict[str, Array]) -> JSON:
    if isinstance(value, np.float64 | np.int64 | np.bool_ | np.str_):  # as good as Python's own
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.name not in DTYPES:
            raise _cannot_keep(f"values of {value.dtype}")
        name = str(len(arrays))
        arrays[name] = np.asarray(value)
        if isinstance(value, np.generic):
            return {"scalar": name}
        return {"F" if value.flags.fnc else "C": name}
    if isinstance(value, LowRankMatrix):
        return {"matrix": _pack(list(value.parts()), arrays)}
    if isinstance(value, tuple):
        return {"tuple": [_pack(part, arrays) for part in value]}
    if _is_table(value):
        columns = {name: _column([row[name] for row in value]) for name in value[0]}
        return {"table": {name: _pack(column, arrays) for name, column in columns.items()}}
    if isinstance(value, list):
        return [_pack(part, arrays) for part in value]
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return {"dict": {name: _pack(part, arrays) for name, part in value.items()}}
    raise _cannot_keep(describe(value))


def _is_table(value: Any) -> bool:
    """Whether it is a list of dicts with the same names: a history, which may be long."""
    if not isinstance(value, list) or len(value) < 2 or not all(type(row) is dict for row in value):
        return False
    names = list(value[0])
    named = bool(names) and all(isinstance(name, str) for name in names)
    return named and all(list(row) == names for row in value)


def _column(values: list[Any]) -> Array | list[Any]:
    """An array, if all values are floats or all are integers that fit."""
    kinds = set(map(type, values))
    if kinds == {float}:
        return np.array(values)
    if kinds == {int} and all(-(2**63) <= number < 2**63 for number in values):
        return np.array(values, np.int64)
    return values


def _cannot_keep(what: str) -> TypeError:
    return TypeError(
        f"a checkpoint holds numbers, text and arrays, but the run, or its callback, has {what}."
    )


@contextmanager
def _checkpoint_errors() -> Iterator[None]:
    """Turn errors of the file format into errors of checkpoints."""
    try:
        yield
    except ModelFormatError as error:
        raise CheckpointError(str(error)) from error
