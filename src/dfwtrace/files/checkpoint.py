"""The checkpoint of a run: when it is written, what it holds, and which runs may continue it."""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

from dfwtrace._typing import Array, Memory
from dfwtrace.files import container
from dfwtrace.files.atomic import check_writable
from dfwtrace.files.container import DTYPES, JSON, ModelFormatError
from dfwtrace.linalg.lowrank import LowRankMatrix
from dfwtrace.validation import check_count, check_positive, describe

_KIND = "checkpoint"
_LONGEST = 300  # longer descriptions are cut, and end with a digest of the whole
_BEFORE = {"standardize": False}  # what runs were whose checkpoints do not say
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


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
        The file.
    epochs : int, default=None
        Write it every `epochs` epochs.
    seconds : float, default=None
        Or whenever this time has passed since the last one; 30 if `epochs` is not given either.

    Examples
    --------
    >>> import tempfile, pathlib, dfwtrace as dt
    >>> X, Y, _ = dt.datasets.make_multitask(n=100, d=8, m=6, rank=2, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = dt.Checkpoint(pathlib.Path(folder) / "run.ckpt", epochs=1)
    ...     for tol in (1e-3, 1e-6):
    ...         run = dt.solve(dt.LeastSquares(), X, Y, radius=1.0, tol=tol, checkpoint=file)
    >>> run.objective == dt.solve(dt.LeastSquares(), X, Y, radius=1.0, tol=1e-6).objective
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


@contextmanager
def checkpoint_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn what is wrong with the content of a checkpoint into a `CheckpointError`."""
    try:
        yield
    except ModelFormatError as error:
        raise CheckpointError(str(error)) from error
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        why = f"no {error}" if isinstance(error, KeyError) else str(error).rstrip(".")
        raise CheckpointError(f"{os.fspath(path)} is not a whole checkpoint: {why}.") from error


def resolve_checkpoint(given: str | os.PathLike[str] | Checkpoint | None) -> Checkpoint | None:
    """Return a path as a `Checkpoint`, after refusing files that cannot be one."""
    if given is None:
        return None
    resolved = given if isinstance(given, Checkpoint) else Checkpoint(given)
    if os.path.exists(resolved.path):
        with checkpoint_errors(resolved.path):
            container.peek(resolved.path, _KIND)
    else:
        check_writable(resolved.path)
    return resolved


def read_checkpoint(path: str | os.PathLike[str]) -> tuple[dict[str, JSON], Memory]:
    """Return the identity and the memory of the run that wrote a checkpoint."""
    with checkpoint_errors(path):
        header, arrays = container.read_container(path, _KIND)
        identity, memory = header["identity"], unpack(header["memory"], arrays)
        if not isinstance(identity, dict) or not isinstance(memory, dict):
            raise TypeError("its header is not one of a checkpoint")
    return identity, memory


def saved_representation(checkpoint: Checkpoint) -> JSON:
    """Return what the shards of the run kept that wrote a checkpoint; None if there is none."""
    if not os.path.exists(checkpoint.path):
        return None
    return read_checkpoint(checkpoint.path)[0].get("representation")


class CheckpointFile:
    """The checkpoint of one run, which its identity describes."""

    def __init__(self, checkpoint: Checkpoint, identity: dict[str, JSON]) -> None:
        self._path, self._identity = Path(checkpoint.path), identity
        self._epochs, seconds = checkpoint.epochs, checkpoint.seconds
        self._seconds = 30.0 if self._epochs is None and seconds is None else seconds
        self._last, self._warned = time.monotonic(), False

    def read(self, given_up: str | None = None) -> Memory | None:
        """Return the memory of a run that was the same as this one; None if there is no file.

        A file of a run in the representation `given_up` counts as none.
        """
        if not self._path.exists():
            return None
        identity, memory = read_checkpoint(self._path)
        if given_up is not None and identity.get("representation") == given_up:
            return None
        for name, now in self._identity.items():
            if (then := identity.get(name, _BEFORE.get(name))) != now:
                rows = name == "rows of the shards"
                changed = "have changed" if rows else f"was {then} and is {now}"
                raise CheckpointError(
                    f"checkpoint {self._path} belongs to another run: the {name} {changed}; "
                    "delete it to start again."
                )
        return memory

    def due(self, epoch: int) -> bool:
        """Return whether it is time to write."""
        counted = self._epochs is not None and epoch % self._epochs == 0
        timed = self._seconds is not None and time.monotonic() - self._last >= self._seconds
        return counted or timed

    def write(self, memory: Memory) -> None:
        """Replace the checkpoint; if that fails, keep the old one and warn once."""
        arrays: dict[str, Array] = {}
        header = {"identity": self._identity, "memory": pack(memory, arrays)}
        try:
            container.write_container(self._path, _KIND, header, arrays)
        except OSError as error:
            if not self._warned:
                why = (error.strerror or str(error)).rstrip(".")
                warnings.warn(
                    f"checkpoint {why}; the run goes on and tries again when the next is due.",
                    RuntimeWarning,
                    stacklevel=2,
                )
            self._warned = True
        self._last = time.monotonic()


def pack(value: Any, arrays: dict[str, Array]) -> JSON:
    """Return a value as JSON that refers to arrays, which are added; `unpack` gives the same bits.

    The memory order of an array is kept: BLAS may round differently for another one.
    """
    if isinstance(value, np.float64 | np.int64 | np.bool_ | np.str_):  # as good as Python's own
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    array = isinstance(value, np.ndarray | np.generic)
    if array and value.dtype.name in DTYPES:
        name = str(len(arrays))
        arrays[name] = np.asarray(value)
        order = "F" if value.flags.fnc else "C"
        return {"scalar" if isinstance(value, np.generic) else order: name}
    if isinstance(value, LowRankMatrix):
        return {"matrix": pack(list(value.parts()), arrays)}
    if isinstance(value, tuple):
        return {"tuple": [pack(part, arrays) for part in value]}
    if isinstance(value, list):
        names = list(value[0]) if value and isinstance(value[0], dict) else []
        alike = all(type(row) is dict and list(row) == names for row in value)
        if not alike or {type(name) for name in names} != {str}:
            return [pack(part, arrays) for part in value]
        table: dict[str, JSON] = {}
        for name in names:  # a history, which may be long: by column
            column = [row[name] for row in value]
            floats = {type(entry) for entry in column} == {float}
            table[name] = pack(np.array(column) if floats else column, arrays)
        return {"table": table}
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return {"dict": {name: pack(part, arrays) for name, part in value.items()}}
    found = f"values of {value.dtype}" if array else describe(value)
    holds = "a checkpoint holds numbers, text and arrays"
    raise TypeError(f"{holds}, but the run, or its callback, has {found}.")


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
    if kind in ("C", "F"):
        return np.asarray(arrays[content], order=kind)
    if kind == "scalar":
        return arrays[content][()]
    if kind == "matrix":
        return LowRankMatrix.from_parts(*unpack(content, arrays))
    if kind != "table":
        raise ValueError(f"it holds an unknown type, {describe(kind)}")
    columns = unpack(list(content.values()), arrays)
    columns = [part.tolist() if isinstance(part, np.ndarray) else part for part in columns]
    return [dict(zip(content, row, strict=True)) for row in zip(*columns, strict=True)]


def settings_of(thing: object) -> str:
    """Describe an object by its type, settings, arrays and code, the same in every process."""
    text = _describe(thing, ())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({_digest(text.encode())})"


def start_of(W: LowRankMatrix) -> str:
    """Describe the matrix that a run starts from."""
    factors = b"".join(np.ascontiguousarray(factor).tobytes() for factor in (W.U, W.s, W.V))
    return f"a matrix of rank {W.rank} ({_digest(factors)})" if W.rank else "zero"


def _describe(thing: object, within: tuple[int, ...]) -> str:
    """`within` are the objects that contain this one, so that cycles end."""
    if id(thing) in within:
        return "…"
    within = (*within, id(thing))

    def all_of(things: Iterable[object]) -> str:
        return ", ".join(_describe(part, within) for part in things)

    kind = type(thing).__name__
    if isinstance(thing, np.ndarray) and not thing.dtype.hasobject:
        return f"array({thing.dtype}, {thing.shape}, {_digest(thing.tobytes())})"
    if isinstance(thing, set | frozenset):
        thing = sorted(thing, key=lambda part: _describe(part, within))
    if isinstance(thing, MethodType):
        thing = thing.__self__, thing.__func__
    if isinstance(thing, partial):
        thing = thing.func, thing.args, thing.keywords
    if isinstance(thing, np.ndarray | list | tuple | dict):
        return f"{kind}({all_of(thing.items() if isinstance(thing, dict) else thing)})"
    if isinstance(thing, FunctionType):
        closure = (cell.cell_contents for cell in thing.__closure__ or ())
        given = (thing.__defaults__, thing.__kwdefaults__, *closure)
        return f"{thing.__qualname__}({_code(thing.__code__)}, {all_of(given)})"
    settings = None if isinstance(thing, type) else getattr(thing, "__dict__", None)
    if settings is None:
        return _ADDRESS.sub("", repr(thing))
    named = (f"{name}={_describe(part, within)}" for name, part in settings.items())
    return f"{kind}({', '.join(named)})"


def _code(code: CodeType) -> str:
    inner = [_code(part) if isinstance(part, CodeType) else repr(part) for part in code.co_consts]
    return _digest(repr((code.co_code, code.co_names, inner)).encode())


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=8).hexdigest()
