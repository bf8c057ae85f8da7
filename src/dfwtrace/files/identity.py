"""What must be the same for a run to continue from a checkpoint: data, problem, shard plan."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import partial
from hashlib import blake2b
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

from dfwtrace._typing import Array
from dfwtrace.files.container import JSON
from dfwtrace.linalg.lowrank import LowRankMatrix

# Longer descriptions are cut, and end with a digest of the whole.
_LONGEST = 300
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def fingerprint(
    *,
    task: object,
    radius: float,
    solver: object,
    intercept: bool,
    weighted: bool,
    representation: str,
    seed: int,
    start: LowRankMatrix,
    n_rows: int,
    shape: tuple[int, int],
    dtype: object,
    n_shards: int,
    digests: Sequence[Array],
) -> dict[str, JSON]:
    """Describe a run, its parts named as in an error message; `digests` are of the shards' rows."""
    factors = (start.U, start.s, start.V)
    beginning = _digest(b"".join(np.ascontiguousarray(factor).tobytes() for factor in factors))
    return {
        "task": settings_of(task),
        "radius": radius,
        "solver": settings_of(solver),
        "intercept": intercept,
        "use of sample_weight": weighted,
        "representation": representation,
        "seed": seed,
        "start": f"a matrix of rank {start.rank} ({beginning})" if start.rank else "zero",
        "number of rows": n_rows,
        "shape of W": list(shape),
        "precision of X": str(dtype),
        "number of shards": n_shards,
        "rows of the shards": [bytes(np.asarray(digest, np.uint8)).hex() for digest in digests],
    }


def difference(then: dict[str, JSON], now: dict[str, JSON]) -> str | None:
    """Return the first difference of two runs in words, or None if they are the same."""
    for name, value in now.items():
        before = then.get(name)
        if before == value:
            continue
        if name == "rows of the shards":
            pairs = zip(before if isinstance(before, list) else [], value, strict=False)
            shard = next((j for j, (a, b) in enumerate(pairs) if a != b), 0)
            return f"the rows of shard {shard} have changed"
        return f"the {name} was {before} and is {value}"
    return None


def settings_of(thing: object) -> str:
    """Describe an object by its type and settings, the same in every process.

    Included are the numbers in arrays and the code of functions; not included are addresses in
    memory and the code of classes.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> settings_of(dt.lmo.Power(dt.lmo.Constant(2)))
    "Power(schedule=Constant(k=2), start='random')"
    >>> settings_of(lambda t: 0.1) == settings_of(lambda t: 0.2)
    False
    """
    text = _describe(thing, ())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({_digest(text.encode())})"


def _describe(thing: Any, within: tuple[int, ...]) -> str:
    """`within` are the objects that contain this one, so that cycles end."""
    if id(thing) in within:
        return "…"
    within = (*within, id(thing))

    def all_of(things: Iterable[Any]) -> str:
        return ", ".join(_describe(part, within) for part in things)

    kind = type(thing).__name__
    if isinstance(thing, np.ndarray) and not thing.dtype.hasobject:
        return f"array({thing.dtype}, {thing.shape}, {_digest(thing.tobytes())})"
    if isinstance(thing, np.ndarray | list | tuple):
        return f"{kind}({all_of(thing)})"
    if isinstance(thing, set | frozenset):
        return f"{kind}({', '.join(sorted(_describe(part, within) for part in thing))})"
    if isinstance(thing, dict):
        return f"{kind}({all_of(thing.items())})"
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
    """Digest of what a function does in its own lines."""
    inner = [_code(part) if isinstance(part, CodeType) else repr(part) for part in code.co_consts]
    return _digest(repr((code.co_code, code.co_names, inner)).encode())


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=8).hexdigest()
