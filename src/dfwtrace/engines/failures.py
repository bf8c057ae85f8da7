"""What can befall a crew of workers."""

from __future__ import annotations


class CrewLostError(Exception):
    """A worker raised, vanished, fell silent or took too long: the crew is of no more use.

    `traceback` is the worker's own, where it could still tell.
    """

    def __init__(self, what: str, traceback: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.traceback = traceback


class WorkerError(RuntimeError):
    """A run was lost to a worker's failure; the message ends with the worker's own traceback.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> issubclass(dt.WorkerError, RuntimeError)
    True
    """


class UnreachableError(ConnectionError):
    """A worker could not reach the driver, or its parent in the tree."""


class RowsChangedError(RuntimeError):
    """The rows of a DataFrame were not the same when Spark computed them again."""
