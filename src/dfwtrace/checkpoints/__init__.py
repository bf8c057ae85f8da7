"""Runs that can be killed: what they know is written to a file now and then."""

from dfwtrace.checkpoints.checkpoint import Checkpoint, CheckpointError, Snapshots, resolve
from dfwtrace.checkpoints.fingerprint import fingerprint

__all__ = ["Checkpoint", "CheckpointError", "Snapshots", "fingerprint", "resolve"]
