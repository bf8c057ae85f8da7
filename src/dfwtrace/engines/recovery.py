"""Starting again after workers were lost, and when to stop trying."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from dfwtrace.engines.base import RowsChangedError, WorkerError

Outcome = TypeVar("Outcome")

_log = logging.getLogger("dfwtrace")


class WorkersLostError(Exception):
    """A worker raised (`traceback`), vanished, fell silent or took too long: start all again."""

    def __init__(self, what: str, traceback: str | None = None) -> None:
        super().__init__(what)
        self.what, self.traceback = what, traceback


class UnreachableError(ConnectionError):
    """A worker could not reach the driver, or its parent in the tree."""


class Restarts:
    """Repeats what was lost, up to a limit; `count` restarts so far.

    `abandon` releases what is left after a loss, or after an error that ends the run.
    """

    def __init__(self, limit: int, abandon: Callable[[], None]) -> None:
        self._limit, self._abandon = limit, abandon
        self._last_traceback: str | None = None
        self.count = 0

    def retry(self, attempt: Callable[[], Outcome]) -> Outcome:
        """Make attempts until one raises no WorkersLostError."""
        while True:
            try:
                outcome = attempt()
            except WorkersLostError as lost:
                self._abandon()
                self._raise_if_hopeless(lost)
                self.count += 1
                again = f"starting the workers again ({self.count} of {self._limit} restarts)"
                _log.warning("%s; %s", lost.what, again)
            except BaseException:
                self._abandon()
                raise
            else:
                self._last_traceback = None
                return outcome

    def _raise_if_hopeless(self, lost: WorkersLostError) -> None:
        for kind in (RowsChangedError, UnreachableError):  # a fresh start would end no better
            name = f"{kind.__name__}: "
            if lost.traceback and name in lost.traceback:
                raise kind(lost.traceback.rstrip().split(name)[-1]) from None
        details = f"\n\n{lost.traceback.rstrip()}" if lost.traceback else ""
        # The same error at the same place after a fresh start would come again.
        if lost.traceback and lost.traceback == self._last_traceback:
            raise WorkerError(f"{lost.what}, twice in the same way.{details}") from lost
        if self.count >= self._limit:
            end = f"after {self.count} restarts (max_restarts)"
            raise WorkerError(f"{lost.what}, {end}.{details}") from lost
        self._last_traceback = lost.traceback


def check_same_rows(now: Sequence[bytes], then: Sequence[bytes], first: int = 0) -> None:
    """Refuse shards, from number `first` on, whose digests are not what they were."""
    for j, (digest, before) in enumerate(zip(now, then, strict=True), start=first):
        if digest != before:
            raise RowsChangedError(
                f"the rows of shard {j} came back different when they were read again: persist "
                "the DataFrame, or write it to a file and read that."
            )
