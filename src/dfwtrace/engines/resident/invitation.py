"""What a worker must know to join: it travels with Spark's own task."""

from __future__ import annotations

from importlib.metadata import version
from typing import NamedTuple

#: What both sides must have: others might not understand each other.
VERSION = version("dfwtrace")


class Invitation(NamedTuple):
    """Where the driver listens, the secret of this launch, and the limits that both sides keep.

    Attributes
    ----------
    host, port
        The driver's address, as workers reach it.
    secret : bytes
    n_workers, n_shards, fan_in : int
    start_timeout : float
        Seconds in which all must have come; a worker tries for a quarter of them.
    largest_message : int
        Bytes of a frame at the most.
    """

    host: str
    port: int
    secret: bytes
    n_workers: int
    n_shards: int
    fan_in: int
    start_timeout: float
    largest_message: int

    def __repr__(self) -> str:  # the secret stays out of logs
        return f"Invitation({self.host}:{self.port}, {self.n_workers} workers)"
