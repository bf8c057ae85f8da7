"""Deprecated: `dfwtrace.files.container` under its former name."""

import warnings

from dfwtrace.files.container import Container, peek, read_container, write_container

__all__ = ["Container", "peek", "read_container", "write_container"]

warnings.warn("dfwtrace.io: use dfwtrace.files.container.", DeprecationWarning, stacklevel=2)
