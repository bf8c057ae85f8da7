"""Carrying on after a loss: what must be done again, and when to stop trying."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dfwtrace.engines.failures import (
    CrewLostError,
    RowsChangedError,
    UnreachableError,
    WorkerError,
)

Outcome = TypeVar("Outcome")

_log = logging.getLogger("dfwtrace")


class Change(NamedTuple):
    """A round that changed the shards' states."""

    method: str
    args: tuple[Any, ...]

    @classmethod
    def kept(cls, method: str, args: tuple[Any, ...]) -> Change:
        """With arguments that nobody else can change."""
        return cls(
            method,
            tuple(arg.copy(order="K") if isinstance(arg, np.ndarray) else arg for arg in args),
        )


class Restarts:
    """Tries again what was lost, unless there is no hope.

    Parameters
    ----------
    limit : int
        Losses that may be made good in a run.
    abandon : callable
        Lets go of what is left after a loss, or after an error that ends the run.

    Attributes
    ----------
    count : int
        Losses so far.
    """

    def __init__(self, limit: int, abandon: Callable[[], None]) -> None:
        self._limit, self._abandon = limit, abandon
        self._last_traceback: str | None = None
        self.count = 0

    def until_it_works(self, attempt: Callable[[], Outcome]) -> Outcome:
        """Make attempts until one raises no CrewLostError."""
        while True:
            try:
                outcome = attempt()
            except CrewLostError as failure:
                self._abandon()
                self._give_up_if_hopeless(failure)
                self.count += 1
                _log.warning(
                    "%s; starting the workers again (%d of %d restarts)",
                    failure.what,
                    self.count,
                    self._limit,
                )
            except BaseException:
                self._abandon()
                raise
            else:
                self._last_traceback = None
                return outcome

    def _give_up_if_hopeless(self, failure: CrewLostError) -> None:
        for kind in (RowsChangedError, UnreachableError):  # a fresh start would end no better
            name = f"{kind.__name__}: "
            if failure.traceback and name in failure.traceback:
                raise kind(failure.traceback.rstrip().split(name)[-1]) from None
        told = f"\n\n{failure.traceback.rstrip()}" if failure.traceback else ""
        # The same error at the same place, at a fresh start: it would come again.
        if failure.traceback and failure.traceback == self._last_traceback:
            raise WorkerError(f"{failure.what}, twice in the same way.{told}") from failure
        if self.count >= self._limit:
            raise WorkerError(
                f"{failure.what}, after {self.count} restarts (max_restarts).{told}"
            ) from failure
        self._last_traceback = failure.traceback


def check_same_rows(now: Sequence[bytes], then: Sequence[bytes], first: int = 0) -> None:
    """Refuse shards, from number `first` on, whose digests are not what they were."""
    for j, (digest, before) in enumerate(zip(now, then, strict=True), start=first):
        if digest != before:
            raise RowsChangedError(
                f"the rows of shard {j} came back different when they were read again: persist "
                "the DataFrame, or write it to a file and read that."
            )
