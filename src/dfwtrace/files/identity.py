"""What must be the same for a run to continue from a checkpoint: data, problem, shard plan."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from hashlib import blake2b
from types import CodeType, FunctionType, MethodType

import numpy as np

from dfwtrace.files.container import JSON
from dfwtrace.linalg.lowrank import LowRankMatrix

_LONGEST = 300  # longer descriptions are cut, and end with a digest of the whole
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def difference(then: dict[str, JSON], now: dict[str, JSON]) -> str | None:
    """Return the first difference of two runs in words, or None if they are the same."""
    name = next((name for name, value in now.items() if then.get(name) != value), None)
    if name is None:
        return None
    if name != "rows of the shards":
        return f"the {name} was {then.get(name)} and is {now[name]}"
    before = then.get(name)
    pairs = enumerate(zip(before if isinstance(before, list) else [], now[name], strict=False))
    return f"the rows of shard {next((j for j, (a, b) in pairs if a != b), 0)} have changed"


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
    if isinstance(thing, np.ndarray | list | tuple | dict):
        return f"{kind}({all_of(thing.items() if isinstance(thing, dict) else thing)})"
    if isinstance(thing, set | frozenset):
        return f"{kind}({', '.join(sorted(_describe(part, within) for part in thing))})"
    if isinstance(thing, FunctionType):
        closure = (cell.cell_contents for cell in thing.__closure__ or ())
        given = (thing.__defaults__, thing.__kwdefaults__, *closure)
        return f"{thing.__qualname__}({_code(thing.__code__)}, {all_of(given)})"
    if isinstance(thing, MethodType):
        return f"{_describe(thing.__self__, within)}.{_describe(thing.__func__, within)}"
    if isinstance(thing, partial):
        return f"partial({all_of((thing.func, thing.args, thing.keywords))})"
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
