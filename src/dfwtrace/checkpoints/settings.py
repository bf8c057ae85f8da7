"""An object in words that tell its settings: the same in every process, and no others' words."""

from __future__ import annotations

import re
from functools import partial
from hashlib import blake2b
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

# Longer words are cut, for a reader's sake, and end with a digest of all.
_LONGEST = 300
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def told(thing: Any) -> str:
    """Its kind and its settings, down to the numbers in arrays and the code of functions.

    What is only an address in memory is left out, and so is the code of classes.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> told(dt.lmo.Power(dt.lmo.Constant(2)))
    "Power(schedule=Constant(k=2), start='random')"
    >>> told(lambda t: 0.1) == told(lambda t: 0.2)
    False
    """
    text = _told(thing, ())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({_digest(text.encode())})"


def _told(thing: Any, within: tuple[int, ...]) -> str:
    """`within` are the objects that this one was reached through: a ring ends there."""
    if id(thing) in within:
        return "…"
    within = (*within, id(thing))

    def all_of(things: Any) -> str:
        return ", ".join(_told(part, within) for part in things)

    if isinstance(thing, np.ndarray) and not thing.dtype.hasobject:
        return f"array({thing.dtype}, {thing.shape}, {_digest(thing.tobytes())})"
    if isinstance(thing, np.ndarray | list | tuple):
        return f"{type(thing).__name__}({all_of(thing)})"
    if isinstance(thing, set | frozenset):
        return f"{type(thing).__name__}({', '.join(sorted(_told(x, within) for x in thing))})"
    if isinstance(thing, dict):
        return f"{type(thing).__name__}({all_of(thing.items())})"
    if isinstance(thing, FunctionType):
        seen = (cell.cell_contents for cell in thing.__closure__ or ())
        given = (thing.__defaults__, thing.__kwdefaults__, *seen)
        return f"{thing.__qualname__}({_code(thing.__code__)}, {all_of(given)})"
    if isinstance(thing, MethodType):
        return f"{_told(thing.__self__, within)}.{_told(thing.__func__, within)}"
    if isinstance(thing, partial):
        return f"partial({all_of((thing.func, thing.args, thing.keywords))})"
    settings = None if isinstance(thing, type) else getattr(thing, "__dict__", None)
    if settings is None:
        return _ADDRESS.sub("", repr(thing))
    named = (f"{name}={_told(part, within)}" for name, part in settings.items())
    return f"{type(thing).__name__}({', '.join(named)})"


def _code(code: CodeType) -> str:
    """A digest of what a function does, as far as it stands in its own lines."""
    inner = [_code(part) if isinstance(part, CodeType) else repr(part) for part in code.co_consts]
    return _digest(repr((code.co_code, code.co_names, inner)).encode())


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=8).hexdigest()
