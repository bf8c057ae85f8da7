"""When a run's memory is written, where, and what is read back."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dfwtrace.checkpoints.fingerprint import difference
from dfwtrace.checkpoints.packing import pack, unpack
from dfwtrace.io.container import peek, read_container, write_container
from dfwtrace.io.frame import ModelFormatError
from dfwtrace.validation import check_count, check_positive, describe

_KIND = "checkpoint"


class CheckpointError(ValueError):
    """A checkpoint that belongs to another run, or a file that is damaged or no checkpoint."""


@dataclass(frozen=True)
class Checkpoint:
    """A file that a run can be continued from.

    If it exists, the run goes on from there, provided that data, radius, solver and shard plan are
    the same, and ends with the same bits as a run that was never stopped. The file stays; delete
    it to start anew.

    Parameters
    ----------
    path : str or path
    epochs : int, optional
        Write it every so many epochs.
    seconds : float, optional
        Or whenever so many seconds have passed since the last time; 30 by default, if `epochs` is
        not given.

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


def resolve(checkpoint: Any) -> Checkpoint | None:
    """A path stands for a checkpoint every 30 seconds. What can be refused is refused here."""
    if checkpoint is None:
        return None
    resolved = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
    path = Path(resolved.path)
    if path.exists():
        with _as_checkpoint_errors():
            kind = peek(path)
        if kind != _KIND:
            raise CheckpointError(f"{path} holds a {kind}, not a {_KIND}.")
    elif not (folder := Path(os.path.realpath(path)).parent).is_dir():
        why = f"checkpoint {path} cannot be written: there is no folder {folder}."
        raise FileNotFoundError(errno.ENOENT, why)
    return resolved


@contextmanager
def _as_checkpoint_errors() -> Iterator[None]:
    """Whatever is wrong with the file, it is one kind of error to those who go on."""
    try:
        yield
    except ModelFormatError as error:
        raise CheckpointError(str(error)) from error


class Snapshots:
    """The checkpoint of one run.

    Parameters
    ----------
    checkpoint : Checkpoint
    identity : dict
        What the run is; see `fingerprint`.
    clock : callable
        Tells the time in seconds.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        identity: dict[str, Any],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = Path(checkpoint.path)
        every = checkpoint.seconds
        self._seconds = 30.0 if every is None and checkpoint.epochs is None else every
        self._epochs = checkpoint.epochs
        self._identity, self._clock, self._last = identity, clock, clock()

    def read(self) -> dict[str, Any] | None:
        """The memory of a run that was the same as this one; None if there is no file."""
        if not self._path.exists():
            return None
        with _as_checkpoint_errors():
            header, arrays = read_container(self._path, _KIND)
        try:
            changed = difference(header["identity"], self._identity)
            memory = unpack(header["memory"], arrays) if changed is None else None
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise CheckpointError(f"{self._path} is not a whole checkpoint: {error}.") from error
        if changed is not None:
            raise CheckpointError(
                f"checkpoint {self._path} belongs to another run: {changed}; delete it to start "
                "anew."
            )
        return memory

    def due(self, epoch: int) -> bool:
        """Whether it is time to write."""
        if self._epochs is not None and epoch % self._epochs == 0:
            return True
        return self._seconds is not None and self._clock() - self._last >= self._seconds

    def write(self, memory: dict[str, Any]) -> None:
        """Put the memory in the place of the one before, which stays whole until then."""
        packed, arrays = pack(memory)
        write_container(self._path, _KIND, {"identity": self._identity, "memory": packed}, arrays)
        self._last = self._clock()
